/* Small matrix products for attention, C = A B, blocked in registers. Elements of A are broadcast,
 * so A may lie in rows or in columns; B and C are read and written by rows. Only
 * isa/attention_tile.c includes this file.
 *
 * All products of attention have this form, so no scores need to be copied:
 *   S^T = K Q^T, dP^T = V dO^T  broadcast K and V
 *   O = P V, dQ = dS K          broadcast a column of the scores, which are stored key-major, so
 *                               that the rows of a block are adjacent
 *   dV = P^T dO, dK = dS^T Q    broadcast a row of the scores
 */
#ifndef PLM_KERNELS_CPU_ISA_ATTENTION_PRODUCT_H
#define PLM_KERNELS_CPU_ISA_ATTENTION_PRODUCT_H

#include "kernels/cpu/isa/attention_vector.h"

/* Sizes of the accumulator: ROWS_n rows of n vectors are kept in registers, which leaves registers
 * for a row of B and a broadcast element. */
#if defined(PLM_ISA_avx512) || defined(__aarch64__)
enum { MAX_VECTORS = 4 };
#define ROWS_1 12
#define ROWS_2 12
#define ROWS_3 8
#define ROWS_4 6
#define ROWS_NARROW 8
#else
enum { MAX_VECTORS = 3 };
#define ROWS_1 8
#define ROWS_2 6
#define ROWS_3 4
#endif

enum product_mode {
  PRODUCT_SET,  /* C = A B */
  PRODUCT_ADD,  /* C += A B */
  PRODUCT_SCALE /* C = factor[row] C + A B */
};

struct product {
  const float *a; /* element (row, k) is at row * a_row + k * a_depth, and one of the two is 1 */
  int64_t a_row, a_depth;
  const float *b; /* row k is at k * b_stride */
  int64_t b_stride;
  float *c; /* row r is at r * c_stride */
  int64_t c_stride;
  int depth;
  enum product_mode mode;
  const float *factor; /* one for each row, for PRODUCT_SCALE */
  bool half;           /* C has nothing in the upper half of its last vector */
  bool narrow;         /* a vector costs as much as its two halves */
};

/* The start and the end of a block of C, for any type of elements of A and B. After inlining, rows
 * and vectors are constants, so that acc is kept in registers. */
FORCE_INLINE void block_begin(vfloat (*acc)[4], const int rows, const int vectors)
{
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) acc[r][v] = (vfloat){0};
}

FORCE_INLINE void block_end(const struct product *p, vfloat (*acc)[4], float *c,
                            const float *factor, const int rows, const int vectors)
{
  const int64_t c_stride = p->c_stride;
  if (p->mode == PRODUCT_SET) {
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) store(c + r * c_stride + v * LANES, acc[r][v]);
    return;
  }
  const bool scales = p->mode == PRODUCT_SCALE;
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++) {
    const vfloat scale = scales ? splat(factor[r]) : splat(1);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      float *to = c + r * c_stride + v * LANES;
      store(to, scale * load(to) + acc[r][v]);
    }
  }
}

/* Adds A B to acc. If a_row or a_depth is a constant, each step needs fewer addresses. */
FORCE_INLINE void product_steps(const struct product *p, vfloat (*acc)[4], const float *a,
                                const float *b, const int64_t a_row, const int64_t a_depth,
                                const int rows, const int vectors)
{
#pragma GCC unroll 4
  for (int k = 0; k < p->depth; k++) {
    vfloat row[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) row[v] = load(b + v * LANES);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
      const vfloat broadcast = splat(a[r * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) acc[r][v] += broadcast * row[v];
    }
    a += a_depth;
    b += p->b_stride;
  }
}

FORCE_INLINE void product_block(const struct product *p, const float *a, const float *b, float *c,
                                const float *factor, const int rows, const int vectors)
{
  vfloat acc[12][4];
  block_begin(acc, rows, vectors);
  if (p->a_depth == 1)
    product_steps(p, acc, a, b, p->a_row, 1, rows, vectors);
  else
    product_steps(p, acc, a, b, 1, p->a_depth, rows, vectors);
  block_end(p, acc, c, factor, rows, vectors);
}

