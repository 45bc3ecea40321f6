/* How far the tensor cores of a card may be from an exact sum of products of bf16.
 *
 * They add several products at a time to a partial sum in fp32. The products are exact, but they
 * and the partial sum are aligned to the largest of them and cut off, and so is the result: both
 * round toward zero, not to nearest (Fasi, Higham, Mikaitis and Pranesh 2021, Numerical behavior of
 * NVIDIA tensor cores, PeerJ Computer Science 7:e330, for V100, T4 and A100; it has not been
 * measured here). So errors do not cancel: each addition loses up to 2^-23 of the partial sum. */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_TENSOR_SUM_H
#define PLM_TESTS_SUPPORT_OPERATORS_TENSOR_SUM_H

#include <stdint.h>

/* Products that are added at a time: 8 on an A100 (compute capability 8.0), the fewest of the cards
 * that are supported, and so the most additions. */
enum { TENSOR_SUM_PRODUCTS = 8 };

/* |error| / |result| over many sums of so many products with random signs. Partial sums then grow
 * with the square root of the number of terms, so the mean over all additions is 2/3 of the result:
 * additions * 2/3 * 2^-23. At least 1e-5, for the roundings of the side that it is compared with.
 * Without one of its products, a sum differs by 1 / sqrt(terms). */
double tensor_sum_error(int64_t terms);

/* The same for one sum, in units of 2^-24 of the largest result (ops_case_check_float), without the
 * assumption of the signs: no partial sum is larger than the largest result, about. */
double tensor_sum_slack(int64_t terms);

/* c + the sum of x[i] y[i], added as described: TENSOR_SUM_PRODUCTS * `wider` products at a time,
 * aligned with so many `bits` below the last bit of the largest. x and y are bf16 values. */
float tensor_sum(float c, const float *x, const float *y, int64_t terms, int wider, int bits);

#endif
