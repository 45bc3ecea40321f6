/* The preparation of q, k and v in one precision; qkv.c includes it once for each. The functions
 * for one head are inlined for each of the usual widths K (FOR_HEAD_WIDTH), so that the compiler
 * can keep a head in registers. */
#include "kernels/cpu/isa/qkv_width_act.h"

QKV_INLINE float ACT(read_head)(float *x, const ACT_TYPE *from, int64_t K)
{
  vfloat square = {0};
  for (int64_t i = 0; i < K; i += SIMD_WIDTH) {
    const vfloat value = act_load(from + i, K - i);
    vstore_float(x + i, value, K - i);
    square += value * value;
  }
  return 1.0f / __builtin_sqrtf(vsum(square) / (float)K + PLM_NORM_EPSILON);
}

QKV_INLINE void ACT(turn_head)(ACT_TYPE *out, const ACT_TYPE *in, const float *cosine,
                               const float *sine, int64_t K)
{
  float x[PLM_HEAD_WIDTH_LIMIT];
  const float r = ACT(read_head)(x, in, K);
  const int64_t half = K / 2;
  for (int64_t i = 0; i < half; i += SIMD_WIDTH) {
    const int64_t left = half - i;
    const vfloat c = vload_float(cosine + i, left), s = vload_float(sine + i, left);
    const vfloat first = vload_float(x + i, left) * r, second = vload_float(x + half + i, left) * r;
    act_store(out + i, first * c + second * s, left);
    act_store(out + half + i, second * c - first * s, left);
  }
}

static void ACT(turn_heads)(ACT_TYPE *out, const ACT_TYPE *in, const float *cosine,
                            const float *sine, int64_t heads, int64_t width)
{
#define TURN(K) \
  for (int64_t i = 0; i < heads; i++) ACT(turn_head)(out + i * (K), in + i * (K), cosine, sine, K)
  FOR_HEAD_WIDTH(width, TURN)
#undef TURN
}

static void ACT(qkv_forward)(void *out, const void *qkv, const void *vi,
                             const struct plm_qkv_rows *rows)
{
  const int64_t D = rows->H * rows->K, half = rows->K / 2;
  for (int64_t n = rows->begin; n < rows->end; n++) {
    const ACT_TYPE *in = (const ACT_TYPE *)qkv + n * 3 * D;
    ACT_TYPE *to = (ACT_TYPE *)out + n * 3 * D;
    const float *cosine = rows->cosine + n % rows->L * half;
    const float *sine = rows->sine + n % rows->L * half;
    if (rows->norm == PLM_QK_NORM_HEAD)
      ACT(turn_heads)(to, in, cosine, sine, 2 * rows->H, rows->K); /* all heads of q, then of k */
    else
      for (int i = 0; i < 2; i++) ACT(turn_row)(to + i * D, in + i * D, cosine, sine, rows, i);
    if (vi == NULL) {
      memcpy(to + 2 * D, in + 2 * D, (size_t)D * sizeof *to);
      continue;
    }
    const ACT_TYPE *embedding = (const ACT_TYPE *)vi + n * D;
    for (int64_t i = 0; i < D; i += SIMD_WIDTH)
      act_store(to + 2 * D + i,
                rows->a0 * act_load(in + 2 * D + i, D - i) +
                    rows->a1 * act_load(embedding + i, D - i),
                D - i);
  }
}

/* out may equal dy */
QKV_INLINE void ACT(turn_head_back)(ACT_TYPE *out, const ACT_TYPE *dy, const ACT_TYPE *in,
                                    const float *cosine, const float *sine, int64_t K)
{
  float x[PLM_HEAD_WIDTH_LIMIT], d[PLM_HEAD_WIDTH_LIMIT];
  const float r = ACT(read_head)(x, in, K);
  const int64_t half = K / 2;
  vfloat product = {0};
  for (int64_t i = 0; i < half; i += SIMD_WIDTH) {
    const int64_t left = half - i;
    const vfloat c = vload_float(cosine + i, left), s = vload_float(sine + i, left);
    const vfloat first = act_load(dy + i, left), second = act_load(dy + half + i, left);
    const vfloat d_first = first * c - second * s, d_second = first * s + second * c;
    product += d_first * vload_float(x + i, left) + d_second * vload_float(x + half + i, left);
    vstore_float(d + i, d_first, left);
    vstore_float(d + half + i, d_second, left);
  }
  const float along = r * r * r * (vsum(product) / (float)K);
  for (int64_t i = 0; i < K; i += SIMD_WIDTH)
    act_store(out + i, vload_float(d + i, K - i) * r - vload_float(x + i, K - i) * along, K - i);
}

static void ACT(turn_heads_back)(ACT_TYPE *out, const ACT_TYPE *dy, const ACT_TYPE *in,
                                 const float *cosine, const float *sine, int64_t heads,
                                 int64_t width)
{
#define TURN(K)                       \
  for (int64_t i = 0; i < heads; i++) \
  ACT(turn_head_back)(out + i * (K), dy + i * (K), in + i * (K), cosine, sine, K)
  FOR_HEAD_WIDTH(width, TURN)
#undef TURN
}

static void ACT(qkv_backward)(void *dqkv_raw, void *dvi, float da[2], float *qk_dweight,
                              const void *dqkv, const void *qkv, const void *vi,
                              const struct plm_qkv_rows *rows)
{
  const int64_t D = rows->H * rows->K, half = rows->K / 2;
  vfloat sum_v = {0}, sum_vi = {0};
  if (rows->norm == PLM_QK_NORM_WIDTH) memset(qk_dweight, 0, (size_t)(2 * D) * sizeof *qk_dweight);
  for (int64_t n = rows->begin; n < rows->end; n++) {
    const ACT_TYPE *in = (const ACT_TYPE *)qkv + n * 3 * D;
    const ACT_TYPE *dy = (const ACT_TYPE *)dqkv + n * 3 * D;
    ACT_TYPE *to = (ACT_TYPE *)dqkv_raw + n * 3 * D;
    const float *cosine = rows->cosine + n % rows->L * half;
    const float *sine = rows->sine + n % rows->L * half;
    if (rows->norm == PLM_QK_NORM_HEAD)
      ACT(turn_heads_back)(to, dy, in, cosine, sine, 2 * rows->H, rows->K);
    else
      for (int i = 0; i < 2; i++) {
        float *dweight = rows->norm == PLM_QK_NORM_WIDTH ? qk_dweight + i * D : NULL;
        ACT(turn_row_back)(to + i * D, dweight, dy + i * D, in + i * D, cosine, sine, rows, i);
      }
    if (vi == NULL) {
      memmove(to + 2 * D, dy + 2 * D, (size_t)D * sizeof *to);
      continue;
    }
    for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
      const vfloat dv = act_load(dy + 2 * D + i, D - i);
      sum_v += dv * act_load(in + 2 * D + i, D - i);
      sum_vi += dv * act_load((const ACT_TYPE *)vi + n * D + i, D - i);
      act_store(to + 2 * D + i, rows->a0 * dv, D - i);
      act_store((ACT_TYPE *)dvi + n * D + i, rows->a1 * dv, D - i);
    }
  }
  da[0] = vsum(sum_v);
  da[1] = vsum(sum_vi);
}

static void ACT(fill_qkv)(struct plm_cpu_vector *vector)
{
  vector->qkv_forward = ACT(qkv_forward);
  vector->qkv_backward = ACT(qkv_backward);
}
