/* Row norms of one precision; included by norm.c for each. */
static float ACT(inverse_rms)(const ACT_TYPE *x, int64_t D)
{
  vfloat sum = {0};
  for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
    const vfloat value = act_load(x + i, D - i);
    sum += value * value;
  }
  return 1.0f / __builtin_sqrtf(vsum(sum) / (float)D + PLM_NORM_EPSILON);
}

static void ACT(norm_forward)(void *out, const void *x, int64_t N, int64_t D)
{
  for (int64_t n = 0; n < N; n++) {
    const ACT_TYPE *row = (const ACT_TYPE *)x + n * D;
    ACT_TYPE *to = (ACT_TYPE *)out + n * D;
    const float r = ACT(inverse_rms)(row, D);
    for (int64_t i = 0; i < D; i += SIMD_WIDTH)
      act_store(to + i, act_load(row + i, D - i) * r, D - i);
  }
}

/* With r = 1 / rms: d norm(x) dh = r dh - x r^3 sum(dh x) / D. Sets r and the second factor. */
static void ACT(norm_slopes)(float *r, float *along, const ACT_TYPE *dh, const ACT_TYPE *x,
                             int64_t D)
{
  vfloat square = {0}, product = {0};
  for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
    const vfloat value = act_load(x + i, D - i);
    square += value * value;
    product += value * act_load(dh + i, D - i);
  }
  *r = 1.0f / __builtin_sqrtf(vsum(square) / (float)D + PLM_NORM_EPSILON);
  *along = *r * *r * *r * (vsum(product) / (float)D);
}

static void ACT(norm_backward)(void *dx, const void *dh, const void *x, int64_t N, int64_t D)
{
  for (int64_t n = 0; n < N; n++) {
    const ACT_TYPE *row = (const ACT_TYPE *)x + n * D, *upper = (const ACT_TYPE *)dh + n * D;
    ACT_TYPE *to = (ACT_TYPE *)dx + n * D;
    float r, along;
    ACT(norm_slopes)(&r, &along, upper, row, D);
    for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
      const vfloat gradient = act_load(upper + i, D - i) * r - act_load(row + i, D - i) * along;
      act_store(to + i, act_load(to + i, D - i) + gradient, D - i);
    }
  }
}

static void ACT(mix_norm_forward)(void *mixed, void *h, const void *x, const void *p,
                                  const float b[2], int64_t N, int64_t D)
{
  for (int64_t n = 0; n < N; n++) {
    const ACT_TYPE *x_row = (const ACT_TYPE *)x + n * D, *p_row = (const ACT_TYPE *)p + n * D;
    ACT_TYPE *m_row = (ACT_TYPE *)mixed + n * D;
    for (int64_t i = 0; i < D; i += SIMD_WIDTH)
      act_store(m_row + i, b[0] * act_load(x_row + i, D - i) + b[1] * act_load(p_row + i, D - i),
                D - i);
    ACT(norm_forward)((ACT_TYPE *)h + n * D, m_row, 1, D); /* of x' as stored */
  }
}

static void ACT(mix_norm_backward)(void *dx, void *dp, float db[2], void *dmixed, const void *dh,
                                   const void *mixed, const void *x, const void *p,
                                   const float b[2], int64_t N, int64_t D)
{
  double total_x = 0, total_p = 0; /* rows cancel */
  for (int64_t n = 0; n < N; n++) {
    vfloat sum_x = {0}, sum_p = {0};
    const int64_t at = n * D;
    const ACT_TYPE *upper = (const ACT_TYPE *)dh + at, *m_row = (const ACT_TYPE *)mixed + at;
    const ACT_TYPE *x_row = (const ACT_TYPE *)x + at, *p_row = (const ACT_TYPE *)p + at;
    ACT_TYPE *dm_row = (ACT_TYPE *)dmixed + at, *dp_row = (ACT_TYPE *)dp + at;
    ACT_TYPE *dx_row = (ACT_TYPE *)dx + at;
    float r, along;
    ACT(norm_slopes)(&r, &along, upper, m_row, D);
    for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
      const int64_t left = D - i;
      const vfloat gradient = act_load(dm_row + i, left) + act_load(upper + i, left) * r -
                              act_load(m_row + i, left) * along;
      sum_x += gradient * act_load(x_row + i, left);
      sum_p += gradient * act_load(p_row + i, left);
      act_store(dm_row + i, gradient, left);
      act_store(dp_row + i, act_load(dp_row + i, left) + b[1] * gradient, left);
      act_store(dx_row + i, b[0] * gradient, left); /* after dmixed, which it may be */
    }
    total_x += (double)vsum(sum_x);
    total_p += (double)vsum(sum_p);
  }
  db[0] = (float)total_x;
  db[1] = (float)total_p;
}

static void ACT(fill_norm)(struct plm_cpu_vector *vector)
{
  vector->norm_forward = ACT(norm_forward);
  vector->norm_backward = ACT(norm_backward);
  vector->mix_norm_forward = ACT(mix_norm_forward);
  vector->mix_norm_backward = ACT(mix_norm_backward);
}
