/* The head that predicts labels in config.json: see head_json.h. */
#include "common/huggingface/head_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/alloc.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/huggingface/huggingface.h"
#include "common/huggingface/published_config.h"
#include "common/model/architecture.h"

#define OWN_KEY "plm_pipeline"
static const char sequences_ending[] = "ForSequenceClassification";
static const char residues_ending[] = "ForTokenClassification";
/* In the order of enum plm_label_loss. */
static const char *const problems[] = {"regression", "single_label_classification",
                                       "multi_label_classification"};
enum { PROBLEMS = sizeof problems / sizeof *problems };

void plm_label_names_deinit(struct plm_label_names *names)
{
  for (uint32_t i = 0; i < names->count; i++) free(names->names[i]);
  free(names->names);
  plm_label_names_unscale(names);
  *names = (struct plm_label_names){0};
}

void plm_label_names_unscale(struct plm_label_names *names)
{
  free(names->mean);
  free(names->deviation);
  names->mean = names->deviation = NULL;
}

static bool is_published(const struct plm_model_config *model)
{
  return plm_architecture_rules(model->architecture)->published;
}

const char *plm_head_class(const struct plm_model_config *model, char name[PLM_HEAD_CLASS_SIZE])
{
  const char *lm = plm_published_class(model->architecture);
  if (lm == NULL) lm = "PLMForMaskedLM";
  const char *ending = model->head.kind == PLM_PREDICTS_RESIDUES    ? residues_ending
                       : model->head.kind == PLM_PREDICTS_SEQUENCES ? sequences_ending
                                                                    : "ForMaskedLM";
  (void)snprintf(name, PLM_HEAD_CLASS_SIZE, "%.*s%s", (int)(strstr(lm, "For") - lm), lm, ending);
  return name;
}

const char *plm_head_auto_class(const struct plm_head_config *head)
{
  switch (head->kind) {
  case PLM_PREDICTS_SEQUENCES: return "AutoModelForSequenceClassification";
  case PLM_PREDICTS_RESIDUES: return "AutoModelForTokenClassification";
  default: return "AutoModelForMaskedLM";
  }
}

/* ---- writing ------------------------------------------------------------------------------- */

static void add_names(cJSON *json, uint32_t outputs, const struct plm_label_names *names)
{
  cJSON *to_label = cJSON_AddObjectToObject(json, "id2label");
  cJSON *to_id = cJSON_AddObjectToObject(json, "label2id");
  PLM_ASSERT(names == NULL || names->count == outputs);
  for (uint32_t i = 0; i < outputs; i++) {
    char number[16], standard[32];
    (void)snprintf(number, sizeof number, "%u", i);
    (void)snprintf(standard, sizeof standard, "LABEL_%u", i);
    const char *name = names != NULL ? names->names[i] : standard;
    cJSON_AddStringToObject(to_label, number, name);
    cJSON_AddNumberToObject(to_id, name, i);
  }
}

static cJSON *head_object(const struct plm_model_config *model, const struct plm_label_names *names)
{
  const struct plm_head_config *head = &model->head;
  cJSON *json = cJSON_CreateObject();
  if (head->kind == PLM_PREDICTS_SEQUENCES) {
    cJSON_AddStringToObject(json, "pooling", plm_head_pooling_names[head->pooling]);
    cJSON_AddNumberToObject(json, "hidden_size", head->hidden);
  }
  cJSON_AddNumberToObject(json, "dropout", head->dropout);
  if (names == NULL || names->mean == NULL) return json;
  cJSON *scaling = cJSON_AddArrayToObject(json, "scaling");
  for (uint32_t i = 0; i < names->count; i++) {
    cJSON *pair = cJSON_CreateArray();
    const double values[] = {names->mean[i], names->deviation[i]};
    for (int k = 0; k < 2; k++) {
      char text[PLM_JSON_NUMBER_SIZE];
      plm_json_number_text(values[k], text);
      plm_json_append(pair, cJSON_CreateRaw(text));
    }
    plm_json_append(scaling, pair);
  }
  return json;
}

struct cJSON *plm_own_keys(const struct plm_model_config *model, struct cJSON *json)
{
  if (!is_published(model)) return json;
  cJSON *own = cJSON_GetObjectItemCaseSensitive(json, OWN_KEY);
  if (own != NULL) return own;
  own = cJSON_AddObjectToObject(json, OWN_KEY); /* what its absence means */
  cJSON_AddNumberToObject(own, "max_length", model->max_length);
  cJSON_AddStringToObject(own, "objective", plm_objective_name(PLM_OBJECTIVE_MLM));
  return own;
}

