/* A model's parameters as tensors of a file: each must be present with its shape, and there must be
 * no others. A reader that needs only the trunk also accepts weights with another head. */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/advance.h"
#include "common/base/files/file.h"
#include "common/base/numbers/finite.h"
#include "common/checkpoint/parameter_file.h"
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

/* ---- writing -------------------------------------------------------------------------------- */

plm_status plm_parameters_write(const char *path, const struct plm_parameter *table, size_t count,
                                const float *values, struct plm_error *error)
{
  static const struct plm_metadata_entry metadata = {"format", "pt"};
  struct plm_tensor_info *tensors = plm_alloc_zeroed(count, sizeof *tensors);
  for (size_t i = 0; i < count; i++) {
    tensors[i] = (struct plm_tensor_info){.name = table[i].name,
                                          .dtype = PLM_F32,
                                          .bytes = table[i].count * sizeof(float),
                                          .data = values + table[i].offset};
    tensors[i].rank = plm_parameter_shape(&table[i], tensors[i].shape);
  }
  const plm_status status = plm_safetensors_write(path, tensors, count, &metadata, 1, error);
  free(tensors);
  return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* A training that diverged leaves NaN, and a value that was rounded to fewer bits may have
 * overflowed. */
static plm_status check_finite(const struct plm_tensor_shards *weights,
                               const struct plm_tensor_info *tensor, const float *values,
                               size_t count, struct plm_error *error)
{
  const size_t found = plm_first_not_finite(values, count);
  if (found == count) return PLM_OK;
  const char *shard = plm_tensor_shards_name(weights, tensor);
  plm_error_set(error, PLM_FORMAT, "tensor %.200s%s%.100s holds %g at element %zu", tensor->name,
                shard != NULL ? " of " : "", shard != NULL ? shard : "", (double)values[found],
                found);
  return plm_error_hint(error, "the training that wrote it diverged, or the value overflowed when "
                               "it was converted; use an earlier checkpoint, or convert again");
}

static const char decoder[] = "lm_head.decoder.weight";

/* The decoder is the parameter that only an untied model has. */
static plm_status missing(const struct plm_parameter *parameter, struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "parameter %s is missing", parameter->name);
  if (strcmp(parameter->name, decoder) != 0) return PLM_FORMAT;
  return plm_error_hint(error, "a model without it is tied: then config.json needs "
                               "tie_embeddings and tie_word_embeddings true");
}

/* Copies the tensor of a parameter to its place in the arena. values NULL: only checks its shape.
 */
static plm_status copy_parameter(const struct plm_tensor_shards *weights,
                                 const struct plm_parameter *parameter, size_t prefix,
                                 float *values, struct plm_advance *advance,
                                 struct plm_error *error)
{
  uint64_t shape[PLM_TENSOR_MAX_RANK] = {0};
  const int rank = plm_parameter_shape(parameter, shape);
  const struct plm_tensor_info *tensor = plm_tensor_shards_find(weights, parameter->name + prefix);
  if (!tensor) return missing(parameter, error);
  if (tensor->rank != rank || memcmp(tensor->shape, shape, sizeof shape) != 0)
    return plm_error_set(error, PLM_FORMAT,
                         "parameter %s has %d dimensions (%llu, %llu), but the model's has %d "
                         "(%llu, %llu)",
                         parameter->name, tensor->rank, (unsigned long long)tensor->shape[0],
                         (unsigned long long)tensor->shape[1], rank, (unsigned long long)shape[0],
                         (unsigned long long)shape[1]);
  if (values == NULL) return PLM_OK;
  float *place = values + parameter->offset;
  PLM_TRY(plm_tensor_to_float(tensor, parameter->count, place, advance, error));
  return check_finite(weights, tensor, place, parameter->count, error);
}

/* How a file names its tensors, and which parameters it has. */
struct naming {
  enum plm_weights_head head;
  size_t prefix; /* bytes of a parameter's name that its tensor's name lacks */
};

static const char head_prefix[] = "lm_head.", trunk_prefix[] = "plm.";

