/* Conversion of tensor elements to fp32 and back. */
#include "common/checkpoint/tensor_values.h"

#include <string.h>

static float float_of_bits(uint32_t bits)
{
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float float_of_half(uint16_t half)
{
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, fraction = half & 0x3ff;
  const uint32_t exponent = half >> 10 & 0x1f;
  if (exponent == 0) { /* subnormal: a multiple of 2^-24, which fp32 represents exactly */
    const float magnitude = (float)fraction * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 127 - 15;
  return float_of_bits(sign | wide << 23 | fraction << 13);
}

static uint16_t load16(const unsigned char *from)
{
  uint16_t value;
  memcpy(&value, from, sizeof value);
  return value;
}

/* Bytes of an element; 0: it is not a floating-point number. */
static size_t element_bytes(enum plm_dtype dtype)
{
  switch (dtype) {
  case PLM_F32: return 4;
  case PLM_BF16:
  case PLM_F16: return 2;
  case PLM_F64: return 8;
  default: return 0;
  }
}

const char *plm_dtype_name(enum plm_dtype dtype)
{
  switch (dtype) {
  case PLM_F32: return "float32";
  case PLM_BF16: return "bfloat16";
  case PLM_F16: return "float16";
  case PLM_F64: return "float64";
  default: return NULL;
  }
}

static void convert(enum plm_dtype dtype, const unsigned char *from, size_t count, float *values)
{
  if (dtype == PLM_F32) {
    memcpy(values, from, count * sizeof *values);
  } else if (dtype == PLM_BF16) {
    for (size_t i = 0; i < count; i++)
      values[i] = float_of_bits((uint32_t)load16(from + 2 * i) << 16);
  } else if (dtype == PLM_F16) {
    for (size_t i = 0; i < count; i++) values[i] = float_of_half(load16(from + 2 * i));
  } else {
    for (size_t i = 0; i < count; i++) {
      double wide;
      memcpy(&wide, from + 8 * i, sizeof wide);
      values[i] = (float)wide;
    }
  }
}

plm_status plm_tensor_to_float(const struct plm_tensor_info *tensor, size_t count, float *values,
                               struct plm_advance *advance, struct plm_error *error)
{
  const unsigned char *from = tensor->data;
  const size_t bytes = element_bytes(tensor->dtype);
  if (bytes == 0) {
    plm_error_set(error, PLM_FORMAT, "tensor %.200s does not hold floating-point numbers",
                  tensor->name);
    return plm_error_hint(error, "F32, F16, BF16 and F64 are read; use weights that are not "
                                 "quantized");
  }
  for (size_t at = 0, part; at < count; at += part) { /* the file is read as it is touched */
    part = plm_advance_step((count - at) * bytes) / bytes;
    convert(tensor->dtype, from + at * bytes, part, values + at);
    plm_advance_by(advance, part * bytes);
  }
  return PLM_OK;
}

uint16_t plm_float_to_bf16(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN, quiet */
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
