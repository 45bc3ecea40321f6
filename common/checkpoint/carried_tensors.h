/* The tensors of a weights file that are no parameters of the model, but belong to its weights: the
 * contact head of ESM-2 (tensor_names.h). A training copies them from the weights that it begins
 * with into each of its checkpoints. */
#ifndef PLM_COMMON_CHECKPOINT_CARRIED_TENSORS_H
#define PLM_COMMON_CHECKPOINT_CARRIED_TENSORS_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/model.h"

struct plm_carried_tensors {
  struct plm_tensor_info *tensors; /* with names and data of their own */
  size_t count;
};

/* Copies them from the file at path, or the shards of its index, which has the parameters of this
 * table and a head. Most files have none. PLM_LIMIT: one is larger than 64 MB. */
plm_status plm_carried_tensors_read(const char *path, const struct plm_parameter *table,
                                    size_t count, struct plm_carried_tensors *carried,
                                    struct plm_error *error);
/* Appends the rotary frequencies of each layer, fp32, under the names of all versions of
 * transformers, if files of the architecture have them (ESM-2). Nothing is read from them here, but
 * transformers calls a file without them incomplete. */
void plm_carried_tensors_add_rotary(struct plm_carried_tensors *carried,
                                    const struct plm_model_config *model);
void plm_carried_tensors_deinit(struct plm_carried_tensors *carried);

#endif
