/* config.json of published weights: see published_config.h. */
#include "common/huggingface/published_config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/text/json.h"
#include "common/corpus/tokenizer.h"
#include "common/huggingface/huggingface.h"
#include "common/model/architecture.h"

#define OWN_KEY "plm_pipeline"
static const double rope_theta = 10000.0;

/* ---- keys ---------------------------------------------------------------------------------- */

/* Sizes that are fields of the model. */
static const struct {
  const char *key;
  size_t offset;
} sizes[] = {
    {"vocab_size", offsetof(struct plm_model_config, vocab_size)},
    {"hidden_size", offsetof(struct plm_model_config, hidden_size)},
    {"num_hidden_layers", offsetof(struct plm_model_config, num_hidden_layers)},
    {"num_attention_heads", offsetof(struct plm_model_config, num_attention_heads)},
    {"intermediate_size", offsetof(struct plm_model_config, intermediate_size)},
    {"max_position_embeddings", offsetof(struct plm_model_config, max_positions)},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* A key that must have one value, because the class computes something else with another. */
struct fixed_key {
  const char *key;
  enum { FIXED_ID, FIXED_FLOAT, FIXED_TEXT, FIXED_BOOL } type;
  double number; /* also of a truth value */
  const char *text;
  bool needed; /* the class's default is another value, so the key must be there */
  const char *hint;
};
static const struct fixed_key esm_fixed[] = {
    {.key = "position_embedding_type",
     .type = FIXED_TEXT,
     .text = "rotary",
     .needed = true,
     .hint = "only rotary positions are computed here; ESM-1b and ESM-1v, whose positions are "
             "absolute, cannot be used"},
    {.key = "is_folding_model",
     .type = FIXED_BOOL,
     .hint = "ESMFold predicts structures; use the language model that it contains, ESM-2"},
    {.key = "is_decoder", .type = FIXED_BOOL},
    {.key = "add_cross_attention", .type = FIXED_BOOL},
    {.key = "rope_theta", .type = FIXED_FLOAT, .number = rope_theta},
    {.key = "tie_word_embeddings", .type = FIXED_BOOL, .number = 1},
    {.key = "mask_token_id", .type = FIXED_ID, .number = 32},
    {.key = "pad_token_id", .type = FIXED_ID, .number = 1},
    {.key = NULL},
};
static const struct fixed_key esmc_fixed[] = {
    {.key = "tie_word_embeddings", .type = FIXED_BOOL},
    {.key = "attention_bias", .type = FIXED_BOOL},
    {.key = "mlp_bias", .type = FIXED_BOOL},
    {.key = "hidden_act", .type = FIXED_TEXT, .text = "silu"},
    {.key = "mask_token_id", .type = FIXED_ID, .number = 32},
    {.key = "pad_token_id", .type = FIXED_ID, .number = 1},
    {.key = NULL},
};

/* ---- writing ------------------------------------------------------------------------------- */

void plm_published_number_put(struct cJSON *json, const char *key, double value)
{
  char text[PLM_JSON_NUMBER_SIZE];
  plm_json_number_text(value, text);
  if (strpbrk(text, ".e") == NULL) strcat(text, ".0");
  cJSON_DeleteItemFromObjectCaseSensitive(json, key);
  plm_json_put(json, key, cJSON_CreateRaw(text));
}

static void add_fixed(cJSON *json, const struct fixed_key *fixed)
{
  switch (fixed->type) {
  case FIXED_ID: cJSON_AddNumberToObject(json, fixed->key, fixed->number); break;
  case FIXED_FLOAT: plm_published_number_put(json, fixed->key, fixed->number); break;
  case FIXED_TEXT: cJSON_AddStringToObject(json, fixed->key, fixed->text); break;
  case FIXED_BOOL: cJSON_AddBoolToObject(json, fixed->key, fixed->number != 0); break;
  }
}

static void print_esm(cJSON *json, const struct plm_model_config *model)
{
  plm_published_number_put(json, "layer_norm_eps", model->layer_norm_eps);
  cJSON_AddBoolToObject(json, "token_dropout", model->token_dropout);
  cJSON_AddBoolToObject(json, "emb_layer_norm_before", model->emb_layer_norm_before);
  cJSON_AddStringToObject(json, "hidden_act", "gelu"); /* of versions that had the key */
  plm_published_number_put(json, "hidden_dropout_prob", 0);
  plm_published_number_put(json, "attention_probs_dropout_prob", 0);
}

static void print_esmc(cJSON *json, const struct plm_model_config *model)
{
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  cJSON_AddNumberToObject(json, "num_key_value_heads", model->num_attention_heads);
  const uint32_t head = model->hidden_size / model->num_attention_heads;
  cJSON_AddNumberToObject(json, "head_dim", head);
  plm_published_number_put(json, "attention_dropout", 0);
  cJSON_AddNumberToObject(json, "bos_token_id", tokenizer->cls);
  cJSON_AddNumberToObject(json, "eos_token_id", tokenizer->eos);
  cJSON *rope = cJSON_AddObjectToObject(json, "rope_parameters");
  cJSON_AddStringToObject(rope, "rope_type", "default");
  plm_published_number_put(rope, "rope_theta", rope_theta);
}

/* A key with the value null is treated as if it were missing, as transformers does. */
static const cJSON *member(const cJSON *json, const char *key)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
  return cJSON_IsNull(item) ? NULL : item;
}

