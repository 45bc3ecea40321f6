/* What a model computes is checked before it is written or used: finite weights may still lead to
 * sums that overflow. */
#ifndef PLM_COMMON_INFERENCE_FINITE_OUTPUT_H
#define PLM_COMMON_INFERENCE_FINITE_OUTPUT_H

#include <stddef.h>

#include "common/base/status.h"

/* PLM_NOT_FINITE if one of `count` values is NaN or infinite. The message names what they were
 * computed for: "sequence s1". */
plm_status plm_finite_output(const float *values, size_t count, struct plm_error *error,
                             const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
