/* Writing the Hugging Face folder of a model. */
#include "stages/export/export.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/base/text/suggest.h"
#include "common/base/text/text.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/corpus/tokenizer.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/huggingface.h"
#include "common/huggingface/published_config.h"
#include "common/model/architecture.h"
#include "common/run/stop.h"
#include "stages/export/card_facts.h"
#include "stages/export/export_merge.h"
#include "stages/export/export_target.h"
#include "stages/export/export_weights.h"
#include "stages/export/model_card.h"
#include "stages/export/peft_adapter.h"
#include "stages/export/peft_head.h"

/* What the steps of one export share. */
struct export
{
  const char *weights_file; /* model.safetensors or ema.safetensors */
  const struct plm_export_request *request;
  struct plm_export_result *result;
  struct plm_model_folder folder;
  struct plm_export_target target;
  char source[PLM_PATH_SIZE]; /* of the weights */
  struct plm_parameter *table;
  struct plm_export_weights weights;
  struct plm_peft_head head; /* of with_adapter */
  bool *changed;             /* with request->merge or with_adapter */
};

/* ---- the request --------------------------------------------------------------------------- */

/* From https://huggingface.co/docs/hub/repositories-licenses. The Hub refuses any other. */
/* clang-format off */
static const char *const licenses[] = {
  "apache-2.0", "mit", "openrail", "bigscience-openrail-m", "creativeml-openrail-m",
  "bigscience-bloom-rail-1.0", "bigcode-openrail-m", "afl-3.0", "artistic-2.0", "bsl-1.0", "bsd",
  "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear", "c-uda", "cc", "cc0-1.0", "cc-by-2.0",
  "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0",
  "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0",
  "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cdla-sharing-1.0",
  "cdla-permissive-1.0", "cdla-permissive-2.0", "wtfpl", "ecl-2.0", "epl-1.0", "epl-2.0",
  "etalab-2.0", "eupl-1.1", "agpl-3.0", "gfdl", "gpl", "gpl-2.0", "gpl-3.0", "lgpl", "lgpl-2.1",
  "lgpl-3.0", "isc", "lppl-1.3c", "ms-pl", "mpl-2.0", "odc-by", "odbl", "openrail++", "osl-3.0",
  "postgresql", "ofl-1.1", "ncsa", "unlicense", "zlib", "pddl", "lgpl-lr", "unknown", "other",
};
/* clang-format on */

static plm_status check_license(const char *license, struct plm_error *error)
{
  struct plm_suggestion suggestion = {.word = license};
  for (size_t i = 0; i < sizeof licenses / sizeof *licenses; i++) {
    if (strcmp(licenses[i], license) == 0) return PLM_OK;
    plm_suggest(&suggestion, licenses[i]);
  }
  plm_error_set(error, PLM_USAGE, "\"%.80s\" is not in the Hub's list of licences", license);
  if (suggestion.best != NULL) return plm_error_hint(error, "did you mean %s?", suggestion.best);
  return plm_error_hint(error, "see https://huggingface.co/docs/hub/repositories-licenses; for any "
                               "other licence, give `other` and add a LICENSE file to the folder");
}

static plm_status check_request(const struct plm_export_request *request, struct plm_error *error)
{
  const char *dtype = request->dtype;
  PLM_TRY(plm_model_weights_check(request->weights, error));
  if (dtype != NULL && strcmp(dtype, "float32") != 0 && strcmp(dtype, "bfloat16") != 0)
    return plm_error_set(error, PLM_USAGE, "--dtype must be float32 or bfloat16, not \"%.40s\"",
                         dtype);
  return request->license != NULL ? check_license(request->license, error) : PLM_OK;
}

static plm_status adapters_wrong(const struct plm_model_folder *folder, const char *what,
                                 const char *hint, struct plm_error *error)
{
  plm_error_set(error, PLM_CONFIG, "%s", what);
  plm_error_where(error, "%s", folder->directory);
  return plm_error_hint(error, "%s", hint);
}

