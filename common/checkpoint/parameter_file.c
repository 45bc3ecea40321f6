/* A model's parameters as tensors of a file: each must be present with its shape, and there must be
 * no others. A reader that needs only the trunk also accepts weights with another head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/advance.h"
#include "common/base/files/file.h"
#include "common/base/numbers/finite.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/tensor_names.h"
#include "common/checkpoint/tensor_shards.h"
#include "common/checkpoint/tensor_values.h"

int plm_parameter_shape(const struct plm_parameter *parameter, uint64_t shape[PLM_TENSOR_MAX_RANK])
{
  if (parameter->ndim == 1) {
    shape[0] = (uint64_t)parameter->cols;
    return 1;
  }
  shape[0] = (uint64_t)parameter->rows;
  shape[1] = (uint64_t)parameter->cols;
  return 2;
}

enum { SHARD_SIZE = 128, SHAPE_SIZE = 128 };

/* ---- writing -------------------------------------------------------------------------------- */

plm_status plm_parameters_write(const char *path, const struct plm_parameter *table, size_t count,
                                const float *values, struct plm_error *error)
{
  return plm_parameters_write_with(path, table, count, values, NULL, NULL, error);
}

plm_status plm_parameters_write_with(const char *path, const struct plm_parameter *table,
                                     size_t count, const float *values,
                                     const struct plm_frozen_tensors *frozen,
                                     const struct plm_carried_tensors *carried,
                                     struct plm_error *error)
{
  static const struct plm_metadata_entry metadata = {"format", "pt"};
  const size_t others = carried != NULL ? carried->count : 0;
  struct plm_tensor_info *tensors = plm_alloc_zeroed(count + others, sizeof *tensors);
  const bool all = frozen == NULL || frozen->count == 0;
  PLM_ASSERT(all || frozen->count == count);
  for (size_t i = 0; i < count; i++) {
    if (!all && table[i].frozen) {
      tensors[i] = frozen->tensors[i];
      continue;
    }
    tensors[i] = (struct plm_tensor_info){.name = table[i].name,
                                          .dtype = PLM_F32,
                                          .bytes = table[i].count * sizeof(float),
                                          .data = values + table[i].offset};
    tensors[i].rank = plm_parameter_shape(&table[i], tensors[i].shape);
  }
  for (size_t i = 0; i < others; i++) tensors[count + i] = carried->tensors[i];
  const plm_status status =
      plm_safetensors_write(path, tensors, count + others, &metadata, 1, error);
  free(tensors);
  return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* " of SHARD" in a message about a tensor; "" if there is only one file. */
static const char *of_shard(const struct plm_tensor_shards *weights,
                            const struct plm_tensor_info *tensor, char text[SHARD_SIZE])
{
  const char *shard = plm_tensor_shards_name(weights, tensor);
  (void)snprintf(text, SHARD_SIZE, "%s%.100s", shard != NULL ? " of " : "",
                 shard != NULL ? shard : "");
  return text;
}

/* A training that diverged leaves NaN, and a value that was rounded to fewer bits may have
 * overflowed. */
static plm_status check_finite(const struct plm_tensor_shards *weights,
                               const struct plm_tensor_info *tensor, const float *values,
                               size_t count, struct plm_error *error)
{
  char shard[SHARD_SIZE];
  const size_t found = plm_first_not_finite(values, count);
  if (found == count) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "tensor %.200s%s holds %g at element %zu", tensor->name,
                of_shard(weights, tensor, shard), (double)values[found], found);
  return plm_error_hint(error, "the training that wrote it diverged, or the value overflowed when "
                               "it was converted; use an earlier checkpoint, or convert again");
}

static const char decoder[] = "lm_head.decoder.weight";

/* The decoder is the parameter that only an untied model has. */
static plm_status missing(const struct plm_tensor_naming *naming,
                          const struct plm_parameter *parameter, struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "parameter %s is missing", parameter->name + naming->prefix);
  if (plm_tensor_published(naming))
    return plm_error_hint(error, "the file is not complete, or config.json describes another "
                                 "model; get both from the same place again");
  if (strcmp(parameter->name, decoder) != 0) return PLM_FORMAT;
  return plm_error_hint(error, "a model without it is tied: then config.json needs "
                               "tie_embeddings and tie_word_embeddings true");
}

