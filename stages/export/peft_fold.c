/* Reads adapters that PEFT wrote, and folds them into weights. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/numbers/finite.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/base/text/text.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/tensor_values.h"
#include "stages/export/export_merge.h"
#include "stages/export/peft_adapter.h"
#include "stages/export/peft_head.h"

enum { CONFIG_LIMIT = 1 << 20 };
static const struct plm_json_limits limits = {
    .values = 1 << 16, .depth = 16, .numbers = PLM_JSON_ANY_NUMBER};

static const char a_ending[] = ".lora_A.weight", b_ending[] = ".lora_B.weight";
static const char beginning[] = "base_model.model.";

/* What adapter_config.json says that matters. */
struct peft {
  uint32_t rank;
  double factor; /* lora_alpha / r */
};

/* ---- adapter_config.json --------------------------------------------------------------------- */

static bool is_nothing(const cJSON *item)
{
  return item == NULL || cJSON_IsNull(item) || cJSON_IsFalse(item) ||
         ((cJSON_IsObject(item) || cJSON_IsArray(item)) && item->child == NULL) ||
         (cJSON_IsString(item) && strcmp(item->valuestring, "none") == 0);
}

/* Options with which the adapter would compute something else. */
static plm_status check_options(const cJSON *json, struct plm_error *error)
{
  static const char *const refused[] = {"use_dora",
                                        "use_rslora",
                                        "use_qalora",
                                        "use_bdlora",
                                        "bias",
                                        "lora_bias",
                                        "fan_in_fan_out",
                                        "rank_pattern",
                                        "alpha_pattern",
                                        "layer_replication",
                                        "target_parameters",
                                        "trainable_token_indices",
                                        "alora_invocation_tokens",
                                        "arrow_config",
                                        "kasa_config",
                                        "monteclora_config"};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    if (is_nothing(cJSON_GetObjectItemCaseSensitive(json, refused[i]))) continue;
    plm_error_set(error, PLM_UNSUPPORTED, "adapters with \"%s\" cannot be used", refused[i]);
    return plm_error_hint(error, "merge it in Python (merge_and_unload), and use the folder that "
                                 "save_pretrained writes then");
  }
  const char *start = plm_json_string(json, "init_lora_weights", "");
  /* others (pissa, olora, corda, loftq, lora_ga) also change the base's weights */
  static const char *const neutral[] = {"", "gaussian", "eva", "orthogonal"};
  for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
    if (strcmp(start, neutral[i]) == 0) return PLM_OK;
  plm_error_set(error, PLM_UNSUPPORTED,
                "\"init_lora_weights\" is \"%.40s\", which may have changed the base's weights",
                start);
  return plm_error_hint(error, "merge it in Python (merge_and_unload)");
}

static plm_status parse_config(const cJSON *json, struct peft *peft, struct plm_error *error)
{
  const char *type = plm_json_string(json, "peft_type", "");
  if (strcmp(type, "LORA") != 0)
    return plm_error_set(error, PLM_UNSUPPORTED,
                         "\"peft_type\" is \"%.40s\"; only LORA can be used", type);
  PLM_TRY(check_options(json, error));
  const double rank = plm_json_number(json, "r", (double)NAN);
  const double alpha = plm_json_number(json, "lora_alpha", (double)NAN);
  if (!(rank >= 1) || rank > 65536 || floor(rank) != rank)
    return plm_error_set(error, PLM_FORMAT, "\"r\" is not a whole number from 1 on");
  if (!isfinite(alpha)) return plm_error_set(error, PLM_FORMAT, "\"lora_alpha\" is not a number");
  *peft = (struct peft){(uint32_t)rank, alpha / rank};
  return PLM_OK;
}

static plm_status read_config(const char *directory, struct peft *peft, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  cJSON *json;
  PLM_TRY(plm_path_join(path, directory, "adapter_config.json", error));
  PLM_TRY(plm_file_read(path, CONFIG_LIMIT, &text, &size, error));
  plm_status status = plm_json_parse(text, size, &limits, &json, error);
  free(text);
  if (status == PLM_OK) {
    status = parse_config(json, peft, error);
    cJSON_Delete(json);
  }
  if (status != PLM_OK) plm_error_where(error, "%s", path);
  return status;
}

/* ---- adapter_model.safetensors --------------------------------------------------------------- */

static plm_status copy_values(const struct plm_tensor_info *tensor, size_t count, float *values,
                              struct plm_error *error)
{
  PLM_TRY(plm_tensor_to_float(tensor, count, values, NULL, error));
  if (plm_first_not_finite(values, count) < count)
    return plm_error_set(error, PLM_FORMAT, "tensor %.200s holds NaN or infinity", tensor->name);
  return PLM_OK;
}

static plm_status read_matrix(const struct plm_tensor_info *tensor, int64_t rows, int64_t cols,
                              float **values, struct plm_error *error)
{
  const size_t count = (size_t)rows * (size_t)cols;
  if (tensor->rank != 2 || tensor->shape[0] != (uint64_t)rows ||
      tensor->shape[1] != (uint64_t)cols) {
    plm_error_set(error, PLM_FORMAT, "tensor %.200s has not the shape (%lld, %lld)", tensor->name,
                  (long long)rows, (long long)cols);
    return plm_error_hint(error, "the adapter was trained for another model");
  }
  *values = calloc(count, sizeof **values);
  if (*values == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu weights", count);
  return copy_values(tensor, count, *values, error);
}

static plm_status not_of_model(const struct plm_tensor_info *tensor, struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "tensor %.200s is for no product of this model", tensor->name);
  return plm_error_hint(error, "the adapter was trained for another model, or with other "
                               "modules_to_save than a head for labels");
}

