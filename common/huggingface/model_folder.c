/* Opens a model folder of any kind, and checks whether its weights fit a model. */
#include "common/huggingface/model_folder.h"
#include "common/huggingface/huggingface.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/tensor_shards.h"
#include "common/huggingface/folder_remedy.h"
#include "common/model/architecture.h"

static bool model_folder_holds(const char *directory, const char *name)
{
  char path[PLM_PATH_SIZE];
  return plm_path_join(path, directory, name, NULL) == PLM_OK && plm_file_exists(path);
}

/* ---- opening ------------------------------------------------------------------------------- */

static plm_status no_model(const char *directory, const char *what, struct plm_error *error)
{
  plm_error_set(error, PLM_NOT_FOUND, "%s", what);
  plm_error_where(error, "%s", directory);
  if (model_folder_holds(directory, "checkpoints/latest"))
    plm_error_hint(error, "this is a run; its newest checkpoint is %.400s/checkpoints/latest",
                   directory);
  else if (model_folder_holds(directory, "latest"))
    plm_error_hint(error, "this folder holds checkpoints; the newest one is %.400s/latest",
                   directory);
  else if (!plm_folder_remedy(directory, error))
    plm_error_hint(error, "give a checkpoint (runs/NAME/checkpoints/step_…) or a folder that "
                          "`plm-pipeline export` or save_pretrained wrote");
  return PLM_NOT_FOUND;
}

/* The MANIFEST is written last, so a checkpoint without one was never published, or its MANIFEST
 * was removed. */
static plm_status check_no_remains(const char *directory, struct plm_error *error)
{
  static const char *const of_checkpoints[] = {"trainer.json", "optimizer.safetensors",
                                               "ema.safetensors"};
  for (size_t i = 0; i < sizeof of_checkpoints / sizeof *of_checkpoints; i++) {
    if (!model_folder_holds(directory, of_checkpoints[i])) continue;
    plm_error_set(error, PLM_CORRUPT, "this checkpoint (it has %s) has no MANIFEST",
                  of_checkpoints[i]);
    plm_error_where(error, "%s", directory);
    return plm_error_hint(error, "use another checkpoint; `plm-pipeline checkpoints --verify` "
                                 "lists those that are intact");
  }
  return PLM_OK;
}

static plm_status check_export(const char *directory, struct plm_error *error)
{
  if (!model_folder_holds(directory, "config.json"))
    return no_model(directory, "there is no model: neither MANIFEST nor config.json exists", error);
  PLM_TRY(check_no_remains(directory, error));
  if (!model_folder_holds(directory, "model.safetensors") &&
      !model_folder_holds(directory, "model.safetensors.index.json"))
    return no_model(directory, "there are no weights: model.safetensors does not exist", error);
  return PLM_OK;
}

/* Symbolic links are resolved once, because `latest` changes during a run. */
static plm_status model_folder_resolve(const char *directory, char path[PLM_PATH_SIZE],
                                       struct plm_error *error)
{
  char *real = realpath(directory, NULL);
  if (real == NULL && errno == ENOENT) return no_model(directory, "there is no such folder", error);
  if (real == NULL) return plm_error_errno(error, "cannot open %s", directory);
  if (!plm_directory_exists(real)) {
    free(real);
    plm_error_set(error, PLM_NOT_FOUND, "this is a file, not the folder of a model");
    plm_error_where(error, "%s", directory);
    return plm_error_hint(error, "give its folder, which has config.json and model.safetensors");
  }
  const plm_status status = plm_path_join(path, "", real, error);
  free(real);
  return status;
}

plm_status plm_model_folder_check(const char *directory, struct plm_model_folder *folder,
                                  struct plm_advance *advance, struct plm_error *error)
{
  const char *real = folder->directory;
  *folder = (struct plm_model_folder){0};
  PLM_TRY(model_folder_resolve(directory, folder->directory, error));
  folder->checkpoint = model_folder_holds(real, "MANIFEST");
  if (folder->checkpoint)
    PLM_TRY(plm_checkpoint_verify(real, &folder->step, &folder->identity, advance, error));
  else
    PLM_TRY(check_export(real, error));
  folder->averaged = model_folder_holds(real, "ema.safetensors");
  return plm_huggingface_config_read(real, &folder->model, &folder->window, &folder->objective,
                                     error);
}

