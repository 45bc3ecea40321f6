/* Products and sums of sizes that stay at SIZE_MAX once they exceed it. So a computation of sizes
 * needs only one check, of its result: SIZE_MAX means that some step of it overflowed. */
#ifndef PLM_COMMON_BASE_NUMBERS_SIZE_H
#define PLM_COMMON_BASE_NUMBERS_SIZE_H

#include <stddef.h>
#include <stdint.h>

static inline size_t plm_size_product(size_t a, size_t b)
{
  size_t product;
  return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

static inline size_t plm_size_sum(size_t a, size_t b)
{
  size_t sum;
  return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

/* The next multiple of unit > 0. */
static inline size_t plm_size_round_up(size_t size, size_t unit)
{
  const size_t sum = plm_size_sum(size, unit - 1);
  return sum == SIZE_MAX ? SIZE_MAX : sum / unit * unit;
}

#endif
