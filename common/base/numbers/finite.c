/* Compares exponents, block by block: isfinite for each value would not be vectorised, because it
 * may leave the loop at each. */
#include "common/base/numbers/finite.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 256 };

static const uint32_t exponent = UINT32_C(0x7f800000); /* all ones in NaN and infinity only */

static bool is_finite(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits & exponent) != exponent;
}

static bool block_is_finite(const float values[BLOCK])
{
  uint32_t found = 0;
  for (int i = 0; i < BLOCK; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    found |= (bits & exponent) == exponent;
  }
  return found == 0;
}

size_t plm_first_not_finite(const float *values, size_t count)
{
  size_t i = 0;
  while (count - i >= BLOCK && block_is_finite(values + i)) i += BLOCK;
  while (i < count && is_finite(values[i])) i++;
  return i;
}