void plm_head_config_print(const struct plm_model_config *model,
                           const struct plm_label_names *names, struct cJSON *json)
{
  const struct plm_head_config *head = &model->head;
  char name[PLM_HEAD_CLASS_SIZE];
  if (head->kind == PLM_PREDICTS_TOKENS) return;
  cJSON *classes = cJSON_CreateArray();
  plm_json_append(classes, cJSON_CreateString(plm_head_class(model, name)));
  cJSON_ReplaceItemInObjectCaseSensitive(json, "architectures", classes);
  cJSON_AddStringToObject(json, "problem_type", problems[head->loss]);
  add_names(json, head->outputs, names);
  const char *key = plm_architecture_rules(model->architecture)->head_dropout;
  if (key != NULL) plm_published_number_put(json, key, head->dropout);
  plm_json_put(plm_own_keys(model, json), "head", head_object(model, names));
}

/* ---- reading ------------------------------------------------------------------------------- */

static plm_status wrong_key(const char *key, const char *expected, struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "\"%s\" is not %s", key, expected);
  return plm_error_where(error, "%s", key);
}

static const cJSON *json_member(const cJSON *json, const char *key)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
  return cJSON_IsNull(item) ? NULL : item;
}

/* What plm_head_config_print put where transformers has no key; NULL: nothing. */
static const cJSON *own_head(const cJSON *json, const struct plm_model_config *model)
{
  return json_member(is_published(model) ? json_member(json, OWN_KEY) : json, "head");
}

static enum plm_head_kind kind_of(const cJSON *json)
{
  const char *name =
      cJSON_GetStringValue(cJSON_GetArrayItem(json_member(json, "architectures"), 0));
  if (name == NULL) return PLM_PREDICTS_TOKENS;
  if (plm_text_ends_with(name, sequences_ending)) return PLM_PREDICTS_SEQUENCES;
  return plm_text_ends_with(name, residues_ending) ? PLM_PREDICTS_RESIDUES : PLM_PREDICTS_TOKENS;
}

/* As transformers chooses without problem_type, when it sees labels. */
static plm_status read_problem(const cJSON *json, struct plm_head_config *head,
                               struct plm_error *error)
{
  const cJSON *item = json_member(json, "problem_type");
  head->loss = head->outputs == 1 ? PLM_LOSS_SQUARES : PLM_LOSS_CLASS;
  if (head->kind == PLM_PREDICTS_RESIDUES) {
    head->loss = PLM_LOSS_CLASS;
    return PLM_OK;
  }
  if (item == NULL) return PLM_OK;
  for (size_t i = 0; i < PROBLEMS; i++)
    if (cJSON_IsString(item) && strcmp(item->valuestring, problems[i]) == 0) {
      head->loss = (enum plm_label_loss)i;
      return PLM_OK;
    }
  return wrong_key("problem_type",
                   "regression, single_label_classification or multi_label_classification", error);
}

static plm_status read_size(const cJSON *json, const char *key, const char *where, uint32_t most,
                            uint32_t *value, struct plm_error *error)
{
  const cJSON *item = json_member(json, key);
  if (item == NULL) return PLM_OK;
  const double number = cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
  if (!(number >= 0.0) || number > (double)most || floor(number) != number)
    return wrong_key(where, "a whole number in its range", error);
  *value = (uint32_t)number;
  return PLM_OK;
}

/* The keys of `head`, with what the class of transformers has as defaults. */
static plm_status read_own(const cJSON *json, const struct plm_model_config *model,
                           struct plm_head_config *head, struct plm_error *error)
{
  const cJSON *own = own_head(json, model);
  const char *pooling = plm_json_string(own, "pooling", NULL);
  const bool layered = head->kind == PLM_PREDICTS_SEQUENCES && is_published(model);
  head->pooling = layered ? PLM_HEAD_CLS : PLM_HEAD_MEAN;
  head->hidden = layered ? model->hidden_size : 0;
  if (pooling != NULL && strcmp(pooling, "mean") != 0 && strcmp(pooling, "cls") != 0)
    return wrong_key("head.pooling", "mean or cls", error);
  if (pooling != NULL) head->pooling = strcmp(pooling, "cls") == 0 ? PLM_HEAD_CLS : PLM_HEAD_MEAN;
  if (head->kind == PLM_PREDICTS_SEQUENCES)
    PLM_TRY(read_size(own, "hidden_size", "head.hidden_size", PLM_MODEL_MAX_WIDTH, &head->hidden,
                      error));
  const char *key = plm_architecture_rules(model->architecture)->head_dropout;
  if (key == NULL) key = "hidden_dropout_prob";
  head->dropout =
      plm_json_number(own, "dropout", is_published(model) ? plm_json_number(json, key, 0) : 0);
  return PLM_OK;
}

