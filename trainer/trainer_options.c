/* Takes the options of each part from the configuration. */
#include "trainer/trainer_options.h"

#include "trainer/input/step_chunks.h"

struct plm_data_sources plm_data_sources_of(const struct plm_config *config)
{
  struct plm_data_sources sources = {.count = plm_config_source_count(config),
                                     .listed = config->source_count > 0,
                                     .mixture = plm_config_mixture(config),
                                     .step_chunks = plm_trainer_step_chunks(config)};
  for (uint32_t k = 0; k < sources.count; k++) {
    sources.paths[k] = plm_config_source(config, k).path;
    sources.plans[k] = plm_config_source_plan(config, k);
  }
  return sources;
}

struct plm_objective_options plm_objective_options_of(const struct plm_config *config)
{
  return (struct plm_objective_options){.trainer = &config->trainer,
                                        .tokenizer = config->data.tokenizer,
                                        .seed = config->seed,
                                        .max_length = config->data.max_length};
}

struct plm_resume_options plm_resume_options_of(const struct plm_config *config)
{
  const struct plm_config_trainer *trainer = &config->trainer;
  return (struct plm_resume_options){.device = trainer->device,
                                     .precision = trainer->precision,
                                     .threads = trainer->threads,
                                     .ranks = trainer->ranks,
                                     .shares = trainer->shares,
                                     .step_chunks = plm_trainer_step_chunks(config),
                                     .compress = trainer->compress};
}

struct plm_checkpoint_options plm_checkpoint_options_of(const struct plm_config *config)
{
  return (struct plm_checkpoint_options){.model = &config->model,
                                         .objective = config->trainer.objective,
                                         .tokenizer = config->data.tokenizer,
                                         .rules = &config->trainer.checkpoint,
                                         .judge = plm_retention_judge_of(config)};
}

struct plm_source_totals plm_source_totals_of(const struct plm_config *config)
{
  struct plm_source_totals totals = {.count = config->source_count};
  for (uint32_t k = 0; k < totals.count; k++) plm_config_source_name(config, k, totals.names[k]);
  return totals;
}
