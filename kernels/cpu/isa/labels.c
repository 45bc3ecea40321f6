/* Vector kernels of heads for labels: the mean of rows, tanh, dropout, and losses of numbers and of
 * several classes. That of one class is in loss.c. */
#include <math.h>

#include "kernels/cpu/cpu_vector.h"
#include "kernels/cpu/isa/simd.h"

/* The factors of SIMD_WIDTH columns, from draw number x on. */
static inline void dropout_factors(float *factors, const struct plm_dropout *dropout, uint64_t key,
                                   uint32_t x)
{
  for (int i = 0; i < SIMD_WIDTH; i += 4) {
    const struct plm_philox_words draw =
        plm_philox(dropout->seed, x + (uint32_t)i / 4, key, dropout->purpose);
    for (int k = 0; k < 4; k++)
      factors[i + k] = plm_dropout_drops(dropout, draw.w[k]) ? 0 : dropout->scale;
  }
}

static inline vfloat weights_at(const float *weights, int64_t i, int64_t left)
{
  return weights == NULL ? vset(1) : vload_float(weights + i, left);
}

/* w (z - y)^2, and its gradient 2 w (z - y) */
static float squared_error(float *dlogits, const float *outputs, const float *targets,
                           const float *weights, float scale, int64_t O)
{
  vfloat sum = {0};
  for (int64_t i = 0; i < O; i += SIMD_WIDTH) {
    const int64_t left = O - i;
    const vfloat target = vload_float(targets + i, left);
    const vfloat away = vkeep(vload_float(outputs + i, left) - target, left);
    const vfloat slope = vselect(target != target, vset(0), weights_at(weights, i, left) * away);
    sum += vselect(target != target, vset(0), slope * away);
    if (dlogits != NULL) vstore_float(dlogits + i, 2.0f * scale * slope, left);
  }
  return vsum(sum);
}

/* w (softplus(z) - y z), and its gradient w (sigmoid(z) - y). softplus(z) is max(z, 0) +
 * log(1 + e^-|z|). */
static float binary_losses(float *dlogits, const float *outputs, const float *targets,
                           const float *weights, float scale, int64_t O)
{
  double sum = 0;
  for (int64_t i = 0; i < O; i++) {
    if (isnan(targets[i])) continue;
    const double z = (double)outputs[i], softplus = fmax(z, 0) + log1p(exp(-fabs(z)));
    sum += (weights == NULL ? 1.0 : (double)weights[i]) * (softplus - (double)targets[i] * z);
  }
  for (int64_t i = 0; i < O && dlogits != NULL; i += SIMD_WIDTH) {
    const int64_t left = O - i;
    const vfloat target = vload_float(targets + i, left);
    const vfloat slope = vsigmoid(vload_float(outputs + i, left)) - target;
    vstore_float(dlogits + i,
                 vselect(target != target, vset(0), scale * weights_at(weights, i, left) * slope),
                 left);
  }
  return (float)sum;
}

#define ACT_BF16 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/labels_act.h"
#undef ACT_BF16
#define ACT_BF16 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/labels_act.h"

void SIMD_NAME(plm_cpu_fill_labels)(struct plm_cpu_vector *vector, bool is_bf16)
{
  if (is_bf16)
    fill_labels_bf16(vector);
  else
    fill_labels_float(vector);
  vector->squared_error = squared_error;
  vector->binary_losses = binary_losses;
}
