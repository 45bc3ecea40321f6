/* Adapters in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors, whose
 * tensors are called base_model.model.NAME.lora_A.weight and .lora_B.weight. */
#ifndef PLM_STAGES_EXPORT_PEFT_ADAPTER_H
#define PLM_STAGES_EXPORT_PEFT_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "common/model/model.h"

/* Writes both files of the adapters of a model, and of its head if that predicts labels. values: of
 * the table, fp32, in its arena layout. */
plm_status plm_peft_write(const char *directory, const struct plm_model_config *config,
                          const struct plm_parameter *table, size_t count, const float *values,
                          struct plm_error *error);

/* Folds the adapter in a folder that PEFT wrote into the values of a model without adapters, and
 * marks the parameters that change (count). PLM_UNSUPPORTED: the adapter is of another kind than
 * LoRA, or has options that compute something else. PLM_FORMAT: a file is malformed, or the adapter
 * is not for this model. */
plm_status plm_peft_fold(const char *directory, const struct plm_parameter *table, size_t count,
                         float *values, bool *changed, struct plm_error *error);

#endif
