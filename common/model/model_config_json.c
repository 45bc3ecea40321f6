/* A model's part of config.json. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/model/architecture.h"
#include "common/model/model_config.h"

enum json_type { JSON_U32, JSON_DOUBLE, JSON_BOOL };

/* The architectures that a key is about. */
enum json_scope { OF_ALL, OF_OURS, OF_PUBLISHED };

static const struct {
  const char *name;
  enum json_type type;
  enum json_scope scope;
  size_t offset;
} json_fields[] = {
#define JSON_FIELD(name, type, scope)                           \
  {                                                             \
#name, type, scope, offsetof(struct plm_model_config, name) \
  }
    JSON_FIELD(hidden_size, JSON_U32, OF_ALL),
    JSON_FIELD(num_attention_heads, JSON_U32, OF_ALL),
    JSON_FIELD(num_hidden_layers, JSON_U32, OF_ALL),
    JSON_FIELD(num_unet_layers, JSON_U32, OF_OURS),
    JSON_FIELD(num_extra_layers, JSON_U32, OF_OURS),
    JSON_FIELD(expansion_ratio, JSON_DOUBLE, OF_OURS),
    JSON_FIELD(intermediate_size, JSON_U32, OF_PUBLISHED),
    JSON_FIELD(layer_norm_eps, JSON_DOUBLE, OF_PUBLISHED),
    JSON_FIELD(emb_layer_norm_before, JSON_BOOL, OF_PUBLISHED),
    JSON_FIELD(soft_logit_cap, JSON_DOUBLE, OF_OURS),
    JSON_FIELD(tie_embeddings, JSON_BOOL, OF_ALL),
    JSON_FIELD(token_dropout, JSON_BOOL, OF_ALL),
    JSON_FIELD(max_length, JSON_U32, OF_ALL),
    JSON_FIELD(vocab_size, JSON_U32, OF_ALL),
#undef JSON_FIELD
};
enum { JSON_FIELDS = sizeof json_fields / sizeof json_fields[0] };

/* Whether the model's architecture has key i. */
static bool applies(const struct plm_model_config *model, size_t i)
{
  const bool published = plm_architecture_rules(model->architecture)->published;
  return json_fields[i].scope == OF_ALL || (json_fields[i].scope == OF_PUBLISHED) == published;
}

static cJSON *attention_to_json(const struct plm_model_config *model)
{
  cJSON *attention = cJSON_CreateObject();
  cJSON *pattern = cJSON_AddArrayToObject(attention, "pattern");
  for (uint32_t i = 0; i < model->pattern_count; i++) {
    char name[64];
    plm_attention_kind_name(model->pattern[i], name);
    plm_json_append(pattern, cJSON_CreateString(name));
  }
  cJSON *window = cJSON_AddObjectToObject(attention, "window");
  cJSON_AddNumberToObject(window, "start", model->window_start);
  cJSON_AddNumberToObject(window, "end", model->window_end);
  cJSON_AddNumberToObject(window, "steps", model->window_steps);
  cJSON_AddNumberToObject(attention, "block", model->block);
  return attention;
}

struct cJSON *plm_model_config_to_json(const struct plm_model_config *model)
{
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "architecture", plm_architecture_names[model->architecture]);
  for (size_t i = 0; i < JSON_FIELDS; i++) {
    const void *value = (const char *)model + json_fields[i].offset;
    if (!applies(model, i)) continue;
    switch (json_fields[i].type) {
    case JSON_U32:
      cJSON_AddNumberToObject(json, json_fields[i].name, *(const uint32_t *)value);
      break;
    case JSON_DOUBLE:
      cJSON_AddNumberToObject(json, json_fields[i].name, *(const double *)value);
      break;
    case JSON_BOOL: cJSON_AddBoolToObject(json, json_fields[i].name, *(const bool *)value); break;
    }
  }
  if (!plm_architecture_rules(model->architecture)->published)
    plm_json_put(json, "attention", attention_to_json(model));
  return json;
}

static plm_status json_wrong(struct plm_error *error, const char *name, const char *expected)
{
  return plm_error_set(error, PLM_FORMAT, "config.json: \"%s\" is missing or not %s", name,
                       expected);
}

static plm_status read_u32(const cJSON *json, const char *name, uint32_t *value,
                           struct plm_error *error)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.0) || item->valuedouble > 4294967295.0 ||
      floor(item->valuedouble) != item->valuedouble) {
    return json_wrong(error, name, "a whole number below 2^32");
  }
  *value = (uint32_t)item->valuedouble;
  return PLM_OK;
}

static plm_status attention_from_json(const cJSON *attention, struct plm_model_config *model,
                                      struct plm_error *error)
{
  const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(attention, "pattern");
  const cJSON *window = cJSON_GetObjectItemCaseSensitive(attention, "window");
  const int entries = cJSON_GetArraySize(pattern);
  if (!cJSON_IsArray(pattern) || entries < 1 || entries > PLM_MAX_PATTERN) {
    return json_wrong(error, "attention.pattern", "a list of masks");
  }
  model->pattern_count = 0;
  const cJSON *entry;
  cJSON_ArrayForEach(entry, pattern)
  {
    if (!cJSON_IsString(entry)) return json_wrong(error, "attention.pattern", "a list of masks");
    PLM_TRY(plm_attention_kind_parse(entry->valuestring, &model->pattern[model->pattern_count++],
                                     error));
  }
  PLM_TRY(read_u32(window, "end", &model->window_end, error));
  model->window_start = model->window_end; /* a configuration made in Python has no schedule */
  if (cJSON_HasObjectItem(window, "start"))
    PLM_TRY(read_u32(window, "start", &model->window_start, error));
  if (cJSON_HasObjectItem(window, "steps"))
    PLM_TRY(read_u32(window, "steps", &model->window_steps, error));
  return read_u32(attention, "block", &model->block, error);
}

plm_status plm_model_config_from_json(const struct cJSON *json, struct plm_model_config *model,
                                      struct plm_error *error)
{
  *model = (struct plm_model_config){0};
  const int found =
      plm_text_find(plm_architecture_names, plm_json_string(json, "architecture", NULL));
  if (found < 0) {
    struct plm_text names = {0};
    plm_text_put_list(&names, plm_architecture_names, " or ");
    (void)json_wrong(error, "architecture", names.data);
    plm_text_deinit(&names);
    return PLM_FORMAT;
  }
  model->architecture = (enum plm_architecture)found;
  for (size_t i = 0; i < JSON_FIELDS; i++) {
    const char *name = json_fields[i].name;
    void *value = (char *)model + json_fields[i].offset;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (!applies(model, i)) continue;
    if (json_fields[i].type == JSON_U32) {
      PLM_TRY(read_u32(json, name, value, error));
    } else if (json_fields[i].type == JSON_DOUBLE) {
      if (!cJSON_IsNumber(item)) return json_wrong(error, name, "a number");
      *(double *)value = item->valuedouble;
    } else {
      if (!cJSON_IsBool(item)) return json_wrong(error, name, "true or false");
      *(bool *)value = cJSON_IsTrue(item);
    }
  }
  if (plm_architecture_rules(model->architecture)->published) {
    model->pattern[0] = PLM_ATTENTION_DOCUMENT;
    model->pattern_count = 1;
  } else {
    PLM_TRY(attention_from_json(cJSON_GetObjectItemCaseSensitive(json, "attention"), model, error));
  }
  return plm_model_config_check(model, error);
}
