/* The two plans that a configuration asks for. */
#include "common/config/config.h"

struct plm_plan_parameters plm_config_training_plan(const struct plm_config *config)
{
  return (struct plm_plan_parameters){
      .seed = config->seed,
      .max_length = config->data.max_length,
      .alignment = plm_config_alignment(config),
      .window_groups = config->data.window_groups,
      .packing = config->data.packing,
      .truncate = config->data.truncate,
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
