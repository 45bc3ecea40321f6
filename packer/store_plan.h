/* A plan of a split in the store of windows. The first worker that needs it opens it. */
#ifndef PLM_PACKER_STORE_PLAN_H
#define PLM_PACKER_STORE_PLAN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/plan/plan.h"

struct store_plan {
  bool used;
  unsigned holders; /* of the main thread */
  unsigned jobs;    /* windows being made, and proofs; guarded by the store's mutex */
  uint64_t used_at;
  enum plm_split split;
  struct plm_plan_parameters parameters;
  struct plm_hash hash;
  pthread_mutex_t lock; /* held while one is opened */
  struct plm_plan *plan;
  struct plm_plan *unread; /* the consumer's, which does not end at token_limit */
};

/* Opens the plan, unless it is open, or waits for the worker that does. *opened stays the store's.
 */
plm_status store_plan_open(struct store_plan *plan, struct plm_corpus *corpus,
                           struct plm_plan **opened, struct plm_error *error);
/* The same for the plan whose groups a consumer asks tables of. */
plm_status store_plan_open_unread(struct store_plan *plan, struct plm_corpus *corpus,
                                  struct plm_plan **opened, struct plm_error *error);
/* Closes what is open of them, when no worker uses them. */
void store_plan_close(struct store_plan *plan);

#endif
