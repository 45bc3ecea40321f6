/* The contact head of a folder. */
#include "common/huggingface/contact_head.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/numbers/finite.h"
#include "common/checkpoint/tensor_names.h"
#include "common/checkpoint/tensor_shards.h"
#include "common/checkpoint/tensor_values.h"

#define WEIGHT "esm.contact_head.regression.weight"
#define BIAS "esm.contact_head.regression.bias"

static plm_status read_values(const struct plm_tensor_shards *files, const char *name, int rank,
                              size_t count, float *values, struct plm_error *error)
{
  const struct plm_tensor_info *tensor = plm_tensor_of_trunk(files, name);
  if (tensor == NULL)
    return plm_error_set(error, PLM_FORMAT,
                         "the contact head is not complete: tensor %s is missing", name);
  if (tensor->rank != rank || tensor->shape[rank - 1] != count ||
      (rank == 2 && tensor->shape[0] != 1))
    return plm_error_set(error, PLM_FORMAT,
                         "tensor %.200s does not have a number for each of %zu (the model's layers "
                         "times its heads, or one)",
                         tensor->name, count);
  PLM_TRY(plm_tensor_to_float(tensor, count, values, NULL, error));
  const size_t found = plm_first_not_finite(values, count);
  if (found == count) return PLM_OK;
  return plm_error_set(error, PLM_FORMAT, "tensor %.200s holds %g at element %zu", tensor->name,
                       (double)values[found], found);
}

static plm_status read_head(const struct plm_tensor_shards *files, const char *directory,
                            struct plm_contact_head *head, struct plm_error *error)
{
  if (plm_tensor_of_trunk(files, WEIGHT) == NULL) {
    plm_error_set(error, PLM_NOT_FOUND, "%.300s has no contact head (" WEIGHT ")", directory);
    return plm_error_hint(error, "only published weights of ESM-2, and what was trained from them, "
                                 "have one");
  }
  PLM_TRY(read_values(files, WEIGHT, 2, head->count, head->weights, error));
  return read_values(files, BIAS, 1, 1, &head->bias, error);
}

plm_status plm_contact_head_read(const struct plm_model_folder *folder, const char *file,
                                 struct plm_contact_head *head, struct plm_error *error)
{
  const struct plm_model_config *model = &folder->model;
  struct plm_tensor_shards *files;
  char path[PLM_PATH_SIZE];
  *head = (struct plm_contact_head){.count = (size_t)model->num_hidden_layers *
                                             model->num_attention_heads};
  PLM_TRY(plm_path_join(path, folder->directory, file, error));
  PLM_TRY(plm_tensor_shards_open(path, &files, error));
  head->weights = plm_alloc_zeroed(head->count, sizeof *head->weights);
  const plm_status status = read_head(files, folder->directory, head, error);
  plm_tensor_shards_close(files);
  if (status == PLM_OK) return PLM_OK;
  if (status == PLM_FORMAT) (void)plm_error_where(error, "%s", path);
  plm_contact_head_deinit(head);
  return status;
}

void plm_contact_head_deinit(struct plm_contact_head *head)
{
  free(head->weights);
  *head = (struct plm_contact_head){0};
}
