/* struct plm_model_config alone: what makes one impossible, widths by level, and config.json. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/model/model_config.h"

enum { HEAD_WIDTH_MIN = 16, HEAD_WIDTH_MAX = 128, HEAD_WIDTH_STEP = 8, UNIT_BASE = 64 };

static uint32_t width_unit(uint32_t heads)
{
  uint32_t a = UNIT_BASE, b = heads;
  while (b != 0) {
    const uint32_t rest = a % b;
    a = b;
    b = rest;
  }
  return UNIT_BASE / a * heads;
}

uint32_t plm_model_config_width(const struct plm_model_config *model, uint32_t level)
{
  const uint64_t halves = model->num_unet_layers / 2, width = model->hidden_size;
  if (model->architecture != PLM_PATCH_UNET || halves < 2) return model->hidden_size;
  const uint64_t unit = width_unit(model->num_attention_heads), steps = (halves - 1) * unit;
  const uint64_t wanted = unit * ((width * (halves - 1 + level) + steps - 1) / steps);
  const uint64_t most = unit * ((uint64_t)HEAD_WIDTH_MAX * model->num_attention_heads / unit);
  return (uint32_t)(wanted < most ? wanted : most);
}

static plm_status wrong(struct plm_error *error, const char *key, const char *hint)
{
  plm_error_where(error, "%s", key);
  if (hint != NULL) plm_error_hint(error, "%s", hint);
  return PLM_CONFIG;
}

static plm_status check_head_width(uint32_t width, uint32_t heads, const char *what,
                                   struct plm_error *error)
{
  const uint32_t head = width / heads;
  if (width % heads == 0 && head % HEAD_WIDTH_STEP == 0 && head >= HEAD_WIDTH_MIN &&
      head <= HEAD_WIDTH_MAX) {
    return PLM_OK;
  }
  plm_error_set(error, PLM_CONFIG,
                "%s%u over %u heads is not a head width of %d to %d in steps "
                "of %d",
                what, width, heads, HEAD_WIDTH_MIN, HEAD_WIDTH_MAX, HEAD_WIDTH_STEP);
  return wrong(error, "hidden_size", NULL);
}

static plm_status check_patch_unet(const struct plm_model_config *model, struct plm_error *error)
{
  const uint32_t heads = model->num_attention_heads, unit = width_unit(heads);
  if (model->num_unet_layers < 2 || model->num_unet_layers % 2 != 0) {
    plm_error_set(error, PLM_CONFIG, "%u is not even: encoder and decoder mirror each other",
                  model->num_unet_layers);
    return wrong(error, "num_unet_layers", NULL);
  }
  if (model->hidden_size % unit != 0) {
    plm_error_set(error, PLM_CONFIG,
                  "%u is not a multiple of %u, the least common multiple of %d "
                  "and %u heads",
                  model->hidden_size, unit, UNIT_BASE, heads);
    return wrong(error, "hidden_size", NULL);
  }
  if (model->hidden_size > HEAD_WIDTH_MAX * heads) {
    plm_error_set(error, PLM_CONFIG, "%u exceeds %d times %u heads", model->hidden_size,
                  HEAD_WIDTH_MAX, heads);
    return wrong(error, "hidden_size", "take more heads or a smaller width");
  }
  for (uint32_t level = 0; level < model->num_unet_layers / 2; level++) {
    char what[64];
    snprintf(what, sizeof what, "at level %u, width ", level);
    PLM_TRY(check_head_width(plm_model_config_width(model, level), heads, what, error));
  }
  return PLM_OK;
}

static plm_status check_masks(const struct plm_model_config *model, struct plm_error *error)
{
  if (model->pattern_count == 0 || model->pattern_count > PLM_MAX_PATTERN) {
    plm_error_set(error, PLM_CONFIG, "%u entries, 1 to %d are possible", model->pattern_count,
                  PLM_MAX_PATTERN);
    return wrong(error, "attention.pattern", NULL);
  }
  for (uint32_t i = 0; i < model->pattern_count; i++) {
    if ((model->pattern[i] & PLM_ATTENTION_BLOCK) != 0 && model->block == 0) {
      plm_error_set(error, PLM_CONFIG, "the pattern has a `block` mask, so this must be above 0");
      return wrong(error, "attention.block", NULL);
    }
    if ((model->pattern[i] & PLM_ATTENTION_LOCAL) != 0 &&
        (model->window_start == 0 || model->window_end == 0)) {
      plm_error_set(error, PLM_CONFIG,
                    "the pattern has a `local` mask, so start and end must be "
                    "above 0");
      return wrong(error, "attention.window.end", NULL);
    }
  }
  return PLM_OK;
}

plm_status plm_model_config_check(const struct plm_model_config *model, struct plm_error *error)
{
  if (model->hidden_size == 0 || model->num_attention_heads == 0) {
    plm_error_set(error, PLM_CONFIG, "width and heads must be above 0");
    return wrong(error, model->hidden_size == 0 ? "hidden_size" : "num_attention_heads", NULL);
  }
  if (model->max_length < 2 || (model->max_length & (model->max_length - 1)) != 0) {
    plm_error_set(error, PLM_CONFIG, "%u is not a power of two", model->max_length);
    return wrong(error, "max_length", NULL);
  }
  if (model->vocab_size == 0 || model->vocab_size > 65536) {
    plm_error_set(error, PLM_CONFIG, "%u tokens are not 1 to 65536", model->vocab_size);
    return wrong(error, "vocab_size", NULL);
  }
  if (!(model->expansion_ratio > 0.0) || model->expansion_ratio * model->hidden_size < 1.0 ||
      model->expansion_ratio > 64.0) {
    plm_error_set(error, PLM_CONFIG, "%g leaves no MLP, or exceeds 64", model->expansion_ratio);
    return wrong(error, "expansion_ratio", NULL);
  }
  PLM_TRY(check_masks(model, error));
  if (model->architecture == PLM_PATCH_UNET) return check_patch_unet(model, error);
  if (model->num_hidden_layers == 0 ||
      (model->architecture == PLM_UNET && model->num_hidden_layers % 2 != 0)) {
    plm_error_set(error, PLM_CONFIG, "%u is not %s", model->num_hidden_layers,
                  model->architecture == PLM_UNET ? "even: encoder and decoder mirror each other"
                                                  : "above 0");
    return wrong(error, "num_hidden_layers", NULL);
  }
  return check_head_width(model->hidden_size, model->num_attention_heads, "", error);
}

/* ---- config.json --------------------------------------------------------------------------- */

