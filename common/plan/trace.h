/* Finds the documents of any chunk of a run, by the chunk's number g in the run. Step N (from 1) of
 * a run with B chunks a step trains on the chunks (N - 1) * B to N * B - 1, in this order. */
#ifndef PLM_COMMON_PLAN_TRACE_H
#define PLM_COMMON_PLAN_TRACE_H

#include <stdint.h>

#include "common/plan/plan.h"

/* A trace remembers the last epoch and window, so it is fastest for ascending g. */
struct plm_trace;
/* The plan is borrowed and must outlive the trace. */
plm_status plm_trace_open(const struct plm_plan *plan, struct plm_trace **trace,
                          struct plm_error *error);
void plm_trace_close(struct plm_trace *trace); /* NULL is fine */

struct plm_traced_chunk {
  uint64_t epoch;
  uint64_t chunk;                             /* its index in the epoch */
  const struct plm_chunk_document *documents; /* ascending start; valid until the next call */
  uint32_t count;
};
plm_status plm_trace_chunk(struct plm_trace *trace, uint64_t g, struct plm_traced_chunk *chunk,
                           struct plm_error *error);

#endif
