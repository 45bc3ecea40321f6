/* Tests of mix_norm, the input of a block, against double precision, for all backends and for sizes
 * at the limits of CUDA kernels. */
#ifndef PLM_TESTS_SUPPORT_MIX_CASE_H
#define PLM_TESTS_SUPPORT_MIX_CASE_H

#include "tests/support/ops_case.h"

/* What is mixed and which buffers are the same, as in the model. */
enum mix_case_kind {
  MIX_ALONE,    /* no skip; dx is its own buffer */
  MIX_IN_PLACE, /* dx is dmixed, here and in all below */
  MIX_MORE,     /* with another part of the output's gradient */
  MIX_SKIP,     /* with a skip; dskip is x */
  MIX_SKIP_AND_MORE,
  MIX_OWN_SKIP, /* x is the skip, and the other part is the skip's gradient */
  MIX_KINDS
};

/* Checks forward and backward of seeded rows; gradients are added to dp, db and ds. */
void mix_case_run(struct ops_case *c, int64_t N, int64_t D, enum mix_case_kind kind);

#endif
