/* Products C_MN = A_MK B_KN in which the bits of a row of C depend only on that row of A and on B,
 * never on M or on the position of the row. Evaluation, embed and decoding therefore give a
 * sequence at the same place of its chunk the same result whatever else is in its batch.
 *
 * The libraries do not guarantee this. They choose kernels by M and N, and the kernels for the last
 * rows of a matrix may sum over K in a different order. Which shapes agree depends on the library,
 * its version and the instruction set, so it is tested: when a shape is used for the first time,
 * its product runs on copies of one row (the probe), which is chosen so that a different order of
 * summation changes the result. All products that differ only in M form a family. Its unit is a
 * number of rows whose product gives all copies the same bits. Products of other heights, and
 * products of only some of the columns, are used only if they give the same bits as the unit.
 */
#ifndef PLM_KERNELS_CPU_ROW_PRODUCT_H
#define PLM_KERNELS_CPU_ROW_PRODUCT_H

#include "kernels/cpu/product.h"

struct plm_row_products; /* all families of a backend */
struct plm_row_family;

/* `products` must outlive *rows. */
struct plm_row_products *plm_row_products_open(struct plm_products *products);
void plm_row_products_close(struct plm_row_products *rows); /* NULL is fine */

/* Returns the kept error, or PLM_OK. PLM_NO_MEMORY: there was no memory for a probe.
 * PLM_FAILURE: no height of a product can be prepared and gives repeatable bits. */
plm_status plm_row_products_error(const struct plm_row_products *rows, struct plm_error *error);

/* Returns the family of a shape, whose M is ignored. The rows of A and C must be contiguous
 * (lda = K, ldc = N, A not transposed). Returns NULL after an error, which plm_row_products_error
 * or plm_products_error reports. `rows` owns the family. Only the pool's caller may call this. */
struct plm_row_family *plm_row_family_get(struct plm_row_products *rows,
                                          const struct plm_product_shape *shape);

/* How a number of rows is computed: the runs in their order, each as often as it fits, and then
 * `last` for the remaining rows, padded with zeros if there are fewer than last.rows. */
struct plm_row_run {
  int64_t rows; /* 0: the run is not used */
  const struct plm_product *product;
};
struct plm_row_tiling {
  struct plm_product_shape shape; /* M = 0 */
  int64_t tile;                   /* rows of a call of plm_row_tiling_run */
  struct plm_row_run runs[4];
  struct plm_row_run last;
  const struct plm_product *turned; /* for whole tiles, by turned_B; NULL: runs[0] is used */
  const char *turned_B;             /* a copy of B as (K, N), which the caller sets */
};

/* Cuts `rows` rows into tiles of about `tile` rows, a multiple of the unit. Only the pool's caller
 * may call this, and plm_row_height and plm_row_strip. */
void plm_row_tiling_init(struct plm_row_tiling *tiling, struct plm_row_family *family, int64_t rows,
                         int64_t tile);

/* Lets whole tiles be multiplied by a transposed copy of B, which is faster, if B is stored as
 * (N, K) and the bits stay the same. Returns whether it does; then turned_B must be set. Only the
 * pool's caller may call this. */
bool plm_row_tiling_turn(struct plm_row_tiling *tiling, struct plm_row_family *family);

/* Bytes that plm_row_tiling_run needs for the padded rows of A and C. */
size_t plm_row_tiling_padding(const struct plm_row_tiling *tiling);

/* Computes `rows` rows on the pool's thread `thread`: either a whole tile, or the rows after the
 * last whole tile. Only the latter uses `padding` (plm_row_tiling_padding bytes). */
void plm_row_tiling_run(const struct plm_row_tiling *tiling, uint32_t thread, char *C,
                        const char *A, const char *B, int64_t rows, char *padding);

/* Height of the product to use for `rows` rows. The caller pads the rows that it lacks. */
int64_t plm_row_height(struct plm_row_family *family, int64_t rows);

/* The product of `height` rows by only the columns [first, first + columns) of B, into a dense C of
 * that width. If plm_row_strip_is_sliced, B must be a dense copy of those columns; otherwise it
 * points to the first of those columns within the whole B. Returns NULL if its bits differ from
 * those of the whole rows, or after an error. */
const struct plm_product *plm_row_strip(struct plm_row_family *family, int64_t height,
                                        int64_t first, int64_t columns);
bool plm_row_strip_is_sliced(const struct plm_product_shape *shape);

#endif