static plm_status check_adapters(const struct plm_export_request *request,
                                 const struct plm_model_folder *folder, struct plm_error *error)
{
  const bool adapters = folder->model.lora.rank > 0, other = request->with_adapter != NULL;
  if (request->merge && request->adapter)
    return plm_error_set(error, PLM_USAGE, "--merge and --adapter exclude each other");
  if (request->adapter && (request->license != NULL || request->name != NULL))
    return plm_error_set(error, PLM_USAGE,
                         "--%s is for the model card, and --adapter writes none: leave it out",
                         request->license != NULL ? "license" : "name");
  if (other && !request->merge)
    return plm_error_set(error, PLM_USAGE, "--with-adapter needs --merge");
  if (other && adapters)
    return adapters_wrong(folder, "--with-adapter: the model already has adapters",
                          "fold its own adapters in first, with only --merge", error);
  if (adapters && !request->merge && !request->adapter)
    return adapters_wrong(folder, "the model has adapters beside its weights (LoRA)",
                          "give --merge to fold them into the weights, or --adapter to write "
                          "only them, for PEFT",
                          error);
  if (!adapters && !other && (request->merge || request->adapter))
    return adapters_wrong(folder, "the model has no adapters",
                          "leave --merge and --adapter out, or name an adapter of PEFT with "
                          "--with-adapter DIR",
                          error);
  return PLM_OK;
}

plm_status plm_export_check(const struct plm_export_request *request, struct plm_error *error)
{
  struct plm_model_folder folder;
  const char *file;
  PLM_TRY(check_request(request, error));
  PLM_TRY(plm_model_folder_check(request->input, &folder, NULL, error));
  PLM_TRY(check_adapters(request, &folder, error));
  return plm_model_folder_choose(&folder, request->weights, &file, error);
}

/* Where the meaning of the adapter's head comes from. */
static void say_named_by(const struct plm_peft_head *head, const char *adapter,
                         const struct plm_head_config *of)
{
  const char *scaled = of->loss == PLM_LOSS_SQUARES ? ", which are not scaled," : "";
  if (head->described)
    plm_info("%s/config.json says what the outputs of the adapter's head are", adapter);
  else if (head->names[0] != '\0')
    plm_info("%s has no config.json: the names of its outputs%s are those in %s", adapter, scaled,
             head->names);
  else
    plm_info("%s has no config.json: its outputs%s are called LABEL_0, LABEL_1, ...", adapter,
             scaled);
}

/* The head for labels that PEFT's adapter brings along becomes that of the model. */
static plm_status find_head(struct export *export, struct plm_error *error)
{
  const char *other = export->request->with_adapter;
  if (other == NULL) return PLM_OK;
  PLM_TRY(plm_peft_head_find(other, &export->folder, &export->head, error));
  if (export->head.found) say_named_by(&export->head, other, &export->folder.model.head);
  return PLM_OK;
}

/* Checks them too, with the head that the folder has: find_head may put another one in its place.
 */
static plm_status choose_weights(struct export *export, struct plm_error *error)
{
  PLM_TRY(plm_model_folder_choose(&export->folder, export->request->weights, &export->weights_file,
                                  error));
  export->result->weights = strcmp(export->weights_file, "ema.safetensors") == 0 ? "ema" : "model";
  PLM_TRY(plm_path_join(export->source, export->folder.directory, export->weights_file, error));
  return plm_parameters_check(export->folder.directory, export->weights_file, &export->folder.model,
                              error);
}

/* Published weights keep their type; ours are trained in fp32, and rounded on request. */
static plm_status choose_dtype(struct export *export, struct plm_error *error)
{
  struct plm_export_weights *weights = &export->weights;
  const bool keep = plm_architecture_rules(export->folder.model.architecture)->published;
  weights->source = export->source;
  weights->dtype = export->request->dtype;
  if (weights->dtype == NULL && !keep) weights->dtype = "float32";
  PLM_TRY(plm_model_parameters(&export->folder.model, &export->table, &weights->count,
                               &weights->elements, error));
  weights->table = export->table;
  weights->model = &export->folder.model;
  export->result->dtype = weights->dtype;
  return weights->dtype != NULL ? PLM_OK
                                : plm_export_source_dtype(weights, &export->result->dtype, error);
}

/* ---- the files ----------------------------------------------------------------------------- */

static plm_status write_text(const struct export *export, const char *name, const char *text,
                             struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, export->target.temporary, name, error));
  return plm_file_write(path, text, strlen(text), 0644, error);
}