struct folding {
  const struct plm_safetensors *file;
  const struct peft *peft;
  const struct plm_parameter *table;
  size_t count;
  bool head;
  float *values;
  bool *changed;
};

/* Copies a tensor of the head. */
static plm_status take_head(const struct folding *folding, const struct plm_tensor_info *tensor,
                            struct plm_error *error)
{
  const char *name = tensor->name + strlen(beginning);
  size_t i = 0;
  uint64_t shape[PLM_TENSOR_MAX_RANK];
  while (i < folding->count && strcmp(folding->table[i].name, name) != 0) i++;
  if (i == folding->count) return not_of_model(tensor, error);
  const struct plm_parameter *parameter = &folding->table[i];
  const int rank = plm_parameter_shape(parameter, shape);
  if (tensor->rank != rank || memcmp(tensor->shape, shape, (size_t)rank * sizeof *shape) != 0) {
    plm_error_set(error, PLM_FORMAT, "tensor %.200s has not the shape that the model's head has",
                  tensor->name);
    return plm_error_hint(error, "the adapter was trained for another model");
  }
  folding->changed[i] = true;
  return copy_values(tensor, parameter->count, folding->values + parameter->offset, error);
}

static plm_status check_head(const struct folding *folding, struct plm_error *error)
{
  for (size_t i = 0; i < folding->count && folding->head; i++)
    if (folding->table[i].group == PLM_GROUP_HEAD && !folding->changed[i])
      return plm_error_set(error, PLM_FORMAT, "tensor %s%.200s is missing", beginning,
                           folding->table[i].name);
  return PLM_OK;
}

static plm_status fold_tensor(const struct folding *folding, const struct plm_tensor_info *a,
                              struct plm_error *error)
{
  const char *name = a->name + strlen(beginning);
  const size_t stem = strlen(name) - strlen(a_ending);
  const struct plm_parameter *of = plm_merge_base(folding->table, folding->count, name, stem);
  const int64_t rank = folding->peft->rank;
  char partner[PLM_PATH_SIZE];
  if (of == NULL || of->ndim != 2 || of->group == PLM_GROUP_EMBED) return not_of_model(a, error);
  (void)snprintf(partner, sizeof partner, "%.*s%s", (int)(strlen(a->name) - strlen(a_ending)),
                 a->name, b_ending);
  const struct plm_tensor_info *b = plm_safetensors_find(folding->file, partner);
  if (b == NULL) return plm_error_set(error, PLM_FORMAT, "tensor %.200s is missing", partner);
  float *of_a = NULL, *of_b = NULL;
  plm_status status = read_matrix(a, rank, of->cols, &of_a, error);
  if (status == PLM_OK) status = read_matrix(b, of->rows, rank, &of_b, error);
  if (status == PLM_OK) {
    plm_merge_fold(folding->values + of->offset, of_a, of_b, of, rank, folding->peft->factor);
    folding->changed[of - folding->table] = true;
  }
  free(of_a);
  free(of_b);
  return status;
}

static plm_status fold_all(const struct folding *folding, struct plm_error *error)
{
  const size_t count = plm_safetensors_count(folding->file);
  size_t pairs = 0, seconds = 0;
  for (size_t i = 0; i < count; i++) {
    const struct plm_tensor_info *tensor = plm_safetensors_at(folding->file, i);
    if (strncmp(tensor->name, beginning, strlen(beginning)) != 0)
      return not_of_model(tensor, error);
    if (plm_text_ends_with(tensor->name, a_ending)) {
      PLM_TRY(fold_tensor(folding, tensor, error));
      pairs++;
    } else if (plm_text_ends_with(tensor->name, b_ending)) {
      seconds++;
    } else if (folding->head && plm_peft_is_of_head(tensor->name + strlen(beginning))) {
      PLM_TRY(take_head(folding, tensor, error));
    } else {
      return not_of_model(tensor, error);
    }
  }
  if (pairs == 0 || pairs != seconds)
    return plm_error_set(error, PLM_FORMAT, "it has %zu tensors lora_A and %zu lora_B", pairs,
                         seconds);
  return check_head(folding, error);
}

plm_status plm_peft_fold(const char *directory, const struct plm_parameter *table, size_t count,
                         bool head, float *values, bool *changed, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct peft peft = {0};
  struct plm_safetensors *file;
  PLM_TRY(read_config(directory, &peft, error));
  PLM_TRY(plm_path_join(path, directory, "adapter_model.safetensors", error));
  PLM_TRY(plm_safetensors_open(path, &file, error));
  const struct folding folding = {file, &peft, table, count, head, values, changed};
  const plm_status status = fold_all(&folding, error);
  plm_safetensors_close(file);
  if (status != PLM_OK) plm_error_where(error, "%s", path);
  return status;
}
