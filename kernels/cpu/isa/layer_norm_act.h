/* LayerNorm in one precision; layer_norm.c includes it once for each. */
#include "kernels/cpu/isa/moments_act.h"

static void ACT(layer_norm_forward)(void *out, const void *x, const struct plm_layer_norm *norm,
                                    int64_t N, int64_t D)
{
  for (int64_t n = 0; n < N; n++) {
    const ACT_TYPE *row = (const ACT_TYPE *)x + n * D;
    ACT_TYPE *to = (ACT_TYPE *)out + n * D;
    float mean, r;
    ACT(moments)(row, D, norm->eps, &mean, &r);
    for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
      const vfloat weight = vload_float(norm->weight + i, D - i);
      vfloat value = (act_load(row + i, D - i) - mean) * r * weight;
      if (norm->bias != NULL) value += vload_float(norm->bias + i, D - i);
      act_store(to + i, value, D - i);
    }
  }
}

/* With y = (x - mean) r and g = dh weight: dx += r (g - mean(g) - y mean(g y)). */
static void ACT(layer_norm_backward_row)(ACT_TYPE *dx, float *dweight, float *dbias,
                                         const ACT_TYPE *dh, const ACT_TYPE *x,
                                         const struct plm_layer_norm *norm, int64_t D)
{
  float mean, r;
  ACT(moments)(x, D, norm->eps, &mean, &r);
  vfloat sum = {0}, product = {0};
  for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
    const vfloat upper = act_load(dh + i, D - i);
    const vfloat y = (act_load(x + i, D - i) - mean) * r;
    const vfloat g = upper * vload_float(norm->weight + i, D - i); /* 0 beyond the row */
    sum += g;
    product += g * y;
    vstore_float(dweight + i, vload_float(dweight + i, D - i) + upper * y, D - i);
    if (dbias != NULL) vstore_float(dbias + i, vload_float(dbias + i, D - i) + upper, D - i);
  }
  const float average = vsum(sum) / (float)D, along = vsum(product) / (float)D;
  for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
    const vfloat y = (act_load(x + i, D - i) - mean) * r;
    const vfloat g = act_load(dh + i, D - i) * vload_float(norm->weight + i, D - i);
    act_store(dx + i, act_load(dx + i, D - i) + r * (g - average - y * along), D - i);
  }
}

static void ACT(layer_norm_backward)(void *dx, float *dweight, float *dbias, const void *dh,
                                     const void *x, const struct plm_layer_norm *norm, int64_t N,
                                     int64_t D)
{
  memset(dweight, 0, (size_t)D * sizeof *dweight);
  if (dbias != NULL) memset(dbias, 0, (size_t)D * sizeof *dbias);
  for (int64_t n = 0; n < N; n++) ACT(layer_norm_backward_row)
  ((ACT_TYPE *)dx + n * D, dweight, dbias, (const ACT_TYPE *)dh + n * D,
   (const ACT_TYPE *)x + n * D, norm, D);
}

static void ACT(fill_layer_norm)(struct plm_cpu_vector *vector)
{
  vector->layer_norm_forward = ACT(layer_norm_forward);
  vector->layer_norm_backward = ACT(layer_norm_backward);
}
