/* A kernel with sm_90a's instructions (tiles brought by the copy engine, both kinds of products),
 * with and without faults, for the test that shows which faults the emulation finds. */
#ifndef PLM_TESTS_EMULATION_PLANTED_HOPPER_H
#define PLM_TESTS_EMULATION_PLANTED_HOPPER_H

#include <stdint.h>

#pragma GCC visibility push(default) /* test programs call these functions of a shared library */

/* Faults that every kernel for sm_90a has from now on, as if they were in its source. */
enum plm_planted_everywhere {
  PLM_EVERYWHERE_SOUND,
  PLM_EVERYWHERE_FULL_WAIT,    /* nobody waits for tiles */
  PLM_EVERYWHERE_EMPTY_WAIT,   /* nobody waits for stages to be free */
  PLM_EVERYWHERE_PRODUCT_WAIT, /* nobody waits for products */
  PLM_EVERYWHERE_TILE,         /* tiles begin 8 rows too far */
  PLM_EVERYWHERE_START,        /* descriptors of B begin 16 elements of the sum too far */
  PLM_EVERYWHERE_LEADING,      /* descriptors of a turned B have a wrong leading distance */
  PLM_EVERYWHERE_TURNED,       /* a turned B is not turned */
  /* these only show if a block takes a second work item, or if there is a second chunk */
  PLM_EVERYWHERE_TURN_FULL,  /* in a ring of one stage, the parity of tiles is never flipped … */
  PLM_EVERYWHERE_TURN_EMPTY, /* … nor that of the stage's release */
  PLM_EVERYWHERE_RING_FULL,  /* the same in rings of several stages … */
  PLM_EVERYWHERE_RING_EMPTY, /* … */
  PLM_EVERYWHERE_CARRIED,    /* accumulators are not cleared for a block's later work items */
  PLM_EVERYWHERE_CHUNK,      /* tiles of all chunks are those of the first */
  /* these only show where a worker's matrices are an operand of the other worker's product */
  PLM_EVERYWHERE_MATRICES, /* matrices are stored as they are, not transposed */
  PLM_EVERYWHERE_PUBLISH,  /* products do not see stored matrices: a fence is missing */
  PLM_EVERYWHERE_NAMED,    /* nobody waits at named barriers */
  PLM_EVERYWHERE_FAULTS
};
void plm_cuda_planted_everywhere(enum plm_planted_everywhere fault);

enum { PLM_PLANTED_SIDE = 64 };
enum plm_planted_hopper {
  PLM_PLANTED_SOUND,
  PLM_PLANTED_FULL_WAIT,     /* tiles are read before they have come */
  PLM_PLANTED_EARLY_RELEASE, /* tiles are freed while products read them */
  PLM_PLANTED_PRODUCT_WAIT,  /* accumulators are read before the wait */
  /* these end the process */
  PLM_PLANTED_FENCE,          /* no fence before products */
  PLM_PLANTED_OPERAND,        /* A's registers change under a product */
  PLM_PLANTED_ACCUMULATOR,    /* accumulators change under a product */
  PLM_PLANTED_TILE_ALIGNMENT, /* a tile begins within the swizzle */
  PLM_PLANTED_BYTES,          /* fewer bytes are announced than come, so nobody wakes */
  PLM_PLANTED_NAMED,          /* half of a named barrier's threads stay away */
  PLM_PLANTED_RANK,           /* a copy of a matrix from a map of four dimensions */
  PLM_PLANTED_HOPPER_FAULTS
};
/* a and b are (64, 64) in bf16. With a_1 = a, a_2 = the rows of a from 32 on followed by zeros, and
 * b_1, b_2 likewise: scores[t] = a_t b_t^T, and sums = the sum over t of bf16(scores[t]) b_t. */
void plm_cuda_planted_hopper_run(enum plm_planted_hopper fault, float *scores, float *sums,
                                 const uint16_t *a, const uint16_t *b);

#pragma GCC visibility pop

#endif
