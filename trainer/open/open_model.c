/* Allocates what computes a step, and loads the tensors of a checkpoint. */
#include "trainer/open/open_model.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "trainer/checkpoint/resume.h"
#include "trainer/memory_estimate.h"
#include "trainer/trainer_options.h"

/* Decides which parameters this rank updates. */
static plm_status assign_owners(struct plm_trainer *trainer, bool **kept, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  struct plm_parameter *table = NULL;
  size_t count, elements;
  PLM_TRY(plm_model_parameters(&config->model, &table, &count, &elements, error));
  const struct plm_freeze freeze = plm_config_freeze(&config->trainer, &config->model);
  plm_parameters_freeze(table, count, &freeze);
  trainer->owners = plm_alloc_zeroed(count, sizeof *trainer->owners);
  trainer->held = (struct plm_held){trainer->owners, trainer->ranks->rank};
  plm_owners_assign(&config->trainer, table, count, trainer->ranks->ranks, trainer->owners);
  if (trainer->ranks->ranks > 1) *kept = plm_alloc_zeroed(count, sizeof **kept);
  for (size_t i = 0; i < count && *kept != NULL; i++) (*kept)[i] = plm_is_held(&trainer->held, i);
  free(table);
  return PLM_OK;
}

/* With several ranks, a rank keeps the fp32 values of what it updates. */
static plm_status open_weights(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  bool *kept = NULL;
  plm_status status = assign_owners(trainer, &kept, error);
  const struct plm_model_options options = {
      .max_chunks = trainer->state.resolved.micro_chunks,
      .training = true,
      .recompute = config->trainer.recompute,
      .kept = kept,
      .freeze = plm_config_freeze(&config->trainer, &config->model)};
  if (status == PLM_OK)
    status = plm_model_open(&config->model, trainer->ops, &options, &trainer->model, error);
  free(kept);
  return status;
}

/* A profile of the steps that are named, unless all of them are over. */
static plm_status open_profile(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_step_range steps = trainer->config->trainer.profile;
  const struct plm_resolved *resolved = &trainer->state.resolved;
  if (plm_ranks_first(trainer->ranks)) plm_profile_sweep(trainer->run);
  if (steps.last == 0) return PLM_OK;
  if (trainer->state.step >= steps.last) {
    if (plm_ranks_first(trainer->ranks))
      plm_warning("nothing is profiled: the run continues after step %llu, and "
                  "trainer.profile.steps ends at %llu",
                  (unsigned long long)trainer->state.step, (unsigned long long)steps.last);
    return PLM_OK;
  }
  const struct plm_profile_options options = {.first = steps.first,
                                              .last = steps.last,
                                              .ops = trainer->ops,
                                              .ranks = trainer->ranks,
                                              .masks = trainer->masks,
                                              .run = trainer->run,
                                              .facts = {.device = resolved->device,
                                                        .isa = resolved->isa,
                                                        .precision = resolved->precision,
                                                        .products = resolved->products,
                                                        .processor = resolved->processor,
                                                        .threads = resolved->threads,
                                                        .product_flops = resolved->product_flops}};
  return plm_profile_open(&options, &trainer->profile, error);
}

plm_status plm_open_model(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  const struct plm_resolved *resolved = &trainer->state.resolved;
  const uint32_t ranks = trainer->ranks->ranks;
  PLM_TRY(plm_memory_check(config, trainer->ops, resolved->shares, resolved->micro_chunks, error));
  PLM_TRY(open_weights(trainer, error));
  PLM_TRY(
      plm_masks_open(&config->model, trainer->ops, resolved->micro_chunks, &trainer->masks, error));
  PLM_TRY(plm_optimizer_open(&config->trainer, trainer->model, &trainer->held, &trainer->optimizer,
                             error));
  PLM_TRY(open_profile(trainer, error));
  const struct plm_objective_options objective = plm_objective_options_of(config);
  PLM_TRY(plm_objective_init(&trainer->objective, &objective, resolved->step_chunks, 0, error));
  const struct plm_step_parts parts = {
      .trainer = &config->trainer,
      .model = trainer->model,
      .masks = trainer->masks,
      .objective = &trainer->objective,
      .optimizer = trainer->optimizer,
      .clip = &trainer->clip,
      .loss = {.soft_cap = (float)config->model.soft_logit_cap,
               .label_smoothing = (float)config->trainer.label_smoothing,
               .z_loss = (float)config->trainer.z_loss},
      .labels = trainer->labels,
      .label_options = {.seed = config->seed, .weights = trainer->class_weights},
      .step_chunks = resolved->step_chunks / ranks,
      .micro_chunks = resolved->micro_chunks,
      .max_length = config->data.max_length,
      .shares = resolved->shares / ranks,
      .ranks = trainer->ranks,
      .owners = trainer->owners,
      .norms_every = config->norms,
      .seed = config->seed,
      .chunk_losses = config->source_count > 0,
      .profile = trainer->profile,
  };
  return plm_step_open(&parts, &trainer->step, error);
}

/* From here on the inputs of steps are prepared. */

plm_status plm_load_weights(struct plm_trainer *trainer, const char *directory,
                            struct plm_error *error)
{
  struct plm_advance advance = plm_run_pulse_reading(&trainer->pulse);
  const struct plm_resume_to to = {.advance = &advance,
                                   .model = trainer->model,
                                   .optimizer = trainer->optimizer,
                                   .clip = &trainer->clip,
                                   .ranks = trainer->ranks,
                                   .owners = trainer->owners};
  PLM_TRY(plm_ranks_first(trainer->ranks) ? plm_resume_load_tensors(directory, &to, error)
                                          : plm_resume_receive_tensors(&to, error));
  plm_optimizer_set_updates(trainer->optimizer, trainer->state.updates);
  plm_info("resuming after step %llu", (unsigned long long)trainer->state.step);
  return PLM_OK;
}

void plm_close_model(struct plm_trainer *trainer)
{
  plm_step_close(trainer->step);
  plm_profile_close(trainer->profile);
  plm_objective_deinit(&trainer->objective);
  plm_optimizer_close(trainer->optimizer);
  if (trainer->masks != NULL) plm_masks_close(trainer->masks);
  if (trainer->model != NULL) plm_model_close(trainer->model);
  free(trainer->owners);
}
