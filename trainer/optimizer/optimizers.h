/* Optimizers: Muon for the hidden matrices and Adam for everything else, or AdamW for everything;
 * and the exponential moving average (EMA) of the weights.
 *
 * Sources: Muon, Jordan et al. 2024 (kellerjordan.github.io/posts/muon); Adam, Kingma & Ba 2015;
 * decoupled decay, Loshchilov & Hutter 2019. Constants and scales: doc/training.md#optimizers.
 */
#ifndef PLM_TRAINER_OPTIMIZER_OPTIMIZERS_H
#define PLM_TRAINER_OPTIMIZER_OPTIMIZERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/model/model.h"
#include "trainer/ranks/held.h"

/* Learning rates of a step, by enum plm_parameter_group. */
struct plm_learning_rates {
  double of[PLM_GROUP_COUNT];
};
/* The configured rates times plm_schedule_learning_rate of step s (from 0). */
struct plm_learning_rates plm_optimizer_rates(const struct plm_config_trainer *trainer, uint64_t s);

/* Whether Muon updates the parameter. */
bool plm_optimizer_is_muon(const struct plm_config_trainer *trainer,
                           const struct plm_parameter *parameter);

/* One tensor of the optimizer's state, as optimizer.safetensors names it. */
struct plm_optimizer_tensor {
  char name[128]; /* parameter name, then .momentum, .first_moment or .second_moment */
  int64_t rows, cols;
  int ndim;
  size_t parameter;     /* number in the model's table */
  bool second;          /* in the second arena of a snapshot's moments, else in the first */
  size_t offset, count; /* elements, in that arena */
};

struct plm_optimizer;

/* Allocates moments (zero), scratch and, if trainer->ema > 0, the average from the model's backend,
 * for the parameters that are held (NULL: all that are not frozen). Only those are updated. Borrows
 * trainer, model and held. */
plm_status plm_optimizer_open(const struct plm_config_trainer *trainer, struct plm_model *model,
                              const struct plm_held *held, struct plm_optimizer **optimizer,
                              struct plm_error *error);
void plm_optimizer_close(struct plm_optimizer *optimizer); /* NULL is fine */
/* Bytes that plm_optimizer_open takes on the device, and how many of them are scratch, which is not
 * part of a checkpoint. */
plm_status plm_optimizer_memory(const struct plm_config_trainer *trainer,
                                const struct plm_model_config *model, const struct plm_ops *ops,
                                const struct plm_held *held, uint64_t *bytes,
                                uint64_t *scratch_bytes, struct plm_error *error);

/* Sets the average to the current weights. */
void plm_optimizer_start_average(struct plm_optimizer *optimizer);

/* Fills the optimizer's part of the inputs of step s (from 0): learning rates, momentum, Adam's
 * corrections and the decay of the average. */
void plm_optimizer_prepare(const struct plm_optimizer *optimizer, uint64_t s,
                           struct plm_update_inputs *inputs);
/* The parameters [first, end) of the model's table. */
struct plm_parameter_range {
  size_t first, end;
};
struct plm_parameter_range plm_optimizer_all(const struct plm_optimizer *optimizer);
/* Updates the held parameters of a range on the device after ops->decide_update: decay, moments,
 * weights and average. When all parameters are updated, the caller calls plm_model_weights_changed.
 * Asynchronous, and can be recorded. The caller counts the update (plm_optimizer_set_updates) once
 * it knows that it was not skipped. */
void plm_optimizer_update(struct plm_optimizer *optimizer, const struct plm_update *update,
                          struct plm_parameter_range range);

/* Updates made so far. Adam's t is one more; n of the average is this number. */
uint64_t plm_optimizer_updates(const struct plm_optimizer *optimizer);
void plm_optimizer_set_updates(struct plm_optimizer *optimizer, uint64_t updates);

/* The state's tensors, in the order of the model's table. */
const struct plm_optimizer_tensor *plm_optimizer_tensors(const struct plm_optimizer *optimizer,
                                                         size_t *count);
/* Where tensor i is on the device, and the average of parameter i; NULL if it is not held (or, for
 * the average, if there is none). */
float *plm_optimizer_tensor_data(struct plm_optimizer *optimizer, size_t i);
float *plm_optimizer_average_data(struct plm_optimizer *optimizer, size_t parameter);

/* Elements of a snapshot's arenas, which have room for every parameter that is trained. The first
 * one and the average (0 if there is none) are laid out like the gradients. */
struct plm_optimizer_sizes {
  size_t first, second, average;
};
struct plm_optimizer_sizes plm_optimizer_sizes(const struct plm_optimizer *optimizer);

/* The whole state on the device in the layout of a snapshot. Only if everything is held. */
struct plm_optimizer_state {
  float *first, *second, *average; /* average may be NULL */
};
struct plm_optimizer_state plm_optimizer_state(struct plm_optimizer *optimizer);

#endif
