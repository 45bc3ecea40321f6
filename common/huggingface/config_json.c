/* Writes and reads config.json of a model folder. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/huggingface.h"
#include "common/huggingface/lora_json.h"
#include "common/huggingface/published_config.h"
#include "common/model/architecture.h"

enum { CONFIG_LIMIT = 32 << 20 }; /* of a model with 100,000 classes */
static const struct plm_json_limits config_limits = {
    .values = 1 << 20, .depth = 16, .numbers = PLM_JSON_ANY_NUMBER};

const struct plm_tokenizer *plm_huggingface_tokenizer(const struct plm_model_config *model)
{
  static const enum plm_tokenizer_kind kinds[] = {PLM_TOKENIZER_ESM, PLM_TOKENIZER_BYTE};
  /* The vocabulary of published weights is padded: ESM-C has 64 logits for 33 tokens. */
  if (plm_architecture_rules(model->architecture)->published)
    return plm_tokenizer_of(PLM_TOKENIZER_ESM);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (plm_tokenizer_of(kinds[i])->vocab_size == model->vocab_size)
      return plm_tokenizer_of(kinds[i]);
  return NULL;
}

/* Keys that transformers needs besides those of the model. */
static void add_huggingface_keys(cJSON *json, const struct plm_model_config *model,
                                 const char *dtype)
{
  static const char *const auto_map[][2] = {
      {"AutoConfig", "modeling_plm.PLMConfig"},
      {"AutoModel", "modeling_plm.PLMModel"},
      {"AutoModelForMaskedLM", "modeling_plm.PLMForMaskedLM"},
      {"AutoModelForSequenceClassification", "modeling_plm.PLMForSequenceClassification"},
      {"AutoModelForTokenClassification", "modeling_plm.PLMForTokenClassification"},
  };
  cJSON_AddStringToObject(json, "model_type", "plm");
  cJSON *architectures = cJSON_AddArrayToObject(json, "architectures");
  plm_json_append(architectures, cJSON_CreateString("PLMForMaskedLM"));
  cJSON *map = cJSON_AddObjectToObject(json, "auto_map");
  for (size_t i = 0; i < sizeof auto_map / sizeof *auto_map; i++)
    cJSON_AddStringToObject(map, auto_map[i][0], auto_map[i][1]);
  cJSON_AddStringToObject(json, "dtype", dtype);
  cJSON_AddBoolToObject(json, "tie_word_embeddings", model->tie_embeddings);
  const struct plm_tokenizer *tokenizer = plm_huggingface_tokenizer(model);
  if (!tokenizer) return;
  cJSON_AddNumberToObject(json, "cls_token_id", tokenizer->cls);
  cJSON_AddNumberToObject(json, "pad_token_id", tokenizer->pad);
  cJSON_AddNumberToObject(json, "eos_token_id", tokenizer->eos);
  cJSON_AddNumberToObject(json, "mask_token_id", tokenizer->mask);
}

char *plm_huggingface_config_print(const struct plm_model_config *model, uint32_t window,
                                   enum plm_objective objective)
{
  return plm_huggingface_config_print_dtype(model, window, objective, "float32");
}

char *plm_huggingface_config_print_dtype(const struct plm_model_config *model, uint32_t window,
                                         enum plm_objective objective, const char *dtype)
{
  return plm_huggingface_config_print_labels(model, window, objective, dtype, NULL);
}

char *plm_huggingface_config_print_labels(const struct plm_model_config *model, uint32_t window,
                                          enum plm_objective objective, const char *dtype,
                                          const struct plm_label_names *names)
{
  return plm_huggingface_config_print_kept(model, window, objective, dtype, names, NULL);
}

char *plm_huggingface_config_print_kept(const struct plm_model_config *model, uint32_t window,
                                        enum plm_objective objective, const char *dtype,
                                        const struct plm_label_names *names,
                                        const struct plm_published_kept *kept)
{
  cJSON *json;
  if (plm_architecture_rules(model->architecture)->published) {
    json = cJSON_CreateObject();
    plm_published_config_print(model, objective, dtype, json);
    if (kept != NULL) plm_published_kept_put(kept, json);
  } else {
    json = plm_model_config_to_json(model);
    cJSON_AddNumberToObject(json, "window", window);
    cJSON_AddStringToObject(json, "objective", plm_objective_name(objective));
    add_huggingface_keys(json, model, dtype);
  }
  plm_head_config_print(model, names, json);
  plm_lora_config_print(model, json);
  char *printed = plm_json_bytes(json, true);
  cJSON_Delete(json);
  char *text = plm_format("%s\n", printed);
  free(printed);
  return text;
}

/* A configuration made in Python may have no objective; PLMForMaskedLM then implies mlm. */
static bool read_objective(const cJSON *json, enum plm_objective *objective)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "objective");
  const int found = plm_text_find(plm_objective_names, cJSON_GetStringValue(item));
  *objective = found < 0 ? PLM_OBJECTIVE_MLM : (enum plm_objective)found;
  return item == NULL || found >= 0;
}

/* Both keys mean the same: one of the commands, and one of transformers. */
static plm_status check_tied(const cJSON *json, const struct plm_model_config *model,
                             struct plm_error *error)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "tie_word_embeddings");
  if (item == NULL || (cJSON_IsBool(item) && (bool)cJSON_IsTrue(item) == model->tie_embeddings))
    return PLM_OK;
  plm_error_set(error, PLM_FORMAT,
                "\"tie_word_embeddings\" is not the same as \"tie_embeddings\", which is %s",
                model->tie_embeddings ? "true" : "false");
  return plm_error_hint(error, "both should be true if the head is the embedding table, and false "
                               "if the weights have lm_head.decoder.weight");
}

