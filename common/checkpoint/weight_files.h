/* The tensors of a model's weights, from one safetensors file or from several: transformers splits
 * a large model into shards and writes FILE.index.json ({"weight_map": {tensor: shard}}). */
#ifndef PLM_COMMON_CHECKPOINT_WEIGHT_FILES_H
#define PLM_COMMON_CHECKPOINT_WEIGHT_FILES_H

#include <stddef.h>

#include "common/checkpoint/safetensors.h"

struct plm_weight_files;

/* path, or where there is no such file the shards of PATH.index.json beside it. Every tensor must
 * lie in the shard that the index names, and every tensor of a shard must be in the index.
 * PLM_NOT_FOUND when there is neither, PLM_FORMAT. */
plm_status plm_weight_files_open(const char *path, struct plm_weight_files **files,
                                 struct plm_error *error);
void plm_weight_files_close(struct plm_weight_files *files); /* NULL is fine */

size_t plm_weight_files_count(const struct plm_weight_files *files); /* tensors, of all files */
const struct plm_tensor_info *plm_weight_files_at(const struct plm_weight_files *files, size_t i);
const struct plm_tensor_info *plm_weight_files_find(const struct plm_weight_files *files,
                                                    const char *name); /* NULL: absent */

#endif
