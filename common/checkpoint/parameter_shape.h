/* A parameter's shape as its tensor has it: what writing and loading weights share. */
#ifndef PLM_COMMON_CHECKPOINT_PARAMETER_SHAPE_H
#define PLM_COMMON_CHECKPOINT_PARAMETER_SHAPE_H

#include "common/checkpoint/safetensors.h"
#include "common/model/model.h"

/* Fills shape and returns the rank: (cols) for a vector, (rows, cols) for a matrix. */
int plm_parameter_shape(const struct plm_parameter *parameter, uint64_t shape[PLM_TENSOR_MAX_RANK]);

#endif
