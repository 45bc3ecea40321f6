/* Tests of mix_norm, the input of a block, against double precision, for all backends and for sizes
 * at the limits of CUDA kernels. */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_MIX_CASE_H
#define PLM_TESTS_SUPPORT_OPERATORS_MIX_CASE_H

#include "tests/support/operators/ops_case.h"

/* What is mixed, and which operands share a buffer, in the combinations that the model uses. */
enum mix_case_kind {
  MIX_ALONE,    /* no skip; dx has a separate buffer */
  MIX_IN_PLACE, /* dx is dmixed, as in all kinds below */
  MIX_MORE,     /* `more`, another gradient, is added to dx */
  MIX_SKIP,     /* with a skip; dskip is x */
  MIX_SKIP_AND_MORE,
  MIX_OWN_SKIP, /* x is also the skip, and `more` is dskip */
  MIX_KINDS
};

/* Checks forward and backward of seeded rows, for two kinds also with p as a table of rows;
 * gradients are added to dp, db and ds. */
void mix_case_run(struct ops_case *c, int64_t N, int64_t D, enum mix_case_kind kind);

#endif
