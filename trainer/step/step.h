/* One step of training: mask, forward and backward for each micro-batch; then divide by the step's
 * count, check, clip and update.
 *
 * Sums and counts run over the whole step, so any split into shares and micro-batches gives the
 * same step up to rounding. Nothing inside a step waits for the host: whether to skip and how far
 * to clip is decided on the device (common/ops/update.h). If the backend can record, a micro-batch
 * and the update run normally the first time, are recorded the second time and replayed from then
 * on. Recordings are kept by shape, so the number of labelled rows is rounded up (plm_model_rows)
 * to keep shapes few. See doc/training.md#a-step.
 */
#ifndef PLM_TRAINER_STEP_STEP_H
#define PLM_TRAINER_STEP_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/model/model.h"
#include "trainer/input/step_input.h"
#include "trainer/optimizer/clip.h"
#include "trainer/optimizer/optimizers.h"
#include "trainer/profile/profile.h"
#include "trainer/ranks/gradient_exchange.h"
#include "trainer/step/chunk_losses.h"
#include "trainer/step/layer_norms.h"

/* What a step needs. All pointers are borrowed. */
struct plm_step_parts {
  const struct plm_config_trainer *trainer;
  struct plm_model *model;
  struct plm_masks *masks;
  const struct plm_objective_state *objective;
  struct plm_optimizer *optimizer;
  struct plm_clip *clip;
  struct plm_loss_options loss;
  const struct plm_label_source *labels; /* of a model that predicts labels, else NULL */
  struct plm_label_options label_options;
  uint64_t seed; /* of the dropout of adapters */
  /* Chunks and shares of this process; shares divides step_chunks (share_sums.h). */
  uint32_t step_chunks, micro_chunks, max_length, shares;
  struct plm_ranks *ranks;
  const uint32_t *owners;      /* by parameter */
  uint64_t norms_every;        /* steps between two measurements of norms by layer; 0: never */
  bool chunk_losses;           /* the result has the loss of each chunk */
  struct plm_profile *profile; /* NULL: none */
};

struct plm_step_result {
  double loss;      /* divided by the totals' count; NAN if no position had a label */
  double grad_norm; /* of the gradient divided by count, before clipping; NAN as above */
  double clip_norm; /* threshold of the norm; 0 if not clipped */
  double accuracy;  /* share of the labelled positions with the right token or class; NAN as above,
                     * and if labels are numbers or several classes */
  struct plm_step_totals totals; /* of all ranks, like everything here */
  double flops;                  /* model FLOPs, forward and backward */
  uint32_t window;
  int64_t slowest_rank;                /* that computed longest; -1 if this rank is the only one */
  const struct plm_layer_norms *norms; /* until the next step; NULL: not measured in this step */
  const struct plm_chunk_loss *chunks; /* of each chunk, likewise; NULL: not wanted */
  bool skipped; /* weights, moments, Adam's t and the average are unchanged */
};

struct plm_step;
plm_status plm_step_open(const struct plm_step_parts *parts, struct plm_step **step,
                         struct plm_error *error);
void plm_step_close(struct plm_step *step); /* NULL is fine */
/* For plm_step_input_fill. */
struct plm_step_shape plm_step_shape(const struct plm_step *step);
/* Bytes of device memory that plm_step_open takes, without plm_chunk_losses_memory, and of host
 * memory for each input. shape->masks may be NULL. */
void plm_step_memory(const struct plm_step_shape *shape, uint64_t *device, uint64_t *host);

/* Copies an input to the device before its launch, while earlier steps may still compute. There is
 * room only for the inputs of the running step and the next one. If this was not called, launching
 * the step copies its input. */
void plm_step_stage(struct plm_step *step, const struct plm_step_input *input);

/* Computes the step's micro-batches and the update without any other rank and discards the results:
 * products are tuned with the step's shapes. Nothing may have been launched yet. */
plm_status plm_step_rehearse(struct plm_step *step, const struct plm_step_input *input,
                             struct plm_error *error);

/* Asked before each micro-batch except the first, when `done` of `total` have been launched.
 * PLM_OK continues; PLM_INTERRUPTED, or an error, abandons the step. */
typedef plm_status plm_step_go_on(void *context, uint32_t done, uint32_t total,
                                  struct plm_error *error);

/* Launches the step; the computation may still be running when this returns. input must stay
 * unchanged until plm_step_finish. If go_on (may be NULL) does not return PLM_OK, its status is
 * returned, the weights are unchanged and the step does not count. */
plm_status plm_step_launch(struct plm_step *step, const struct plm_step_input *input,
                           plm_step_go_on *go_on, void *context, struct plm_error *error);
/* Waits for the launched step and fills result. The input may be filled again. */
plm_status plm_step_finish(struct plm_step *step, const struct plm_step_input *input,
                           struct plm_step_result *result, struct plm_error *error);

#endif
