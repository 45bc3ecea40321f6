/* Copies of the tensors of frozen parameters. */
#include "common/checkpoint/frozen_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/tensor_names.h"
#include "common/checkpoint/tensor_shards.h"

static bool any_frozen(const struct plm_parameter *table, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (table[i].frozen) return true;
  return false;
}

/* Keeps a parameter's elements of any type. */
static plm_status keep(const struct plm_parameter *parameter, enum plm_dtype dtype,
                       const void *data, size_t bytes, struct plm_tensor_info *tensor,
                       struct plm_error *error)
{
  void *copy = malloc(bytes);
  if (copy == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the %zu bytes of %s", bytes,
                         parameter->name);
  memcpy(copy, data, bytes);
  *tensor = (struct plm_tensor_info){
      .name = parameter->name, .dtype = dtype, .bytes = bytes, .data = copy};
  tensor->rank = plm_parameter_shape(parameter, tensor->shape);
  return PLM_OK;
}

static plm_status read_tensors(const struct plm_tensor_shards *files,
                               const struct plm_parameter *table, size_t count,
                               struct plm_frozen_tensors *frozen, struct plm_error *error)
{
  const struct plm_tensor_naming naming = plm_tensor_naming_of(files, table, count);
  for (size_t i = 0; i < count; i++) {
    if (!table[i].frozen) continue;
    const struct plm_tensor_info *tensor = plm_tensor_of_parameter(files, &naming, &table[i]);
    if (tensor == NULL || tensor->bytes < table[i].count)
      return plm_error_set(error, PLM_FORMAT, "parameter %s is missing", table[i].name);
    PLM_TRY(
        keep(&table[i], tensor->dtype, tensor->data, tensor->bytes, &frozen->tensors[i], error));
  }
  return PLM_OK;
}

plm_status plm_frozen_tensors_read(const char *path, const struct plm_parameter *table,
                                   size_t count, struct plm_frozen_tensors *frozen,
                                   struct plm_error *error)
{
  struct plm_tensor_shards *files;
  *frozen = (struct plm_frozen_tensors){0};
  if (!any_frozen(table, count)) return PLM_OK;
  PLM_TRY(plm_tensor_shards_open(path, &files, error));
  frozen->tensors = plm_alloc_zeroed(count, sizeof *frozen->tensors);
  frozen->count = count;
  const plm_status status = read_tensors(files, table, count, frozen, error);
  plm_tensor_shards_close(files);
  if (status == PLM_OK) return PLM_OK;
  plm_error_where(error, "%s", path);
  plm_frozen_tensors_deinit(frozen);
  return status;
}

plm_status plm_frozen_tensors_copy(const float *values, const struct plm_parameter *table,
                                   size_t count, struct plm_frozen_tensors *frozen,
                                   struct plm_error *error)
{
  plm_status status = PLM_OK;
  *frozen = (struct plm_frozen_tensors){0};
  if (!any_frozen(table, count)) return PLM_OK;
  frozen->tensors = plm_alloc_zeroed(count, sizeof *frozen->tensors);
  frozen->count = count;
  for (size_t i = 0; i < count && status == PLM_OK; i++)
    if (table[i].frozen)
      status = keep(&table[i], PLM_F32, values + table[i].offset, table[i].count * sizeof *values,
                    &frozen->tensors[i], error);
  if (status != PLM_OK) plm_frozen_tensors_deinit(frozen);
  return status;
}

void plm_frozen_tensors_deinit(struct plm_frozen_tensors *frozen)
{
  for (size_t i = 0; i < frozen->count; i++) free((void *)frozen->tensors[i].data);
  free(frozen->tensors);
  *frozen = (struct plm_frozen_tensors){0};
}
