/* What follows from a configuration: the alignment of documents, the two plans, ranks of a host. */
#include "common/config/config.h"
#include "common/model/architecture.h"

uint32_t plm_config_alignment(const struct plm_config *config)
{
  if (config->data.document_alignment != 0) return config->data.document_alignment;
  struct plm_model_config model = config->model;
  model.max_length = config->data.max_length;
  return plm_architecture_group(&model);
}

struct plm_freeze plm_config_freeze(const struct plm_config_trainer *trainer,
                                    const struct plm_model_config *model)
{
  struct plm_freeze freeze = trainer->freeze;
  freeze.base = model->lora.rank > 0;
  return freeze;
}

struct plm_plan_parameters plm_config_training_plan(const struct plm_config *config)
{
  return plm_config_source_plan(config, 0);
}

struct plm_plan_parameters plm_config_source_plan(const struct plm_config *config, uint32_t source)
{
  const int sampling = plm_config_source(config, source).sampling;
  return (struct plm_plan_parameters){
      .seed = config->seed,
      .max_length = config->data.max_length,
      .alignment = plm_config_alignment(config),
      .window_groups = config->data.window_groups,
      .packing = config->data.packing,
      .truncate = config->data.truncate,
      .sampling = sampling < 0 ? config->data.sampling : (enum plm_sampling)sampling,
      .tokenizer = config->data.tokenizer,
      .shuffle = true,
  };
}

struct plm_plan_parameters plm_config_evaluation_plan(const struct plm_config *config)
{
  return (struct plm_plan_parameters){
      .max_length = config->data.max_length,
      .alignment = plm_config_alignment(config),
      .window_groups = config->data.window_groups,
      .packing = PLM_PACKING_BEST_FIT,
      .truncate = PLM_TRUNCATE_HEAD,
      .tokenizer = config->data.tokenizer,
      .token_limit = config->evaluator.max_tokens,
  };
}

uint32_t plm_config_slots(const struct plm_config_trainer *trainer, uint32_t host)
{
  char name[PLM_HOST_SIZE];
  uint32_t slots = 0;
  PLM_ASSERT(plm_config_host(trainer->hosts[host], name, &slots));
  return slots;
}

uint32_t plm_config_ranks_here(const struct plm_config *config)
{
  const struct plm_config_trainer *trainer = &config->trainer;
  const uint32_t slots = trainer->host_count > 0 ? plm_config_slots(trainer, 0) : trainer->ranks;
  return slots < trainer->ranks ? slots : trainer->ranks;
}
