/* The head's operators against double precision: what their tests on all backends and at the CUDA
 * kernels' edges share. */
#ifndef PLM_TESTS_SUPPORT_HEAD_CASE_H
#define PLM_TESTS_SUPPORT_HEAD_CASE_H

#include "tests/support/ops_case.h"

struct head_case {
  int64_t N, D, V;
  double deviation; /* of what comes before GELU */
  struct plm_loss_options options;
};

/* Logits of seeded rows. */
void head_case_logits(struct ops_case *c, int64_t N, int64_t D, int64_t V);
/* The loss of seeded logits of this deviation; every third row counts for nothing. */
void head_case_loss(struct ops_case *c, int64_t N, int64_t V, const struct plm_loss_options *o,
                    double deviation);
/* head_train: its losses have the bits of the operators one by one; gradients, which are added. */
void head_case_train(struct ops_case *c, const struct head_case *head);
#endif
