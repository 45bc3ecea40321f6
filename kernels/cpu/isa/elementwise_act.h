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

static void ACT(add_to_float)(float *sums, const void *x, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH)
    vstore_float(sums + i, vload_float(sums + i, n - i) + act_load((const ACT_TYPE *)x + i, n - i),
                 n - i);
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
    const vfloat slope = gelu_slope(act_load((const ACT_TYPE *)x + i, n - i));
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

static void ACT(scale)(void *x, float factor, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH)
    act_store((ACT_TYPE *)x + i, act_load((const ACT_TYPE *)x + i, n - i) * factor, n - i);
}

static void ACT(gelu_backward_act)(void *dx, const void *dy, const void *x, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
    const vfloat slope = gelu_slope(act_load((const ACT_TYPE *)x + i, n - i));
    act_store((ACT_TYPE *)dx + i, slope * act_load((const ACT_TYPE *)dy + i, n - i), n - i);
  }
}

static void ACT(bias)(void *x, const float *bias, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH)
    act_store((ACT_TYPE *)x + i,
              act_load((const ACT_TYPE *)x + i, n - i) + vload_float(bias + i, n - i), n - i);
}

static void ACT(bias_gelu)(void *hidden, void *before, const float *bias, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
    const vfloat product = act_load((const ACT_TYPE *)before + i, n - i);
    const vfloat value = act_rounded(product + vload_float(bias + i, n - i));
    vfloat bell;
    const vfloat phi = vnormal(value, &bell);
    act_store((ACT_TYPE *)before + i, value, n - i);
    act_store((ACT_TYPE *)hidden + i, value * phi, n - i); /* after before, which it may equal */
  }
}

static void ACT(swiglu_forward)(void *hidden, const void *gate_up, int64_t F)
{
  const ACT_TYPE *gates = gate_up, *ups = gates + F;
  for (int64_t i = 0; i < F; i += SIMD_WIDTH) {
    const vfloat gate = act_load(gates + i, F - i);
    act_store((ACT_TYPE *)hidden + i, gate * vsigmoid(gate) * act_load(ups + i, F - i), F - i);
  }
}

/* silu(g) = g s(g) with the sigmoid s, so silu'(g) = s (1 + g (1 - s)) */
static void ACT(swiglu_backward)(void *dgate_up, const void *dhidden, const void *gate_up,
                                 int64_t F)
{
  const ACT_TYPE *gates = gate_up, *ups = gates + F;
  ACT_TYPE *dgates = dgate_up, *dups = dgates + F;
  for (int64_t i = 0; i < F; i += SIMD_WIDTH) {
    const vfloat gate = act_load(gates + i, F - i), up = act_load(ups + i, F - i);
    const vfloat upper = act_load((const ACT_TYPE *)dhidden + i, F - i);
    const vfloat s = vsigmoid(gate);
    act_store(dgates + i, upper * up * (s * (1.0f + gate * (1.0f - s))), F - i);
    act_store(dups + i, upper * (gate * s), F - i);
  }
}

static void ACT(fill_elementwise)(struct plm_cpu_vector *vector)
{
  vector->from_float = ACT(from_float);
  vector->to_float = ACT(to_float);
  vector->add_to_float = ACT(add_to_float);
  vector->relu2_forward = ACT(relu2_forward);
  vector->relu2_backward = ACT(relu2_backward);
  vector->gelu_forward = ACT(gelu_forward);
  vector->gelu_backward = ACT(gelu_backward);
  vector->add = ACT(add);
  vector->scale = ACT(scale);
  vector->gelu_backward_act = ACT(gelu_backward_act);
  vector->bias = ACT(bias);
  vector->bias_gelu = ACT(bias_gelu);
  vector->swiglu_forward = ACT(swiglu_forward);
  vector->swiglu_backward = ACT(swiglu_backward);
}
