/* The kernels of heads for labels in one precision; labels.c includes it once for each. */
static void ACT(pool)(void *out, const void *x, int64_t N, int64_t D)
{
  const float share = 1.0f / (float)N;
  for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
    vfloat sum = {0};
    for (int64_t n = 0; n < N; n++) sum += act_load((const ACT_TYPE *)x + n * D + i, D - i);
    act_store((ACT_TYPE *)out + i, sum * share, D - i);
  }
}

static void ACT(pool_backward)(void *dx, const void *dout, int64_t N, int64_t D)
{
  const float share = 1.0f / (float)N;
  for (int64_t n = 0; n < N; n++) {
    ACT_TYPE *row = (ACT_TYPE *)dx + n * D;
    for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
      const vfloat part = act_load((const ACT_TYPE *)dout + i, D - i) * share;
      act_store(row + i, act_load(row + i, D - i) + part, D - i);
    }
  }
}

static void ACT(tanh_forward)(void *out, const void *x, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH)
    act_store((ACT_TYPE *)out + i, vtanh(act_load((const ACT_TYPE *)x + i, n - i)), n - i);
}

static void ACT(tanh_backward)(void *dx, const void *dy, const void *y, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
    const vfloat value = act_load((const ACT_TYPE *)y + i, n - i);
    const vfloat upper = act_load((const ACT_TYPE *)dy + i, n - i);
    act_store((ACT_TYPE *)dx + i, upper * (1.0f - value * value), n - i);
  }
}

/* A draw has four words, one for each of four columns, so a vector takes whole draws. */
static void ACT(dropout)(void *out, const void *x, const struct plm_dropout *dropout, uint64_t key,
                         int64_t D)
{
  for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
    float factors[SIMD_WIDTH];
    dropout_factors(factors, dropout, key, (uint32_t)(i / 4));
    const vfloat value = act_load((const ACT_TYPE *)x + i, D - i);
    const vfloat factor = vload_float(factors, SIMD_WIDTH);
    act_store((ACT_TYPE *)out + i, vselect(factor == 0.0f, vset(0), value * factor), D - i);
  }
}

static void ACT(fill_labels)(struct plm_cpu_vector *vector)
{
  vector->pool = ACT(pool);
  vector->pool_backward = ACT(pool_backward);
  vector->tanh_forward = ACT(tanh_forward);
  vector->tanh_backward = ACT(tanh_backward);
  vector->dropout = ACT(dropout);
}