/* NAN if it is not a number. */
static double number_of(const cJSON *item)
{
  return item != NULL && cJSON_IsNumber(item) != 0 ? cJSON_GetNumberValue(item) : (double)NAN;
}

/* ---- reading ------------------------------------------------------------------------------- */

static bool is_text(const cJSON *item, const char *text)
{
  const char *value = cJSON_GetStringValue(item);
  return value != NULL && strcmp(value, text) == 0;
}

static plm_status wrong_type(const char *key, const char *expected, struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "\"%s\" is missing or not %s", key, expected);
  return plm_error_where(error, "%s", key);
}

static plm_status read_count(const cJSON *json, const char *key, uint32_t otherwise,
                             uint32_t *value, struct plm_error *error)
{
  const cJSON *item = member(json, key);
  if (item == NULL && otherwise > 0) {
    *value = otherwise;
    return PLM_OK;
  }
  const double number = number_of(item);
  if (!(number >= 0.0) || number > 4294967295.0 || floor(number) != number)
    return wrong_type(key, "a whole number below 2^32", error);
  *value = (uint32_t)number;
  return PLM_OK;
}

static plm_status read_truth(const cJSON *json, const char *key, bool *value,
                             struct plm_error *error)
{
  const cJSON *item = member(json, key);
  if (item != NULL && !cJSON_IsBool(item)) return wrong_type(key, "true or false", error);
  *value = cJSON_IsTrue(item);
  return PLM_OK;
}

/* error->hint is only set if there is one to give. */
static plm_status other_value(const char *key, const cJSON *item, const char *needed,
                              const char *hint, struct plm_error *error)
{
  char *value = item != NULL ? plm_json_text(item, false) : NULL;
  plm_error_set(error, PLM_UNSUPPORTED, "\"%s\" is %.80s; only %s is supported", key,
                value != NULL ? value : "missing", needed);
  free(value);
  plm_error_where(error, "%s", key);
  return hint != NULL ? plm_error_hint(error, "%s", hint) : PLM_UNSUPPORTED;
}

static plm_status check_fixed_key(const cJSON *json, const struct fixed_key *fixed,
                                  struct plm_error *error)
{
  const cJSON *item = member(json, fixed->key);
  char needed[64];
  bool same = item == NULL && !fixed->needed;
  switch (fixed->type) {
  case FIXED_ID:
  case FIXED_FLOAT:
    (void)snprintf(needed, sizeof needed, "%g", fixed->number);
    same = same || number_of(item) == fixed->number;
    break;
  case FIXED_TEXT:
    (void)snprintf(needed, sizeof needed, "\"%s\"", fixed->text);
    same = same || is_text(item, fixed->text);
    break;
  case FIXED_BOOL:
    (void)snprintf(needed, sizeof needed, "%s", fixed->number != 0 ? "true" : "false");
    same = same || (cJSON_IsBool(item) && (cJSON_IsTrue(item) != 0) == (fixed->number != 0));
    break;
  }
  return same ? PLM_OK : other_value(fixed->key, item, needed, fixed->hint, error);
}

/* The keys of older versions, and that of newer ones: {"rope_type": "default", "rope_theta":
 * 10000.0}. */
static plm_status check_rope(const cJSON *json, struct plm_error *error)
{
  const cJSON *old = member(json, "rope_theta"), *scaling = member(json, "rope_scaling");
  if (old != NULL && number_of(old) != rope_theta)
    return other_value("rope_theta", old, "10000", NULL, error);
  if (scaling != NULL) return other_value("rope_scaling", scaling, "null", NULL, error);
  const cJSON *rope = member(json, "rope_parameters");
  const cJSON *type = member(rope, "rope_type"), *theta = member(rope, "rope_theta");
  const bool same =
      rope == NULL || (cJSON_IsObject(rope) && (type == NULL || is_text(type, "default")) &&
                       (theta == NULL || number_of(theta) == rope_theta));
  return same ? PLM_OK
              : other_value("rope_parameters", rope,
                            "{\"rope_type\": \"default\", \"rope_theta\": 10000.0}", NULL, error);
}

