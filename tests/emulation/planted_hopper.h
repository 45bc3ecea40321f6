/* A kernel of sm_90a's instructions with and without faults, for the test that shows which ones the
 * emulation finds: tiles brought by the copy engine, both kinds of products. */
#ifndef PLM_TESTS_EMULATION_PLANTED_HOPPER_H
#define PLM_TESTS_EMULATION_PLANTED_HOPPER_H

#include <stdint.h>

/* Faults in every kernel of sm_90a from now on, as if its source had them. */
enum plm_planted_everywhere {
  PLM_EVERYWHERE_SOUND,
  PLM_EVERYWHERE_FULL_WAIT,    /* nobody waits for tiles */
  PLM_EVERYWHERE_EMPTY_WAIT,   /* nor for places that they go to */
  PLM_EVERYWHERE_PRODUCT_WAIT, /* nor for products */
  PLM_EVERYWHERE_TILE,         /* tiles of the rows behind */
  PLM_EVERYWHERE_START,        /* descriptors of B begin 16 elements of the sum further */
  PLM_EVERYWHERE_LEADING,      /* those of a turned B have another distance of columns */
  PLM_EVERYWHERE_TURNED,       /* B is taken as it lies */
  PLM_EVERYWHERE_FAULTS
};
void plm_cuda_planted_everywhere(enum plm_planted_everywhere fault);

enum { PLM_PLANTED_SIDE = 64 };
enum plm_planted_hopper {
  PLM_PLANTED_SOUND,
  PLM_PLANTED_FULL_WAIT,     /* tiles are read before they came */
  PLM_PLANTED_EARLY_RELEASE, /* tiles are freed while products read them */
  PLM_PLANTED_PRODUCT_WAIT,  /* accumulators are read before the wait */
  /* and those that end the process */
  PLM_PLANTED_FENCE,          /* none before products */
  PLM_PLANTED_OPERAND,        /* A's registers change under a product */
  PLM_PLANTED_ACCUMULATOR,    /* accumulators change under a product */
  PLM_PLANTED_TILE_ALIGNMENT, /* a tile begins within the swizzle */
  PLM_PLANTED_BYTES,          /* fewer are announced than come: nobody wakes */
  PLM_PLANTED_NAMED,          /* half of a named barrier's threads stay away */
  PLM_PLANTED_RANK,           /* a copy of a matrix from a map of four dimensions */
  PLM_PLANTED_HOPPER_FAULTS
};
/* a, b (64, 64) bf16. With a_1 = a, and a_2 its rows from 32 on with zeros below them, so b:
 * scores[t] = a_t b_t^T; sums = sum over t of scores[t], rounded to bf16, b_t. */
void plm_cuda_planted_hopper_run(enum plm_planted_hopper fault, float *scores, float *sums,
                                 const uint16_t *a, const uint16_t *b);

#endif
