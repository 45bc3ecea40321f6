/* Operands that show in which order a product sums, for row_product.c. */
#ifndef PLM_KERNELS_CPU_ROW_PROBE_H
#define PLM_KERNELS_CPU_ROW_PROBE_H

#include "kernels/cpu/product.h"

/* Pseudorandom elements that probes are filled from. All zero at first. */
struct plm_probe_ring {
  char *elements;
  int64_t bytes;  /* of an element; 0 if there is none yet */
  uint64_t state; /* of the generator after the elements */
};
void plm_probe_ring_free(struct plm_probe_ring *ring);

struct plm_probe {
  char *A, *B, *C;
  char *start; /* the row of C before a product that adds to it */
};

/* Makes a probe with `rows` copies of a row in A, all columns of B, and space for C. The row of A
 * and B depend only on the shape. Returns false if there is no memory. */
bool plm_probe_make(struct plm_probe *probe, struct plm_probe_ring *ring,
                    const struct plm_product_shape *shape, int64_t rows);
void plm_probe_free(struct plm_probe *probe);

/* Reduces B in place to the columns [first, first + columns): to a dense matrix if `dense`,
 * otherwise they keep their distances. */
void plm_probe_slice(struct plm_probe *probe, const struct plm_product_shape *shape, int64_t first,
                     int64_t columns, bool dense);

/* Replaces B, stored as (N, K) floats, by its transpose. Returns false if there is no memory. */
bool plm_probe_turn(struct plm_probe *probe, const struct plm_product_shape *shape);

#endif