/* Grouped queries, and heads of another width than hidden_size / num_attention_heads. */
static plm_status parse_esmc(const cJSON *json, struct plm_model_config *model,
                             struct plm_error *error)
{
  uint32_t heads, width;
  if (model->num_attention_heads == 0) return PLM_OK; /* plm_model_config_check refuses it */
  const uint32_t head = model->hidden_size / model->num_attention_heads;
  PLM_TRY(read_count(json, "num_key_value_heads", model->num_attention_heads, &heads, error));
  if (heads != model->num_attention_heads)
    return other_value("num_key_value_heads", member(json, "num_key_value_heads"),
                       "the value of num_attention_heads", NULL, error);
  if (head == 0) return PLM_OK;
  PLM_TRY(read_count(json, "head_dim", head, &width, error));
  return width == head ? PLM_OK
                       : other_value("head_dim", member(json, "head_dim"),
                                     "hidden_size / num_attention_heads", NULL, error);
}

static plm_status parse_esm(const cJSON *json, struct plm_model_config *model,
                            struct plm_error *error)
{
  const cJSON *eps = member(json, "layer_norm_eps");
  if (eps != NULL && !cJSON_IsNumber(eps)) return wrong_type("layer_norm_eps", "a number", error);
  model->layer_norm_eps = eps != NULL ? number_of(eps) : 1e-12; /* of EsmConfig */
  PLM_TRY(read_truth(json, "token_dropout", &model->token_dropout, error));
  return read_truth(json, "emb_layer_norm_before", &model->emb_layer_norm_before, error);
}

/* The keys of the run that wrote the folder. */
static plm_status read_own(const cJSON *json, struct plm_model_config *model,
                           enum plm_objective *objective, struct plm_error *error)
{
  const cJSON *own = member(json, OWN_KEY);
  *objective = PLM_OBJECTIVE_MLM;
  model->max_length = model->max_positions;
  if (own == NULL) return PLM_OK;
  const int found = plm_text_find(plm_objective_names, plm_json_string(own, "objective", NULL));
  if (found < 0) return wrong_type(OWN_KEY, "an object with max_length and objective", error);
  *objective = (enum plm_objective)found;
  if (*objective == PLM_OBJECTIVE_CAUSAL)
    return other_value("plm_pipeline.objective", member(own, "objective"),
                       "mlm or masked_diffusion", NULL, error);
  return read_count(own, "max_length", 0, &model->max_length, error);
}

/* ---- layouts ------------------------------------------------------------------------------- */

/* How a class of transformers writes config.json. */
struct layout {
  const char *model_type, *class_name;
  uint32_t defaults[SIZES];      /* of its config class, as sizes; 0: the key must be there */
  const struct fixed_key *fixed; /* up to one without a key */
  /* Its other keys. */
  void (*print)(cJSON *json, const struct plm_model_config *model);
  plm_status (*parse)(const cJSON *json, struct plm_model_config *model, struct plm_error *error);
};

/* Our own architectures have none. */
static const struct layout layouts[PLM_ARCHITECTURES] = {
    [PLM_ESM2] = {.model_type = "esm",
                  .class_name = "EsmForMaskedLM",
                  .defaults = {0, 768, 12, 12, 3072, 1026},
                  .fixed = esm_fixed,
                  .print = print_esm,
                  .parse = parse_esm},
    [PLM_ESMC] = {.model_type = "esmc",
                  .class_name = "EsmcForMaskedLM",
                  .defaults = {64, 2560, 80, 40, 6912, 2048},
                  .fixed = esmc_fixed,
                  .print = print_esmc,
                  .parse = parse_esmc},
};

const char *plm_published_class(enum plm_architecture architecture)
{
  return layouts[architecture].class_name;
}

bool plm_published_model_type(const char *model_type, enum plm_architecture *architecture)
{
  for (int a = 0; a < PLM_ARCHITECTURES; a++)
    if (layouts[a].model_type != NULL && strcmp(layouts[a].model_type, model_type) == 0) {
      *architecture = (enum plm_architecture)a;
      return true;
    }
  return false;
}

