/* The weights of a product as int8, which ops->quantise_rows writes and ops->linear_int8_forward
 * reads (int8 by output channel, symmetric, as in Dettmers et al. 2022, LLM.int8(), section 2.1.1).
 *
 * Row o of w_OI has the scale s_o = max_i |w_oi| / 127, and w_oi is stored as q_oi, which is
 * w_oi (127 / max) rounded to an integer, ties to even. A row whose largest magnitude is below
 * 2^-100 is stored as zeros. A row with an infinity or a NaN has the scale NaN, so that nobody
 * takes its products for numbers.
 *
 * The layout of a matrix, with the padding that O and I need to be multiples of 16:
 *
 *   float   scales[O]           0 for a padded row
 *   int32_t totals[O]           128 times the sum of a row, for kernels that shift activations
 *   int8_t  panels[O / 16][I / 4][16][4]   of 16 rows each: 4 columns of a row are adjacent */
#ifndef PLM_COMMON_OPS_INT8_MATRIX_H
#define PLM_COMMON_OPS_INT8_MATRIX_H

#include <stddef.h>
#include <stdint.h>

/* INPUTS_MOST: a sum of so many products of activations (0 to 255, or -127 to 127) and weights
 * fits into an int32. */
enum { PLM_INT8_PANEL = 16, PLM_INT8_INPUTS_MOST = 66000 };

static inline int64_t plm_int8_padded(int64_t n)
{
  return (n + PLM_INT8_PANEL - 1) / PLM_INT8_PANEL * PLM_INT8_PANEL;
}

/* Bytes of a matrix of O rows and I columns. A matrix starts at a multiple of 64 bytes. */
static inline size_t plm_int8_matrix_bytes(int64_t O, int64_t I)
{
  return (size_t)plm_int8_padded(O) * (size_t)(plm_int8_padded(I) + 8);
}

/* What follows a product: y = after(x w^T + bias + residual). */
enum plm_int8_after { PLM_INT8_LINEAR, PLM_INT8_RELU2, PLM_INT8_GELU };

/* The parameters of a Linear (I, O). */
struct plm_int8_linear {
  const void *w;     /* a matrix of O rows and I columns */
  const float *bias; /* (O), or NULL */
  enum plm_int8_after after;
};

#endif
