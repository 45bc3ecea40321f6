/* The weights of an export. */
#include "stages/export/export_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/text.h"
#include "common/checkpoint/carried_tensors.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/tensor_names.h"
#include "common/checkpoint/tensor_shards.h"
#include "common/checkpoint/tensor_values.h"
#include "common/model/architecture.h"

/* What is written, while the source is open. */
struct list {
  const struct plm_export_weights *weights;
  struct plm_tensor_shards *source;
  struct plm_tensor_naming naming;
  struct plm_carried_tensors rotary; /* what every file of the model has */
  struct plm_tensor_info *tensors;
  size_t count;
};

static plm_status open_list(const struct plm_export_weights *weights, struct list *list,
                            struct plm_error *error)
{
  *list = (struct list){.weights = weights};
  PLM_TRY(plm_tensor_shards_open(weights->source, &list->source, error));
  list->naming = plm_tensor_naming_of(list->source, weights->table, weights->count);
  if (weights->model != NULL) plm_carried_tensors_add_rotary(&list->rotary, weights->model);
  list->tensors = plm_alloc_zeroed(weights->count + plm_tensor_shards_count(list->source) +
                                       list->rotary.count + 1,
                                   sizeof *list->tensors);
  return PLM_OK;
}

static void close_list(struct list *list)
{
  plm_tensor_shards_close(list->source);
  plm_carried_tensors_deinit(&list->rotary);
  free(list->tensors);
}

plm_status plm_export_source_dtype(const struct plm_export_weights *weights, const char **name,
                                   struct plm_error *error)
{
  struct list list;
  PLM_TRY(open_list(weights, &list, error));
  const struct plm_tensor_info *first =
      plm_tensor_of_parameter(list.source, &list.naming, &weights->table[0]);
  *name = first != NULL ? plm_dtype_name(first->dtype) : NULL;
  close_list(&list);
  if (*name != NULL) return PLM_OK;
  return plm_error_set(error, PLM_UNSUPPORTED, "the embedding table has no type of weights");
}

static void add_converted(struct list *list, const struct plm_parameter *parameter,
                          const void *values, enum plm_dtype dtype)
{
  const size_t item = dtype == PLM_F32 ? sizeof(float) : sizeof(uint16_t);
  struct plm_tensor_info *tensor = &list->tensors[list->count++];
  *tensor = (struct plm_tensor_info){.name = parameter->name,
                                     .dtype = dtype,
                                     .bytes = parameter->count * item,
                                     .data = (const char *)values + parameter->offset * item};
  tensor->rank = plm_parameter_shape(parameter, tensor->shape);
}

static void add_all_converted(struct list *list, const void *values, enum plm_dtype dtype)
{
  for (size_t i = 0; i < list->weights->count; i++)
    add_converted(list, &list->weights->table[i], values, dtype);
}

static void add_unchanged(struct list *list, const float *values)
{
  const bool *changed = list->weights->changed;
  for (size_t i = 0; i < list->weights->count; i++) {
    const struct plm_parameter *parameter = &list->weights->table[i];
    if (changed != NULL && changed[i]) {
      add_converted(list, parameter, values, PLM_F32);
      continue;
    }
    const struct plm_tensor_info *found =
        plm_tensor_of_parameter(list->source, &list->naming, parameter);
    PLM_ASSERT(found != NULL); /* the parameters were read from this file */
    list->tensors[list->count] = *found;
    list->tensors[list->count++].name = parameter->name;
  }
}

/* The frequencies of all layers at once, as transformers 5 writes them, under both of its names. */
static const struct plm_tensor_info *shared_rotary(const struct list *list)
{
  if (list->rotary.count == 0) return NULL;
  const struct plm_architecture_rules *rules =
      plm_architecture_rules(list->weights->model->architecture);
  char starred[96];
  const struct plm_tensor_info *found =
      plm_tensor_of_trunk(list->source, rules->shared_frequencies);
  (void)snprintf(starred, sizeof starred, "%s*.%s", rules->block.prefix, rules->frequencies);
  if (found == NULL) found = plm_tensor_of_trunk(list->source, starred);
  const bool fits = found != NULL && found->dtype != PLM_DTYPE_OTHER && found->rank == 1 &&
                    found->shape[0] == list->rotary.tensors[0].shape[0];
  return fits ? found : NULL;
}

/* Those of each layer: the source's, or the same for all layers as it has them, or computed. */
static void add_rotary(struct list *list)
{
  const struct plm_tensor_info *shared = shared_rotary(list);
  for (size_t i = 0; i < list->rotary.count; i++) {
    const char *name = list->rotary.tensors[i].name;
    const struct plm_tensor_info *found = plm_tensor_of_trunk(list->source, name);
    if (found == NULL || found->dtype == PLM_DTYPE_OTHER) found = shared;
    if (found == NULL) found = &list->rotary.tensors[i];
    list->tensors[list->count] = *found;
    list->tensors[list->count++].name = name;
  }
}

/* Whether add_rotary has written the tensor. */
static bool is_rotary(const struct list *list, const struct plm_tensor_info *tensor)
{
  return list->rotary.count > 0 && plm_text_ends_with(tensor->name, ".inv_freq");
}

/* Tensors that are no parameters. Those of a type that is not written here are ignored ones. */
static void add_others(struct list *list)
{
  for (size_t i = 0; i < plm_tensor_shards_count(list->source); i++) {
    const struct plm_tensor_info *tensor = plm_tensor_shards_at(list->source, i);
    const enum plm_tensor_use use = plm_tensor_use(
        list->source, &list->naming, list->weights->table, list->weights->count, tensor);
    const bool tied = use == PLM_TENSOR_TIED && list->weights->dtype == NULL;
    if ((use == PLM_TENSOR_CARRIED || use == PLM_TENSOR_IGNORED || tied) &&
        tensor->dtype != PLM_DTYPE_OTHER && !is_rotary(list, tensor))
      list->tensors[list->count++] = *tensor;
  }
}

plm_status plm_export_weights_write(const struct plm_export_weights *weights, const float *values,
                                    const char *path, const struct plm_metadata_entry *metadata,
                                    size_t metadata_count, struct plm_error *error)
{
  struct list list;
  uint16_t *rounded = NULL;
  PLM_TRY(open_list(weights, &list, error));
  plm_status status = PLM_OK;
  if (weights->dtype == NULL) {
    add_unchanged(&list, values);
  } else if (strcmp(weights->dtype, "float32") == 0) {
    add_all_converted(&list, values, PLM_F32);
  } else {
    rounded = calloc(weights->elements, sizeof *rounded);
    if (rounded == NULL)
      status = plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu weights", weights->elements);
    for (size_t i = 0; status == PLM_OK && i < weights->elements; i++)
      rounded[i] = plm_float_to_bf16(values[i]);
    if (status == PLM_OK) add_all_converted(&list, rounded, PLM_BF16);
  }
  add_rotary(&list);
  if (plm_tensor_published(&list.naming)) add_others(&list);
  if (status == PLM_OK)
    status = plm_safetensors_write(path, list.tensors, list.count, metadata, metadata_count, error);
  free(rounded);
  close_list(&list);
  return status;
}
