/* `plm-pipeline evaluate`: one checkpoint on one split of a corpus, without a run. */
#ifndef PLM_EVALUATOR_EVALUATE_EVALUATE_ONCE_H
#define PLM_EVALUATOR_EVALUATE_EVALUATE_ONCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"

struct plm_evaluate_request {
  const char *checkpoint, *corpus;
  const char *split;  /* "train", "valid" or "test" */
  const char *labels; /* columns of labels, separated by commas, of a model that predicts labels;
                         NULL: those that fit it */
  double mask_rate;
  uint64_t max_tokens; /* 0: the whole split */
  uint32_t max_length; /* a power of two: longer documents are cut; 0: the model's max_length */
  uint64_t seed;
  uint32_t elbo_rates; /* these as in struct plm_evaluation_options */
  bool pseudo_perplexity, pseudo_perplexity_fast;
  double random_fraction, keep_fraction;
  uint32_t alignment; /* of documents in a chunk, tokens; 0: what the model needs */
  bool json;          /* print one JSON object on one line instead of a table */
};

/* Prints the result to stdout. PLM_CONFIG: the corpus has another tokenizer than the model, or no
 * documents in the split. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. */
plm_status plm_evaluate_once(const struct plm_evaluate_request *request, struct plm_ops *ops,
                             struct plm_error *error);

#endif