/* The config.json of a checkpoint without adapters, with the dtype of this export. */
static plm_status write_config(const struct export *export, struct plm_error *error)
{
  const struct plm_model_folder *folder = &export->folder;
  const bool labels = folder->model.head.kind != PLM_PREDICTS_TOKENS;
  struct plm_model_config model = folder->model;
  model.lora = (struct plm_lora_config){0};
  struct plm_label_names names = {0};
  const char *named_by = export->head.found ? export->head.names : folder->directory;
  const bool named = labels && named_by[0] != '\0';
  if (named) PLM_TRY(plm_label_names_read(named_by, &folder->model, &names, error));
  if (export->head.found && !export->head.described) plm_label_names_unscale(&names);
  struct plm_published_kept kept;
  plm_status status = plm_published_kept_read(folder->directory, &kept, error);
  if (status != PLM_OK) {
    plm_label_names_deinit(&names);
    return status;
  }
  char *text =
      plm_huggingface_config_print_kept(&model, folder->window, folder->objective,
                                        export->result->dtype, named ? &names : NULL, &kept);
  plm_label_names_deinit(&names);
  status = write_text(export, "config.json", text, error);
  free(text);
  return status;
}

static plm_status write_tokenizer_and_code(const struct export *export, struct plm_error *error)
{
  const struct plm_model_config *model = &export->folder.model;
  const struct plm_tokenizer *tokenizer = plm_huggingface_tokenizer(model);
  if (tokenizer != NULL)
    return plm_huggingface_write(export->target.temporary, model, tokenizer->kind, error);
  return plm_error_set(error, PLM_UNSUPPORTED, "no tokenizer has %u tokens", model->vocab_size);
}

/* adapter: the folder of the one that was added, or NULL. */
static plm_status write_card_about(const struct export *export, const char *adapter,
                                   struct plm_error *error)
{
  const char *slash = strrchr(export->target.final, '/');
  struct plm_card_facts facts = {
      .folder = &export->folder,
      .name = export->request->name != NULL ? export->request->name : slash + 1,
      .license = export->request->license,
      .weights = export->result->weights,
      .dtype = export->result->dtype,
      .parameters = export->result->parameters,
      .adapter = adapter,
  };
  struct plm_text text = {0};
  PLM_TRY(plm_card_facts_gather(&facts, error));
  plm_model_card_print(&facts, &text);
  export->result->evaluated = cJSON_GetArraySize(facts.evaluations) > 0;
  plm_card_facts_deinit(&facts);
  const plm_status status = write_text(export, "README.md", text.data, error);
  plm_text_deinit(&text);
  return status;
}

static plm_status write_card(const struct export *export, struct plm_error *error)
{
  const char *other = export->request->with_adapter;
  if (other == NULL) return write_card_about(export, NULL, error);
  char *real = realpath(other, NULL); /* its last part is the folder's name */
  if (real == NULL) return plm_error_errno(error, "cannot find %s", other);
  const plm_status status = write_card_about(export, real, error);
  free(real);
  return status;
}

/* ---- weights ------------------------------------------------------------------------------- */

/* The weights come last, because their metadata lists the other files. */
static plm_status write_weights(const struct export *export, const float *values,
                                struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *list;
  PLM_TRY(plm_path_join(path, export->target.temporary, "model.safetensors", error));
  PLM_TRY(plm_export_target_list(&export->target, &list, error));
  const struct plm_metadata_entry metadata[] = {{"format", "pt"}, {PLM_EXPORT_KEY, list}};
  plm_status status = plm_export_weights_write(&export->weights, values, path, metadata, 2, error);
  if (status == PLM_OK) status = plm_file_size(path, &export->result->bytes, error);
  free(list);
  return status;
}

/* ---- exporting ----------------------------------------------------------------------------- */

/* Folds the model's own adapters into the values, or one of PEFT. The model then has none. */
static plm_status fold(struct export *export, float *values, struct plm_error *error)
{
  struct plm_export_weights *weights = &export->weights;
  const char *other = export->request->with_adapter;
  if (other == NULL && !export->request->merge) return PLM_OK;
  weights->changed = export->changed = plm_alloc_zeroed(weights->count, sizeof *export->changed);
  if (other != NULL)
    return plm_peft_fold(other, weights->table, weights->count, export->head.found, values,
                         export->changed, error);
  weights->count = plm_merge_adapters(&export->folder.model.lora, export->table, weights->count,
                                      values, export->changed);
  export->folder.model.lora = (struct plm_lora_config){0};
  return PLM_OK;
}

