/* The tensors of a safetensors file, or of the shards into which transformers splits a large model:
 * FILE.index.json then says which shard holds each tensor ({"weight_map": {tensor: shard}}). */
#ifndef PLM_COMMON_CHECKPOINT_TENSOR_SHARDS_H
#define PLM_COMMON_CHECKPOINT_TENSOR_SHARDS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/checkpoint/safetensors.h"

#define PLM_SHARD_INDEX ".index.json" /* follows the name of the file that there would be */

struct plm_tensor_shards;

/* Opens path or, if there is no such file, the shards of PATH.index.json. The index and the shards
 * must list the same tensors. PLM_NOT_FOUND: there is neither a file nor an index. PLM_FORMAT. */
plm_status plm_tensor_shards_open(const char *path, struct plm_tensor_shards **files,
                                  struct plm_error *error);
void plm_tensor_shards_close(struct plm_tensor_shards *files); /* NULL is fine */

size_t plm_tensor_shards_count(const struct plm_tensor_shards *files); /* tensors of all shards */
const struct plm_tensor_info *plm_tensor_shards_at(const struct plm_tensor_shards *files, size_t i);
const struct plm_tensor_info *plm_tensor_shards_find(const struct plm_tensor_shards *files,
                                                     const char *name); /* NULL: absent */
size_t plm_tensor_shards_files(const struct plm_tensor_shards *files);  /* 1, or of shards */
bool plm_tensor_shards_sharded(const struct plm_tensor_shards *files);  /* false: a single file */
/* plm_safetensors_release, for the shard that holds a tensor of `files`. */
void plm_tensor_shards_release(const struct plm_tensor_shards *files,
                               const struct plm_tensor_info *tensor);
/* The name of the shard that holds a tensor of `files`; NULL if they are a single file. */
const char *plm_tensor_shards_name(const struct plm_tensor_shards *files,
                                   const struct plm_tensor_info *tensor);

#endif
