/* A model's configuration: its checks, the widths of its levels, and its part of config.json. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/text/json.h"
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

/* ---- checks -------------------------------------------------------------------------------- */

struct checks {
  const struct plm_model_config *model;
  plm_model_key_known *known; /* NULL: all keys are */
  void *context;
  struct plm_model_fault *faults;
  size_t count;
};

static void add_fault(struct checks *checks, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_fault(struct checks *checks, const char *key, const char *format, ...)
{
  PLM_ASSERT(checks->count < PLM_MODEL_MAX_FAULTS);
  struct plm_model_fault *fault = &checks->faults[checks->count++];
  va_list arguments;
  fault->key = key;
  va_start(arguments, format);
  vsnprintf(fault->what, sizeof fault->what, format, arguments);
  va_end(arguments);
}

/* Whether a rule on these keys (up to four, then NULL) can be checked: each value is known, and no
 * other rule has rejected it. */
static bool checkable(const struct checks *checks, const char *const keys[4])
{
  for (size_t k = 0; k < 4 && keys[k] != NULL; k++) {
    if (checks->known != NULL && !checks->known(checks->context, keys[k])) return false;
    for (size_t i = 0; i < checks->count; i++)
      if (strcmp(checks->faults[i].key, keys[k]) == 0) return false;
  }
  return true;
}
#define CHECKABLE(checks, ...) checkable(checks, (const char *const[4]){__VA_ARGS__})

/* The first check: the others may then compute with the values that passed it. */
static void check_limits(struct checks *checks)
{
  static const struct {
    const char *key;
    size_t offset;
    uint32_t most;
  } limits[] = {
#define LIMIT(name, member, limit) {name, offsetof(struct plm_model_config, member), (limit)}
      LIMIT("hidden_size", hidden_size, PLM_MODEL_MAX_WIDTH),
      LIMIT("num_attention_heads", num_attention_heads, PLM_MODEL_MAX_HEADS),
      LIMIT("num_hidden_layers", num_hidden_layers, PLM_MODEL_MAX_LAYERS),
      LIMIT("num_unet_layers", num_unet_layers, PLM_MODEL_MAX_UNET),
      LIMIT("num_extra_layers", num_extra_layers, PLM_MODEL_MAX_LAYERS),
      LIMIT("max_length", max_length, PLM_MODEL_MAX_LENGTH),
      LIMIT("vocab_size", vocab_size, PLM_MODEL_MAX_VOCABULARY),
      LIMIT("attention.window.start", window_start, PLM_MODEL_MAX_LENGTH),
      LIMIT("attention.window.end", window_end, PLM_MODEL_MAX_LENGTH),
      LIMIT("attention.block", block, PLM_MODEL_MAX_LENGTH),
#undef LIMIT
  };
  const char *model = (const char *)checks->model;
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    const uint32_t value = *(const uint32_t *)(model + limits[i].offset);
    if (value > limits[i].most && CHECKABLE(checks, limits[i].key))
      add_fault(checks, limits[i].key, "%u exceeds the limit of %u", value, limits[i].most);
  }
  const double cap = checks->model->soft_logit_cap;
  if (CHECKABLE(checks, "soft_logit_cap") && !(cap >= 0.0 && cap <= PLM_MODEL_MAX_LOGIT_CAP))
    add_fault(checks, "soft_logit_cap", "%g is not a number from 0 to %d", cap,
              PLM_MODEL_MAX_LOGIT_CAP);
}

static void check_sizes(struct checks *checks)
{
  const struct plm_model_config *model = checks->model;
  if (CHECKABLE(checks, "hidden_size") && model->hidden_size == 0)
    add_fault(checks, "hidden_size", "must be above 0");
  if (CHECKABLE(checks, "num_attention_heads") && model->num_attention_heads == 0)
    add_fault(checks, "num_attention_heads", "must be above 0");
  if (CHECKABLE(checks, "max_length") &&
      (model->max_length < 2 || (model->max_length & (model->max_length - 1)) != 0))
    add_fault(checks, "max_length", "%u is not a power of two", model->max_length);
  if (CHECKABLE(checks, "vocab_size") && model->vocab_size == 0)
    add_fault(checks, "vocab_size", "must be above 0");
  if (CHECKABLE(checks, "expansion_ratio", "hidden_size") &&
      (!(model->expansion_ratio > 0.0) || model->expansion_ratio * model->hidden_size < 1.0 ||
       model->expansion_ratio > PLM_MODEL_MAX_RATIO))
    add_fault(checks, "expansion_ratio", "%g leaves no MLP, or exceeds %d", model->expansion_ratio,
              PLM_MODEL_MAX_RATIO);
}

