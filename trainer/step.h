/* One step of training, as the paper says it: for each micro-batch mask, forward, backward; then
 * divide by the step's count, check, clip, update.
 *
 * Sums and counts run over the whole step, never means of means, so that any split into
 * micro-batches gives the same step up to rounding. Nothing inside a step waits for the host: what
 * it decides it decides on the device (common/ops/update.h). Where the backend can record, a
 * micro-batch and the update are recorded at their second time and replayed from then on; for that
 * the labelled rows are rounded up in number (plm_model_rows), so that few shapes are met.
 */
#ifndef PLM_TRAINER_STEP_H
#define PLM_TRAINER_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/model/model.h"
#include "trainer/clip.h"
#include "trainer/optimizers.h"
#include "trainer/step_input.h"

/* What a step works with; all borrowed. */
struct plm_step_parts {
  const struct plm_config_trainer *trainer;
  struct plm_model *model;
  struct plm_masks *masks;
  const struct plm_objective_state *objective;
  struct plm_optimizer *optimizer;
  struct plm_clip *clip;
  struct plm_loss_options loss;
  uint32_t step_chunks, micro_chunks, max_length;
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

struct plm_step;
plm_status plm_step_open(const struct plm_step_parts *parts, struct plm_step **step,
                         struct plm_error *error);
void plm_step_close(struct plm_step *step); /* NULL is fine */
/* For who fills inputs (plm_step_input_fill). */
struct plm_step_shape plm_step_shape(const struct plm_step *step);
/* Bytes that opening takes: on the device, and of host memory for each input in flight. masks may
 * be NULL. */
void plm_step_memory(const struct plm_step_shape *shape, uint64_t *device, uint64_t *host);

/* Copies an input to the device ahead of its launch, beside the computation; at most the next
 * step's. Launching does it where it was not done. */
void plm_step_stage(struct plm_step *step, const struct plm_step_input *input);

/* Asked before each micro-batch but the first: `done` of `total` are behind. True gives the step
 * up. */
typedef bool plm_step_give_up(void *context, uint32_t done, uint32_t total);

/* Hands the input over; the computation may still be running when this returns. PLM_INTERRUPTED
 * when give_up (may be NULL) said so: the weights are untouched and nothing counts. */
plm_status plm_step_launch(struct plm_step *step, const struct plm_step_input *input,
                           plm_step_give_up *give_up, void *context, struct plm_error *error);
/* Waits for it. The input is free again. */
plm_status plm_step_finish(struct plm_step *step, const struct plm_step_input *input,
                           struct plm_step_result *result, struct plm_error *error);

#endif
