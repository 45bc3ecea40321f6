/* The products of attention_product.h on pairs of bf16, summed in fp32. A word of A or B holds two
 * elements that are neighbours in depth, and depth counts pairs. Only isa/attention_tile.c includes
 * this file; its functions are called only if the processor has avx512_bf16.
 *
 * S and dP sum along the head width, where neighbours are adjacent in the activations already. The
 * other products sum along keys (O, dQ) or queries (dV, dK). For these, the rows of V, K, Q and dO
 * are interleaved in pairs, and P and dS are rounded to bf16, as is usual in bf16 FlashAttention,
 * with two keys or two queries in a word.
 */
#ifndef PLM_KERNELS_CPU_ISA_ATTENTION_PAIRS_H
#define PLM_KERNELS_CPU_ISA_ATTENTION_PAIRS_H

#include "kernels/cpu/isa/attention_product.h"

#if defined(PLM_ISA_avx512)
FORCE_INLINE void pairs_block(const struct product *p, const float *a, const float *b, float *c,
                              const float *factor, const int rows, const int vectors)
{
  vfloat acc[12][4];
  const int64_t a_row = p->a_row, a_depth = p->a_depth, b_stride = p->b_stride;
  block_begin(acc, rows, vectors);
  for (int k = p->depth; k > 0; k--) {
    __m512i row[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) row[v] = _mm512_loadu_si512(b + v * LANES);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
      int32_t pair;
      memcpy(&pair, a + r * a_row, sizeof pair);
      const __m512i broadcast = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++)
        acc[r][v] =
            (vfloat)_mm512_dpbf16_ps((__m512)acc[r][v], (__m512bh)broadcast, (__m512bh)row[v]);
    }
    a += a_depth;
    b += b_stride;
  }
  block_end(p, acc, c, factor, rows, vectors);
}

PANEL(pairs, 1, ROWS_1)
PANEL(pairs, 2, ROWS_2)
PANEL(pairs, 3, ROWS_3)
PANEL(pairs, 4, ROWS_4)

/* Computes `rows` rows and `vectors` vectors of C. */
static void product_run_pairs(const struct product *p, int rows, int vectors)
{
  static const struct product_panels of = {
      .panels = {NULL, pairs_panel_1, pairs_panel_2, pairs_panel_3, pairs_panel_4}};
  run_panels(&of, p, rows, vectors);
}

/* Rounds both to bf16, with `even` in the lower half of the result and `odd` in the upper half. */
FORCE_INLINE __m512i to_bf16_two(vfloat even, vfloat odd)
{
  return (__m512i)_mm512_cvtne2ps_pbh(odd, even);
}

/* Forms pairs from one element of the lower half and one of the upper half. */
FORCE_INLINE vfloat interleave(__m512i halves)
{
  typedef uint16_t vwords __attribute__((vector_size(64)));
  const vwords order = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return (vfloat)_mm512_permutexvar_epi16((__m512i)order, halves);
}

/* Stores the lower half to the row `even` and the upper half to the row `odd`. */
FORCE_INLINE void store_two(float *even, float *odd, __m512i halves)
{
  _mm256_storeu_si256((__m256i *)(void *)even, _mm512_castsi512_si256(halves));
  _mm256_storeu_si256((__m256i *)(void *)odd, _mm512_extracti64x4_epi64(halves, 1));
}

/* Interleaves rows 2i and 2i + 1 of `depth` activations into row i of `width` pairs. Missing
 * elements are 0. */
static void interleave_rows(float *out, const void *in, int64_t first, int count, int64_t stride,
                            int depth, int width, bool is_bf16)
{
  for (int r = 0; r < count; r += 2)
    for (int d = 0; d < width; d += LANES) {
      const int64_t at = (first + r) * stride + d;
      const int elements = depth - d < LANES ? depth - d : LANES;
      const vfloat even = load_act(in, at, elements, is_bf16);
      vfloat odd = {0};
      if (r + 1 < count) odd = load_act(in, at + stride, elements, is_bf16);
      const vfloat pairs =
          is_bf16 ? (vfloat)((vuint)even >> 16 | (vuint)odd) : interleave(to_bf16_two(even, odd));
      store(out + (int64_t)(r / 2) * width + d, pairs);
    }
}
#endif

#endif