size_t plm_published_model_types(char types[PLM_ARCHITECTURES][PLM_PUBLISHED_TYPE_SIZE])
{
  size_t count = 0;
  for (int a = 0; a < PLM_ARCHITECTURES; a++)
    if (layouts[a].model_type != NULL)
      (void)snprintf(types[count++], PLM_PUBLISHED_TYPE_SIZE, "%s (%s)", layouts[a].model_type,
                     plm_architecture_rules((enum plm_architecture)a)->title);
  return count;
}

void plm_published_config_print(const struct plm_model_config *model, enum plm_objective objective,
                                const char *dtype, struct cJSON *json)
{
  const struct plm_architecture_rules *rules = plm_architecture_rules(model->architecture);
  const struct layout *layout = &layouts[model->architecture];
  struct plm_model_config written = *model;
  if (written.max_positions == 0) written.max_positions = rules->max_positions;
  cJSON_AddStringToObject(json, "model_type", layout->model_type);
  cJSON *classes = cJSON_AddArrayToObject(json, "architectures");
  plm_json_append(classes, cJSON_CreateString(layout->class_name));
  for (size_t i = 0; i < SIZES; i++)
    cJSON_AddNumberToObject(json, sizes[i].key,
                            *(const uint32_t *)((const char *)&written + sizes[i].offset));
  for (const struct fixed_key *key = layout->fixed; key->key != NULL; key++) add_fixed(json, key);
  layout->print(json, model);
  cJSON_AddStringToObject(json, "dtype", dtype);
  if (model->max_length == written.max_positions && objective == PLM_OBJECTIVE_MLM) return;
  cJSON *own = cJSON_AddObjectToObject(json, OWN_KEY);
  cJSON_AddNumberToObject(own, "max_length", model->max_length);
  cJSON_AddStringToObject(own, "objective", plm_objective_name(objective));
}

plm_status plm_published_config_parse(const struct cJSON *json, enum plm_architecture architecture,
                                      struct plm_model_config *model, enum plm_objective *objective,
                                      struct plm_error *error)
{
  const struct plm_architecture_rules *rules = plm_architecture_rules(architecture);
  const struct layout *layout = &layouts[architecture];
  PLM_ASSERT(rules->published);
  *model = (struct plm_model_config){.architecture = architecture,
                                     .pattern = {PLM_ATTENTION_DOCUMENT},
                                     .pattern_count = 1,
                                     .tie_embeddings = rules->ties_embeddings,
                                     .layer_norm_eps = rules->layer_norm_eps};
  for (const struct fixed_key *key = layout->fixed; key->key != NULL; key++)
    PLM_TRY(check_fixed_key(json, key, error));
  PLM_TRY(check_rope(json, error));
  if (member(json, "quantization_config") != NULL)
    return other_value("quantization_config", member(json, "quantization_config"),
                       "a model that is not quantized", NULL, error);
  for (size_t i = 0; i < SIZES; i++)
    PLM_TRY(read_count(json, sizes[i].key, layout->defaults[i],
                       (uint32_t *)((char *)model + sizes[i].offset), error));
  PLM_TRY(layout->parse(json, model, error));
  if (model->max_positions == 0 || model->max_positions > PLM_MODEL_MAX_LENGTH)
    return other_value("max_position_embeddings", member(json, "max_position_embeddings"),
                       "a number from 1 to 1048576", NULL, error);
  PLM_TRY(read_own(json, model, objective, error));
  return plm_model_config_check(model, error);
}

/* ---- what is kept -------------------------------------------------------------------------- */

static const struct {
  const char *key;
  bool always; /* every class has it; else those for which plm_published_config_print wrote it */
} kept_keys[PLM_PUBLISHED_KEPT] = {
    {"hidden_dropout_prob", false}, {"attention_probs_dropout_prob", false},
    {"attention_dropout", false},   {"classifier_dropout", true},
    {"initializer_range", true},
};

plm_status plm_published_kept_read(const char *directory, struct plm_published_kept *kept,
                                   struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  cJSON *json;
  PLM_TRY(plm_huggingface_config_open(directory, path, &json, error));
  for (size_t i = 0; i < PLM_PUBLISHED_KEPT; i++)
    kept->numbers[i] = number_of(member(json, kept_keys[i].key));
  cJSON_Delete(json);
  return PLM_OK;
}

void plm_published_kept_put(const struct plm_published_kept *kept, struct cJSON *json)
{
  for (size_t i = 0; i < PLM_PUBLISHED_KEPT; i++) {
    const char *key = kept_keys[i].key;
    if (!isfinite(kept->numbers[i]) || !(kept_keys[i].always || cJSON_HasObjectItem(json, key)))
      continue;
    plm_published_number_put(json, key, kept->numbers[i]);
  }
}
