/* The inside of struct plm_plan, private to common/plan. */
#ifndef PLM_COMMON_PLAN_PLAN_INTERNAL_H
#define PLM_COMMON_PLAN_PLAN_INTERNAL_H

#include <pthread.h>

#include "common/corpus/corpus.h"
#include "common/plan/plan.h"

enum { CACHED_EPOCHS = 2 };

/* The permutation of groups of one epoch. */
struct permutation {
  uint64_t epoch;
  bool filled;
  uint32_t *groups;
};

struct plm_plan {
  struct plm_plan_parameters parameters;
  uint64_t documents; /* of an epoch: with clusters, one of each */
  uint32_t groups;    /* of documents, or of clusters */
  uint64_t windows;
  uint32_t alignment_shift; /* a unit is 2^shift tokens */
  pthread_mutex_t *lock;    /* protects the permutations, a cache whose oldest entry is replaced */
  struct permutation permutations[CACHED_EPOCHS];
  int oldest;
};

/* PLM_NOT_FOUND: a window of [first, first + count) does not exist. PLM_LIMIT: epoch or window
 * exceed the counters of the draws. */
plm_status plm_plan_check_place(const struct plm_plan *plan, uint64_t epoch, uint64_t first,
                                uint64_t count, struct plm_error *error);

static inline uint64_t tokens_of(uint32_t length)
{
  return (uint64_t)length + 2; /* <cls> and <eos> */
}

static inline uint32_t units_of(const struct plm_plan *plan, uint64_t tokens)
{
  return (uint32_t)((tokens + plan->parameters.alignment - 1) >> plan->alignment_shift);
}

#endif
