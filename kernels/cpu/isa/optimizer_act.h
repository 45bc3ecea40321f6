/* The elementwise parts of Newton-Schulz in the precision of its products; included twice. */
static void ACT(scale_to)(void *out, const float *x, float factor, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH)
    act_store((ACT_TYPE *)out + i, vload_float(x + i, n - i) * factor, n - i);
}

static void ACT(combine)(void *out, const void *x, const float *y, float a, float c, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
    const vfloat value = act_load((const ACT_TYPE *)x + i, n - i);
    act_store((ACT_TYPE *)out + i, a * value + c * vload_float(y + i, n - i), n - i);
  }
}

static void ACT(decay_update)(float *w, const void *u, float decay, float rate, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
    const vfloat update = act_load((const ACT_TYPE *)u + i, n - i);
    vstore_float(w + i, vload_float(w + i, n - i) * (1.0f - decay) - rate * update, n - i);
  }
}

static void ACT(fill_optimizer)(struct plm_cpu_vector *vector)
{
  vector->scale_to = ACT(scale_to);
  vector->combine = ACT(combine);
  vector->decay_update = ACT(decay_update);
}
