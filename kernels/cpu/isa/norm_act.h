/* The norms of rows in one precision; norm.c includes it once for each. */
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

/* d norm(x) dh = r dh - x r^3 sum(dh x) / D with r = 1 / rms. Sets r and r^3 sum(dh x) / D from the
 * sums of x^2 and x dh. */
static void ACT(norm_slopes)(float *r, float *along, vfloat square, vfloat product, int64_t D)
{
  *r = 1.0f / __builtin_sqrtf(vsum(square) / (float)D + PLM_NORM_EPSILON);
  *along = *r * *r * *r * (vsum(product) / (float)D);
}

static void ACT(norm_backward)(void *dx, const void *dh, const void *x, int64_t N, int64_t D)
{
  for (int64_t n = 0; n < N; n++) {
    const ACT_TYPE *row = (const ACT_TYPE *)x + n * D, *upper = (const ACT_TYPE *)dh + n * D;
    ACT_TYPE *to = (ACT_TYPE *)dx + n * D;
    vfloat square = {0}, product = {0};
    for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
      const vfloat value = act_load(row + i, D - i);
      square += value * value;
      product += value * act_load(upper + i, D - i);
    }
    float r, along;
    ACT(norm_slopes)(&r, &along, square, product, D);
    for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
      const vfloat gradient = act_load(upper + i, D - i) * r - act_load(row + i, D - i) * along;
      act_store(to + i, act_load(to + i, D - i) + gradient, D - i);
    }
  }
}

/* Row n of the second operand of the mix. */
static inline const ACT_TYPE *ACT(mix_row)(const struct plm_mix_rows *mix, int64_t n, int64_t D)
{
  return (const ACT_TYPE *)mix->p + (mix->p_rows == NULL ? n : mix->p_rows[n]) * D;
}

/* x + s skip, the first operand of the mix, for the vector of elements from i on. */
static inline vfloat ACT(mix_input)(const struct plm_mix_rows *mix, int64_t i, int64_t left)
{
  const vfloat x = act_load((const ACT_TYPE *)mix->x + i, left);
  if (mix->skip == NULL) return x;
  return vfma(vset(mix->s), act_load((const ACT_TYPE *)mix->skip + i, left), x);
}

/* x', rounded, for the vector of elements from i on of the row at element `at`. */
static inline vfloat ACT(mixed_input)(const struct plm_mix_rows *mix, const ACT_TYPE *p_row,
                                      int64_t at, int64_t i, int64_t left)
{
  return act_rounded(vfma(vset(mix->b[0]), ACT(mix_input)(mix, at + i, left),
                          mix->b[1] * act_load(p_row + i, left)));
}

static void ACT(mix_norm_forward)(void *mixed, void *h, const struct plm_mix_rows *mix, int64_t N,
                                  int64_t D)
{
  for (int64_t n = 0; n < N; n++) {
    const ACT_TYPE *p_row = ACT(mix_row)(mix, n, D);
    ACT_TYPE *m_row = (ACT_TYPE *)mixed + n * D;
    for (int64_t i = 0; i < D; i += SIMD_WIDTH)
      act_store(m_row + i, ACT(mixed_input)(mix, p_row, n * D, i, D - i), D - i);
    ACT(norm_forward)((ACT_TYPE *)h + n * D, m_row, 1, D); /* reads x' as rounded */
  }
}

/* Computes the gradients of row n and adds its part of db and ds to the sums. */
static void ACT(mix_norm_backward_row)(const struct plm_mix_rows *mix,
                                       const struct plm_mix_row_gradients *to, int64_t n, int64_t D,
                                       vfloat sums[3])
{
  const int64_t at = n * D;
  const ACT_TYPE *upper = (const ACT_TYPE *)to->dh + at;
  const ACT_TYPE *p_row = ACT(mix_row)(mix, n, D);
  const ACT_TYPE *skip_row = mix->skip == NULL ? NULL : (const ACT_TYPE *)mix->skip + at;
  const ACT_TYPE *more_row = to->more == NULL ? NULL : (const ACT_TYPE *)to->more + at;
  const ACT_TYPE *dm_row = (const ACT_TYPE *)to->dmixed + at;
  ACT_TYPE *dp_row = (ACT_TYPE *)to->dp + at;
  ACT_TYPE *dx_row = (ACT_TYPE *)to->dx + at, *dskip_row = (ACT_TYPE *)to->dskip + at;
  vfloat square = {0}, product = {0};
  for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
    const vfloat value = ACT(mixed_input)(mix, p_row, at, i, D - i);
    square += value * value;
    product += value * act_load(upper + i, D - i);
  }
  float r, along;
  ACT(norm_slopes)(&r, &along, square, product, D);
  for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
    const int64_t left = D - i;
    const vfloat gradient = act_load(dm_row + i, left) + act_load(upper + i, left) * r -
                            ACT(mixed_input)(mix, p_row, at, i, left) * along;
    vfloat dx = mix->b[0] * gradient;
    sums[0] += gradient * ACT(mix_input)(mix, at + i, left);
    sums[1] += gradient * act_load(p_row + i, left);
    act_store(dp_row + i, act_load(dp_row + i, left) + mix->b[1] * gradient, left);
    if (skip_row != NULL) {
      sums[2] += dx * act_load(skip_row + i, left);
      act_store(dskip_row + i, mix->s * dx, left); /* after x and skip, which it may equal */
    }
    if (more_row != NULL) dx += act_load(more_row + i, left); /* after dskip, which it may equal */
    act_store(dx_row + i, dx, left);                          /* after dmixed, which it may equal */
  }
}

static void ACT(mix_norm_backward)(float sums[3], const struct plm_mix_rows *mix,
                                   const struct plm_mix_row_gradients *to, int64_t N, int64_t D)
{
  double totals[3] = {0, 0, 0}; /* double, because the parts of the rows largely cancel */
  for (int64_t n = 0; n < N; n++) {
    vfloat row[3] = {{0}, {0}, {0}};
    ACT(mix_norm_backward_row)(mix, to, n, D, row);
    for (int i = 0; i < 3; i++) totals[i] += (double)vsum(row[i]);
  }
  for (int i = 0; i < 3; i++) sums[i] = (float)totals[i];
}

static void ACT(fill_norm)(struct plm_cpu_vector *vector)
{
  vector->norm_forward = ACT(norm_forward);
  vector->norm_backward = ACT(norm_backward);
  vector->mix_norm_forward = ACT(mix_norm_forward);
  vector->mix_norm_backward = ACT(mix_norm_backward);
}
