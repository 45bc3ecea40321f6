/* q and k without the norm over the width of a head, in one precision: normalised by a LayerNorm
 * over the width of all heads (weight), or not at all (weight == NULL), and then rotated. */
#include "kernels/cpu/isa/moments_act.h"

/* Elements [at, at + SIMD_WIDTH) of the normalised row. */
static inline vfloat ACT(normalised)(const ACT_TYPE *in, int64_t at, int64_t left,
                                     const struct row_norm *norm)
{
  const vfloat value = act_load(in + at, left);
  if (norm->weight == NULL) return value;
  return (value - norm->mean) * norm->r * vload_float(norm->weight + at, left);
}

static inline struct row_norm ACT(row_norm_of)(const ACT_TYPE *in, const struct plm_qkv_rows *rows,
                                               int part)
{
  struct row_norm norm = {.weight = NULL};
  if (rows->norm != PLM_QK_NORM_WIDTH) return norm;
  norm.weight = rows->qk_weight[part];
  ACT(moments)(in, rows->H * rows->K, rows->eps, &norm.mean, &norm.r);
  return norm;
}

/* q (part 0) or k (part 1) of one row */
static void ACT(turn_row)(ACT_TYPE *out, const ACT_TYPE *in, const float *cosine, const float *sine,
                          const struct plm_qkv_rows *rows, int part)
{
  const int64_t half = rows->K / 2;
  const struct row_norm norm = ACT(row_norm_of)(in, rows, part);
  for (int64_t at = 0; at < rows->H * rows->K; at += rows->K)
    for (int64_t i = 0; i < half; i += SIMD_WIDTH) {
      const int64_t left = half - i, a = at + i, b = at + half + i;
      const vfloat c = vload_float(cosine + i, left), s = vload_float(sine + i, left);
      const vfloat first = ACT(normalised)(in, a, left, &norm);
      const vfloat second = ACT(normalised)(in, b, left, &norm);
      act_store(out + a, first * c + second * s, left);
      act_store(out + b, second * c - first * s, left);
    }
}

/* The gradient of the normalised elements from a on and from a + K/2 on, of which i are before a in
 * their head. */
static inline void ACT(unturn)(vfloat d[2], const ACT_TYPE *dy, int64_t a, int64_t half,
                               const float *cosine, const float *sine, int64_t left)
{
  const vfloat c = vload_float(cosine, left), s = vload_float(sine, left);
  const vfloat first = act_load(dy + a, left), second = act_load(dy + a + half, left);
  d[0] = first * c - second * s;
  d[1] = first * s + second * c;
}

/* Adds the elements from `at` on to the sums of g and g y, with g = d weight, and to dweight. */
static inline void ACT(add_slopes)(vfloat sums[2], float *dweight, vfloat d, const ACT_TYPE *in,
                                   int64_t at, int64_t left, const struct row_norm *norm)
{
  const vfloat y = (act_load(in + at, left) - norm->mean) * norm->r;
  const vfloat g = d * vload_float(norm->weight + at, left); /* 0 beyond the head */
  sums[0] += g;
  sums[1] += g * y;
  vstore_float(dweight + at, vload_float(dweight + at, left) + d * y, left);
}

/* out may equal dy. dweight (H K) += with PLM_QK_NORM_WIDTH. */
static void ACT(turn_row_back)(ACT_TYPE *out, float *dweight, const ACT_TYPE *dy,
                               const ACT_TYPE *in, const float *cosine, const float *sine,
                               const struct plm_qkv_rows *rows, int part)
{
  const int64_t K = rows->K, half = K / 2, width = rows->H * K;
  const struct row_norm norm = ACT(row_norm_of)(in, rows, part);
  vfloat sums[2] = {{0}, {0}}, d[2];
  for (int64_t at = 0; at < width && norm.weight != NULL; at += K)
    for (int64_t i = 0; i < half; i += SIMD_WIDTH) {
      ACT(unturn)(d, dy, at + i, half, cosine + i, sine + i, half - i);
      for (int j = 0; j < 2; j++)
        ACT(add_slopes)(sums, dweight, d[j], in, at + j * half + i, half - i, &norm);
    }
  const float average = vsum(sums[0]) / (float)width, along = vsum(sums[1]) / (float)width;
  for (int64_t at = 0; at < width; at += K)
    for (int64_t i = 0; i < half; i += SIMD_WIDTH) {
      const int64_t left = half - i;
      ACT(unturn)(d, dy, at + i, half, cosine + i, sine + i, left);
      for (int j = 0; j < 2; j++) {
        const int64_t place = at + j * half + i;
        if (norm.weight != NULL) {
          const vfloat y = (act_load(in + place, left) - norm.mean) * norm.r;
          const vfloat g = d[j] * vload_float(norm.weight + place, left);
          d[j] = norm.r * (g - average - y * along);
        }
        act_store(out + place, d[j], left);
      }
    }
}
