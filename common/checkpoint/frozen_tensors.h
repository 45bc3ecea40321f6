/* The tensors of parameters that a training leaves unchanged (common/model/freeze.h), as the
 * weights have them that it began with: each checkpoint has the same bytes of the same type. */
#ifndef PLM_COMMON_CHECKPOINT_FROZEN_TENSORS_H
#define PLM_COMMON_CHECKPOINT_FROZEN_TENSORS_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/model.h"

/* {0}: none. */
struct plm_frozen_tensors {
  struct plm_tensor_info *tensors; /* by parameter, with data of their own; without if not frozen */
  size_t count;
};

/* Copies those of the file at path, or of the shards of its index, which has all parameters of the
 * table. */
plm_status plm_frozen_tensors_read(const char *path, const struct plm_parameter *table,
                                   size_t count, struct plm_frozen_tensors *frozen,
                                   struct plm_error *error);
/* Copies them from fp32 values, laid out as the table says. PLM_NO_MEMORY */
plm_status plm_frozen_tensors_copy(const float *values, const struct plm_parameter *table,
                                   size_t count, struct plm_frozen_tensors *frozen,
                                   struct plm_error *error);
void plm_frozen_tensors_deinit(struct plm_frozen_tensors *frozen);

#endif
