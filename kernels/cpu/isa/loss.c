/* The last steps of the head, in fp32: bias, soft cap, softmax cross-entropy and its gradient. */
#include <math.h>

#include "kernels/cpu/cpu_vector.h"
#include "kernels/cpu/isa/simd.h"

static void add_bias(float *x, const float *bias, int64_t N, int64_t V)
{
  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < V; i++) x[n * V + i] += bias[i];
}

static void column_sums(float *out, const float *x, int64_t N, int64_t V)
{
  for (int64_t i = 0; i < V; i++) out[i] = 0;
  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < V; i++) out[i] += x[n * V + i];
}

static void soft_cap(float *x, int64_t n, float cap)
{
  const float inverse = 1.0f / cap;
  for (int64_t i = 0; i < n; i += SIMD_WIDTH)
    vstore_float(x + i, cap * vtanh(vload_float(x + i, n - i) * inverse), n - i);
}

/* Returns lse = log sum e^l, and stores sum l in *total and the largest l in *largest. */
static float log_sum_exp(const float *logits, int64_t V, float *total, float *largest)
{
  vfloat most = vset(-INFINITY), sum = {0}, exps = {0};
  for (int64_t i = 0; i + SIMD_WIDTH <= V; i += SIMD_WIDTH) {
    const vfloat value = vload_float(logits + i, SIMD_WIDTH);
    most = vmax(value, most);
    sum += value;
  }
  const int64_t tail = V / SIMD_WIDTH * SIMD_WIDTH;
  float maximum = vmaximum(most), rest = 0;
  for (int64_t i = tail; i < V; i++) {
    if (logits[i] > maximum) maximum = logits[i];
    rest += logits[i];
  }
  *total = vsum(sum) + rest;
  *largest = maximum;
  for (int64_t i = 0; i + SIMD_WIDTH <= V; i += SIMD_WIDTH)
    exps += vexp(vload_float(logits + i, SIMD_WIDTH) - maximum);
  vfloat last = vset(-INFINITY);
  for (int64_t i = tail; i < V; i++) last[i - tail] = logits[i] - maximum;
  exps += vexp(last);
  return maximum + (float)log((double)vsum(exps));
}

/* Loss and gradient of one row, for the target t = (1 - e) onehot + e / V with label smoothing e:
 * loss = lse - t.l + z lse^2. Its gradient by the capped logits is (1 + 2 z lse) softmax - t; by
 * the uncapped logits it is that times 1 - (l / c)^2. */
static void one_row(float *row_loss, float *dlogits, const struct plm_loss_rows *rows, int64_t n)
{
  const struct plm_loss_options *options = rows->options;
  const int64_t V = rows->V;
  const float *logits = rows->logits + n * V;
  const float weight = rows->weights[n];
  if (weight == 0) {
    *row_loss = 0;
    if (rows->hits != NULL) rows->hits[n] = 0;
    if (dlogits != NULL) memset(dlogits, 0, (size_t)V * sizeof *dlogits);
    return;
  }
  const float smoothing = options->label_smoothing, z = options->z_loss;
  const int32_t label = rows->labels[n];
  float total, largest;
  const float lse = log_sum_exp(logits, V, &total, &largest);
  if (rows->hits != NULL) rows->hits[n] = logits[label] >= largest ? 1 : 0;
  *row_loss = weight * (lse - (1 - smoothing) * logits[label] - smoothing / (float)V * total +
                        z * lse * lse);
  if (dlogits == NULL) return;

  const float scale = weight * rows->loss_scale, slope = 1 + 2 * z * lse;
  const float inverse_cap = options->soft_cap > 0 ? 1.0f / options->soft_cap : 0;
  const float label_ratio = logits[label] * inverse_cap;
  const float label_cap_slope = 1 - label_ratio * label_ratio;
  const float uniform = smoothing / (float)V;
  for (int64_t i = 0; i < V; i += SIMD_WIDTH) {
    const vfloat value = vload_float(logits + i, V - i);
    const vfloat ratio = value * inverse_cap;
    const vfloat gradient = slope * vexp(value - lse) - uniform;
    vstore_float(dlogits + i, scale * (1.0f - ratio * ratio) * gradient, V - i);
  }
  dlogits[label] -= scale * label_cap_slope * (1 - smoothing);
}

static void cross_entropy(float *row_loss, float *dlogits, const struct plm_loss_rows *rows)
{
  for (int64_t n = 0; n < rows->N; n++)
    one_row(row_loss + n, dlogits == NULL ? NULL : dlogits + n * rows->V, rows, n);
}

void SIMD_NAME(plm_cpu_fill_loss)(struct plm_cpu_vector *vector, bool is_bf16)
{
  (void)is_bf16; /* logits and their gradient are fp32 in either precision */
  vector->add_bias = add_bias;
  vector->column_sums = column_sums;
  vector->soft_cap = soft_cap;
  vector->cross_entropy = cross_entropy;
}
