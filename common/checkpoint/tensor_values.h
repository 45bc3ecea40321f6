/* Numbers of a tensor as fp32 and back: what reading and writing weights in other dtypes need. */
#ifndef PLM_COMMON_CHECKPOINT_TENSOR_VALUES_H
#define PLM_COMMON_CHECKPOINT_TENSOR_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/checkpoint/safetensors.h"

/* Elements [0, count) of an F32, BF16, F16 or F64 tensor as fp32; only F64 is rounded. The data
 * need not be aligned. PLM_FORMAT for other dtypes. count: the tensor's elements. */
plm_status plm_tensor_to_float(const struct plm_tensor_info *tensor, size_t count, float *values,
                               struct plm_error *error);

/* Rounded to the nearest, ties to even, as PyTorch rounds; NaN stays NaN. */
uint16_t plm_float_to_bf16(float value);

#endif
