/* The exchange within a step: gradients are summed on the ranks that update them, squared norms and
 * losses on all, and updated weights go back to all.
 *
 * Sums over ranks continue the binary tree over shares (trainer/optimizer/share_sums.h): first
 * among the ranks of a group, then along the rail. Buckets (buckets.h) travel while the backward
 * pass and the update compute what follows. See doc/ranks.md#a-step. */
#ifndef PLM_TRAINER_RANKS_GRADIENT_EXCHANGE_H
#define PLM_TRAINER_RANKS_GRADIENT_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#include "common/collective/transport.h"
#include "common/model/model.h"
#include "common/ops/ops.h"
#include "trainer/optimizer/optimizers.h"
#include "trainer/profile/profile.h"
#include "trainer/ranks/buckets.h"
#include "trainer/ranks/owners.h"
#include "trainer/ranks/ranks.h"

struct plm_exchange;

/* ranks, model, owners (by parameter) and the profile, which may be NULL, are borrowed.
 * local_shares: shares of this rank.
 * With PLM_COMPRESS_BF16, the sum of a rank's gradients is rounded once, before the first transfer
 * that takes it to another rank. */
plm_status plm_exchange_open(struct plm_ranks *ranks, struct plm_model *model,
                             const uint32_t *owners, uint32_t local_shares,
                             enum plm_compress compress, struct plm_profile *profile,
                             struct plm_exchange **exchange, struct plm_error *error);
/* No transfer is under way any more, or the collective has failed. NULL is fine. */
void plm_exchange_close(struct plm_exchange *exchange);
/* Bytes of device memory that plm_exchange_open takes, and bytes that a rank sends in a step: to
 * its group and along its rail. All are 0 for one rank. */
struct plm_exchange_bytes {
  uint64_t device, sent_in_group, sent_on_rail;
};
void plm_exchange_count(const struct plm_bucket_request *request, uint32_t group_size,
                        enum plm_compress compress, struct plm_exchange_bytes *bytes);

/* ---- gradients ------------------------------------------------------------------------------- */

/* The parts in which the backward pass of a step's last micro-batch runs, from the last block to
 * the first. */
uint32_t plm_exchange_backward_parts(const struct plm_exchange *exchange);
struct plm_backward_part plm_exchange_backward_part(const struct plm_exchange *exchange,
                                                    uint32_t part);
/* Call it after each part was launched: starts to exchange the buckets that have become final. It
 * may wait for buckets of earlier parts, but not for those of this one or of the one before. */
plm_status plm_exchange_gradients(struct plm_exchange *exchange, uint32_t part,
                                  struct plm_error *error);
/* Waits until the gradient of every parameter that this rank holds is the sum over all shares of
 * the step. The others are undefined. */
plm_status plm_exchange_finish_gradients(struct plm_exchange *exchange, struct plm_error *error);
/* How long this rank computes without waiting for others, in seconds (transport.h). */
void plm_exchange_mark(struct plm_exchange *exchange, enum plm_compute_mark mark);
double plm_exchange_computed(struct plm_exchange *exchange);

/* ---- numbers --------------------------------------------------------------------------------- */

/* What the ranks tell each other about a step. */
struct plm_exchange_work {
  double flops;          /* in: of this rank; out: of all */
  double compute_s;      /* in: how long this rank computed; out: the slowest one */
  uint32_t slowest_rank; /* out */
};

/* Adds up what is the same on all ranks afterwards. losses (device, local_shares): of this rank's
 * shares. sums (device) has the hits of this rank; it receives those of all, the step's loss, added
 * in the order of the shares, and the squared norm of the gradient, added in the order of the
 * parameters. */
plm_status plm_exchange_sums(struct plm_exchange *exchange, const double *losses,
                             struct plm_update_sums *sums, struct plm_exchange_work *work,
                             struct plm_error *error);

/* ---- weights --------------------------------------------------------------------------------- */

/* The parts in which the optimizer updates the parameters, in their order; at least one. */
uint32_t plm_exchange_update_parts(const struct plm_exchange *exchange);
struct plm_parameter_range plm_exchange_update_part(const struct plm_exchange *exchange,
                                                    uint32_t part);
/* Call it after each part of the update was launched: starts to send its owned parameters to all
 * ranks. */
plm_status plm_exchange_weights(struct plm_exchange *exchange, struct plm_error *error);
/* Waits until this rank has all weights. */
plm_status plm_exchange_finish_weights(struct plm_exchange *exchange, struct plm_error *error);

#endif