const char *plm_model_folder_weights(const struct plm_model_folder *folder)
{
  return folder->averaged ? "ema.safetensors" : "model.safetensors";
}

plm_status plm_model_weights_check(const char *choice, struct plm_error *error)
{
  if (choice == NULL || strcmp(choice, "model") == 0 || strcmp(choice, "ema") == 0) return PLM_OK;
  return plm_error_set(error, PLM_USAGE, "--weights must be model or ema, not \"%.80s\"", choice);
}

plm_status plm_model_folder_choose(const struct plm_model_folder *folder, const char *choice,
                                   const char **file, struct plm_error *error)
{
  PLM_TRY(plm_model_weights_check(choice, error));
  *file = plm_model_folder_weights(folder);
  if (choice == NULL) return PLM_OK;
  if (strcmp(choice, "model") == 0) {
    *file = "model.safetensors";
    return PLM_OK;
  }
  if (folder->averaged) return PLM_OK;
  plm_error_set(error, PLM_NOT_FOUND, "%s has no EMA weights", folder->directory);
  return plm_error_hint(error, "omit --weights, or use --weights model; a run keeps EMA weights if "
                               "trainer.ema is above 0");
}

static int compare_names(const void *a, const void *b)
{
  const struct plm_tensor_info *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static void hash_tensor(struct plm_hasher *hasher, const struct plm_tensor_info *tensor)
{
  plm_hasher_update(hasher, tensor->name, strlen(tensor->name) + 1);
  plm_hasher_update(hasher, tensor->data, tensor->bytes);
}

/* by_name: published weights are the same in one file or in shards, in whatever order. */
static plm_status hash_tensors(const char *path, bool by_name, struct plm_hash *hash,
                               struct plm_error *error)
{
  struct plm_tensor_shards *files;
  PLM_TRY(plm_tensor_shards_open(path, &files, error));
  const size_t count = plm_tensor_shards_count(files);
  const struct plm_tensor_info **tensors = plm_alloc(count * sizeof(struct plm_tensor_info *));
  for (size_t i = 0; i < count; i++) tensors[i] = plm_tensor_shards_at(files, i);
  if (by_name && count > 0) qsort(tensors, count, sizeof(struct plm_tensor_info *), compare_names);
  struct plm_hasher *hasher = plm_hasher_open();
  for (size_t i = 0; i < count; i++) {
    const struct plm_tensor_info *tensor = tensors[i];
    if (by_name) {
      const int32_t form[2] = {(int32_t)tensor->dtype, tensor->rank};
      plm_hasher_update(hasher, form, sizeof form);
      plm_hasher_update(hasher, tensor->shape, sizeof tensor->shape);
    }
    hash_tensor(hasher, tensor);
    plm_tensor_shards_release(files, tensor);
  }
  free(tensors);
  plm_tensor_shards_close(files);
  *hash = plm_hasher_digest(hasher);
  plm_hasher_close(hasher);
  return PLM_OK;
}

plm_status plm_model_folder_hash(const struct plm_model_folder *folder, const char *file,
                                 struct plm_hash *hash, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  const bool published = plm_architecture_rules(folder->model.architecture)->published;
  PLM_TRY(plm_path_join(path, folder->directory, file, error));
  if (published && !folder->checkpoint) return hash_tensors(path, true, hash, error);
  return plm_file_exists(path) ? plm_hash_file(path, hash, NULL, NULL, error)
                               : hash_tensors(path, false, hash, error);
}

/* ---- comparing with a model ---------------------------------------------------------------- */

/* The architectures for which a key matters. */
enum shaping_scope { OF_ALL, OF_PUBLISHED, OF_MERGING, OF_OTHERS /* that do not merge */ };

static bool matters(enum shaping_scope scope, const struct plm_architecture_rules *rules)
{
  if (scope == OF_PUBLISHED) return rules->published;
  return scope == OF_ALL || (scope == OF_MERGING) == rules->merges;
}

/* Keys that determine which parameters there are and how they are used. Those that an architecture
 * lacks or fixes never differ. */
static const struct {
  const char *key, *setting;
  enum shaping_scope scope;
} shaping[] = {
    {"architecture", "model.architecture", OF_ALL},
    {"hidden_size", "model.hidden_size", OF_ALL},
    {"num_attention_heads", "model.num_attention_heads", OF_ALL},
    {"num_hidden_layers", "model.num_hidden_layers", OF_OTHERS},
    {"num_unet_layers", "model.num_unet_layers", OF_MERGING},
    {"num_extra_layers", "model.num_extra_layers", OF_MERGING},
    {"expansion_ratio", "model.expansion_ratio", OF_ALL},
    {"intermediate_size", "model.intermediate_size", OF_ALL},
    {"layer_norm_eps", "model.layer_norm_eps", OF_ALL},
    {"emb_layer_norm_before", "model.emb_layer_norm_before", OF_ALL},
    {"token_dropout", "model.token_dropout", OF_PUBLISHED},
    {"tie_embeddings", "model.tie_embeddings", OF_ALL},
    {"max_length", "data.max_length", OF_MERGING},
    {"vocab_size", "model.vocab_size", OF_PUBLISHED},
    {"vocab_size", "data.tokenizer: its vocabulary", OF_ALL},
};

static const char *setting_that_shapes(const char *key, enum plm_architecture architecture)
{
  const struct plm_architecture_rules *rules = plm_architecture_rules(architecture);
  for (size_t i = 0; i < sizeof shaping / sizeof *shaping; i++)
    if (strcmp(shaping[i].key, key) == 0 && matters(shaping[i].scope, rules))
      return shaping[i].setting;
  return NULL;
}

/* Whether both models have the same parameters in the same order. The number of heads is compared
 * by itself, because most shapes do not depend on it. */
static plm_status same_parameters(const struct plm_model_config *a,
                                  const struct plm_model_config *b, bool *same,
                                  struct plm_error *error)
{
  struct plm_parameter *tables[2] = {NULL, NULL};
  size_t counts[2], elements;
  struct plm_model_config trunk[2] = {*a, *b}; /* their heads may differ if one predicts labels */
  trunk[0].lora = trunk[1].lora = (struct plm_lora_config){0}; /* these are compared apart */
  if (a->head.kind != PLM_PREDICTS_TOKENS || b->head.kind != PLM_PREDICTS_TOKENS)
    trunk[0].head = trunk[1].head = (struct plm_head_config){0};
  plm_status status = plm_model_parameters(&trunk[0], &tables[0], &counts[0], &elements, error);
  if (status == PLM_OK)
    status = plm_model_parameters(&trunk[1], &tables[1], &counts[1], &elements, error);
  if (status == PLM_OK) {
    *same = a->architecture == b->architecture && counts[0] == counts[1] &&
            a->num_attention_heads == b->num_attention_heads;
    for (size_t i = 0; *same && i < counts[0]; i++)
      *same = strcmp(tables[0][i].name, tables[1][i].name) == 0 &&
              tables[0][i].rows == tables[1][i].rows && tables[0][i].cols == tables[1][i].cols;
  }
  free(tables[0]);
  free(tables[1]);
  return status;
}

static plm_status another_model(const struct plm_model_folder *folder,
                                const struct plm_model_difference *differences, size_t count,
                                enum plm_architecture architecture, struct plm_error *error)
{
  struct plm_text text = {0};
  for (size_t i = 0; i < count; i++) {
    const char *setting = setting_that_shapes(differences[i].key, architecture);
    if (setting == NULL) continue;
    plm_text_printf(&text, "%s%s is %s in the folder, %s here", text.length == 0 ? "" : "; ",
                    setting, differences[i].values[0], differences[i].values[1]);
    if (strcmp(differences[i].key, "architecture") == 0)
      break; /* further differences follow from it */
  }
  plm_error_set(error, PLM_CONFIG, "the weights belong to another model: %s",
                text.data != NULL ? text.data : "its parameters have other names");
  plm_error_where(error, "%s", folder->directory);
  plm_text_deinit(&text);
  return plm_error_hint(error,
                        "give the new run the values in the folder's config.json, or use weights "
                        "of the same shape");
}

/* A folder with adapters is a start for the same adapters only. */
static plm_status check_adapters(const struct plm_model_folder *folder,
                                 const struct plm_lora_config *wanted, struct plm_text *notes,
                                 struct plm_error *error)
{
  const struct plm_lora_config *has = &folder->model.lora;
  if (has->rank == 0) return PLM_OK;
  if (!plm_lora_same_shape(has, wanted)) {
    plm_error_set(error, PLM_CONFIG,
                  "the weights have adapters of rank %u, and trainer.lora asks for %s", has->rank,
                  wanted->rank == 0 ? "none" : "adapters of another rank or with other targets");
    plm_error_where(error, "%s", folder->directory);
    return plm_error_hint(error, "give trainer.lora the values of `lora` in the folder's "
                                 "config.json, or fold the adapters into the weights first: "
                                 "plm-pipeline export --merge");
  }
  if (has->alpha != wanted->alpha && notes != NULL)
    plm_text_printf(notes, "lora.alpha was %g, is %g\n", has->alpha, wanted->alpha);
  return PLM_OK;
}

plm_status plm_model_folder_fits(const struct plm_model_folder *folder,
                                 const struct plm_model_config *model, struct plm_text *notes,
                                 struct plm_error *error)
{
  struct plm_model_difference differences[PLM_MODEL_KEYS];
  bool same = false;
  const size_t count = plm_model_config_compare(&folder->model, model, differences);
  PLM_TRY(same_parameters(&folder->model, model, &same, error));
  if (!same) return another_model(folder, differences, count, model->architecture, error);
  PLM_TRY(check_adapters(folder, &model->lora, notes, error));
  for (size_t i = 0; i < count && notes != NULL; i++)
    plm_text_printf(notes, "%s was %s, is %s\n", differences[i].key, differences[i].values[0],
                    differences[i].values[1]);
  return PLM_OK;
}

struct plm_new_parts plm_model_folder_new_parts(const struct plm_model_folder *folder,
                                                const struct plm_model_config *model)
{
  const struct plm_head_config *has = &folder->model.head, *wanted = &model->head;
  return (struct plm_new_parts){.head =
                                    wanted->kind != PLM_PREDICTS_TOKENS &&
                                    (has->kind != wanted->kind || has->outputs != wanted->outputs ||
                                     has->hidden != wanted->hidden),
                                .adapters = model->lora.rank > 0 && folder->model.lora.rank == 0};
}

void plm_model_folder_log_notes(const struct plm_text *notes)
{
  if (notes->length > 0) plm_info(PLM_NOTES_TITLE ":\n%.*s", (int)notes->length - 1, notes->data);
}

plm_status plm_model_folder_can_start(const struct plm_model_folder *folder,
                                      const struct plm_model_config *model, struct plm_text *notes,
                                      struct plm_error *error)
{
  const struct plm_new_parts parts = plm_model_folder_new_parts(folder, model);
  struct plm_model_config read = *model;
  PLM_TRY(plm_model_folder_fits(folder, model, notes, error));
  if (parts.head) return PLM_OK;
  if (parts.adapters) read.lora = (struct plm_lora_config){0};
  return plm_parameters_check_whole(folder->directory, plm_model_folder_weights(folder), &read,
                                    error);
}
