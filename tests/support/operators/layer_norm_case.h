/* Tests of LayerNorm, also of q and k, against double precision, for all backends. */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_LAYER_NORM_CASE_H
#define PLM_TESTS_SUPPORT_OPERATORS_LAYER_NORM_CASE_H

#include "tests/support/operators/ops_case.h"

struct layer_norm_case {
  int64_t N, D;
  double mean; /* of the elements; their deviation is 1 */
  bool bias;
};

/* Checks LayerNorm of seeded rows, forward, also in place, and backward. */
void layer_norm_case_run(struct ops_case *c, const struct layer_norm_case *layer);

struct layer_norm_qkv {
  int64_t B, L, H, K;
  enum plm_qk_norm norm;
  bool mix; /* with value embeddings */
};

/* Checks the preparation of q, k and v forward, and backward in place. */
void layer_norm_case_qkv(struct ops_case *c, const struct layer_norm_qkv *of);

#endif
