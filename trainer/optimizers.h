/* Optimizers: Muon for the hidden matrices and Adam for everything else, or AdamW for everything;
 * and the exponential moving average (EMA) of the weights.
 *
 * Sources: Muon, Jordan et al. 2024 (kellerjordan.github.io/posts/muon); Adam, Kingma & Ba 2015;
 * decoupled decay, Loshchilov & Hutter 2019. Constants and scales: doc/training.md#optimizers.
 */
#ifndef PLM_TRAINER_OPTIMIZERS_H
#define PLM_TRAINER_OPTIMIZERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/model/model.h"

/* Learning rates of a step, by enum plm_parameter_group. */
struct plm_learning_rates {
  double of[PLM_GROUP_COUNT];
};
/* The configured rates times plm_schedule_learning_rate of step s (from 0). */
struct plm_learning_rates plm_optimizer_rates(const struct plm_config_trainer *trainer, uint64_t s);

/* One tensor of the optimizer's state, as optimizer.safetensors names it. */
struct plm_optimizer_tensor {
  char name[128]; /* parameter name, then .momentum, .first_moment or .second_moment */
  int64_t rows, cols;
  int ndim;
  bool second;          /* in the second arena of moments, else in the first */
  size_t offset, count; /* elements */
};

struct plm_optimizer;

/* Allocates moments (zero), scratch and, if trainer->ema > 0, the average from the model's backend.
 * Borrows trainer and model. */
plm_status plm_optimizer_open(const struct plm_config_trainer *trainer, struct plm_model *model,
                              struct plm_optimizer **optimizer, struct plm_error *error);
void plm_optimizer_close(struct plm_optimizer *optimizer); /* NULL is fine */
/* Bytes that plm_optimizer_open takes on the device, and how many of them are scratch, which is not
 * part of a checkpoint. */
plm_status plm_optimizer_memory(const struct plm_config *config, const struct plm_ops *ops,
                                uint64_t *bytes, uint64_t *scratch_bytes, struct plm_error *error);

/* Sets the average to the current weights. */
void plm_optimizer_start_average(struct plm_optimizer *optimizer);

/* Fills the optimizer's part of the inputs of step s (from 0): learning rates, momentum, Adam's
 * corrections and the decay of the average. */
void plm_optimizer_prepare(const struct plm_optimizer *optimizer, uint64_t s,
                           struct plm_update_inputs *inputs);
/* One update on the device after ops->decide_update: decay, moments, weights, average, and the copy
 * of the weights that products read. Asynchronous, and can be recorded. The caller counts the
 * update (plm_optimizer_set_updates) once it knows that it was not skipped. */
void plm_optimizer_update(struct plm_optimizer *optimizer, const struct plm_update *update);

/* Updates made so far. Adam's t is one more; n of the average is this number. */
uint64_t plm_optimizer_updates(const struct plm_optimizer *optimizer);
void plm_optimizer_set_updates(struct plm_optimizer *optimizer, uint64_t updates);

/* State on the device, for snapshots and resumes. Counts are in elements; average may be NULL. */
struct plm_optimizer_state {
  float *first, *second, *average;
  size_t first_count, second_count, average_count;
};
struct plm_optimizer_state plm_optimizer_state(struct plm_optimizer *optimizer);
const struct plm_optimizer_tensor *plm_optimizer_tensors(const struct plm_optimizer *optimizer,
                                                         size_t *count);

#endif
