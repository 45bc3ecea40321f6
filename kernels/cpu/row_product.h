/* Products C_MN = A_MK B_KN in which the bits of a row of C depend only on that row of A and on B,
 * never on M or on the row's place: evaluation, embed and decoding give a sequence the same result
 * whatever shares its batch.
 *
 * The libraries promise no such thing. They choose kernels by M and N, and the kernels of a
 * matrix's last rows may add up K in another order. Which shapes agree differs between libraries,
 * their versions and instruction sets, so it is found out: when a shape is met for the first time,
 * its product is run on copies of one row (the probe), chosen so that any other order of summation
 * shows in the result. A family of products (all that differ only in M) has a unit, a number of
 * rows whose product gives all copies the same bits; products of other heights, and of some of the
 * columns, are used only if they give those bits, too.
 */
#ifndef PLM_KERNELS_CPU_ROW_PRODUCT_H
#define PLM_KERNELS_CPU_ROW_PRODUCT_H

#include "kernels/cpu/product.h"

struct plm_row_products; /* all families of a backend */
struct plm_row_family;

/* `products` must outlive it. */
plm_status plm_row_products_open(struct plm_products *products, struct plm_row_products **rows,
                                 struct plm_error *error);
void plm_row_products_close(struct plm_row_products *rows); /* NULL is fine */

/* PLM_OK unless a probe found no memory; the product was then skipped. */
plm_status plm_row_products_error(const struct plm_row_products *rows, struct plm_error *error);

/* The family of a shape, whose M is ignored; A's and C's rows must be contiguous (lda = K, ldc = N,
 * A not transposed). NULL after an error, which plm_row_products_error or plm_products_error
 * reports. Called by the pool's caller, as plm_products_get. */
struct plm_row_family *plm_row_family_get(struct plm_row_products *rows,
                                          const struct plm_product_shape *shape);

/* How a number of rows is computed: each run as often as it fits, in their order, and the rows
 * that are then left, padded with zeros. */
struct plm_row_run {
  int64_t rows; /* 0: no such run */
  const struct plm_product *product;
};
struct plm_row_plan {
  struct plm_product_shape shape; /* M = 0 */
  int64_t tile;                   /* rows that are computed together */
  struct plm_row_run runs[4];
  struct plm_row_run last;
};

/* Plans `rows` rows in tiles of about `tile`. */
void plm_row_plan_init(struct plm_row_plan *plan, struct plm_row_family *family, int64_t rows,
                       int64_t tile);

/* Bytes that plm_row_plan_run needs for the padded rows. */
size_t plm_row_plan_padding(const struct plm_row_plan *plan);

/* Computes `rows` rows on the pool's thread `thread`: a tile or the rows after the last whole tile.
 * Only the call with the last rows uses `padding`. */
void plm_row_plan_run(const struct plm_row_plan *plan, uint32_t thread, char *C, const char *A,
                      const char *B, int64_t rows, char *padding);

/* Rows that a product of at least `rows` of them needs; the others must be padding. */
int64_t plm_row_height(struct plm_row_family *family, int64_t rows);

/* The product of `height` rows by the columns [first, first + columns) of B alone, into a dense C
 * of that width. sliced: B must be a dense copy of those columns; otherwise it lies as in the
 * whole. NULL if its bits differ from those of the whole rows. */
const struct plm_product *plm_row_piece(struct plm_row_family *family, int64_t height,
                                        int64_t first, int64_t columns);
bool plm_row_piece_is_sliced(const struct plm_product_shape *shape); /* sliced */

#endif