enum json_type { JSON_U32, JSON_DOUBLE, JSON_BOOL };

static const struct {
  const char *name;
  enum json_type type;
  size_t offset;
} json_fields[] = {
#define JSON_FIELD(name, type)                           \
  {                                                      \
#name, type, offsetof(struct plm_model_config, name) \
  }
    JSON_FIELD(hidden_size, JSON_U32),       JSON_FIELD(num_attention_heads, JSON_U32),
    JSON_FIELD(num_hidden_layers, JSON_U32), JSON_FIELD(num_unet_layers, JSON_U32),
    JSON_FIELD(num_extra_layers, JSON_U32),  JSON_FIELD(expansion_ratio, JSON_DOUBLE),
    JSON_FIELD(soft_logit_cap, JSON_DOUBLE), JSON_FIELD(tie_embeddings, JSON_BOOL),
    JSON_FIELD(token_dropout, JSON_BOOL),    JSON_FIELD(max_length, JSON_U32),
    JSON_FIELD(vocab_size, JSON_U32),
#undef JSON_FIELD
};
enum { JSON_FIELDS = sizeof json_fields / sizeof json_fields[0] };

static cJSON *attention_to_json(const struct plm_model_config *model)
{
  cJSON *attention = cJSON_CreateObject();
  cJSON *pattern = cJSON_AddArrayToObject(attention, "pattern");
  for (uint32_t i = 0; i < model->pattern_count; i++) {
    char name[64];
    plm_attention_kind_name(model->pattern[i], name);
    cJSON_AddItemToArray(pattern, cJSON_CreateString(name));
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
  cJSON_AddItemToObject(json, "attention", attention_to_json(model));
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
    return json_wrong(error, name, "a whole number");
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
  model->window_start = model->window_end; /* a config made in Python has no schedule */
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
  const cJSON *architecture = cJSON_GetObjectItemCaseSensitive(json, "architecture");
  int found = -1;
  for (int i = 0; cJSON_IsString(architecture) && plm_architecture_names[i] != NULL; i++) {
    if (strcmp(plm_architecture_names[i], architecture->valuestring) == 0) found = i;
  }
  if (found < 0) return json_wrong(error, "architecture", "transformer, unet or patch_unet");
  model->architecture = (enum plm_architecture)found;
  for (size_t i = 0; i < JSON_FIELDS; i++) {
    const char *name = json_fields[i].name;
    void *value = (char *)model + json_fields[i].offset;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
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
  PLM_TRY(attention_from_json(cJSON_GetObjectItemCaseSensitive(json, "attention"), model, error));
  return plm_model_config_check(model, error);
}
