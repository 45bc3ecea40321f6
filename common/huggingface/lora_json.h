/* The adapters of a checkpoint in its config.json: `lora`, which for our own architectures is a key
 * of config.json and for published weights one of its `plm_pipeline`:
 *
 *   {"rank": 8, "alpha": 16, "targets": ["q", "v"], "dropout": 0.0}
 */
#ifndef PLM_COMMON_HUGGINGFACE_LORA_JSON_H
#define PLM_COMMON_HUGGINGFACE_LORA_JSON_H

#include "common/base/status.h"
#include "common/model/model_config.h"

struct cJSON;
/* Writes the key into a config.json that has those of the model's other parts; nothing for a model
 * without adapters. */
void plm_lora_config_print(const struct plm_model_config *model, struct cJSON *json);
/* Reads it; model->lora stays {0} without it. PLM_FORMAT, PLM_CONFIG with the key in error->where.
 */
plm_status plm_lora_config_parse(const struct cJSON *json, struct plm_model_config *model,
                                 struct plm_error *error);

#endif
