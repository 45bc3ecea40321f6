/* The arithmetic of int8 products for one instruction set; isa/int8.c has one or two kernels in
 * each object. Their int32 sums are exact and the steps before and after them are rounded in a
 * fixed order, so all kernels give the same bits.
 *
 * A row of activations x_I has the scale max |x| / 127 and is stored as integers by the rule of
 * common/ops/int8_matrix.h. A kernel stores it in words of 32 bits: two int16, or four uint8 with
 * 128 added to each, as its instruction multiplies them. */
#ifndef PLM_KERNELS_CPU_INT8_KERNEL_H
#define PLM_KERNELS_CPU_INT8_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ops/int8_matrix.h"

enum { PLM_INT8_PANELS_MOST = 2 }; /* that a kernel multiplies at a time */

/* y = (sums - totals) (scales row_scales) + bias + residual, each operation rounded, for a tile of
 * rows and at most 16 columns. Any of totals, bias and residual may be NULL; y may be residual. */
struct plm_int8_scaling {
  float *y;
  const float *residual; /* with the stride of y */
  int64_t stride;        /* floats between rows of y */
  const int32_t *sums;   /* (rows, 16) */
  const float *row_scales, *scales;
  const int32_t *totals;
  const float *bias;
  int64_t rows, columns;
};

struct plm_int8_kernel {
  const char *name; /* its instruction */
  int64_t in_word;  /* activations in a word: 2, or 4 with 128 added */
  /* Writes the padded row and returns its scale. */
  float (*quantise)(int32_t *words, const float *x, int64_t I);
  /* Rewrites a panel in words of two int16; NULL if in_word is 4. steps: words of a row. */
  void (*widen)(int32_t *words, const int8_t *panel, int64_t steps);
  int64_t panels; /* how many panels `multiply` takes at most */
  /* sums (panels, rows, 16) = rows of `steps` words times successive panels */
  void (*multiply)(int32_t *sums, const int32_t *a, int64_t rows, const void *panel, int64_t panels,
                   int64_t steps);
  void (*scale)(const struct plm_int8_scaling *scaling);
};

extern const struct plm_int8_kernel plm_int8_kernel_portable;
#if defined(__x86_64__)
extern const struct plm_int8_kernel plm_int8_kernel_avx2, plm_int8_kernel_avx_vnni,
    plm_int8_kernel_avx512_vnni;
#endif

#endif
