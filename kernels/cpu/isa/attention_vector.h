/* Vectors of floats for attention, as wide as the instruction set allows. They use GCC's vector
 * extension, so that one source serves AVX-512, AVX2, SSE and NEON. Only the attention files of
 * this folder include this file.
 */
#ifndef PLM_KERNELS_CPU_ISA_ATTENTION_VECTOR_H
#define PLM_KERNELS_CPU_ISA_ATTENTION_VECTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(PLM_ISA_avx512) || defined(PLM_ISA_avx2)
#include <immintrin.h>
#endif

#if defined(PLM_ISA_avx512)
enum { LANES = 16 };
#elif defined(PLM_ISA_avx2)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float vfloat __attribute__((vector_size(LANES * 4)));
typedef int32_t vint __attribute__((vector_size(LANES * 4)));
typedef uint32_t vuint __attribute__((vector_size(LANES * 4)));
typedef uint16_t vbf16 __attribute__((vector_size(LANES * 2)));
typedef float vfloat_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t vint_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint16_t vbf16_unaligned __attribute__((vector_size(LANES * 2), aligned(2), may_alias));

#define FORCE_INLINE static inline __attribute__((always_inline))

FORCE_INLINE vfloat splat(float x)
{
  return x - (vfloat){0};
}

FORCE_INLINE vint splat_int(int32_t x)
{
  return x - (vint){0};
}

FORCE_INLINE vfloat load(const float *p)
{
  return *(const vfloat_unaligned *)p;
}

FORCE_INLINE void store(float *p, vfloat x)
{
  *(vfloat_unaligned *)p = x;
}

FORCE_INLINE vint load_int(const int32_t *p)
{
  return *(const vint_unaligned *)p;
}

/* Takes the lanes of `yes` where `condition` is -1 and those of `no` where it is 0. */
FORCE_INLINE vfloat choose(vint condition, vfloat yes, vfloat no)
{
  return (vfloat)((condition & (vint)yes) | (~condition & (vint)no));
}

#if defined(PLM_ISA_avx512)
FORCE_INLINE vfloat maximum(vfloat a, vfloat b)
{
  return _mm512_max_ps(a, b);
}

/* The lanes where key >= limit or NaN. */
FORCE_INLINE __mmask16 not_below(vfloat key, float limit)
{
  return _mm512_cmp_ps_mask(key, splat(limit), _CMP_NLT_UQ);
}
#elif defined(PLM_ISA_avx2)
FORCE_INLINE vfloat maximum(vfloat a, vfloat b)
{
  return _mm256_max_ps(a, b);
}

/* 0 in lanes where key < limit, else x; a lane whose key is NaN keeps x */
FORCE_INLINE vfloat zero_below(vfloat key, float limit, vfloat x)
{
  return _mm256_and_ps(_mm256_cmp_ps(key, splat(limit), _CMP_NLT_UQ), x);
}
#else
FORCE_INLINE vfloat maximum(vfloat a, vfloat b)
{
  return choose(a > b, a, b);
}

FORCE_INLINE vfloat zero_below(vfloat key, float limit, vfloat x)
{
  return (vfloat)(~(key < splat(limit)) & (vint)x);
}
#endif

