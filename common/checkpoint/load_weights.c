/* Weights of a folder into a model: every parameter must be there with its shape, and nothing
 * else. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/parameter_shape.h"
#include "common/checkpoint/tensor_values.h"
#include "common/checkpoint/weight_files.h"

/* What another program rounded to 16 bits may have left their range. */
static plm_status check_finite(const struct plm_parameter *parameter, const float *values,
                               struct plm_error *error)
{
  for (size_t i = 0; i < parameter->count; i++)
    if (!isfinite(values[i]))
      return plm_error_set(error, PLM_FORMAT, "parameter %s holds %g at element %zu",
                           parameter->name, values[i], i);
  return PLM_OK;
}

/* One parameter's tensor into its place on the host. */
static plm_status take_parameter(const struct plm_weight_files *weights,
                                 const struct plm_parameter *parameter, float *values,
                                 struct plm_error *error)
{
  uint64_t shape[PLM_TENSOR_MAX_RANK] = {0};
  const int rank = plm_parameter_shape(parameter, shape);
  const struct plm_tensor_info *tensor = plm_weight_files_find(weights, parameter->name);
  if (!tensor) return plm_error_set(error, PLM_FORMAT, "parameter %s is missing", parameter->name);
  if (tensor->rank != rank || memcmp(tensor->shape, shape, sizeof shape) != 0)
    return plm_error_set(error, PLM_FORMAT,
                         "parameter %s has %d dimensions (%llu, %llu), the model's has %d (%llu, "
                         "%llu)",
                         parameter->name, tensor->rank, (unsigned long long)tensor->shape[0],
                         (unsigned long long)tensor->shape[1], rank, (unsigned long long)shape[0],
                         (unsigned long long)shape[1]);
  float *place = values + parameter->offset;
  PLM_TRY(plm_tensor_to_float(tensor, parameter->count, place, error));
  return tensor->dtype == PLM_F32 ? PLM_OK : check_finite(parameter, place, error);
}

static bool is_parameter(const struct plm_parameter *table, size_t count, const char *name)
{
  bool known = false;
  for (size_t p = 0; p < count && !known; p++) known = strcmp(table[p].name, name) == 0;
  return known;
}

/* A tied model's second matrix, as some tools write it: the embedding table once more. */
static bool is_tied_copy(const struct plm_weight_files *weights,
                         const struct plm_tensor_info *tensor)
{
  const struct plm_tensor_info *table = plm_weight_files_find(weights, "plm.embeddings.weight");
  return strcmp(tensor->name, "lm_head.decoder.weight") == 0 && table != NULL &&
         table->dtype == tensor->dtype && table->bytes == tensor->bytes &&
         memcmp(table->data, tensor->data, tensor->bytes) == 0;
}

static plm_status check_none_left(const struct plm_weight_files *weights,
                                  const struct plm_parameter *table, size_t count,
                                  struct plm_error *error)
{
  if (plm_weight_files_count(weights) == count) return PLM_OK;
  for (size_t i = 0; i < plm_weight_files_count(weights); i++) {
    const struct plm_tensor_info *tensor = plm_weight_files_at(weights, i);
    if (!is_parameter(table, count, tensor->name) && !is_tied_copy(weights, tensor))
      return plm_error_set(error, PLM_FORMAT, "tensor %.200s is no parameter of the model",
                           tensor->name);
  }
  return PLM_OK;
}

/* AutoModel saves the layers without the head, and their names without "plm."; a model that was
 * fine-tuned to labels has a readout of its own instead. */
static plm_status check_head(const struct plm_weight_files *weights, struct plm_error *error)
{
  if (plm_weight_files_find(weights, "classifier.weight") != NULL) {
    plm_error_set(error, PLM_FORMAT, "weights of a classifier, without the head (lm_head.*)");
    return plm_error_hint(error, "it works in Python, where model.embed_dataset embeds with it; "
                                 "here a model with its head is wanted (AutoModelForMaskedLM)");
  }
  if (plm_weight_files_find(weights, "embeddings.weight") == NULL) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "weights of PLMModel alone, without the head (lm_head.*)");
  return plm_error_hint(error, "load the model with AutoModelForMaskedLM and save_pretrained that");
}

static plm_status take_all(const struct plm_weight_files *weights,
                           const struct plm_parameter *table, size_t count, float *values,
                           struct plm_error *error)
{
  PLM_TRY(check_head(weights, error));
  PLM_TRY(check_none_left(weights, table, count, error));
  for (size_t i = 0; i < count; i++) PLM_TRY(take_parameter(weights, &table[i], values, error));
  return PLM_OK;
}

plm_status plm_checkpoint_read_weights(const char *path, const struct plm_parameter *table,
                                       size_t count, float *values, struct plm_error *error)
{
  struct plm_weight_files *weights;
  PLM_TRY(plm_weight_files_open(path, &weights, error));
  const plm_status status = take_all(weights, table, count, values, error);
  plm_weight_files_close(weights);
  if (status != PLM_OK) plm_error_where(error, "%s", path);
  return status;
}

plm_status plm_checkpoint_load_weights(const char *directory, const char *file,
                                       struct plm_model *model, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  size_t count;
  const struct plm_parameter *table = plm_model_table(model, &count);
  const size_t elements = plm_model_arena_elements(model);
  PLM_TRY(plm_path_join(path, directory, file, error));
  float *values = calloc(elements, sizeof *values); /* gaps are zero */
  if (!values) return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu weights", elements);
  plm_status status = plm_checkpoint_read_weights(path, table, count, values, error);
  if (status == PLM_OK) {
    struct plm_ops *ops = plm_model_ops(model);
    ops->upload(ops, plm_model_parameter_arena(model), values, elements * sizeof *values);
    plm_model_weights_changed(model);
    status = ops->synchronize(ops, error);
  }
  free(values);
  return status;
}
