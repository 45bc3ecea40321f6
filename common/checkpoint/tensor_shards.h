/* The tensors of a model's weights, from one safetensors file or from several: transformers splits
 * a large model into shards and writes FILE.index.json ({"weight_map": {tensor: shard}}). */
#ifndef PLM_COMMON_CHECKPOINT_TENSOR_SHARDS_H
#define PLM_COMMON_CHECKPOINT_TENSOR_SHARDS_H

#include <stddef.h>

#include "common/checkpoint/safetensors.h"

struct plm_tensor_shards;

/* path, or where there is no such file the shards of PATH.index.json beside it. Every tensor must
 * lie in the shard that the index names, and every tensor of a shard must be in the index.
 * PLM_NOT_FOUND when there is neither, PLM_FORMAT. */
plm_status plm_tensor_shards_open(const char *path, struct plm_tensor_shards **files,
                                  struct plm_error *error);
void plm_tensor_shards_close(struct plm_tensor_shards *files); /* NULL is fine */

size_t plm_tensor_shards_count(const struct plm_tensor_shards *files); /* tensors, of all files */
const struct plm_tensor_info *plm_tensor_shards_at(const struct plm_tensor_shards *files, size_t i);
const struct plm_tensor_info *plm_tensor_shards_find(const struct plm_tensor_shards *files,
                                                     const char *name); /* NULL: absent */

#endif
