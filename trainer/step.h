/* One step of training, as the paper says it: for each micro-batch mask, forward, backward; then
 * divide by the step's count, check, clip, update.
 *
 * Sums and counts run over the whole step, never means of means, so that any split into
 * micro-batches gives the same step up to rounding.
 */
#ifndef PLM_TRAINER_STEP_H
#define PLM_TRAINER_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/model/model.h"
#include "common/plan/chunk.h"
#include "trainer/clip.h"
#include "trainer/objective.h"
#include "trainer/optimizers.h"

/* What a step works with; all borrowed. */
struct plm_step {
  const struct plm_config_trainer *trainer;
  struct plm_model *model;
  struct plm_masks *masks;
  struct plm_objective_state *objective;
  struct plm_optimizer *optimizer;
  struct plm_clip *clip;
  struct plm_loss_options loss;
  uint32_t micro_chunks; /* chunks of a micro-batch; the last of a step may be smaller */
};

struct plm_step_result {
  double loss;      /* mean by the objective's rule; NAN when nothing was chosen */
  double grad_norm; /* of the mean gradient, before clipping; NAN as above */
  double clip_norm; /* norm clipped to, 0: none */
  uint64_t count;   /* the divisor */
  uint64_t rows;    /* positions with a label */
  uint64_t real_tokens, padded_tokens;
  double flops; /* model FLOPs, forward and backward */
  uint32_t window;
  bool skipped; /* weights, moments, Adam's t and average stayed */
};

/* Asked before each micro-batch but the first: `done` of `total` are behind. True gives the step
 * up. */
typedef bool plm_step_give_up(void *context, uint32_t done, uint32_t total);

/* Step s (from 0) on a batch whose chunk 0 is batch->first_chunk of the run. PLM_INTERRUPTED when
 * give_up (may be NULL) said so: the weights are untouched and nothing counts. */
plm_status plm_step_run(struct plm_step *step, uint64_t s, const struct plm_batch *batch,
                        plm_step_give_up *give_up, void *context, struct plm_step_result *result,
                        struct plm_error *error);

/* Chunks [first, first + count) of a batch, as a batch of their own over the same memory. */
struct plm_batch plm_batch_slice(const struct plm_batch *batch, uint32_t first, uint32_t count);
uint64_t plm_batch_real_tokens(const struct plm_batch *batch);

#endif
