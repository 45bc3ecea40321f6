/* Models for the tests of common/model/model_config, and what is at fault with one. */
#ifndef PLM_TESTS_COMMON_MODEL_MODEL_CONFIG_CASE_H
#define PLM_TESTS_COMMON_MODEL_MODEL_CONFIG_CASE_H

#include <stdint.h>
#include <stdio.h>

#include "common/model/model_config.h"

static inline struct plm_model_config good(enum plm_architecture architecture)
{
  return (struct plm_model_config){
      .architecture = architecture,
      .hidden_size = 128,
      .num_attention_heads = 4,
      .num_hidden_layers = 6,
      .num_unet_layers = 6,
      .num_extra_layers = 1,
      .expansion_ratio = 2.5,
      .soft_logit_cap = 15,
      .tie_embeddings = true,
      .pattern = {PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL,
                  PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_BLOCK},
      .pattern_count = 2,
      .window_start = 128,
      .window_end = 512,
      .window_steps = 1000,
      .block = 32,
      .max_length = 1024,
      .vocab_size = 33,
  };
}

/* The faults as lines "KEY: WHAT". */
static inline const char *faults_of(const struct plm_model_config *model,
                                    plm_model_key_known *known, const char *unknown)
{
  static char text[PLM_MODEL_MAX_FAULTS * 400];
  struct plm_model_fault faults[PLM_MODEL_MAX_FAULTS];
  const size_t count = plm_model_config_faults(model, known, (void *)(uintptr_t)unknown, faults);
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < count; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s: %s", i == 0 ? "" : "\n",
                             faults[i].key, faults[i].what);
  return text;
}

#endif