/* Defines NAME_panel_VECTORS, which computes all rows of a panel of VECTORS vectors. It calls
 * NAME_block for as many rows at a time as registers hold, and for fewer at the end. */
#define PANEL(NAME, VECTORS, ROWS)                                                                 \
  static __attribute__((noinline)) void NAME##_panel_##VECTORS(const struct product *p,            \
                                                               const float *b, float *c, int rows) \
  {                                                                                                \
    const struct product local = *p; /* the stores of C do not change it */                        \
    int r = 0;                                                                                     \
    for (; r + ROWS <= rows; r += ROWS)                                                            \
      NAME##_block(&local, p->a + r * p->a_row, b, c + r * p->c_stride, p->factor + r, ROWS,       \
                   VECTORS);                                                                       \
    for (; r + 4 <= rows; r += 4)                                                                  \
      NAME##_block(&local, p->a + r * p->a_row, b, c + r * p->c_stride, p->factor + r, 4,          \
                   VECTORS);                                                                       \
    for (; r + 2 <= rows; r += 2)                                                                  \
      NAME##_block(&local, p->a + r * p->a_row, b, c + r * p->c_stride, p->factor + r, 2,          \
                   VECTORS);                                                                       \
    for (; r < rows; r++)                                                                          \
      NAME##_block(&local, p->a + r * p->a_row, b, c + r * p->c_stride, p->factor + r, 1,          \
                   VECTORS);                                                                       \
  }

PANEL(product, 1, ROWS_1)
PANEL(product, 2, ROWS_2)
PANEL(product, 3, ROWS_3)
#if defined(PLM_ISA_avx512) || defined(__aarch64__)
PANEL(product, 4, ROWS_4)
#endif

/* Computes one panel, which starts at `b` and `c`. */
typedef void product_panel(const struct product *p, const float *b, float *c, int rows);

/* panels[n], 1 <= n <= MAX_VECTORS, computes n vectors, and halves[n] all but the upper half of the
 * last of them. */
struct product_panels {
  product_panel *panels[MAX_VECTORS + 1], *halves[MAX_VECTORS + 1];
  product_panel *narrow; /* the same as halves[2], by vectors of half the size; may be NULL */
};

/* Computes `rows` rows and `vectors` vectors of C. */
static void run_panels(const struct product_panels *of, const struct product *p, int rows,
                       int vectors)
{
  for (int v = 0; v < vectors;) {
    int width = vectors - v;
    if (width > MAX_VECTORS) {
      /* two panels of half the width are faster than a wide one and a single vector */
      width = width == MAX_VECTORS + 1 ? (width + 1) / 2 : MAX_VECTORS;
    }
    const bool half = p->half && v + width == vectors;
    product_panel *panel = half ? of->halves[width] : of->panels[width];
    if (half && width == 2 && p->narrow) panel = of->narrow;
    panel(p, p->b + v * LANES, p->c + v * LANES, rows);
    v += width;
  }
}

#if defined(PLM_ISA_avx512)
/* ---- all but the upper half of the last vector, for heads of 24, 40, 56, ... ---- */
typedef float vhalf __attribute__((vector_size(LANES * 2)));
typedef float vhalf_unaligned __attribute__((vector_size(LANES * 2), aligned(4), may_alias));

FORCE_INLINE vhalf load_half(const float *p)
{
  return *(const vhalf_unaligned *)p;
}

struct half_sums {
  vfloat acc[12][4];
  vhalf last[12];
};

FORCE_INLINE void half_steps(const struct product *p, struct half_sums *sums, const float *a,
                             const float *b, const int64_t a_row, const int64_t a_depth,
                             const int rows, const int whole)
{
#pragma GCC unroll 4
  for (int k = 0; k < p->depth; k++) {
    vfloat row[4];
#pragma GCC unroll 4
    for (int v = 0; v < whole; v++) row[v] = load(b + v * LANES);
    const vhalf row_last = load_half(b + whole * LANES);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
      const vfloat broadcast = splat(a[r * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < whole; v++) sums->acc[r][v] += broadcast * row[v];
      sums->last[r] += (vhalf)_mm512_castps512_ps256((__m512)broadcast) * row_last;
    }
    a += a_depth;
    b += p->b_stride;
  }
}

