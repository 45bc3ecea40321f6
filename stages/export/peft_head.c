/* Finds the head of an adapter, and what it means. */
#include "stages/export/peft_head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/base/text/text.h"
#include "common/checkpoint/safetensors.h"
#include "common/huggingface/head_json.h"
#include "common/model/architecture.h"

enum { CONFIG_LIMIT = 32 << 20 };
static const struct plm_json_limits limits = {
    .values = 1 << 20, .depth = 16, .numbers = PLM_JSON_ANY_NUMBER};
static const char beginning[] = "base_model.model.";

static bool is_low_rank(const char *name)
{
  return plm_text_ends_with(name, ".lora_A.weight") || plm_text_ends_with(name, ".lora_B.weight");
}

static bool is_in_head(const char *name)
{
  return strncmp(name, "classifier.", 11) == 0 || strncmp(name, "score.", 6) == 0;
}

bool plm_peft_is_of_head(const char *name)
{
  return is_in_head(name) && !is_low_rank(name);
}

/* What the adapter says of its head. */
struct shape {
  char task[16]; /* "task_type" in adapter_config.json, or "" */
  bool found;
  bool low_rank;            /* products of a head have low-rank matrices */
  bool layered;             /* it has a hidden layer, so it is one of sequences */
  uint64_t outputs, hidden; /* 0: unknown */
};

static plm_status read_json(const char *directory, const char *name, cJSON **json,
                            struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  PLM_TRY(plm_path_join(path, directory, name, error));
  PLM_TRY(plm_file_read(path, CONFIG_LIMIT, &text, &size, error));
  const plm_status status = plm_json_parse(text, size, &limits, json, error);
  free(text);
  if (status != PLM_OK) plm_error_where(error, "%s", path);
  return status;
}

static plm_status look_at(const char *directory, struct shape *shape, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct plm_safetensors *file;
  cJSON *json;
  *shape = (struct shape){0};
  PLM_TRY(read_json(directory, "adapter_config.json", &json, error));
  (void)snprintf(shape->task, sizeof shape->task, "%s", plm_json_string(json, "task_type", ""));
  cJSON_Delete(json);
  PLM_TRY(plm_path_join(path, directory, "adapter_model.safetensors", error));
  PLM_TRY(plm_safetensors_open(path, &file, error));
  for (size_t i = 0; i < plm_safetensors_count(file); i++) {
    const struct plm_tensor_info *tensor = plm_safetensors_at(file, i);
    const char *name = tensor->name + strlen(beginning);
    if (strncmp(tensor->name, beginning, strlen(beginning)) != 0 || !is_in_head(name)) continue;
    shape->low_rank |= is_low_rank(name);
    if (is_low_rank(name)) continue;
    shape->found = true;
    if (tensor->rank != 2) continue;
    if (strcmp(name, "classifier.dense.weight") == 0) {
      shape->layered = true;
      shape->hidden = tensor->shape[0];
    } else if (strcmp(name, "classifier.out_proj.weight") == 0 ||
               strcmp(name, "classifier.weight") == 0 || strcmp(name, "score.weight") == 0) {
      shape->outputs = tensor->shape[0];
    }
  }
  plm_safetensors_close(file);
  return PLM_OK;
}

static bool fits(const struct shape *shape, const struct plm_head_config *head)
{
  return head->kind != PLM_PREDICTS_TOKENS && head->outputs == shape->outputs &&
         (head->kind == PLM_PREDICTS_SEQUENCES ? head->hidden : 0) == shape->hidden;
}

/* The kind of head: from the layers it has, or from the task in adapter_config.json. */
static plm_status find_kind(const char *directory, const struct shape *shape,
                            enum plm_head_kind *kind, struct plm_error *error)
{
  *kind = PLM_PREDICTS_SEQUENCES;
  if (shape->layered || strcmp(shape->task, "SEQ_CLS") == 0) return PLM_OK;
  *kind = PLM_PREDICTS_RESIDUES;
  if (strcmp(shape->task, "TOKEN_CLS") == 0) return PLM_OK;
  plm_error_set(error, PLM_CONFIG,
                "the adapter has a head for labels, but \"task_type\" is neither SEQ_CLS nor "
                "TOKEN_CLS");
  plm_error_where(error, "%s/adapter_config.json", directory);
  return plm_error_hint(error, "set it, or put the config.json of the model that the adapter was "
                               "trained with into its folder");
}

