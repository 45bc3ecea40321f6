/* Searching numbers for NaN and infinity. */
#ifndef PLM_COMMON_BASE_NUMBERS_FINITE_H
#define PLM_COMMON_BASE_NUMBERS_FINITE_H

#include <stddef.h>

/* The index of the first of `count` values that is NaN or infinite; count if there is none. It
 * reads the values once, in blocks that the compiler vectorises. */
size_t plm_first_not_finite(const float *values, size_t count);

#endif
