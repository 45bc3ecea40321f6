/* The elementwise kernels in one precision; elementwise.c includes it once for each. */
static void ACT(from_float)(void *out, const float *in, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH)
    act_store((ACT_TYPE *)out + i, vload_float(in + i, n - i), n - i);
}

static void ACT(to_float)(float *out, const void *in, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH)
    vstore_float(out + i, act_load((const ACT_TYPE *)in + i, n - i), n - i);
}

static void ACT(relu2_forward)(void *x, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
    const vfloat value = act_load((const ACT_TYPE *)x + i, n - i);
    /* a NaN fails this comparison and is therefore kept */
    const vfloat positive = vselect(value <= 0.0f, vset(0), value);
    act_store((ACT_TYPE *)x + i, positive * positive, n - i);
  }
}

static void ACT(relu2_backward)(void *dx, const void *out, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
    const vfloat root = vsqrt(act_load((const ACT_TYPE *)out + i, n - i));
    const vfloat upper = act_load((const ACT_TYPE *)dx + i, n - i);
    act_store((ACT_TYPE *)dx + i, upper * (root + root), n - i);
  }
}

static void ACT(gelu_forward)(void *out, const void *x, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
    const vfloat value = act_load((const ACT_TYPE *)x + i, n - i);
    vfloat bell;
    const vfloat phi = vnormal(value, &bell);
    act_store((ACT_TYPE *)out + i, value * phi, n - i);
  }
}

static void ACT(gelu_backward)(void *dx, const float *dout, const void *x, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
    const vfloat value = act_load((const ACT_TYPE *)x + i, n - i);
    vfloat bell;
    const vfloat phi = vnormal(value, &bell);
    const vfloat slope = phi + value * bell * 0.3989422804f; /* 1 / sqrt(2 pi) */
    act_store((ACT_TYPE *)dx + i, slope * vload_float(dout + i, n - i), n - i);
  }
}

static void ACT(add)(void *x, const void *y, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
    const vfloat value = act_load((const ACT_TYPE *)x + i, n - i);
    act_store((ACT_TYPE *)x + i, value + act_load((const ACT_TYPE *)y + i, n - i), n - i);
  }
}

static void ACT(fill_elementwise)(struct plm_cpu_vector *vector)
{
  vector->from_float = ACT(from_float);
  vector->to_float = ACT(to_float);
  vector->relu2_forward = ACT(relu2_forward);
  vector->relu2_backward = ACT(relu2_backward);
  vector->gelu_forward = ACT(gelu_forward);
  vector->gelu_backward = ACT(gelu_backward);
  vector->add = ACT(add);
}
