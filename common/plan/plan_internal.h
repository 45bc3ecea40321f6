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
  const uint32_t *lengths;
  uint64_t documents;
  uint32_t groups;
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

/* The documents of a group that the plan covers: [begin, end). */
static inline void group_documents(const struct plm_plan *plan, uint64_t group, uint64_t *begin,
                                   uint64_t *end)
{
  *begin = group * PLM_GROUP_DOCUMENTS;
  *end = *begin + PLM_GROUP_DOCUMENTS;
  if (*end > plan->documents) *end = plan->documents;
}

static inline uint64_t document_tokens(const struct plm_plan *plan, uint64_t document)
{
  return (uint64_t)plan->lengths[document] + 2; /* <cls> and <eos> */
}

static inline uint32_t units_of(const struct plm_plan *plan, uint64_t tokens)
{
  return (uint32_t)((tokens + plan->parameters.alignment - 1) >> plan->alignment_shift);
}

#endif
