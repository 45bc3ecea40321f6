/* This process as one of the ranks of a training run. Modules of the trainer take a pointer, which
 * is NULL if one process trains without others. Rank 0 alone opens the run folder and the feed. */
#ifndef PLM_TRAINER_RANKS_RANKS_H
#define PLM_TRAINER_RANKS_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/collective/collective.h"

struct plm_ranks {
  struct plm_collective *collective;
  uint32_t rank, ranks;
  bool obeyed; /* this rank ends because another one does; it has no message of its own */
};

/* The number of ranks, and whether this one is rank 0. */
static inline uint32_t plm_ranks_count(const struct plm_ranks *ranks)
{
  return ranks == NULL ? 1 : ranks->ranks;
}

static inline bool plm_ranks_first(const struct plm_ranks *ranks)
{
  return ranks == NULL || ranks->rank == 0;
}

/* How the ranks decide that all of them take the same way: each says its state, and the most urgent
 * one counts. */
enum plm_rank_wish { PLM_RANK_GO, PLM_RANK_WAIT, PLM_RANK_STOP, PLM_RANK_ERROR };

/* One round. mine: a wish; status: of PLM_RANK_ERROR. PLM_OK: *decision is GO, WAIT or STOP, for
 * every rank. Else a rank has an error; on that rank, `error` stays as it is, and its status is
 * returned everywhere. */
plm_status plm_ranks_decide(struct plm_ranks *ranks, enum plm_rank_wish mine, plm_status status,
                            enum plm_rank_wish *decision, struct plm_error *error);

#endif
