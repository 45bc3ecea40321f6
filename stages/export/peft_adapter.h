/* Adapters in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors, whose
 * tensors are called base_model.model.NAME.lora_A.weight and .lora_B.weight. */
#ifndef PLM_STAGES_EXPORT_PEFT_ADAPTER_H
#define PLM_STAGES_EXPORT_PEFT_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/model.h"

/* Writes adapter_config.json. table: the parameters (count) of the model. */
plm_status plm_peft_write_config(const char *directory, const struct plm_model_config *config,
                                 const struct plm_parameter *table, size_t count,
                                 struct plm_error *error);

/* What adapter_model.safetensors is written from. */
struct plm_peft_weights {
  const struct plm_model_config *config;
  const struct plm_parameter *table; /* (count) */
  size_t count;
  size_t elements;     /* of the arena layout */
  const float *values; /* fp32, in the arena layout */
  bool rounded;        /* to bfloat16 */
};
/* Writes the adapters of a model, and its head if that predicts labels. PLM_NO_MEMORY. */
plm_status plm_peft_write_weights(const char *path, const struct plm_peft_weights *weights,
                                  const struct plm_metadata_entry *metadata, size_t metadata_count,
                                  struct plm_error *error);

/* Folds the adapter in a folder that PEFT wrote into the values of a model without adapters, copies
 * its head for labels, if `head`, and marks the parameters that change (count). PLM_UNSUPPORTED:
 * the adapter is of another kind than LoRA, or has options that compute something else. PLM_FORMAT:
 * a file is malformed, or the adapter is not for this model. */
plm_status plm_peft_fold(const char *directory, const struct plm_parameter *table, size_t count,
                         bool head, float *values, bool *changed, struct plm_error *error);

#endif
