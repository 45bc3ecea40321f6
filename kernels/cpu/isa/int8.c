/* int8 products of one instruction set: rows are quantised, multiplied by panels of 16 rows of
 * weights, and scaled. kernels/cpu/int8_kernel.h has the rules. */
#include "kernels/cpu/int8_kernel.h"
#include "kernels/cpu/isa/simd.h"

#if !defined(PLM_ISA_avx512) && !defined(PLM_ISA_avx2) && defined(__SSE2__)
#include <emmintrin.h>
#endif

static const float LARGEST = 127.0f, LEAST = 0x1p-100f;

/* To nearest, ties to even. */
static inline vint round_to_int(vfloat x)
{
#if defined(PLM_ISA_avx512)
  return (vint)_mm512_cvtps_epi32((__m512)x);
#elif defined(PLM_ISA_avx2)
  return (vint)_mm256_cvtps_epi32((__m256)x);
#elif defined(__SSE2__)
  return (vint)_mm_cvtps_epi32((__m128)x);
#elif defined(__ARM_NEON)
  return (vint)vcvtnq_s32_f32((float32x4_t)x);
#else
  vint rounded;
  for (int i = 0; i < SIMD_WIDTH; i++) rounded[i] = (int32_t)__builtin_lrintf(x[i]);
  return rounded;
#endif
}

/* The largest magnitude of a row. Bits of magnitudes are compared, so a NaN is larger than all
 * numbers. */
static float largest(const float *x, int64_t I)
{
  vint most = {0};
  for (int64_t i = 0; i < I; i += SIMD_WIDTH) {
    const vint bits = (vint)vabs(vload_float(x + i, I - i)), more = bits > most;
    most = (bits & more) | (most & ~more);
  }
  int32_t of_all = 0;
  float value;
  for (int i = 0; i < SIMD_WIDTH; i++)
    if (most[i] > of_all) of_all = most[i];
  memcpy(&value, &of_all, sizeof value);
  return value;
}

/* Returns the scale of a row, and what its elements are multiplied by; 0: all integers are 0. */
static float scale_of(const float *x, int64_t I, float *factor)
{
  const float most = largest(x, I);
  const bool finite = most <= __FLT_MAX__;
  *factor = finite && most >= LEAST ? LARGEST / most : 0.0f;
  if (!finite) return __builtin_nanf("");
  return most >= LEAST ? most / LARGEST : 0.0f;
}

/* Elements i, … of a row as integers, and zeros beyond its end. */
static inline vint integers(const float *x, int64_t i, int64_t I, float factor)
{
  return i < I ? round_to_int(vload_float(x + i, I - i) * factor) : (vint){0};
}

/* y = a b, which the compiler may not join with an addition that follows. */
static inline vfloat product_alone(vfloat a, vfloat b)
{
  vfloat y = a * b;
#if defined(__x86_64__)
  __asm__("" : "+x"(y));
#elif defined(__aarch64__)
  __asm__("" : "+w"(y));
#endif
  return y;
}

/* Scales the columns that begin at `i` in all rows. */
static inline void scale_columns(const struct plm_int8_scaling *s, int64_t i, const bool biased,
                                 const bool added)
{
  const int64_t left = s->columns - i;
  const vfloat scales = vload_float(s->scales + i, SIMD_WIDTH);
  const vfloat bias = biased ? vload_float(s->bias + i, left) : (vfloat){0};
  vint totals = {0};
  if (s->totals != NULL) memcpy(&totals, s->totals + i, sizeof totals);
  for (int64_t row = 0; row < s->rows; row++) {
    vint sums;
    memcpy(&sums, s->sums + row * PLM_INT8_PANEL + i, sizeof sums);
    const vfloat factor = product_alone(scales, vset(s->row_scales[row]));
    vfloat y = product_alone(__builtin_convertvector(sums - totals, vfloat), factor);
    if (biased) y += bias;
    if (added) y += vload_float(s->residual + row * s->stride + i, left);
    vstore_float(s->y + row * s->stride + i, y, left);
  }
}

static void scale_tile(const struct plm_int8_scaling *s)
{
  for (int64_t i = 0; i < s->columns; i += SIMD_WIDTH) {
    if (s->residual != NULL)
      scale_columns(s, i, s->bias != NULL, true);
    else
      scale_columns(s, i, s->bias != NULL, false);
  }
}

/* ---- words of two int16 ---- */
#if !defined(PLM_ISA_avx512)
typedef int16_t vshort __attribute__((vector_size(2 * SIMD_WIDTH)));

static float quantise_short(int32_t *words, const float *x, int64_t I)
{
  float factor;
  const float scale = scale_of(x, I, &factor);
  const int64_t padded = plm_int8_padded(I);
  if (factor == 0) memset(words, 0, (size_t)padded * sizeof(int16_t));
  for (int64_t i = 0; i < padded && factor != 0; i += SIMD_WIDTH) {
    const vshort narrow = __builtin_convertvector(integers(x, i, I, factor), vshort);
    memcpy(words + i / 2, &narrow, sizeof narrow);
  }
  return scale;
}