static bool has_local(const struct plm_model_config *model)
{
  for (uint32_t i = 0; i < model->pattern_count; i++)
    if ((model->pattern[i] & PLM_ATTENTION_LOCAL) != 0) return true;
  return false;
}

/* config.json in our own form, which modeling_plm.py reads. */
static plm_status parse_own(const cJSON *json, struct plm_model_config *model, uint32_t *window,
                            enum plm_objective *objective, struct plm_error *error)
{
  uint64_t in_force = 0;
  PLM_TRY(plm_model_config_from_json(json, model, error));
  const char *published = plm_published_class(model->architecture);
  if (published != NULL)
    return plm_error_set(error, PLM_FORMAT,
                         "\"architecture\" is %s, but \"model_type\" is not that of %s",
                         plm_architecture_name(model->architecture), published);
  if (!plm_json_count(cJSON_GetObjectItemCaseSensitive(json, "window"), &in_force) ||
      in_force > PLM_MODEL_MAX_LENGTH)
    return plm_error_set(error, PLM_FORMAT,
                         "\"window\" is missing or is not a number of tokens up to %d",
                         PLM_MODEL_MAX_LENGTH);
  if (in_force == 0 && has_local(model))
    return plm_error_set(error, PLM_FORMAT,
                         "\"window\" is 0, but attention.pattern has a `local` mask");
  PLM_TRY(check_tied(json, model, error));
  if (!read_objective(json, objective))
    return plm_error_set(error, PLM_FORMAT, "\"objective\" is none that this version knows");
  *window = (uint32_t)in_force;
  return PLM_OK;
}

static plm_status refuse_type(const char *type, struct plm_error *error)
{
  char published[PLM_ARCHITECTURES][PLM_PUBLISHED_TYPE_SIZE];
  const char *types[PLM_ARCHITECTURES + 2] = {"plm (plm-pipeline)"};
  const size_t count = plm_published_model_types(published);
  struct plm_text list = {0};
  for (size_t i = 0; i < count; i++) types[1 + i] = published[i];
  plm_text_put_list(&list, types, " and ");
  plm_error_set(error, PLM_UNSUPPORTED, "\"model_type\" is \"%.80s\", a model of another kind",
                type);
  plm_error_hint(error, "these can be used: %s", list.data);
  plm_text_deinit(&list);
  return PLM_UNSUPPORTED;
}

/* A model of another kind is refused by its name, not by the first of our keys that it lacks. */
static plm_status parse_json(const cJSON *json, struct plm_model_config *model, uint32_t *window,
                             enum plm_objective *objective, struct plm_error *error)
{
  const char *type = plm_json_string(json, "model_type", "plm");
  enum plm_architecture architecture;
  if (plm_published_model_type(type, &architecture))
    return plm_published_config_parse(json, architecture, model, objective, error);
  if (strcmp(type, "plm") == 0 || cJSON_HasObjectItem(json, "architecture"))
    return parse_own(json, model, window, objective, error);
  return refuse_type(type, error);
}

plm_status plm_huggingface_config_parse(const char *text, size_t size,
                                        struct plm_model_config *model, uint32_t *window,
                                        enum plm_objective *objective, struct plm_error *error)
{
  enum plm_objective learnt = PLM_OBJECTIVE_MLM;
  uint32_t in_force = 0;
  cJSON *json;
  PLM_TRY(plm_json_parse(text, size, &config_limits, &json, error));
  plm_status status = parse_json(json, model, &in_force, &learnt, error);
  if (status == PLM_OK) status = plm_head_config_parse(json, model, error);
  if (status == PLM_OK) status = plm_lora_config_parse(json, model, error);
  if (status == PLM_OK && window) *window = in_force;
  if (status == PLM_OK && objective) *objective = learnt;
  cJSON_Delete(json);
  return status;
}

/* Puts the path before the key that a check named, and says what to do. */
static void name_place(const char *path, struct plm_error *error)
{
  char key[64];
  if (error == NULL) return;
  snprintf(key, sizeof key, "%.60s", error->where);
  plm_error_where(error, "%.400s%s%s", path, key[0] != '\0' ? ": " : "", key);
  if (error->hint[0] == '\0' && error->status != PLM_UNSUPPORTED)
    plm_error_hint(error, "use the config.json that was written with the weights");
}

plm_status plm_huggingface_config_open(const char *directory, char path[PLM_PATH_SIZE],
                                       cJSON **json, struct plm_error *error)
{
  char *text;
  size_t size;
  PLM_TRY(plm_path_join(path, directory, "config.json", error));
  PLM_TRY(plm_file_read(path, CONFIG_LIMIT, &text, &size, error));
  const plm_status status = plm_json_parse(text, size, &config_limits, json, error);
  free(text);
  if (status != PLM_OK) plm_error_where(error, "%s", path);
  return status;
}

plm_status plm_huggingface_config_read(const char *directory, struct plm_model_config *model,
                                       uint32_t *window, enum plm_objective *objective,
                                       struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  PLM_TRY(plm_path_join(path, directory, "config.json", error));
  PLM_TRY(plm_file_read(path, CONFIG_LIMIT, &text, &size, error));
  const plm_status status =
      plm_huggingface_config_parse(text, size, model, window, objective, error);
  free(text);
  if (status != PLM_OK) name_place(path, error);
  return status;
}
