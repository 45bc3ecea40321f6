/* Tensors that are carried beside the parameters. */
#include "common/checkpoint/carried_tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/checkpoint/tensor_names.h"
#include "common/checkpoint/tensor_shards.h"
#include "common/model/architecture.h"

enum { MOST_BYTES = 64 << 20 };

static plm_status carry(struct plm_carried_tensors *carried, const struct plm_tensor_info *tensor,
                        struct plm_error *error)
{
  if (tensor->bytes > MOST_BYTES || tensor->dtype == PLM_DTYPE_OTHER)
    return plm_error_set(error, PLM_LIMIT,
                         "tensor %.200s has %llu bytes or a type that is not written here",
                         tensor->name, (unsigned long long)tensor->bytes);
  struct plm_tensor_info *copy = &carried->tensors[carried->count++];
  void *data = plm_alloc(tensor->bytes);
  memcpy(data, tensor->data, tensor->bytes);
  *copy = *tensor;
  copy->name = plm_strdup(tensor->name);
  copy->data = data;
  return PLM_OK;
}

plm_status plm_carried_tensors_read(const char *path, const struct plm_parameter *table,
                                    size_t count, struct plm_carried_tensors *carried,
                                    struct plm_error *error)
{
  struct plm_tensor_shards *files;
  *carried = (struct plm_carried_tensors){0};
  PLM_TRY(plm_tensor_shards_open(path, &files, error));
  const struct plm_tensor_naming naming = plm_tensor_naming_of(files, table, count);
  const size_t tensors = plm_tensor_shards_count(files);
  plm_status status = PLM_OK;
  carried->tensors = plm_alloc_zeroed(tensors, sizeof *carried->tensors);
  for (size_t i = 0; status == PLM_OK && i < tensors; i++) {
    const struct plm_tensor_info *tensor = plm_tensor_shards_at(files, i);
    if (plm_tensor_use(files, &naming, table, count, tensor) == PLM_TENSOR_CARRIED)
      status = carry(carried, tensor, error);
  }
  plm_tensor_shards_close(files);
  if (status == PLM_OK) return PLM_OK;
  plm_error_where(error, "%s", path);
  plm_carried_tensors_deinit(carried);
  return status;
}

void plm_carried_tensors_add_rotary(struct plm_carried_tensors *carried,
                                    const struct plm_model_config *model)
{
  const struct plm_architecture_rules *rules = plm_architecture_rules(model->architecture);
  if (rules->frequencies == NULL) return;
  const uint32_t head = model->hidden_size / model->num_attention_heads, count = head / 2;
  carried->tensors = plm_realloc(carried->tensors, (carried->count + model->num_hidden_layers) *
                                                       sizeof *carried->tensors);
  for (uint32_t layer = 0; layer < model->num_hidden_layers; layer++) {
    float *frequencies = plm_alloc(count * sizeof *frequencies);
    char name[96];
    (void)snprintf(name, sizeof name, "%s%u.%s", rules->block.prefix, layer, rules->frequencies);
    for (uint32_t i = 0; i < count; i++)
      frequencies[i] = (float)pow(10000.0, -2.0 * (double)i / (double)head);
    carried->tensors[carried->count++] =
        (struct plm_tensor_info){.name = plm_strdup(name),
                                 .dtype = PLM_F32,
                                 .rank = 1,
                                 .shape = {count},
                                 .bytes = count * sizeof *frequencies,
                                 .data = frequencies};
  }
}

void plm_carried_tensors_deinit(struct plm_carried_tensors *carried)
{
  for (size_t i = 0; i < carried->count; i++) {
    free((char *)carried->tensors[i].name);
    free((void *)carried->tensors[i].data);
  }
  free(carried->tensors);
  *carried = (struct plm_carried_tensors){0};
}
