/* Optimizers: Muon for the hidden matrices and Adam for the rest, or AdamW alone; and the running
 * average of the weights.
 *
 * Sources: Muon, Jordan et al. 2024 (kellerjordan.github.io/posts/muon); Adam, Kingma & Ba 2015;
 * decoupled decay, Loshchilov & Hutter 2019; constants and scales: model.md, "Optimizers".
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
/* The configured rates times the schedule's factor of step s (from 0). */
struct plm_learning_rates plm_optimizer_rates(const struct plm_config_trainer *trainer, uint64_t s);

/* One tensor of the optimizer's state, as optimizer.safetensors names it. */
struct plm_optimizer_tensor {
  char name[128]; /* parameter name and .momentum, .first_moment or .second_moment */
  int64_t rows, cols;
  int ndim;
  bool second;          /* in the second arena, else in the first */
  size_t offset, count; /* elements */
};

struct plm_optimizer;

/* Takes moments (zero), scratch and, when trainer->ema > 0, the average from the model's backend.
 * trainer and model are borrowed. */
plm_status plm_optimizer_open(const struct plm_config_trainer *trainer, struct plm_model *model,
                              struct plm_optimizer **optimizer, struct plm_error *error);
void plm_optimizer_close(struct plm_optimizer *optimizer); /* NULL is fine */
/* Bytes that opening takes on the device, and how many of them are scratch: nothing to publish. */
plm_status plm_optimizer_memory(const struct plm_config *config, const struct plm_ops *ops,
                                uint64_t *bytes, uint64_t *scratch_bytes, struct plm_error *error);

/* The average starts at the weights as they are now. */
void plm_optimizer_start_average(struct plm_optimizer *optimizer);

/* The optimizer's part of the plan of step s (from 0), should the step be an update: rates,
 * momentum, Adam's corrections, the average's decay. */
void plm_optimizer_plan(const struct plm_optimizer *optimizer, uint64_t s,
                        struct plm_update_plan *plan);
/* One update by a decided plan on the device: decay, moments, weights, average; the model's weights
 * as used follow. Asynchronous; it can be recorded. Who learns that it was not skipped counts it
 * (plm_optimizer_set_updates). */
void plm_optimizer_update(struct plm_optimizer *optimizer, const struct plm_update *update);

/* Updates made so far: Adam's t, and n of the average. */
uint64_t plm_optimizer_updates(const struct plm_optimizer *optimizer);
void plm_optimizer_set_updates(struct plm_optimizer *optimizer, uint64_t updates);

/* State on the device, for snapshots and resumes. Sizes in elements; average may be NULL. */
struct plm_optimizer_state {
  float *first, *second, *average;
  size_t first_count, second_count, average_count;
};
struct plm_optimizer_state plm_optimizer_state(struct plm_optimizer *optimizer);
const struct plm_optimizer_tensor *plm_optimizer_tensors(const struct plm_optimizer *optimizer,
                                                         size_t *count);

#endif
