/* The exchange within a step: gradients are summed on the ranks that update them, squared norms and
 * losses on all, and updated weights go back to all.
 *
 * Sums over ranks continue the binary tree over shares (trainer/share_sums.h): first among the
 * ranks of a group, then along the rail. See doc/ranks.md#a-step. */
#ifndef PLM_TRAINER_RANKS_GRADIENT_EXCHANGE_H
#define PLM_TRAINER_RANKS_GRADIENT_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#include "common/model/model.h"
#include "common/ops/ops.h"
#include "trainer/ranks/owners.h"
#include "trainer/ranks/ranks.h"

struct plm_exchange;

/* ranks, model and owners (by parameter) are borrowed. local_shares: shares of this rank. */
plm_status plm_exchange_open(struct plm_ranks *ranks, struct plm_model *model,
                             const uint32_t *owners, uint32_t local_shares,
                             struct plm_exchange **exchange, struct plm_error *error);
void plm_exchange_close(struct plm_exchange *exchange); /* NULL is fine */
/* Bytes of device memory that plm_exchange_open takes, and bytes that a rank sends in a step: to
 * its group and along its rail. All are 0 for one rank. */
struct plm_exchange_bytes {
  uint64_t device, sent_in_group, sent_on_rail;
};
plm_status plm_exchange_count(const struct plm_parameter *table, size_t count,
                              const uint32_t *owners, uint32_t ranks, uint32_t group_size,
                              struct plm_exchange_bytes *bytes, struct plm_error *error);

/* Sums the gradients. Afterwards the gradient of every parameter that this rank holds is the sum
 * over all shares of the step; the others are undefined. */
plm_status plm_exchange_gradients(struct plm_exchange *exchange, struct plm_error *error);

/* What the ranks tell each other about a step. */
struct plm_exchange_work {
  double flops;          /* in: of this rank; out: of all */
  double compute_s;      /* in: how long this rank computed; out: the slowest one */
  uint32_t slowest_rank; /* out */
};

/* Adds up what is the same on all ranks afterwards. losses (device, local_shares): of this rank's
 * shares. sums (device) receives the step's loss, added in the order of the shares, and the squared
 * norm of the gradient, added in the order of the parameters. */
plm_status plm_exchange_sums(struct plm_exchange *exchange, const double *losses,
                             struct plm_update_sums *sums, struct plm_exchange_work *work,
                             struct plm_error *error);

/* Sends each owner's parameters to all ranks. */
plm_status plm_exchange_weights(struct plm_exchange *exchange, struct plm_error *error);

#endif
