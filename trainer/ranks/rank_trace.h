/* What a rank computes, moves and waits for, and when, for people who want to see whether transfers
 * run under the computation: with PLM_RANK_TRACE=FOLDER in the environment, each rank writes
 * FOLDER/rank-N.json in the format of Chrome's trace viewer (ui.perfetto.dev opens it). The times
 * are the host's, so on a GPU they say when work was launched. See doc/ranks.md#what-runs-when. */
#ifndef PLM_TRAINER_RANKS_RANK_TRACE_H
#define PLM_TRAINER_RANKS_RANK_TRACE_H

#include <stdint.h>

#include "common/base/status.h"

struct plm_rank_trace;

/* Rows of the picture. */
enum plm_trace_row {
  PLM_TRACE_COMPUTES,
  PLM_TRACE_WAITS,
  PLM_TRACE_MOVES, /* and the rows after it: what moves at the same time needs several */
};

/* *trace is NULL if the environment does not ask for one; the functions below then do nothing. */
plm_status plm_rank_trace_open(uint32_t rank, struct plm_rank_trace **trace,
                               struct plm_error *error);
void plm_rank_trace_close(struct plm_rank_trace *trace);
/* `what` number `number` took from begin_ns to end_ns (plm_clock_ns). */
void plm_rank_trace_add(struct plm_rank_trace *trace, int row, const char *what, uint64_t number,
                        uint64_t begin_ns, uint64_t end_ns);

#endif
