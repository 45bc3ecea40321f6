/* The elementwise parts of Newton-Schulz in the precision of its products; optimizer.c includes it
 * once for each. */
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

/* Transposes square blocks whose rows have 16 bytes, by log2(rows) rounds of interleaving
 * (optimizer.c). The inner loop walks down the input so that output rows are written from left to
 * right. */
static void ACT(transpose)(void *out, int64_t out_stride, const void *in, int64_t in_stride,
                           int64_t rows, int64_t cols)
{
  enum { SIDE = 16 / sizeof(ACT_TYPE) };
  const ACT_TYPE *from = in;
  ACT_TYPE *to = out;
  const int64_t whole_rows = rows / SIDE * SIDE, whole_cols = cols / SIDE * SIDE;
  for (int64_t j = 0; j < whole_cols; j += SIDE)
    for (int64_t i = 0; i < whole_rows; i += SIDE) {
      ACT(lanes) square[SIDE];
      for (int k = 0; k < SIDE; k++)
        memcpy(&square[k], from + (i + k) * in_stride + j, sizeof square[k]);
      ACT(interleave)(square);
      for (int k = 0; k < SIDE; k++)
        memcpy(to + (j + k) * out_stride + i, &square[k], sizeof square[k]);
    }
  for (int64_t j = 0; j < cols; j++)
    for (int64_t i = j < whole_cols ? whole_rows : 0; i < rows; i++)
      to[j * out_stride + i] = from[i * in_stride + j];
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
  vector->transpose = ACT(transpose);
  vector->decay_update = ACT(decay_update);
}