static void shape_text(int rank, const uint64_t *shape, char text[SHAPE_SIZE])
{
  size_t length = 0;
  (void)snprintf(text, SHAPE_SIZE, "()");
  for (int i = 0; i < rank && length < SHAPE_SIZE; i++)
    length += (size_t)snprintf(text + length, SHAPE_SIZE - length, "%s%llu%s", i == 0 ? "(" : ", ",
                               (unsigned long long)shape[i], i + 1 == rank ? ")" : "");
}

static plm_status wrong_shape(const struct plm_tensor_shards *weights,
                              const struct plm_tensor_info *tensor, int rank, const uint64_t *shape,
                              const char *hint, struct plm_error *error)
{
  char shard[SHARD_SIZE], found[SHAPE_SIZE], expected[SHAPE_SIZE];
  shape_text(tensor->rank, tensor->shape, found);
  shape_text(rank, shape, expected);
  plm_error_set(error, PLM_FORMAT, "tensor %.200s%s has the shape %s, but the model needs %s",
                tensor->name, of_shard(weights, tensor, shard), found, expected);
  return plm_error_hint(error, "%s; use the one that was written with the weights", hint);
}

/* The model that is read, and where the values of its parameters go: into an arena, or one after
 * another into a model. */
struct destination {
  const struct plm_model_config *config; /* NULL: only its parameters are known */
  float *arena;                          /* NULL: none */
  struct plm_model *model;               /* NULL: none */
  float *room;                           /* with a model: for its largest parameter */
};

/* Copies the tensor of a parameter. values NULL: only checks its shape. */
static plm_status copy_parameter(const struct plm_tensor_shards *weights,
                                 const struct plm_tensor_naming *naming,
                                 const struct plm_parameter *parameter, float *values,
                                 struct plm_advance *advance, struct plm_error *error)
{
  uint64_t shape[PLM_TENSOR_MAX_RANK] = {0};
  const int rank = plm_parameter_shape(parameter, shape);
  const struct plm_tensor_info *tensor = plm_tensor_of_parameter(weights, naming, parameter);
  if (!tensor) return missing(naming, parameter, error);
  if (tensor->rank != rank || memcmp(tensor->shape, shape, sizeof shape) != 0)
    return wrong_shape(weights, tensor, rank, shape,
                       "the sizes in config.json are those of another model", error);
  if (values == NULL)
    return plm_tensor_to_float(tensor, 0, NULL, NULL, error); /* checks only its type */
  PLM_TRY(plm_tensor_to_float(tensor, parameter->count, values, advance, error));
  plm_tensor_shards_release(weights, tensor);
  return check_finite(weights, tensor, values, parameter->count, error);
}

static plm_status left_over(const struct plm_tensor_shards *weights,
                            const struct plm_tensor_naming *naming,
                            const struct plm_tensor_info *tensor, struct plm_error *error)
{
  char shard[SHARD_SIZE];
  if (strcmp(tensor->name, decoder) != 0) {
    plm_error_set(error, PLM_FORMAT, "tensor %.200s%s is not a parameter of the model",
                  tensor->name, of_shard(weights, tensor, shard));
    return plm_error_hint(error, "config.json may be that of another model, such as one with fewer "
                                 "layers; use the one that was written with the weights");
  }
  plm_error_set(error, PLM_FORMAT,
                "%s is not the embedding table, but config.json says that the model is tied",
                tensor->name);
  return plm_error_hint(error, plm_tensor_published(naming)
                                   ? "the head was trained apart from the embeddings; such a "
                                     "model cannot be used"
                                   : "the head was trained apart from the embeddings: to use it, "
                                     "set tie_embeddings and tie_word_embeddings to false in "
                                     "config.json");
}

static plm_status check_none_left(const struct plm_tensor_shards *weights,
                                  const struct plm_parameter *table, size_t count,
                                  const struct plm_tensor_naming *naming, struct plm_error *error)
{
  size_t wanted = 0;
  for (size_t p = 0; p < count; p++) wanted += plm_tensor_wanted(naming, &table[p]);
  if (plm_tensor_shards_count(weights) == wanted)
    return PLM_OK; /* no tensor is left over unless one is missing, and that is found later */
  for (size_t i = 0; i < plm_tensor_shards_count(weights); i++) {
    const struct plm_tensor_info *tensor = plm_tensor_shards_at(weights, i);
    if (plm_tensor_use(weights, naming, table, count, tensor) == PLM_TENSOR_UNKNOWN)
      return left_over(weights, naming, tensor, error);
  }
  return PLM_OK;
}

