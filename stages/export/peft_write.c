/* Writes adapters as PEFT does. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/tensor_values.h"
#include "common/model/architecture.h"
#include "stages/export/peft_adapter.h"

/* Whether PEFT stores the parameter: adapters, and a head for labels in `modules_to_save`. */
static bool is_written(const struct plm_model_config *config, const struct plm_parameter *parameter)
{
  return parameter->adapter != 0 ||
         (config->head.kind != PLM_PREDICTS_TOKENS && parameter->group == PLM_GROUP_HEAD);
}

/* A regular expression for whole names of modules: a list of their ends would also name
 * attention.output.dense for output.dense. */
static void put_modules(const struct plm_model_config *config, struct plm_text *text)
{
  const struct plm_block_names *names = &plm_architecture_rules(config->architecture)->block.names;
  const char *before = ".*\\.\\d+\\.(";
  for (int t = 0; t < PLM_LORA_TARGETS; t++) {
    if ((config->lora.targets >> t & 1) == 0) continue;
    plm_text_puts(text, before);
    before = "|";
    for (const char *c = plm_block_target_name(names, (enum plm_lora_target)t); *c != '\0'; c++)
      plm_text_printf(text, "%s%c", *c == '.' ? "\\" : "", *c);
  }
  plm_text_puts(text, ")");
}

plm_status plm_peft_write_config(const char *directory, const struct plm_model_config *config,
                                 const struct plm_parameter *table, size_t count,
                                 struct plm_error *error)
{
  static const char *const tasks[] = {NULL, "SEQ_CLS", "TOKEN_CLS"};
  char path[PLM_PATH_SIZE];
  struct plm_text modules = {0};
  const bool labels = config->head.kind != PLM_PREDICTS_TOKENS;
  cJSON *json = cJSON_CreateObject();
  put_modules(config, &modules);
  cJSON_AddStringToObject(json, "peft_type", "LORA");
  plm_json_put(json, "task_type",
               labels ? cJSON_CreateString(tasks[config->head.kind]) : cJSON_CreateNull());
  cJSON_AddNullToObject(json, "base_model_name_or_path");
  cJSON_AddNumberToObject(json, "r", config->lora.rank);
  cJSON_AddNumberToObject(json, "lora_alpha", config->lora.alpha);
  cJSON_AddNumberToObject(json, "lora_dropout", config->lora.dropout);
  cJSON_AddStringToObject(json, "target_modules", modules.data);
  cJSON_AddStringToObject(json, "bias", "none");
  cJSON_AddBoolToObject(json, "fan_in_fan_out", false);
  cJSON_AddBoolToObject(json, "inference_mode", true);
  cJSON_AddBoolToObject(json, "init_lora_weights", true);
  cJSON_AddBoolToObject(json, "use_dora", false);
  cJSON_AddBoolToObject(json, "use_rslora", false);
  cJSON *save = labels ? cJSON_AddArrayToObject(json, "modules_to_save")
                       : cJSON_AddNullToObject(json, "modules_to_save");
  for (size_t i = 0; labels && i < count; i++) {
    if (table[i].group != PLM_GROUP_HEAD) continue; /* all are of one module */
    char module[sizeof table[i].name];
    (void)snprintf(module, sizeof module, "%.*s", (int)strcspn(table[i].name, "."), table[i].name);
    plm_json_append(save, cJSON_CreateString(module));
    break;
  }
  char *text = plm_json_bytes(json, true);
  plm_status status = plm_path_join(path, directory, "adapter_config.json", error);
  if (status == PLM_OK) status = plm_file_write(path, text, strlen(text), 0644, error);
  free(text);
  cJSON_Delete(json);
  plm_text_deinit(&modules);
  return status;
}

/* Adds the parameters that PEFT stores to tensors (count). Returns how many. */
static size_t list_tensors(const struct plm_peft_weights *weights, const void *values,
                           enum plm_dtype dtype, struct plm_tensor_info *tensors)
{
  const size_t item = dtype == PLM_F32 ? sizeof(float) : sizeof(uint16_t);
  size_t written = 0;
  for (size_t i = 0; i < weights->count; i++) {
    const struct plm_parameter *parameter = &weights->table[i];
    if (!is_written(weights->config, parameter)) continue;
    struct plm_tensor_info *tensor = &tensors[written++];
    *tensor = (struct plm_tensor_info){.name = plm_format("base_model.model.%s", parameter->name),
                                       .dtype = dtype,
                                       .bytes = parameter->count * item,
                                       .data = (const char *)values + parameter->offset * item};
    tensor->rank = plm_parameter_shape(parameter, tensor->shape);
  }
  return written;
}

plm_status plm_peft_write_weights(const char *path, const struct plm_peft_weights *weights,
                                  const struct plm_metadata_entry *metadata, size_t metadata_count,
                                  struct plm_error *error)
{
  uint16_t *rounded = NULL;
  if (weights->rounded) {
    rounded = calloc(weights->elements, sizeof *rounded);
    if (rounded == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu weights", weights->elements);
    for (size_t i = 0; i < weights->elements; i++)
      rounded[i] = plm_float_to_bf16(weights->values[i]);
  }
  struct plm_tensor_info *tensors = plm_alloc_zeroed(weights->count, sizeof *tensors);
  const size_t written =
      list_tensors(weights, rounded != NULL ? (const void *)rounded : weights->values,
                   rounded != NULL ? PLM_BF16 : PLM_F32, tensors);
  const plm_status status =
      plm_safetensors_write(path, tensors, written, metadata, metadata_count, error);
  for (size_t i = 0; i < written; i++) free((char *)tensors[i].name);
  free(tensors);
  free(rounded);
  return status;
}