/* Four int8 of a row become two words of two int16 in two successive rows of 16 words. */
static void widen(int32_t *words, const int8_t *panel, int64_t steps)
{
  for (int64_t step = 0; step < steps; step += 2)
    for (int i = 0; i < PLM_INT8_PANEL; i += SIMD_WIDTH) {
      vuint four;
      memcpy(&four, panel + (step * 32 + i * 4), sizeof four);
      const vuint first = (vuint)((vint)(four << 24) >> 24) & 0xffffu;
      const vuint second = (vuint)((vint)(four << 16) >> 24) << 16;
      const vuint third = (vuint)((vint)(four << 8) >> 24) & 0xffffu;
      const vuint fourth = (vuint)((vint)four >> 24) << 16;
      const vuint even = first | second, odd = third | fourth;
      memcpy(words + step * PLM_INT8_PANEL + i, &even, sizeof even);
      memcpy(words + (step + 1) * PLM_INT8_PANEL + i, &odd, sizeof odd);
    }
}

/* c + the products of the pairs of int16 in a and b. */
static inline vint add_pairs(vint c, vint a, vint b)
{
#if defined(PLM_ISA_avx2)
  return c + (vint)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return c + (vint)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  const vint lower = ((vint)((vuint)a << 16) >> 16) * ((vint)((vuint)b << 16) >> 16);
  return c + lower + (a >> 16) * (b >> 16);
#endif
}

#define INT8_NAME(name) name##_pairs
#define INT8_LANES SIMD_WIDTH
#define INT8_ROWS (SIMD_WIDTH == 8 ? 6 : 2) /* what the registers hold */
#define INT8_PANELS 1
#define INT8_DOT add_pairs
#include "kernels/cpu/isa/int8_block.h"

#if defined(PLM_ISA_avx2)
const struct plm_int8_kernel plm_int8_kernel_avx2 =
#else
const struct plm_int8_kernel plm_int8_kernel_portable =
#endif
    {.name = SIMD_WIDTH == 8 ? "AVX2" : "portable",
     .in_word = 2,
     .quantise = quantise_short,
     .widen = widen,
     .panels = panels_pairs,
     .multiply = multiply_pairs,
     .scale = scale_tile};
#endif

/* ---- words of four uint8, for VNNI ---- */
#if defined(PLM_ISA_avx512) || defined(PLM_ISA_avx2)
typedef uint8_t vbyte __attribute__((vector_size(SIMD_WIDTH)));

static float quantise_bytes(int32_t *words, const float *x, int64_t I)
{
  float factor;
  const float scale = scale_of(x, I, &factor);
  const int64_t padded = plm_int8_padded(I);
  if (factor == 0) memset(words, 128, (size_t)padded);
  for (int64_t i = 0; i < padded && factor != 0; i += SIMD_WIDTH) {
    const vbyte shifted = __builtin_convertvector(integers(x, i, I, factor) + 128, vbyte);
    memcpy(words + i / 4, &shifted, sizeof shifted);
  }
  return scale;
}

#pragma GCC push_options
#if defined(PLM_ISA_avx512)
#pragma GCC target("avx512vnni")
#else
#pragma GCC target("avxvnni")
#endif
/* c + the products of the four uint8 of a and the four int8 of b. */
static inline vint add_fours(vint c, vint a, vint b)
{
#if defined(PLM_ISA_avx512)
  return (vint)_mm512_dpbusd_epi32((__m512i)c, (__m512i)a, (__m512i)b);
#else
  return (vint)_mm256_dpbusd_avx_epi32((__m256i)c, (__m256i)a, (__m256i)b);
#endif
}

#undef INT8_NAME
#undef INT8_LANES
#undef INT8_ROWS
#undef INT8_PANELS
#undef INT8_DOT
#define INT8_NAME(name) name##_fours
#define INT8_LANES SIMD_WIDTH
#define INT8_ROWS (SIMD_WIDTH == 8 ? 6 : 12)
#define INT8_PANELS (SIMD_WIDTH == 8 ? 1 : 2)
#define INT8_DOT add_fours
#include "kernels/cpu/isa/int8_block.h"
#pragma GCC pop_options

#if defined(PLM_ISA_avx512)
const struct plm_int8_kernel plm_int8_kernel_avx512_vnni =
#else
const struct plm_int8_kernel plm_int8_kernel_avx_vnni =
#endif
    {.name = SIMD_WIDTH == 8 ? "AVX-VNNI" : "AVX512_VNNI",
     .in_word = 4,
     .quantise = quantise_bytes,
     .panels = panels_fours,
     .multiply = multiply_fours,
     .scale = scale_tile};
#endif
