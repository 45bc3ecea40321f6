/* The block's input against double precision: what the tests of mix_norm on all backends and at the
 * CUDA kernels' edges share. */
#ifndef PLM_TESTS_SUPPORT_MIX_CASE_H
#define PLM_TESTS_SUPPORT_MIX_CASE_H

#include "tests/support/ops_case.h"

/* What joins, and which memory is the same, as the model has it. */
enum mix_case_kind {
  MIX_ALONE,    /* no skip; dx apart */
  MIX_IN_PLACE, /* dx is dmixed, as in all that follow */
  MIX_MORE,     /* with more of the output's gradient */
  MIX_SKIP,     /* with a skip; dskip is x */
  MIX_SKIP_AND_MORE,
  MIX_OWN_SKIP, /* x is the skip, and more what the skip's gradient is */
  MIX_KINDS
};

/* Forward and backward of seeded rows; dp, db and ds are added to. */
void mix_case_run(struct ops_case *c, int64_t N, int64_t D, enum mix_case_kind kind);

#endif
