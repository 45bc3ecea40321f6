/* The sum of a step's gradients over its shares.
 *
 * A step's chunks are cut into equal shares (trainer.shares), in their order. Each share is
 * accumulated, micro-batch after micro-batch, into a gradient that begins at zero. The gradients of
 * the shares are then added as a binary tree: neighbours 2j and 2j + 1 first, then neighbours among
 * these sums, and so on; an odd one rises unchanged. The losses of the shares are added in their
 * order. So the bits of a step depend on the number of shares, and not on who computes which.
 * See doc/training.md#shares. */
#ifndef PLM_TRAINER_OPTIMIZER_SHARE_SUMS_H
#define PLM_TRAINER_OPTIMIZER_SHARE_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"

enum { PLM_SHARE_LEVELS_MAX = 12 /* of PLM_MAX_SHARES shares */ };

/* Gradients that are held at the same time besides the one that is accumulated: ceil(log2(shares)).
 */
uint32_t plm_share_levels(uint32_t shares);

struct plm_share_sums;
/* gradient (n elements, device) accumulates each share; loss_sum (device) its loss. Both are
 * borrowed. Takes plm_share_levels(shares) * n floats of device memory. */
plm_status plm_share_sums_open(struct plm_ops *ops, uint32_t shares, float *gradient, size_t n,
                               double *loss_sum, struct plm_share_sums **sums,
                               struct plm_error *error);
void plm_share_sums_close(struct plm_share_sums *sums); /* NULL is fine */

/* Call it for each share of a step but the last one, in their order, after its micro-batches were
 * launched. It leaves gradient and loss_sum at zero for the next share. Asynchronous. */
void plm_share_sums_add(struct plm_share_sums *sums, uint32_t share);
/* Completes the sums of the step for the elements [first, first + count) once the last share has
 * added everything to them; each element once. Asynchronous. */
void plm_share_sums_finish(struct plm_share_sums *sums, size_t first, size_t count);
/* Completes the loss once the last share has added everything to it. Asynchronous. */
void plm_share_sums_finish_loss(struct plm_share_sums *sums);

/* The loss of each share (device), after plm_share_sums_finish_loss. */
const double *plm_share_sums_losses(const struct plm_share_sums *sums);

#endif