/* bf16 is the upper half of a float. */
FORCE_INLINE vfloat from_bf16(vbf16 x)
{
  return (vfloat)(__builtin_convertvector(x, vuint) << 16);
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
FORCE_INLINE vbf16 to_bf16(vfloat x)
{
  const vuint bits = (vuint)x;
  const vuint rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const vuint quiet = (bits >> 16) | 0x40;
  return __builtin_convertvector((vuint)choose(x == x, (vfloat)rounded, (vfloat)quiet), vbf16);
}

#if defined(PLM_ISA_avx512)
/* The first `count` lanes, 0 <= count <= LANES. */
FORCE_INLINE __mmask16 first_lanes(int count)
{
  return (__mmask16)((1u << count) - 1u);
}
#endif

/* Loads `count` elements (1..LANES) from element `at` on; the lanes beyond them are 0. */
FORCE_INLINE vfloat load_act(const void *base, int64_t at, int count, bool is_bf16)
{
  if (is_bf16) {
    const uint16_t *p = (const uint16_t *)base + at;
    if (count == LANES) return from_bf16(*(const vbf16_unaligned *)p);
#if defined(PLM_ISA_avx512)
    return from_bf16((vbf16)_mm256_maskz_loadu_epi16(first_lanes(count), p));
#else
    vbf16 part = {0};
    memcpy(&part, p, (size_t)count * sizeof *p);
    return from_bf16(part);
#endif
  }
  const float *p = (const float *)base + at;
  if (count == LANES) return load(p);
#if defined(PLM_ISA_avx512)
  return (vfloat)_mm512_maskz_loadu_ps(first_lanes(count), p);
#else
  vfloat part = {0};
  memcpy(&part, p, (size_t)count * sizeof *p);
  return part;
#endif
}

FORCE_INLINE void store_act(void *base, int64_t at, int count, bool is_bf16, vfloat x)
{
  if (is_bf16) {
    uint16_t *p = (uint16_t *)base + at;
    const vbf16 rounded = to_bf16(x);
    if (count == LANES)
      *(vbf16_unaligned *)p = rounded;
    else
#if defined(PLM_ISA_avx512)
      _mm256_mask_storeu_epi16(p, first_lanes(count), (__m256i)rounded);
#else
      memcpy(p, &rounded, (size_t)count * sizeof *p);
#endif
    return;
  }
  float *p = (float *)base + at;
  if (count == LANES)
    store(p, x);
  else
#if defined(PLM_ISA_avx512)
    _mm512_mask_storeu_ps(p, first_lanes(count), (__m512)x);
#else
    memcpy(p, &x, (size_t)count * sizeof *p);
#endif
}

/* (2^f - 1) / f on [-1/2, 1/2]: a Remez fit, whose relative error in 2^f is 4.6e-9. */
FORCE_INLINE vfloat exp2_slope(vfloat f)
{
  vfloat q = splat(0.00015497533392387004f);
  q = q * f + 0.0013397542954746283f;
  q = q * f + 0.009617960081624086f;
  q = q * f + 0.05550336311894598f;
  q = q * f + 0.24022651413427276f;
  q = q * f + 0.6931472007522177f;
  return q;
}

/* Adding it leaves the nearest integer in the low bits of the sum. */
#define ROUNDING_MAGIC 12582912.0f

/* 2^x for x <= 0 or small x > 0. Exactly 0 for x < -126, also for -inf; NaN stays NaN. */
#if defined(PLM_ISA_avx512)
/* With x = n + f, where n is a multiple of 1/16, 2^x is a power from the table, 2^f and a power of
 * two. The series of 2^f ends after the third power of f, which leaves a relative error of 9.2e-9
 * at |f| = 1/32. This needs two multiplications less than exp2_slope. */
FORCE_INLINE vfloat exp2_of(vfloat x)
{
  const vfloat powers = {1.0f,          1.0442737824f, 1.0905077327f, 1.1387886348f,
                         1.1892071150f, 1.2418578121f, 1.2968395547f, 1.3542555469f,
                         1.4142135624f, 1.4768261459f, 1.5422108254f, 1.6104903319f,
                         1.6817928305f, 1.7562521604f, 1.8340080864f, 1.9152065614f};
  const vfloat shifted = x + ROUNDING_MAGIC / 16;
  const vfloat n = shifted - ROUNDING_MAGIC / 16;
  const vfloat f = x - n;
  const vfloat power = _mm512_permutexvar_ps((__m512i)shifted, powers); /* by its last four bits */
  const vfloat slope = (f * 0.0555041087f + 0.2402265070f) * f + 0.6931471806f;
  const vfloat mantissa = power * f * slope + power;
  return _mm512_maskz_scalef_ps(not_below(x, -126.0f), mantissa, n); /* of n, its whole part */
}
#else
FORCE_INLINE vfloat exp2_of(vfloat x)
{
  const vfloat shifted = x + ROUNDING_MAGIC;
  const vfloat f = x - (shifted - ROUNDING_MAGIC);
  const vfloat mantissa = f * exp2_slope(f) + 1.0f;
  const vfloat result = (vfloat)((vuint)mantissa + ((vuint)shifted << 23));
  return zero_below(x, -126.0f, result);
}
#endif

/* tanh x = e / (e + 2) with e = 2^y - 1 and y = 2 x log2 e. Splitting 2^y avoids cancellation in e
 * near 0. */
FORCE_INLINE vfloat tanh_of(vfloat x)
{
  vfloat y = x * 2.885390081777927f;
  y = choose(y > 30.0f, splat(30.0f), y);
  y = choose(y < -30.0f, splat(-30.0f), y);
  const vfloat shifted = y + ROUNDING_MAGIC;
  const vfloat f = y - (shifted - ROUNDING_MAGIC);
  const vfloat power = (vfloat)(((vuint)shifted << 23) + 0x3f800000);
  const vfloat e = power * (f * exp2_slope(f)) + (power - 1.0f); /* 2^y - 1 */
  return e / (e + 2.0f);
}

#endif