plm_status plm_head_config_parse(const struct cJSON *json, struct plm_model_config *model,
                                 struct plm_error *error)
{
  struct plm_head_config head = {.kind = kind_of(json), .outputs = 2};
  const cJSON *labels = json_member(json, "id2label");
  model->head = (struct plm_head_config){0};
  if (head.kind == PLM_PREDICTS_TOKENS) return PLM_OK;
  if (labels != NULL && !cJSON_IsObject(labels))
    return wrong_key("id2label", "an object that names each output", error);
  if (labels != NULL)
    head.outputs = (uint32_t)cJSON_GetArraySize(labels);
  else
    PLM_TRY(
        read_size(json, "num_labels", "num_labels", PLM_HEAD_MAX_OUTPUTS, &head.outputs, error));
  PLM_TRY(read_problem(json, &head, error));
  PLM_TRY(read_own(json, model, &head, error));
  PLM_TRY(plm_head_config_check(&head, is_published(model), model->hidden_size, error));
  model->head = head;
  return PLM_OK;
}

/* [[mean, deviation], ...] */
static plm_status read_scaling(const cJSON *scaling, struct plm_label_names *names,
                               struct plm_error *error)
{
  if (scaling == NULL) return PLM_OK;
  if ((uint32_t)cJSON_GetArraySize(scaling) != names->count)
    return wrong_key("head.scaling", "a list with a pair for each output", error);
  names->mean = plm_alloc_zeroed(names->count, sizeof *names->mean);
  names->deviation = plm_alloc_zeroed(names->count, sizeof *names->deviation);
  uint32_t i = 0;
  const cJSON *pair;
  cJSON_ArrayForEach(pair, scaling)
  {
    const cJSON *mean = cJSON_GetArrayItem(pair, 0), *deviation = cJSON_GetArrayItem(pair, 1);
    if (!cJSON_IsNumber(mean) || !cJSON_IsNumber(deviation))
      return wrong_key("head.scaling", "a list of pairs of numbers", error);
    names->mean[i] = mean->valuedouble;
    names->deviation[i++] = deviation->valuedouble;
  }
  return PLM_OK;
}

static plm_status read_names(const cJSON *json, const struct plm_model_config *model,
                             struct plm_label_names *names, struct plm_error *error)
{
  const cJSON *labels = json_member(json, "id2label");
  names->count = model->head.outputs;
  names->names = plm_alloc_zeroed(names->count, sizeof *names->names);
  const cJSON *item;
  cJSON_ArrayForEach(item, labels)
  {
    char *end;
    const unsigned long i = strtoul(item->string, &end, 10);
    if (*end != '\0' || end == item->string || i >= names->count || names->names[i] != NULL ||
        !cJSON_IsString(item))
      return wrong_key("id2label", "an object that names the outputs 0, 1, ...", error);
    names->names[i] = plm_format("%s", item->valuestring);
  }
  for (uint32_t i = 0; i < names->count; i++)
    if (names->names[i] == NULL) names->names[i] = plm_format("LABEL_%u", i);
  return read_scaling(json_member(own_head(json, model), "scaling"), names, error);
}

plm_status plm_label_names_read(const char *directory, const struct plm_model_config *model,
                                struct plm_label_names *names, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  cJSON *json;
  *names = (struct plm_label_names){0};
  PLM_TRY(plm_huggingface_config_open(directory, path, &json, error));
  const plm_status status = read_names(json, model, names, error);
  cJSON_Delete(json);
  if (status != PLM_OK) {
    plm_error_where(error, "%s", path);
    plm_label_names_deinit(names);
  }
  return status;
}

plm_status plm_head_missing(const char *directory, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  cJSON *json;
  PLM_TRY(plm_huggingface_config_open(directory, path, &json, error));
  const cJSON *classes = json_member(json, "architectures");
  char *text = classes != NULL ? plm_json_text(classes, false) : NULL;
  plm_error_set(error, PLM_CONFIG,
                "this model has no head for labels: \"architectures\" in config.json is %.200s",
                text != NULL ? text : "missing");
  free(text);
  cJSON_Delete(json);
  plm_error_where(error, "%s", directory);
  return plm_error_hint(error, "train it on labels first (doc/fine-tuning.md)");
}
