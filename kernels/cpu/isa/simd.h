/* Vectors of floats, as wide as the instruction set allows. They use the compiler's vector types,
 * so that one source compiles to AVX-512, AVX2, SSE2 or NEON. Kernels walk a row in steps of
 * SIMD_WIDTH and pass the number of elements that are left. The last step may be partial: it loads
 * zeros beyond the end and stores only the elements that exist.
 *
 * The functions are accurate to one or two roundings: their polynomials are minimax fits with an
 * error below half an ulp of float.
 */
#ifndef PLM_KERNELS_CPU_ISA_SIMD_H
#define PLM_KERNELS_CPU_ISA_SIMD_H

#include <stdint.h>
#include <string.h>

#if defined(PLM_ISA_avx512) || defined(PLM_ISA_avx2)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define SIMD_JOIN_(a, b) a##_##b
#define SIMD_JOIN(a, b) SIMD_JOIN_(a, b)
/* The name of a function in this instruction set, e.g. f -> f_avx512. */
#define SIMD_NAME(name) SIMD_JOIN(name, PLM_ISA)

#if defined(PLM_ISA_avx512)
#define SIMD_WIDTH 16
#elif defined(PLM_ISA_avx2)
#define SIMD_WIDTH 8
#else
#define SIMD_WIDTH 4
#endif

typedef float vfloat __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef int32_t vint __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef uint32_t vuint __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef uint16_t vbf16 __attribute__((vector_size(2 * SIMD_WIDTH)));

static inline vfloat vset(float x)
{
  return x - (vfloat){0};
}

/* a b + c, rounded once where the processor can. Unlike an expression, of which the compiler
 * chooses in each place which product it adds to the other, this has the same bits in all places.
 */
