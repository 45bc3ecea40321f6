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

static const struct {
  const char *model_type, *class_name;
  enum plm_architecture architecture;
} kinds[] = {
    {"esm", "EsmForMaskedLM", PLM_ESM2},
    {"esmc", "EsmcForMaskedLM", PLM_ESMC},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *plm_published_class(enum plm_architecture architecture)
{
  for (size_t i = 0; i < KINDS; i++)
    if (kinds[i].architecture == architecture) return kinds[i].class_name;
  return NULL;
}

bool plm_published_model_type(const char *model_type, enum plm_architecture *architecture)
{
  for (size_t i = 0; model_type != NULL && i < KINDS; i++)
    if (strcmp(kinds[i].model_type, model_type) == 0) {
      *architecture = kinds[i].architecture;
      return true;
    }
  return false;
}

/* ---- keys ---------------------------------------------------------------------------------- */

enum { ESM2 = 1 << PLM_ESM2, ESMC = 1 << PLM_ESMC };

/* Sizes that are fields of the model, with the defaults of EsmConfig and EsmcConfig. */
static const struct {
  const char *key;
  size_t offset;
  uint32_t esm2, esmc; /* default; 0: the key must be there */
} sizes[] = {
#define SIZE(key, member, esm2, esmc)                          \
  {                                                            \
    key, offsetof(struct plm_model_config, member), esm2, esmc \
  }
    SIZE("vocab_size", vocab_size, 0, 64),
    SIZE("hidden_size", hidden_size, 768, 2560),
    SIZE("num_hidden_layers", num_hidden_layers, 12, 80),
    SIZE("num_attention_heads", num_attention_heads, 12, 40),
    SIZE("intermediate_size", intermediate_size, 3072, 6912),
    SIZE("max_position_embeddings", max_positions, 1026, 2048),
#undef SIZE
};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Keys that must have one value, because the class computes something else with another. */
struct fixed_key {
  const char *key;
  unsigned architectures; /* bits that have the key */
  enum { FIXED_ID, FIXED_FLOAT, FIXED_TEXT, FIXED_BOOL } type;
  double number; /* also of a truth value */
  const char *text;
  bool needed; /* the class's default is another value, so the key must be there */
  const char *hint;
};
static const struct fixed_key fixed_keys[] = {
    {.key = "position_embedding_type",
     .architectures = ESM2,
     .type = FIXED_TEXT,
     .text = "rotary",
     .needed = true,
     .hint = "only rotary positions are computed here; ESM-1b and ESM-1v, whose positions are "
             "absolute, cannot be used"},
    {.key = "is_folding_model",
     .architectures = ESM2,
     .type = FIXED_BOOL,
     .hint = "ESMFold predicts structures; use the language model that it contains, ESM-2"},
    {.key = "is_decoder", .architectures = ESM2, .type = FIXED_BOOL},
    {.key = "add_cross_attention", .architectures = ESM2, .type = FIXED_BOOL},
    {.key = "rope_theta", .architectures = ESM2, .type = FIXED_FLOAT, .number = rope_theta},
    {.key = "tie_word_embeddings", .architectures = ESM2, .type = FIXED_BOOL, .number = 1},
    {.key = "tie_word_embeddings", .architectures = ESMC, .type = FIXED_BOOL},
    {.key = "attention_bias", .architectures = ESMC, .type = FIXED_BOOL},
    {.key = "mlp_bias", .architectures = ESMC, .type = FIXED_BOOL},
    {.key = "hidden_act", .architectures = ESMC, .type = FIXED_TEXT, .text = "silu"},
    {.key = "mask_token_id", .architectures = ESM2 | ESMC, .type = FIXED_ID, .number = 32},
    {.key = "pad_token_id", .architectures = ESM2 | ESMC, .type = FIXED_ID, .number = 1},
};
enum { FIXED_KEYS = sizeof fixed_keys / sizeof *fixed_keys };

/* ---- writing ------------------------------------------------------------------------------- */

/* transformers 5 refuses a whole number where its class has a float. */
static void add_float(cJSON *json, const char *key, double value)
{
  char text[40];
  (void)snprintf(text, sizeof text, "%.15g", value);
  if (strtod(text, NULL) != value) (void)snprintf(text, sizeof text, "%.17g", value);
  if (strpbrk(text, ".e") == NULL) strcat(text, ".0");
  plm_json_put(json, key, cJSON_CreateRaw(text));
}

static void add_fixed(cJSON *json, const struct fixed_key *fixed)
{
  switch (fixed->type) {
  case FIXED_ID: cJSON_AddNumberToObject(json, fixed->key, fixed->number); break;
  case FIXED_FLOAT: add_float(json, fixed->key, fixed->number); break;
  case FIXED_TEXT: cJSON_AddStringToObject(json, fixed->key, fixed->text); break;
  case FIXED_BOOL: cJSON_AddBoolToObject(json, fixed->key, fixed->number != 0); break;
  }
}

static void add_esm2(cJSON *json, const struct plm_model_config *model)
{
  add_float(json, "layer_norm_eps", model->layer_norm_eps);
  cJSON_AddBoolToObject(json, "token_dropout", model->token_dropout);
  cJSON_AddBoolToObject(json, "emb_layer_norm_before", model->emb_layer_norm_before);
  cJSON_AddStringToObject(json, "hidden_act", "gelu"); /* of versions that had the key */
  add_float(json, "hidden_dropout_prob", 0);
  add_float(json, "attention_probs_dropout_prob", 0);
}

static void add_esmc(cJSON *json, const struct plm_model_config *model)
{
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  cJSON_AddNumberToObject(json, "num_key_value_heads", model->num_attention_heads);
  const uint32_t head = model->hidden_size / model->num_attention_heads;
  cJSON_AddNumberToObject(json, "head_dim", head);
  add_float(json, "attention_dropout", 0);
  cJSON_AddNumberToObject(json, "bos_token_id", tokenizer->cls);
  cJSON_AddNumberToObject(json, "eos_token_id", tokenizer->eos);
  cJSON *rope = cJSON_AddObjectToObject(json, "rope_parameters");
  cJSON_AddStringToObject(rope, "rope_type", "default");
  add_float(rope, "rope_theta", rope_theta);
}

void plm_published_config_print(const struct plm_model_config *model, enum plm_objective objective,
                                const char *dtype, struct cJSON *json)
{
  const struct plm_architecture_rules *rules = plm_architecture_rules(model->architecture);
  struct plm_model_config written = *model;
  if (written.max_positions == 0) written.max_positions = rules->max_positions;
  for (size_t i = 0; i < KINDS; i++) {
    if (kinds[i].architecture != model->architecture) continue;
    cJSON_AddStringToObject(json, "model_type", kinds[i].model_type);
    cJSON *classes = cJSON_AddArrayToObject(json, "architectures");
    plm_json_append(classes, cJSON_CreateString(kinds[i].class_name));
  }
  for (size_t i = 0; i < SIZES; i++)
    cJSON_AddNumberToObject(json, sizes[i].key,
                            *(const uint32_t *)((const char *)&written + sizes[i].offset));
  for (size_t i = 0; i < FIXED_KEYS; i++)
    if ((fixed_keys[i].architectures >> model->architecture & 1) != 0)
      add_fixed(json, &fixed_keys[i]);
  if (model->architecture == PLM_ESM2)
    add_esm2(json, model);
  else
    add_esmc(json, model);
  cJSON_AddStringToObject(json, "dtype", dtype);
  if (model->max_length == written.max_positions && objective == PLM_OBJECTIVE_MLM) return;
  cJSON *own = cJSON_AddObjectToObject(json, OWN_KEY);
  cJSON_AddNumberToObject(own, "max_length", model->max_length);
  cJSON_AddStringToObject(own, "objective", plm_objective_name(objective));
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

/* ---- what is kept ------------------------------------------------------------------------- */

static const struct {
  const char *key;
  unsigned architectures; /* bits that have the key */
} kept_keys[PLM_PUBLISHED_KEPT] = {
    {"hidden_dropout_prob", ESM2},      {"attention_probs_dropout_prob", ESM2},
    {"attention_dropout", ESMC},        {"classifier_dropout", ESM2 | ESMC},
    {"initializer_range", ESM2 | ESMC},
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

void plm_published_kept_put(const struct plm_published_kept *kept,
                            enum plm_architecture architecture, struct cJSON *json)
{
  for (size_t i = 0; i < PLM_PUBLISHED_KEPT; i++) {
    if ((kept_keys[i].architectures >> architecture & 1) == 0 || !isfinite(kept->numbers[i]))
      continue;
    cJSON_DeleteItemFromObjectCaseSensitive(json, kept_keys[i].key);
    add_float(json, kept_keys[i].key, kept->numbers[i]);
  }
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
static plm_status check_heads(const cJSON *json, const struct plm_model_config *model,
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

/* The keys of the run that wrote the folder. */
static plm_status read_own(const cJSON *json, struct plm_model_config *model,
                           enum plm_objective *objective, struct plm_error *error)
{
  const cJSON *own = member(json, OWN_KEY);
  *objective = PLM_OBJECTIVE_MLM;
  model->max_length = model->max_positions;
  if (own == NULL) return PLM_OK;
  const char *name = plm_json_string(own, "objective", "");
  bool known = false;
  for (int i = 0; plm_objective_names[i] != NULL; i++)
    if (strcmp(name, plm_objective_names[i]) == 0) {
      *objective = (enum plm_objective)i;
      known = true;
    }
  if (!known) return wrong_type(OWN_KEY, "an object with max_length and objective", error);
  if (*objective == PLM_OBJECTIVE_CAUSAL)
    return other_value("plm_pipeline.objective", member(own, "objective"),
                       "mlm or masked_diffusion", NULL, error);
  return read_count(own, "max_length", 0, &model->max_length, error);
}

plm_status plm_published_config_parse(const struct cJSON *json, enum plm_architecture architecture,
                                      struct plm_model_config *model, enum plm_objective *objective,
                                      struct plm_error *error)
{
  const struct plm_architecture_rules *rules = plm_architecture_rules(architecture);
  PLM_ASSERT(rules->published);
  *model = (struct plm_model_config){.architecture = architecture,
                                     .pattern = {PLM_ATTENTION_DOCUMENT},
                                     .pattern_count = 1,
                                     .tie_embeddings = rules->ties_embeddings,
                                     .layer_norm_eps = rules->layer_norm_eps};
  for (size_t i = 0; i < FIXED_KEYS; i++)
    if ((fixed_keys[i].architectures >> architecture & 1) != 0)
      PLM_TRY(check_fixed_key(json, &fixed_keys[i], error));
  PLM_TRY(check_rope(json, error));
  if (member(json, "quantization_config") != NULL)
    return other_value("quantization_config", member(json, "quantization_config"),
                       "a model that is not quantized", NULL, error);
  for (size_t i = 0; i < SIZES; i++)
    PLM_TRY(read_count(json, sizes[i].key, architecture == PLM_ESM2 ? sizes[i].esm2 : sizes[i].esmc,
                       (uint32_t *)((char *)model + sizes[i].offset), error));
  if (architecture == PLM_ESMC) {
    PLM_TRY(check_heads(json, model, error));
  } else {
    const cJSON *eps = member(json, "layer_norm_eps");
    if (eps != NULL && !cJSON_IsNumber(eps)) return wrong_type("layer_norm_eps", "a number", error);
    model->layer_norm_eps = eps != NULL ? number_of(eps) : 1e-12; /* of EsmConfig */
    PLM_TRY(read_truth(json, "token_dropout", &model->token_dropout, error));
    PLM_TRY(read_truth(json, "emb_layer_norm_before", &model->emb_layer_norm_before, error));
  }
  if (model->max_positions == 0 || model->max_positions > PLM_MODEL_MAX_LENGTH)
    return other_value("max_position_embeddings", member(json, "max_position_embeddings"),
                       "a number from 1 to 1048576", NULL, error);
  PLM_TRY(read_own(json, model, objective, error));
  return plm_model_config_check(model, error);
}