/* The weights come last, because their metadata lists the other files. */
static plm_status write_adapter_weights(const struct export *export, const float *values,
                                        struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *list;
  const struct plm_export_weights *all = &export->weights;
  const struct plm_peft_weights weights = {
      .config = &export->folder.model,
      .table = all->table,
      .count = all->count,
      .elements = all->elements,
      .values = values,
      .rounded = strcmp(export->result->dtype, "bfloat16") == 0,
  };
  PLM_TRY(plm_path_join(path, export->target.temporary, "adapter_model.safetensors", error));
  PLM_TRY(plm_export_target_list(&export->target, &list, error));
  const struct plm_metadata_entry metadata[] = {{"format", "pt"}, {PLM_EXPORT_KEY, list}};
  plm_status status = plm_peft_write_weights(path, &weights, metadata, 2, error);
  if (status == PLM_OK) status = plm_file_size(path, &export->result->bytes, error);
  free(list);
  return status;
}

/* Writes only the adapters, and for a head for labels config.json, which says what it means. */
static plm_status write_adapter(struct export *export, const float *values, struct plm_error *error)
{
  const struct plm_export_weights *weights = &export->weights;
  const struct plm_model_config *model = &export->folder.model;
  export->result->dtype = export->request->dtype != NULL ? export->request->dtype : "float32";
  for (size_t i = 0; i < weights->count; i++)
    if (weights->table[i].adapter != 0) export->result->parameters += weights->table[i].count;
  PLM_TRY(plm_peft_write_config(export->target.temporary, model, weights->table, weights->count,
                                error));
  if (model->head.kind != PLM_PREDICTS_TOKENS) PLM_TRY(write_config(export, error));
  PLM_TRY(write_adapter_weights(export, values, error));
  PLM_TRY(plm_stop_check("; nothing was exported", error));
  return plm_export_target_publish(&export->target, export->result->moved, error);
}

static plm_status write_folder(struct export *export, const float *values, struct plm_error *error)
{
  if (export->request->adapter) return write_adapter(export, values, error);
  for (size_t i = 0; i < export->weights.count; i++)
    export->result->parameters += export->weights.table[i].count;
  PLM_TRY(write_config(export, error));
  PLM_TRY(write_tokenizer_and_code(export, error));
  PLM_TRY(write_card(export, error));
  PLM_TRY(plm_stop_check("; nothing was exported", error));
  PLM_TRY(write_weights(export, values, error));
  PLM_TRY(plm_stop_check("; nothing was exported", error));
  return plm_export_target_publish(&export->target, export->result->moved, error);
}

static plm_status export_into(struct export *export, struct plm_error *error)
{
  export->target.lock = -1;
  float *values = calloc(export->weights.elements, sizeof *values);
  if (values == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu weights",
                         export->weights.elements);
  const struct plm_export_weights *weights = &export->weights;
  plm_status status =
      export->head.found
          ? plm_parameters_read_trunk(export->source, weights->table, weights->count, values, error)
          : plm_parameters_read(export->source, weights->table, weights->count, values, error);
  if (status == PLM_OK) status = fold(export, values, error);
  if (status == PLM_OK)
    status = plm_export_target_open(export->request->output, export->request->force,
                                    &export->target, error);
  if (status == PLM_OK) status = write_folder(export, values, error);
  if (status != PLM_OK) plm_export_target_abandon(&export->target);
  free(values);
  return status;
}

plm_status plm_export(const struct plm_export_request *request, struct plm_export_result *result,
                      struct plm_error *error)
{
  struct export *export = plm_alloc_zeroed(1, sizeof *export);
  *result = (struct plm_export_result){0};
  export->request = request;
  export->result = result;
  plm_status status = check_request(request, error);
  if (status == PLM_OK)
    status = plm_model_folder_check(request->input, &export->folder, NULL, error);
  if (status == PLM_OK) status = check_adapters(request, &export->folder, error);
  if (status == PLM_OK) status = choose_weights(export, error);
  if (status == PLM_OK) status = find_head(export, error);
  if (status == PLM_OK) status = choose_dtype(export, error);
  if (status == PLM_OK) status = export_into(export, error);
  if (status == PLM_OK) {
    snprintf(result->output, sizeof result->output, "%s", export->target.final);
    result->checkpoint = export->folder.checkpoint;
    result->step = export->folder.step;
  }
  free(export->changed);
  free(export->table);
  free(export);
  return status;
}
