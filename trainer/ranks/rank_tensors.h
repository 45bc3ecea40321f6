/* Moves tensors between the ranks outside of steps: from rank 0, which reads checkpoints, to those
 * that hold them, and back to rank 0 for a snapshot. Memory of a device is copied through the
 * host's, in slices. */
#ifndef PLM_TRAINER_RANKS_RANK_TENSORS_H
#define PLM_TRAINER_RANKS_RANK_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/model/model.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/optimizer/clip.h"
#include "trainer/optimizer/optimizers.h"
#include "trainer/ranks/owners.h"
#include "trainer/ranks/ranks.h"

/* Gives the values of all parameters to the models of all ranks. values: of rank 0, laid out as the
 * arena; the others give NULL. */
plm_status plm_rank_share_weights(struct plm_ranks *ranks, struct plm_model *model,
                                  const float *values, struct plm_error *error);
/* Sends tensor i of the optimizer to those that hold it. data: on rank 0, its elements. */
plm_status plm_rank_place_tensor(struct plm_ranks *ranks, const uint32_t *owners,
                                 struct plm_optimizer *optimizer, size_t i, const void *data,
                                 struct plm_error *error);
plm_status plm_rank_share_clip(struct plm_ranks *ranks, struct plm_clip *clip,
                               struct plm_error *error);

/* Collects the moments and averages of all ranks into rank 0's snapshot (NULL on the others), and
 * the parameters unless every rank keeps all of them. PLM_FAILURE on rank 0: what a rank has sent
 * and what was received have different hashes. */
plm_status plm_rank_collect(struct plm_ranks *ranks, const uint32_t *owners,
                            struct plm_model *model, struct plm_optimizer *optimizer,
                            struct plm_snapshot *snapshot, struct plm_error *error);

/* Compares the sum of the bits of what all ranks have of the parameters. PLM_CORRUPT names the
 * ranks that differ from rank 0. */
plm_status plm_rank_compare_weights(struct plm_ranks *ranks, const uint32_t *owners,
                                    struct plm_model *model, struct plm_error *error);

#endif