static inline vfloat vfma(vfloat a, vfloat b, vfloat c)
{
#if defined(PLM_ISA_avx512)
  return (vfloat)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(PLM_ISA_avx2)
  return (vfloat)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
  return (vfloat)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

/* ---- load and store ---- */
#if defined(PLM_ISA_avx512)
/* The first `left` lanes, 0 <= left < SIMD_WIDTH. */
static inline __mmask16 vlanes(int64_t left)
{
  return (__mmask16)((1u << left) - 1u);
}
#endif

/* Loads the last, partial vector of a row. It is a separate function to keep the body of the loop
 * short. */
static inline vfloat vload_float_part(const float *from, int64_t left)
{
#if defined(PLM_ISA_avx512)
  return (vfloat)_mm512_maskz_loadu_ps(vlanes(left), from);
#elif defined(PLM_ISA_avx2)
  static const int32_t ones[2 * SIMD_WIDTH] = {-1, -1, -1, -1, -1, -1, -1, -1};
  const __m256i mask = _mm256_loadu_si256((const void *)(ones + SIMD_WIDTH - left));
  return (vfloat)_mm256_maskload_ps(from, mask);
#else
  float lane[SIMD_WIDTH] = {0};
  vfloat x;
  for (int64_t i = 0; i < left; i++) lane[i] = from[i];
  memcpy(&x, lane, sizeof x);
  return x;
#endif
}

static inline vfloat vload_float(const float *from, int64_t left)
{
  if (__builtin_expect(left < SIMD_WIDTH, 0)) return vload_float_part(from, left);
  vfloat x;
  memcpy(&x, from, sizeof x);
  return x;
}

#if defined(PLM_ISA_avx2)
/* Masked stores are slow on some processors. */
static inline void vstore_float_part(float *to, vfloat x, int64_t left)
{
  __m128 rest = _mm256_castps256_ps128((__m256)x);
  if (left & 4) {
    _mm_storeu_ps(to, rest);
    to += 4;
    rest = _mm256_extractf128_ps((__m256)x, 1);
  }
  if (left & 2) {
    _mm_storel_pi((__m64 *)(void *)to, rest);
    to += 2;
    rest = _mm_movehl_ps(rest, rest);
  }
  if (left & 1) _mm_store_ss(to, rest);
}
#endif

static inline void vstore_float(float *to, vfloat x, int64_t left)
{
  if (__builtin_expect(left >= SIMD_WIDTH, 1)) {
    memcpy(to, &x, sizeof x);
    return;
  }
#if defined(PLM_ISA_avx512)
  _mm512_mask_storeu_ps(to, vlanes(left), (__m512)x);
#elif defined(PLM_ISA_avx2)
  vstore_float_part(to, x, left);
#else
  float lane[SIMD_WIDTH];
  memcpy(lane, &x, sizeof x);
  for (int64_t i = 0; i < left; i++) to[i] = lane[i];
#endif
}

static inline vfloat vfrom_bf16(vbf16 h)
{
  return (vfloat)(__builtin_convertvector(h, vuint) << 16);
}

/* Rounds to nearest, ties to even; a NaN becomes a quiet NaN. AVX-512 uses an instruction of
 * AVX512_BF16, which treats subnormal floats as 0. If the processor lacks that instruction, the
 * backend uses the AVX2 kernels for bf16. */
static inline vbf16 vto_bf16(vfloat x)
{
#if defined(PLM_ISA_avx512)
  return (vbf16)_mm512_cvtneps_pbh((__m512)x);
#else
  const vuint bits = (vuint)x;
  const vuint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const vuint is_nan = (vuint)(x != x);
  return __builtin_convertvector((rounded & ~is_nan) | (0x7fc0u & is_nan), vbf16);
#endif
}

static inline vfloat vload_bf16_part(const uint16_t *from, int64_t left)
{
#if defined(PLM_ISA_avx512)
  return vfrom_bf16((vbf16)_mm256_maskz_loadu_epi16(vlanes(left), from));
#else
  uint16_t lane[SIMD_WIDTH] = {0};
  vbf16 h;
  for (int64_t i = 0; i < left; i++) lane[i] = from[i];
  memcpy(&h, lane, sizeof h);
  return vfrom_bf16(h);
#endif
}

static inline vfloat vload_bf16(const uint16_t *from, int64_t left)
{
  if (__builtin_expect(left < SIMD_WIDTH, 0)) return vload_bf16_part(from, left);
  vbf16 h;
  memcpy(&h, from, sizeof h);
  return vfrom_bf16(h);
}

static inline void vstore_bf16(uint16_t *to, vfloat x, int64_t left)
{
  const vbf16 h = vto_bf16(x);
  if (__builtin_expect(left >= SIMD_WIDTH, 1)) {
    memcpy(to, &h, sizeof h);
    return;
  }
#if defined(PLM_ISA_avx512)
  _mm256_mask_storeu_epi16(to, vlanes(left), (__m256i)h);
#else
  uint16_t lane[SIMD_WIDTH];
  memcpy(lane, &h, sizeof h);
  for (int64_t i = 0; i < left; i++) to[i] = lane[i];
#endif
}

/* ---- choice and reduction ---- */
static inline vfloat vselect(vint mask, vfloat yes, vfloat no)
{
  return (vfloat)(((vint)yes & mask) | ((vint)no & ~mask));
}

static inline vfloat vabs(vfloat x)
{
  return (vfloat)((vint)x & 0x7fffffff);
}

/* Vector types have no square root; the compiler turns this loop into one instruction. */
static inline vfloat vsqrt(vfloat x)
{
  for (int i = 0; i < SIMD_WIDTH; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
}

/* x in the first `left` lanes, and 0 in the others. */
static inline vfloat vkeep(vfloat x, int64_t left)
{
  if (__builtin_expect(left >= SIMD_WIDTH, 1)) return x;
  for (int i = 0; i < SIMD_WIDTH; i++) x[i] = i < left ? x[i] : 0;
  return x;
}

/* a > b ? a : b and a < b ? a : b, so b if one of the two is NaN */
#if defined(PLM_ISA_avx512)
static inline vfloat vmax(vfloat a, vfloat b)
{
  return (vfloat)_mm512_max_ps((__m512)a, (__m512)b);
}

static inline vfloat vmin(vfloat a, vfloat b)
{
  return (vfloat)_mm512_min_ps((__m512)a, (__m512)b);
}
#elif defined(PLM_ISA_avx2)
static inline vfloat vmax(vfloat a, vfloat b)
{
  return (vfloat)_mm256_max_ps((__m256)a, (__m256)b);
}

static inline vfloat vmin(vfloat a, vfloat b)
{
  return (vfloat)_mm256_min_ps((__m256)a, (__m256)b);
}
#else
static inline vfloat vmax(vfloat a, vfloat b)
{
  return vselect(a > b, a, b);
}

static inline vfloat vmin(vfloat a, vfloat b)
{
  return vselect(a < b, a, b);
}
#endif

/* Sums of lanes, always in the same order: the upper half is added to the lower half. */
typedef float vfloat4 __attribute__((vector_size(16)));
typedef float vfloat8 __attribute__((vector_size(32)));

static inline float vsum4(vfloat4 x)
{
  x += __builtin_shufflevector(x, x, 2, 3, 0, 1);
  return x[0] + x[1];
}

static inline float vsum8(vfloat8 x)
{
  return vsum4(__builtin_shufflevector(x, x, 0, 1, 2, 3) +
               __builtin_shufflevector(x, x, 4, 5, 6, 7));
}

static inline float vsum(vfloat x)
{
#if SIMD_WIDTH == 16
  return vsum8(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
#elif SIMD_WIDTH == 8
  return vsum8(x);
#else
  return vsum4(x);
#endif
}

static inline float vmaximum(vfloat x)
{
  float lane[SIMD_WIDTH];
  memcpy(lane, &x, sizeof lane);
  for (int i = 1; i < SIMD_WIDTH; i++)
    if (lane[i] > lane[0]) lane[0] = lane[i];
  return lane[0];
}

/* ---- functions ---- */
/* p 2^n, rounded once, for a whole n from -150 to 128 and p in [1/2, 2]. */
static inline vfloat vscale(vfloat p, vfloat n)
{
#if defined(PLM_ISA_avx512)
  return (vfloat)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  /* as two factors, so that subnormal results are right as well */
  const vint whole = __builtin_convertvector(n, vint);
  const vint half = whole >> 1;
  p *= (vfloat)((half + 127) << 23);
  return p * (vfloat)((whole - half + 127) << 23);
#endif
}

/* e^x as 2^n e^r with |r| <= ln 2 / 2. The result is 0 below -103.97 and inf above 88.73; NaN stays
 * NaN. */
static inline vfloat vexp(vfloat x)
{
  const vfloat bounded = vmin(vset(89.0f), vmax(vset(-104.0f), x)); /* keeps a NaN */
  const float shift = 0x1.8p23f; /* adding and subtracting it rounds to an integer */
  const vfloat n = (bounded * 1.44269504f + shift) - shift;
  vfloat r = bounded - n * 0.693145751953125f; /* ln 2 in two parts; n times the first is exact */
  r = r - n * 1.42860682e-6f;
  vfloat p = vset(0.001392618181f);
  p = p * r + 0.00836317763f;
  p = p * r + 0.04166655463f;
  p = p * r + 0.16666577f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  return vscale(p, n);
}

static inline vfloat vtanh(vfloat x)
{
  const vfloat size = vabs(x);
  const vfloat square = x * x;
  vfloat p = vset(0.00222088801f);
  p = p * square - 0.008278154461f;
  p = p * square + 0.02174806416f;
  p = p * square - 0.05395659826f;
  p = p * square + 0.1333329188f;
  p = p * square - 0.3333333309f;
  p = p * square * x + x;
  const vfloat e = vexp(size * -2.0f);
  const vfloat far = (1.0f - e) / (1.0f + e);
  const vint sign = (vint)x & (vint)vset(-0.0f);
  return vselect(size < 0.64f, p, (vfloat)((vint)far | sign));
}

static inline vfloat vsigmoid(vfloat x)
{
  return 1.0f / (1.0f + vexp(-x));
}

/* Returns Phi(x) of the normal distribution and stores e^(-x^2/2) in *bell. With t = |x|, the tail
 * is Q(t) = e^(-t^2/2) u q(u), u = 1 / (1 + 3t/8), so the relative error is small in the lower tail
 * as well. */
static inline vfloat vnormal(vfloat x, vfloat *bell)
{
  const vfloat t = vabs(x);
  const vfloat e = vexp(t * t * -0.5f);
  const vfloat u = 1.0f / (1.0f + t * 0.375f);
  vfloat q = vset(0.02372032848f);
  q = q * u - 0.1485466381f;
  q = q * u + 0.3770710488f;
  q = q * u - 0.4641737095f;
  q = q * u + 0.2464592872f;
  q = q * u - 0.07131670912f;
  q = q * u + 0.1128353887f;
  q = q * u + 0.1243834663f;
  q = q * u + 0.1499786581f;
  q = q * u + 0.1495888801f;
  const vfloat tail = e * (q * u);
  *bell = e;
  return vselect(x < 0.0f, tail, 1.0f - tail);
}

#endif
