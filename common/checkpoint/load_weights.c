/* Weights of a checkpoint into a model: every parameter must be there with its shape, and nothing
 * else. */
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/parameter_shape.h"

/* One parameter's tensor into its place on the host. */
static plm_status take_parameter(const struct plm_safetensors *weights,
                                 const struct plm_parameter *parameter, float *values,
                                 struct plm_error *error)
{
  uint64_t shape[PLM_TENSOR_MAX_RANK] = {0};
  const int rank = plm_parameter_shape(parameter, shape);
  const struct plm_tensor_info *tensor = plm_safetensors_find(weights, parameter->name);
  if (!tensor) return plm_error_set(error, PLM_FORMAT, "parameter %s is missing", parameter->name);
  if (tensor->dtype != PLM_F32)
    return plm_error_set(error, PLM_FORMAT, "parameter %s is not F32", parameter->name);
  if (tensor->rank != rank || memcmp(tensor->shape, shape, sizeof shape) != 0)
    return plm_error_set(error, PLM_FORMAT,
                         "parameter %s has %d dimensions (%llu, %llu), the model's has %d (%llu, "
                         "%llu)",
                         parameter->name, tensor->rank, (unsigned long long)tensor->shape[0],
                         (unsigned long long)tensor->shape[1], rank, (unsigned long long)shape[0],
                         (unsigned long long)shape[1]);
  memcpy(values + parameter->offset, tensor->data, tensor->bytes);
  return PLM_OK;
}

static plm_status check_none_left(const struct plm_safetensors *weights,
                                  const struct plm_parameter *table, size_t count,
                                  struct plm_error *error)
{
  if (plm_safetensors_count(weights) == count) return PLM_OK;
  for (size_t i = 0; i < plm_safetensors_count(weights); i++) {
    const char *name = plm_safetensors_at(weights, i)->name;
    bool known = false;
    for (size_t p = 0; p < count && !known; p++) known = strcmp(table[p].name, name) == 0;
    if (!known)
      return plm_error_set(error, PLM_FORMAT, "tensor %.200s is no parameter of the model", name);
  }
  return PLM_OK;
}

static plm_status take_all(const struct plm_safetensors *weights, const struct plm_parameter *table,
                           size_t count, float *values, struct plm_error *error)
{
  PLM_TRY(check_none_left(weights, table, count, error));
  for (size_t i = 0; i < count; i++) PLM_TRY(take_parameter(weights, &table[i], values, error));
  return PLM_OK;
}

plm_status plm_checkpoint_read_weights(const char *path, const struct plm_parameter *table,
                                       size_t count, float *values, struct plm_error *error)
{
  struct plm_safetensors *weights;
  PLM_TRY(plm_safetensors_open(path, &weights, error));
  const plm_status status = take_all(weights, table, count, values, error);
  plm_safetensors_close(weights);
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
