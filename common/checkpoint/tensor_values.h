/* Conversion of tensor elements to fp32 and back, for weights in other dtypes. */
#ifndef PLM_COMMON_CHECKPOINT_TENSOR_VALUES_H
#define PLM_COMMON_CHECKPOINT_TENSOR_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/files/advance.h"
#include "common/base/status.h"
#include "common/checkpoint/safetensors.h"

/* Converts the `count` elements of an F32, BF16, F16 or F64 tensor to fp32; only F64 is rounded.
 * The data need not be aligned. advance (may be NULL) is told of each part. PLM_FORMAT for other
 * dtypes. */
plm_status plm_tensor_to_float(const struct plm_tensor_info *tensor, size_t count, float *values,
                               struct plm_advance *advance, struct plm_error *error);

/* The name of a floating-point type in config.json: "float32", "bfloat16", "float16", "float64";
 * NULL for other types. */
const char *plm_dtype_name(enum plm_dtype dtype);

/* Rounds to the nearest bf16, ties to even, as PyTorch does. NaN stays NaN. */
uint16_t plm_float_to_bf16(float value);

#endif
