/* `plm-pipeline evaluate`: one checkpoint, one corpus, no run. */
#ifndef PLM_EVALUATOR_EVALUATE_EVALUATE_ONCE_H
#define PLM_EVALUATOR_EVALUATE_EVALUATE_ONCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"

struct plm_evaluate_request {
  const char *checkpoint, *corpus;
  const char *split; /* "valid" */
  double mask_rate;
  uint64_t max_tokens; /* 0: the whole split */
  uint64_t seed;
  uint32_t alignment; /* 0: the model's own */
  bool json;          /* one object on one line, else a table for people */
};

/* Prints the result to stdout. */
plm_status plm_evaluate_once(const struct plm_evaluate_request *request, struct plm_ops *ops,
                             struct plm_error *error);

#endif