/* The class of transformers with such a head, as config.json names it. */
static cJSON *classes_of(enum plm_head_kind kind, const struct plm_model_config *model)
{
  char name[PLM_HEAD_CLASS_SIZE];
  const struct plm_model_config of_kind = {.architecture = model->architecture,
                                           .head = {.kind = kind}};
  cJSON *classes = cJSON_CreateArray();
  plm_json_append(classes, cJSON_CreateString(plm_head_class(&of_kind, name)));
  return classes;
}

/* A configuration that Python saves beside an adapter may name the class of the base. */
static plm_status parse_described(const char *directory, const struct shape *shape, cJSON *json,
                                  struct plm_model_config *model, struct plm_error *error)
{
  enum plm_head_kind kind;
  PLM_TRY(plm_head_config_parse(json, model, error));
  if (model->head.kind != PLM_PREDICTS_TOKENS) return PLM_OK;
  PLM_TRY(find_kind(directory, shape, &kind, error));
  cJSON_DeleteItemFromObjectCaseSensitive(json, "architectures");
  plm_json_put(json, "architectures", classes_of(kind, model));
  return plm_head_config_parse(json, model, error);
}

/* The head that config.json in the adapter's folder describes. */
static plm_status read_described(const char *directory, const struct shape *shape,
                                 struct plm_model_config *model, struct plm_error *error)
{
  cJSON *json;
  PLM_TRY(read_json(directory, "config.json", &json, error));
  plm_status status = parse_described(directory, shape, json, model, error);
  cJSON_Delete(json);
  if (status == PLM_OK && !fits(shape, &model->head)) {
    status = plm_error_set(error, PLM_CONFIG,
                           "the head in config.json is not the one in adapter_model.safetensors, "
                           "which has %llu outputs",
                           (unsigned long long)shape->outputs);
    plm_error_hint(error, "remove config.json, or replace it by that of the model that the adapter "
                          "was trained with");
  }
  if (status != PLM_OK && error->where[0] == '\0')
    plm_error_where(error, "%s/config.json", directory);
  return status;
}

/* The head that transformers' class begins with. */
static plm_status assume(enum plm_head_kind kind, const struct shape *shape,
                         struct plm_model_config *model, struct plm_error *error)
{
  cJSON *json = cJSON_CreateObject();
  plm_json_put(json, "architectures", classes_of(kind, model));
  cJSON_AddNumberToObject(json, "num_labels", (double)shape->outputs);
  if (shape->layered && !plm_architecture_rules(model->architecture)->published)
    cJSON_AddNumberToObject(cJSON_AddObjectToObject(json, "head"), "hidden_size",
                            (double)shape->hidden);
  const plm_status status = plm_head_config_parse(json, model, error);
  cJSON_Delete(json);
  return status;
}

static plm_status head_twice(const char *directory, struct plm_error *error)
{
  plm_error_set(error, PLM_UNSUPPORTED,
                "the adapter has a head of its own (modules_to_save) and low-rank matrices "
                "(target_modules) for products of it");
  plm_error_where(error, "%s/adapter_model.safetensors", directory);
  return plm_error_hint(error, "merge it in Python (merge_and_unload), and use the folder that "
                               "save_pretrained writes then");
}

plm_status plm_peft_head_find(const char *directory, struct plm_model_folder *base,
                              struct plm_peft_head *head, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct shape shape;
  enum plm_head_kind kind;
  *head = (struct plm_peft_head){0};
  PLM_TRY(look_at(directory, &shape, error));
  head->found = shape.found;
  if (!shape.found) return PLM_OK;
  if (shape.low_rank) return head_twice(directory, error);
  PLM_TRY(plm_path_join(path, directory, "config.json", error));
  if (plm_file_exists(path)) {
    head->described = true;
    (void)snprintf(head->names, sizeof head->names, "%s", directory);
    return read_described(directory, &shape, &base->model, error);
  }
  PLM_TRY(find_kind(directory, &shape, &kind, error));
  if (base->model.head.kind == kind && fits(&shape, &base->model.head)) {
    (void)snprintf(head->names, sizeof head->names, "%s", base->directory);
    return PLM_OK;
  }
  const plm_status status = assume(kind, &shape, &base->model, error);
  if (status != PLM_OK) plm_error_where(error, "%s", directory);
  return status;
}
