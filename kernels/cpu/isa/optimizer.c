/* The passes of the optimizers over parameters, in fp32, and the elementwise parts of
 * Newton-Schulz. */
#include <string.h>

#include "kernels/cpu/cpu_vector.h"

/* A row of 16 bytes of a square block. The functions below transpose a block: each round
 * interleaves every row with the row half a block further down. */
typedef float lanes_float __attribute__((vector_size(16)));
typedef uint16_t lanes_bf16 __attribute__((vector_size(16)));

static inline void interleave_float(lanes_float r[4])
{
  for (int round = 0; round < 2; round++) {
    const lanes_float a = r[0], b = r[1], c = r[2], d = r[3];
    r[0] = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    r[1] = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    r[2] = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    r[3] = __builtin_shufflevector(b, d, 2, 6, 3, 7);
  }
}

static inline void interleave_bf16(lanes_bf16 r[8])
{
  for (int round = 0; round < 3; round++) {
    lanes_bf16 before[8];
    memcpy(before, r, sizeof before);
    for (int i = 0; i < 4; i++) {
      r[2 * i] = __builtin_shufflevector(before[i], before[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      r[2 * i + 1] = __builtin_shufflevector(before[i], before[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
  }
}

#define ACT_BF16 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/optimizer_act.h"
#undef ACT_BF16
#define ACT_BF16 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/optimizer_act.h"

static double sum_squares(const float *x, int64_t n)
{
  /* enough independent sums in double to make memory the limit of the loop */
  enum { LANES = 32 };
  double sums[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int j = 0; j < LANES; j++) sums[j] += (double)x[i + j] * (double)x[i + j];
  for (int j = 0; i < n; i++, j++) sums[j] += (double)x[i] * (double)x[i];
  for (int step = LANES / 2; step > 0; step /= 2)
    for (int j = 0; j < step; j++) sums[j] += sums[j + step];
  return sums[0];
}

/* STRIP: elements of a strip, so that all its sums fit into the first-level cache.
 * LEVELS: PLM_SUM_PARTS_MAX is 2^LEVELS. */
enum { STRIP = 256, LEVELS = 6 };

static void add_to(float *restrict x, const float *restrict y, int64_t n)
{
  for (int64_t i = 0; i < n; i++) x[i] = y[i] + x[i];
}

/* One strip of a tree of sums. Part p is added to the sums that it completes, as a binary counter
 * carries: held[l] is a sum of 2^l parts that waits for its right neighbour. */
static void sum_strip(float *to, const float *const *parts, uint32_t count, int64_t begin,
                      int64_t n)
{
  float held[LEVELS][STRIP], sum[STRIP];
  const size_t bytes = (size_t)n * sizeof *sum;
  for (uint32_t p = 0; p < count; p++) {
    uint32_t level = 0;
    memcpy(sum, parts[p] + begin, bytes);
    for (; (p >> level & 1) != 0; level++) add_to(sum, held[level], n);
    if (p + 1 < count) memcpy(held[level], sum, bytes);
  }
  for (uint32_t level = (uint32_t)__builtin_ctz(count) + 1; count >> level != 0; level++)
    if ((count >> level & 1) != 0) add_to(sum, held[level], n);
  memcpy(to + begin, sum, bytes);
}

static void sum_parts(float *to, const float *const *parts, uint32_t count, int64_t begin,
                      int64_t n)
{
  for (int64_t i = 0; i < n; i += STRIP)
    sum_strip(to, parts, count, begin + i, n - i < STRIP ? n - i : STRIP);
}

/* Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter 2019). */
static void adam(float *restrict w, float *restrict m, float *restrict v, const float *restrict g,
                 int64_t n, const struct plm_cpu_adam *options)
{
  const struct plm_cpu_adam o = *options;
  const float keep = 1 - o.lr * o.weight_decay;
  const float rate = o.lr / o.correction1, inverse2 = 1 / o.correction2;
  for (int64_t i = 0; i < n; i++) {
    const float gradient = g[i] * o.gradient_scale;
    m[i] = o.beta1 * m[i] + (1 - o.beta1) * gradient;
    v[i] = o.beta2 * v[i] + (1 - o.beta2) * gradient * gradient;
    w[i] = w[i] * keep - rate * m[i] / (__builtin_sqrtf(v[i] * inverse2) + o.eps);
  }
}

static void ema(float *restrict average, const float *restrict w, float decay, int64_t n)
{
  for (int64_t i = 0; i < n; i++) average[i] += (1 - decay) * (w[i] - average[i]);
}

static void nesterov(float *restrict out, float *restrict buffer, const float *restrict g,
                     float factor, float m, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    const float gradient = g[i] * factor;
    buffer[i] += (1 - m) * (gradient - buffer[i]);
    out[i] = gradient + m * (buffer[i] - gradient);
  }
}

void SIMD_NAME(plm_cpu_fill_optimizer)(struct plm_cpu_vector *vector, bool is_bf16)
{
  if (is_bf16)
    fill_optimizer_bf16(vector);
  else
    fill_optimizer_float(vector);
  vector->sum_squares = sum_squares;
  vector->sum_parts = sum_parts;
  vector->adam = adam;
  vector->ema = ema;
  vector->nesterov = nesterov;
}
