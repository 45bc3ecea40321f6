/* The products of attention_pairs.h in AMX tiles: one instruction multiplies 16 rows by 16 columns
 * along 16 pairs of bf16 and sums in fp32. Only isa/attention_tile.c includes this file; its
 * functions are called only if the processor has PLM_PROCESSOR_AMX.
 *
 * The rows of pairs of B can be loaded into a tile as they are, and so can those of A if the pairs
 * of a row are adjacent (S, dP, dV, dK). If A is transposed scores (O, dQ), it is turned first.
 * Tiles are configured for exactly the rows and the depth of the product, so nothing beyond them is
 * read: memory there may hold NaN.
 *
 * Use of the tiles; the last words and rows are those beyond a multiple of 16 in depth:
 *   0, 1  C
 *   2     A
 *   3     the last words of A
 *   4, 5  B
 *   6, 7  the last rows of B
 */
#ifndef PLM_KERNELS_CPU_ISA_ATTENTION_AMX_H
#define PLM_KERNELS_CPU_ISA_ATTENTION_AMX_H

#include "kernels/cpu/isa/attention_pack.h"

#if defined(PLM_ISA_avx512)
enum {
  AMX_SIDE = 16,                           /* rows of a tile, and 32-bit words in a row */
  AMX_TURNED = (BLOCK / 2 + 15) / 16 * 16, /* words in a turned row: pairs of keys of a block */
};

/* Written in assembly because GCC 12's intrinsics do not declare that they access memory. */
#define AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define AMX_LOAD(tile, from, stride) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"((stride)*4) : "memory")
#define AMX_STORE(to, stride, tile) \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((stride)*4) : "memory")
#define AMX_MULTIPLY(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

struct amx_shapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

/* The configuration of this thread's tiles as rows * 32 + last, or 0 if there is none. */
static _Thread_local int amx_configured;

/* Configures the tiles for blocks of `rows` rows whose depth leaves `last` words (0..15) beyond
 * whole tiles. If `last` is 0, tiles 3, 6 and 7 are not used and keep any configuration, so that
 * the products of a block can share one. */
static void amx_configure(int rows, int last)
{
  if (amx_configured / 32 == rows && (last == 0 || amx_configured % 32 == last)) return;
  if (last == 0) last = AMX_SIDE;
  struct amx_shapes shapes = {.palette = 1};
  for (int tile = 0; tile < 8; tile++) {
    shapes.rows[tile] = (uint8_t)(tile < 4 ? rows : tile < 6 ? AMX_SIDE : last);
    shapes.row_bytes[tile] = (uint16_t)(4 * (tile == 3 ? last : AMX_SIDE));
  }
  __asm__ volatile("ldtilecfg %0" ::"m"(shapes));
  amx_configured = rows * 32 + last;
}

/* Releases the tiles, because tiles in use have to be saved at every switch of threads. */
static void amx_release(void)
{
  __asm__ volatile("tilerelease" ::);
  amx_configured = 0;
}

/* C = A B, or C += A B unless the mode is PRODUCT_SET, for one block of rows and one vector or two
 * of B and C, starting at vector `at`. Rows of A are a_row words apart. */
FORCE_INLINE void amx_block(const struct product *p, const float *a, int64_t a_row, float *c_rows,
                            int at, const bool two)
{
  const int64_t b_stride = p->b_stride, c_stride = p->c_stride;
  const float *b = p->b + at * LANES;
  float *c = c_rows + at * LANES;
  int depth = p->depth;
  if (p->mode != PRODUCT_SET) {
    AMX_LOAD(0, c, c_stride);
    if (two) AMX_LOAD(1, c + LANES, c_stride);
  } else {
    AMX_ZERO(0);
    if (two) AMX_ZERO(1);
  }
  for (; depth >= AMX_SIDE; depth -= AMX_SIDE, a += AMX_SIDE, b += AMX_SIDE * b_stride) {
    AMX_LOAD(2, a, a_row);
    AMX_LOAD(4, b, b_stride);
    AMX_MULTIPLY(0, 2, 4);
    if (!two) continue;
    AMX_LOAD(5, b + LANES, b_stride);
    AMX_MULTIPLY(1, 2, 5);
  }
  if (depth > 0) {
    AMX_LOAD(3, a, a_row);
    AMX_LOAD(6, b, b_stride);
    AMX_MULTIPLY(0, 3, 6);
    if (two) {
      AMX_LOAD(7, b + LANES, b_stride);
      AMX_MULTIPLY(1, 3, 7);
    }
  }
  AMX_STORE(c, c_stride, 0);
  if (two) AMX_STORE(c + LANES, c_stride, 1);
}

/* Transposes 16 columns of `depth` words into rows that are AMX_TURNED words apart. */
static void amx_turn(float *out, const float *columns, int64_t stride, int depth)
{
  for (int k = 0; k < depth; k += AMX_SIDE) {
    vfloat square[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
      square[i] = k + i < depth ? load(columns + (k + i) * stride) : (vfloat){0};
    transpose_square(square);
    for (int i = 0; i < LANES; i++) store(out + i * AMX_TURNED + k, square[i]);
  }
}

/* Computes `rows` rows and `vectors` vectors of C. Either the rows or the columns of A are
 * contiguous. */
static void product_run_amx(const struct product *p, int rows, int vectors)
{
  float turned[AMX_SIDE * AMX_TURNED] __attribute__((aligned(64)));
  const int last = p->depth % AMX_SIDE;
  for (int r = 0; r < rows; r += AMX_SIDE) {
    const int count = rows - r < AMX_SIDE ? rows - r : AMX_SIDE;
    const float *a = p->a + r * p->a_row;
    float *c = p->c + r * p->c_stride;
    int64_t a_row = p->a_row;
    if (p->a_depth != 1) {
      amx_turn(turned, a, p->a_depth, p->depth);
      a = turned;
      a_row = AMX_TURNED;
    }
    if (p->mode == PRODUCT_SCALE)
      for (int i = 0; i < count; i++)
        for (int v = 0; v < vectors; v++) {
          float *at = c + i * p->c_stride + v * LANES;
          store(at, p->factor[r + i] * load(at));
        }
    amx_configure(count, last);
    int v = 0;
    for (; v + 2 <= vectors; v += 2) amx_block(p, a, a_row, c, v, true);
    if (v < vectors) amx_block(p, a, a_row, c, v, false);
  }
}
#endif

#endif
