/* The optimizers' passes over parameters, in fp32, and the elementwise parts of Newton-Schulz. */
#include "kernels/cpu/cpu_vector.h"

#define ACT_HALF 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/optimizer_act.h"
#undef ACT_HALF
#define ACT_HALF 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/optimizer_act.h"

static double sum_squares(const float *x, int64_t n)
{
  /* enough independent sums in double that the loop is bound by memory */
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

static void scale(float *x, float factor, int64_t n)
{
  for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

/* Kingma and Ba 2015, with decoupled decay (Loshchilov and Hutter 2019). */
static void adam(float *restrict w, float *restrict m, float *restrict v, const float *restrict g,
                 int64_t n, const struct plm_adam_options *options)
{
  const struct plm_adam_options o = *options;
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

void SIMD_NAME(plm_cpu_fill_optimizer)(struct plm_cpu_vector *vector, bool half)
{
  if (half)
    fill_optimizer_half(vector);
  else
    fill_optimizer_float(vector);
  vector->sum_squares = sum_squares;
  vector->scale = scale;
  vector->adam = adam;
  vector->ema = ema;
  vector->nesterov = nesterov;
}