static void check_masks(struct checks *checks)
{
  const struct plm_model_config *model = checks->model;
  unsigned kinds = 0;
  if (!CHECKABLE(checks, "attention.pattern")) return;
  if (model->pattern_count == 0 || model->pattern_count > PLM_MAX_PATTERN) {
    add_fault(checks, "attention.pattern", "has %u entries; 1 to %d are possible",
              model->pattern_count, PLM_MAX_PATTERN);
    return;
  }
  for (uint32_t i = 0; i < model->pattern_count; i++) kinds |= model->pattern[i];
  if ((kinds & PLM_ATTENTION_BLOCK) != 0 && CHECKABLE(checks, "attention.block") &&
      model->block == 0)
    add_fault(checks, "attention.block", "must be above 0, since the pattern has a `block` mask");
  if ((kinds & PLM_ATTENTION_LOCAL) != 0 &&
      CHECKABLE(checks, "attention.window.start", "attention.window.end") &&
      (model->window_start == 0 || model->window_end == 0))
    add_fault(checks, "attention.window.end",
              "start and end must be above 0, since the pattern has a `local` mask");
}

static void check_layers(struct checks *checks)
{
  const struct plm_model_config *model = checks->model;
  static const char mirror[] = "is not even, but encoder and decoder mirror each other";
  if (!CHECKABLE(checks, "architecture")) return;
  if (model->architecture == PLM_PATCH_UNET) {
    if (CHECKABLE(checks, "num_unet_layers") &&
        (model->num_unet_layers < 2 || model->num_unet_layers % 2 != 0))
      add_fault(checks, "num_unet_layers", "%u %s", model->num_unet_layers, mirror);
  } else if (CHECKABLE(checks, "num_hidden_layers")) {
    if (model->num_hidden_layers == 0)
      add_fault(checks, "num_hidden_layers", "must be above 0");
    else if (model->architecture == PLM_UNET && model->num_hidden_layers % 2 != 0)
      add_fault(checks, "num_hidden_layers", "%u %s", model->num_hidden_layers, mirror);
  }
}

static void check_head_width(struct checks *checks, uint32_t width, const char *place)
{
  const uint32_t heads = checks->model->num_attention_heads, head = width / heads;
  if (width % heads != 0 || head % HEAD_WIDTH_STEP != 0 || head < HEAD_WIDTH_MIN ||
      head > HEAD_WIDTH_MAX)
    add_fault(checks, "hidden_size",
              "%s%u divided by %u heads is not a head width; these are the multiples of %d from %d "
              "to %d",
              place, width, heads, HEAD_WIDTH_STEP, HEAD_WIDTH_MIN, HEAD_WIDTH_MAX);
}

static void check_patch_widths(struct checks *checks)
{
  const struct plm_model_config *model = checks->model;
  const uint32_t heads = model->num_attention_heads;
  if (!CHECKABLE(checks, "architecture", "hidden_size", "num_attention_heads") || heads == 0 ||
      model->architecture != PLM_PATCH_UNET)
    return;
  const uint32_t unit = width_unit(heads);
  if (model->hidden_size % unit != 0)
    add_fault(checks, "hidden_size",
              "%u is not a multiple of %u, the least common multiple of %d and %u heads",
              model->hidden_size, unit, UNIT_BASE, heads);
  else if (model->hidden_size > HEAD_WIDTH_MAX * heads)
    add_fault(checks, "hidden_size",
              "%u exceeds %d times %u heads; use more heads or a smaller width", model->hidden_size,
              HEAD_WIDTH_MAX, heads);
  const uint32_t levels = model->num_unet_layers / 2;
  for (uint32_t level = 0; level < levels; level++) {
    char place[64];
    if (!CHECKABLE(checks, "hidden_size", "num_unet_layers")) return;
    snprintf(place, sizeof place, "at level %u, width ", level);
    check_head_width(checks, plm_model_config_width(model, level), place);
  }
}

size_t plm_model_config_faults(const struct plm_model_config *model, plm_model_key_known *known,
                               void *context, struct plm_model_fault faults[PLM_MODEL_MAX_FAULTS])
{
  struct checks checks = {.model = model, .known = known, .context = context, .faults = faults};
  check_limits(&checks);
  check_sizes(&checks);
  check_masks(&checks);
  check_layers(&checks);
  check_patch_widths(&checks);
  /* also the width of a patch_unet's first level, so the architecture need not be known */
  if (CHECKABLE(&checks, "hidden_size", "num_attention_heads"))
    check_head_width(&checks, model->hidden_size, "");
  return checks.count;
}

plm_status plm_model_config_check(const struct plm_model_config *model, struct plm_error *error)
{
  struct plm_model_fault faults[PLM_MODEL_MAX_FAULTS];
  if (plm_model_config_faults(model, NULL, NULL, faults) == 0) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "%s", faults[0].what);
  plm_error_where(error, "%s", faults[0].key);
  return PLM_CONFIG;
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
