/* Finds the documents of any chunk of a run, by the chunk's number g in the run. Step N (from 1) of
 * a run with B chunks a step trains on the chunks (N - 1) * B to N * B - 1, in this order. */
#ifndef PLM_COMMON_PLAN_TRACE_H
#define PLM_COMMON_PLAN_TRACE_H

#include <stdint.h>

#include "common/base/files/advance.h"
#include "common/corpus/corpus.h"
#include "common/plan/plan.h"

/* A trace remembers the last epoch and window, so it is fastest for ascending g. It counts the
 * chunks of the windows before g, which reads the lengths of their documents, and nothing after g.
 */
struct plm_trace;
/* from: the plan, and where its documents are, whose lengths are proven. advance: begun with the
 * number of chunks between those that are counted and the one that is asked for, and told of them
 * window by window, and now and then while lengths are compared with their hash; or NULL. The plan,
 * the cursor and advance are borrowed and must outlive the trace. */
plm_status plm_trace_open(const struct plm_plan_corpus *from, struct plm_advance *advance,
                          struct plm_trace **trace, struct plm_error *error);
void plm_trace_close(struct plm_trace *trace); /* NULL is fine */

struct plm_traced_chunk {
  uint64_t epoch;
  uint64_t chunk;                             /* its index in the epoch */
  const struct plm_chunk_document *documents; /* ascending start; valid until the next call */
  uint32_t count;
};
plm_status plm_trace_chunk(struct plm_trace *trace, uint64_t g, struct plm_traced_chunk *chunk,
                           struct plm_error *error);
/* The tokens of the chunk that plm_trace_chunk gave last: max_length of them, u8 (esm) or u16
 * (byte), valid until its next call. The groups of the chunk's window are read and proved
 * (plm_corpus_prove_group). PLM_CORRUPT. */
plm_status plm_trace_tokens(struct plm_trace *trace, const void **tokens, struct plm_error *error);

#endif