/* No parameter shows how many heads there are, so with a wrong number the model would compute
 * something else without an error. */
static plm_status check_heads(const struct plm_tensor_shards *weights,
                              const struct plm_tensor_naming *naming,
                              const struct plm_model_config *config, struct plm_error *error)
{
  char hint[128];
  for (size_t i = 0; config != NULL && i < plm_tensor_shards_count(weights); i++) {
    const struct plm_tensor_info *tensor = plm_tensor_shards_at(weights, i);
    uint64_t shape[PLM_TENSOR_MAX_RANK] = {0};
    int rank;
    if (!plm_tensor_shape_of_heads(naming, config, tensor, &rank, shape) ||
        (tensor->rank == rank && memcmp(tensor->shape, shape, sizeof shape) == 0))
      continue;
    (void)snprintf(
        hint, sizeof hint,
        "config.json says that num_attention_heads is %u, and so belongs to another model",
        config->num_attention_heads);
    return wrong_shape(weights, tensor, rank, shape, hint, error);
  }
  return PLM_OK;
}

static plm_status no_head(const struct plm_tensor_naming *naming, const struct plm_parameter *table,
                          size_t count, struct plm_error *error)
{
  if (plm_parameters_predict_labels(table, count)) {
    plm_error_set(error, PLM_FORMAT, "the file has no classifier (classifier.*)");
    return plm_error_hint(error, "use the folder of a model that was fine-tuned to predict labels");
  }
  const bool classifier = naming->head == PLM_HEAD_CLASSIFIER;
  if (classifier)
    plm_error_set(error, PLM_FORMAT,
                  "the file has a classifier instead of the language model's head (lm_head.*)");
  else
    plm_error_set(error, PLM_FORMAT,
                  "the file was saved from %s, without the language model's head (lm_head.*)",
                  plm_tensor_trunk_class(naming));
  return plm_error_hint(
      error,
      "%s can use it; otherwise load the model with AutoModelForMaskedLM and use the folder that "
      "its save_pretrained writes",
      classifier ? "predict, probe, export and embed (without --logits)"
                 : "only probe and embed (without --logits)");
}

static plm_status copy_parameters(const struct plm_tensor_shards *weights,
                                  const struct plm_parameter *table, size_t count,
                                  const struct destination *to,
                                  const struct plm_tensor_naming *naming,
                                  struct plm_advance *advance, struct plm_error *error)
{
  uint64_t bytes = 0;
  for (size_t i = 0; i < plm_tensor_shards_count(weights); i++)
    bytes += plm_tensor_shards_at(weights, i)->bytes;
  plm_advance_begin(advance, bytes);
  PLM_TRY(check_none_left(weights, table, count, naming, error));
  for (size_t i = 0; i < count; i++) {
    float *values = to->arena != NULL ? to->arena + table[i].offset : to->room;
    if (!plm_tensor_wanted(naming, &table[i])) continue;
    PLM_TRY(copy_parameter(weights, naming, &table[i], values, advance, error));
    if (to->model != NULL) plm_model_load_parameter(to->model, i, values);
  }
  return check_heads(weights, naming, to->config, error);
}

/* If head is NULL, the file must have the head of the table; otherwise *head says which head it
 * has.
 */
static plm_status read_weights(const char *path, const struct plm_parameter *table, size_t count,
                               const struct destination *to, enum plm_weights_head *head,
                               const struct plm_new_parts *parts, struct plm_advance *advance,
                               struct plm_error *error)
{
  struct plm_tensor_shards *weights;
  PLM_TRY(plm_tensor_shards_open(path, &weights, error));
  struct plm_tensor_naming naming = plm_tensor_naming_of(weights, table, count);
  if (parts != NULL && parts->head) naming.reads_head = false;
  if (parts != NULL && parts->adapters) naming.reads_adapters = false;
  const plm_status status =
      head == NULL && !naming.reads_head
          ? no_head(&naming, table, count, error)
          : copy_parameters(weights, table, count, to, &naming, advance, error);
  const bool sharded = plm_tensor_shards_sharded(weights);
  plm_tensor_shards_close(weights);
  if (status != PLM_OK) plm_error_where(error, "%s%s", path, sharded ? PLM_SHARD_INDEX : "");
  if (head != NULL) *head = naming.head;
  return status;
}