FORCE_INLINE void half_block(const struct product *p, const float *a, const float *b, float *c,
                             const float *factor, const int rows, const int vectors)
{
  const int whole = vectors - 1;
  struct half_sums sums;
  block_begin(sums.acc, rows, whole);
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++) sums.last[r] = (vhalf){0};
  if (p->a_depth == 1)
    half_steps(p, &sums, a, b, p->a_row, 1, rows, whole);
  else
    half_steps(p, &sums, a, b, 1, p->a_depth, rows, whole);
  block_end(p, sums.acc, c, factor, rows, whole);
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++) {
    float *to = c + r * p->c_stride + whole * LANES;
    const float scale = p->mode == PRODUCT_SCALE ? factor[r] : 1.0f;
    if (p->mode != PRODUCT_SET) sums.last[r] += scale * load_half(to);
    *(vhalf_unaligned *)to = sums.last[r];
  }
}

PANEL(half, 2, ROWS_2)
PANEL(half, 3, ROWS_3)
PANEL(half, 4, ROWS_4)

/* The same for one and a half vectors, as three halves. Each element has the same operations in the
 * same order, so the bits are the same. On Zen 4, mixing both sizes costs 8 % (one core, in the L1
 * cache: 101 and 110 GFLOP/s). */
FORCE_INLINE void narrow_steps(const struct product *p, vhalf (*acc)[3], const float *a,
                               const float *b, const int64_t a_row, const int64_t a_depth,
                               const int rows)
{
#pragma GCC unroll 4
  for (int k = 0; k < p->depth; k++) {
    vhalf row[3];
#pragma GCC unroll 3
    for (int v = 0; v < 3; v++) row[v] = load_half(b + v * LANES / 2);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      const vhalf broadcast = a[r * a_row] - (vhalf){0};
#pragma GCC unroll 3
      for (int v = 0; v < 3; v++) acc[r][v] += broadcast * row[v];
    }
    a += a_depth;
    b += p->b_stride;
  }
}

FORCE_INLINE void narrow_block(const struct product *p, const float *a, const float *b, float *c,
                               const float *factor, const int rows, const int vectors)
{
  (void)vectors;
  vhalf acc[ROWS_NARROW][3];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
    for (int v = 0; v < 3; v++) acc[r][v] = (vhalf){0};
  if (p->a_depth == 1)
    narrow_steps(p, acc, a, b, p->a_row, 1, rows);
  else
    narrow_steps(p, acc, a, b, 1, p->a_depth, rows);
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
    const float scale = p->mode == PRODUCT_SCALE ? factor[r] : 1.0f;
#pragma GCC unroll 3
    for (int v = 0; v < 3; v++) {
      float *to = c + r * p->c_stride + v * LANES / 2;
      if (p->mode != PRODUCT_SET) acc[r][v] += scale * load_half(to);
      *(vhalf_unaligned *)to = acc[r][v];
    }
  }
}

PANEL(narrow, 2, ROWS_NARROW)
#endif

static void product_run(const struct product *p, int rows, int vectors)
{
  static const struct product_panels of = {
#if defined(PLM_ISA_avx512)
    .halves = {NULL, NULL, half_panel_2, half_panel_3, half_panel_4}, /* heads are wider than 8 */
    .narrow = narrow_panel_2,
#endif
#if defined(PLM_ISA_avx512) || defined(__aarch64__)
    .panels = {NULL, product_panel_1, product_panel_2, product_panel_3, product_panel_4}
#else
    .panels = {NULL, product_panel_1, product_panel_2, product_panel_3}
#endif
  };
  run_panels(&of, p, rows, vectors);
}

#endif
