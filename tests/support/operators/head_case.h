/* Tests of the head's operators against double precision, for all backends and for sizes at the
 * limits of CUDA kernels. */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_HEAD_CASE_H
#define PLM_TESTS_SUPPORT_OPERATORS_HEAD_CASE_H

#include "tests/support/operators/ops_case.h"

struct head_case {
  int64_t N, D, V;
  double deviation; /* standard deviation of the input of GELU */
  struct plm_loss_options options;
  bool activated; /* plm_head_rows.activated */
};

/* Checks logits of seeded rows. */
void head_case_logits(struct ops_case *c, int64_t N, int64_t D, int64_t V);
/* Checks the loss of seeded logits of this deviation; every third row has weight 0. */
void head_case_loss(struct ops_case *c, int64_t N, int64_t V, const struct plm_loss_options *o,
                    double deviation);
/* Checks head_train: its losses must have the same bits as those of the separate operators, and it
 * must add to the gradients dw and dbias. */
void head_case_train(struct ops_case *c, const struct head_case *head);
#endif