plm_status plm_parameters_read(const char *path, const struct plm_parameter *table, size_t count,
                               float *values, struct plm_error *error)
{
  return read_weights(path, table, count, &(struct destination){.arena = values}, NULL, NULL, NULL,
                      error);
}

plm_status plm_parameters_read_trunk(const char *path, const struct plm_parameter *table,
                                     size_t count, float *values, struct plm_error *error)
{
  static const struct plm_new_parts parts = {.head = true};
  enum plm_weights_head head;
  return read_weights(path, table, count, &(struct destination){.arena = values}, &head, &parts,
                      NULL, error);
}

static plm_status check_file(const char *directory, const char *file,
                             const struct plm_model_config *config, enum plm_weights_head *head,
                             struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct plm_parameter *table;
  size_t count, elements;
  PLM_TRY(plm_path_join(path, directory, file, error));
  PLM_TRY(plm_model_parameters(config, &table, &count, &elements, error));
  const struct destination nowhere = {.config = config};
  const plm_status status = read_weights(path, table, count, &nowhere, head, NULL, NULL, error);
  free(table);
  return status;
}

plm_status plm_parameters_check(const char *directory, const char *file,
                                const struct plm_model_config *config, struct plm_error *error)
{
  enum plm_weights_head head;
  return check_file(directory, file, config, &head, error);
}

plm_status plm_parameters_check_whole(const char *directory, const char *file,
                                      const struct plm_model_config *config,
                                      struct plm_error *error)
{
  return check_file(directory, file, config, NULL, error);
}

plm_status plm_parameters_fetch_with(const char *directory, const char *file,
                                     const struct plm_model *model,
                                     const struct plm_new_parts *parts, struct plm_advance *advance,
                                     float **values, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  size_t count;
  const struct plm_parameter *table = plm_model_table(model, &count);
  enum plm_weights_head head;
  const size_t elements = plm_model_arena_elements(model);
  PLM_TRY(plm_path_join(path, directory, file, error));
  *values = calloc(elements, sizeof **values); /* the gaps, and a missing head, stay zero */
  if (!*values) return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu weights", elements);
  for (size_t i = 0; parts != NULL && i < count; i++)
    if (table[i].adapter != 0 ? parts->adapters : parts->head && table[i].group == PLM_GROUP_HEAD)
      plm_model_initialise(&table[i], 1, parts->seed, *values);
  const struct destination to = {.config = plm_model_config(model), .arena = *values};
  const plm_status status = read_weights(
      path, table, count, &to, parts != NULL && parts->head ? &head : NULL, parts, advance, error);
  if (status == PLM_OK) return PLM_OK;
  free(*values);
  *values = NULL;
  return status;
}

plm_status plm_parameters_fetch(const char *directory, const char *file,
                                const struct plm_model *model, struct plm_advance *advance,
                                float **values, struct plm_error *error)
{
  return plm_parameters_fetch_with(directory, file, model, NULL, advance, values, error);
}

static plm_status parameter_file_load(const char *directory, const char *file,
                                      struct plm_model *model, enum plm_weights_head *head,
                                      struct plm_advance *advance, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  size_t count;
  struct destination to = {.config = plm_model_config(model), .model = model};
  struct plm_ops *ops = plm_model_ops(model);
  const struct plm_parameter *table = plm_model_table(model, &count);
  PLM_TRY(plm_path_join(path, directory, file, error));
  PLM_TRY(plm_model_parameter_room(model, &to.room, error));
  plm_status status = read_weights(path, table, count, &to, head, NULL, advance, error);
  if (status == PLM_OK) {
    plm_model_weights_changed(model);
    status = ops->synchronize(ops, error);
  }
  free(to.room);
  return status;
}

plm_status plm_parameters_load(const char *directory, const char *file, struct plm_model *model,
                               struct plm_advance *advance, struct plm_error *error)
{
  return parameter_file_load(directory, file, model, NULL, advance, error);
}

plm_status plm_parameters_load_trunk(const char *directory, const char *file,
                                     struct plm_model *model, enum plm_weights_head *head,
                                     struct plm_advance *advance, struct plm_error *error)
{
  return parameter_file_load(directory, file, model, head, advance, error);
}

bool plm_parameters_predict_labels(const struct plm_parameter *table, size_t count)
{
  for (size_t p = 0; p < count; p++)
    if (table[p].group == PLM_GROUP_HEAD) return strncmp(table[p].name, "lm_head.", 8) != 0;
  return false;
}