static bool starts_with(const char *name, const char *prefix)
{
  return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* transformers' AutoModel saves only the trunk, under names without "plm."; a model that was
 * fine-tuned to predict labels has a classifier instead of the head. */
static struct naming naming_of(const struct plm_tensor_shards *weights)
{
  if (plm_tensor_shards_find(weights, "classifier.weight") != NULL)
    return (struct naming){PLM_HEAD_CLASSIFIER, 0};
  if (plm_tensor_shards_find(weights, "embeddings.weight") != NULL)
    return (struct naming){PLM_HEAD_NONE, sizeof trunk_prefix - 1};
  return (struct naming){PLM_HEAD_LM, 0};
}

/* Whether the file has to have this parameter. */
static bool is_wanted(const struct naming *naming, const struct plm_parameter *parameter)
{
  return naming->head == PLM_HEAD_LM || !starts_with(parameter->name, head_prefix);
}

static bool is_parameter(const struct plm_parameter *table, size_t count,
                         const struct naming *naming, const char *name)
{
  for (size_t p = 0; p < count; p++)
    if (is_wanted(naming, &table[p]) && strcmp(table[p].name + naming->prefix, name) == 0)
      return true;
  return false;
}

/* Some tools write the second matrix of a tied model. It is left over unless it equals the
 * embedding table. */
static bool is_tied_copy(const struct plm_tensor_shards *weights,
                         const struct plm_tensor_info *tensor)
{
  const struct plm_tensor_info *table = plm_tensor_shards_find(weights, "plm.embeddings.weight");
  return strcmp(tensor->name, decoder) == 0 && table != NULL && table->dtype == tensor->dtype &&
         table->bytes == tensor->bytes && memcmp(table->data, tensor->data, tensor->bytes) == 0;
}

static plm_status left_over(const char *name, struct plm_error *error)
{
  if (strcmp(name, decoder) != 0)
    return plm_error_set(error, PLM_FORMAT, "tensor %.200s is not a parameter of the model", name);
  plm_error_set(error, PLM_FORMAT,
                "%s is not the embedding table, but config.json says that the model is tied", name);
  return plm_error_hint(error, "the head was trained apart from the embeddings: to use it, set "
                               "tie_embeddings and tie_word_embeddings to false in config.json");
}

static plm_status check_none_left(const struct plm_tensor_shards *weights,
                                  const struct plm_parameter *table, size_t count,
                                  const struct naming *naming, struct plm_error *error)
{
  size_t wanted = 0;
  for (size_t p = 0; p < count; p++) wanted += is_wanted(naming, &table[p]);
  if (plm_tensor_shards_count(weights) == wanted)
    return PLM_OK; /* no tensor is left over unless one is missing, and that is found later */
  for (size_t i = 0; i < plm_tensor_shards_count(weights); i++) {
    const struct plm_tensor_info *tensor = plm_tensor_shards_at(weights, i);
    if (is_parameter(table, count, naming, tensor->name) || is_tied_copy(weights, tensor)) continue;
    if (naming->head == PLM_HEAD_CLASSIFIER && starts_with(tensor->name, "classifier.")) continue;
    return left_over(tensor->name, error);
  }
  return PLM_OK;
}

static plm_status no_head(enum plm_weights_head head, struct plm_error *error)
{
  plm_error_set(
      error, PLM_FORMAT,
      head == PLM_HEAD_CLASSIFIER
          ? "the file has a classifier instead of the language model's head (lm_head.*)"
          : "the file was saved from PLMModel, without the language model's head (lm_head.*)");
  return plm_error_hint(
      error, "only `plm-pipeline embed` without --logits can use it; otherwise load the model "
             "with AutoModelForMaskedLM and use the folder that its save_pretrained writes");
}

static plm_status copy_parameters(const struct plm_tensor_shards *weights,
                                  const struct plm_parameter *table, size_t count, float *values,
                                  const struct naming *naming, struct plm_advance *advance,
                                  struct plm_error *error)
{
  uint64_t bytes = 0;
  for (size_t i = 0; i < plm_tensor_shards_count(weights); i++)
    bytes += plm_tensor_shards_at(weights, i)->bytes;
  plm_advance_begin(advance, bytes);
  PLM_TRY(check_none_left(weights, table, count, naming, error));
  for (size_t i = 0; i < count; i++)
    if (is_wanted(naming, &table[i]))
      PLM_TRY(copy_parameter(weights, &table[i], naming->prefix, values, advance, error));
  return PLM_OK;
}

/* If head is NULL, the file must have the language model's head; otherwise *head says which head it
 * has.
 */
static plm_status read_weights(const char *path, const struct plm_parameter *table, size_t count,
                               float *values, enum plm_weights_head *head,
                               struct plm_advance *advance, struct plm_error *error)
{
  struct plm_tensor_shards *weights;
  PLM_TRY(plm_tensor_shards_open(path, &weights, error));
  const struct naming naming = naming_of(weights);
  const plm_status status =
      head == NULL && naming.head != PLM_HEAD_LM
          ? no_head(naming.head, error)
          : copy_parameters(weights, table, count, values, &naming, advance, error);
  plm_tensor_shards_close(weights);
  if (status != PLM_OK) plm_error_where(error, "%s", path);
  if (head != NULL) *head = naming.head;
  return status;
}

plm_status plm_parameters_read(const char *path, const struct plm_parameter *table, size_t count,
                               float *values, struct plm_error *error)
{
  return read_weights(path, table, count, values, NULL, NULL, error);
}

plm_status plm_parameters_check(const char *directory, const char *file,
                                const struct plm_model_config *config, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct plm_parameter *table;
  size_t count, elements;
  enum plm_weights_head head;
  PLM_TRY(plm_path_join(path, directory, file, error));
  PLM_TRY(plm_model_parameters(config, &table, &count, &elements, error));
  const plm_status status = read_weights(path, table, count, NULL, &head, NULL, error);
  free(table);
  return status;
}

static plm_status parameter_file_load(const char *directory, const char *file,
                                      struct plm_model *model, enum plm_weights_head *head,
                                      struct plm_advance *advance, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  size_t count;
  const struct plm_parameter *table = plm_model_table(model, &count);
  const size_t elements = plm_model_arena_elements(model);
  PLM_TRY(plm_path_join(path, directory, file, error));
  float *values = calloc(elements, sizeof *values); /* the gaps, and a missing head, stay zero */
  if (!values) return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu weights", elements);
  plm_status status = read_weights(path, table, count, values, head, advance, error);
  if (status == PLM_OK) {
    struct plm_ops *ops = plm_model_ops(model);
    ops->upload(ops, plm_model_loading_arena(model), values, elements * sizeof *values);
    plm_model_loaded(model);
    status = ops->synchronize(ops, error);
  }
  free(values);
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
