/* One evaluation: a checkpoint's model over a set of chunks, into one line of metrics. */
#ifndef PLM_EVALUATOR_EVALUATE_EVALUATE_H
#define PLM_EVALUATOR_EVALUATE_EVALUATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/corpus/corpus.h"
#include "common/corpus/tokenizer.h"
#include "common/model/model.h"
#include "common/ops/ops.h"
#include "evaluator/evaluate/confusion_matrix.h"

/* Where chunks come from: the feed of a run, or a corpus opened directly (one-shot). */
struct plm_chunk_source {
  void *context;
  /* Starts the set of a split from its beginning; *chunks is how many there are (0: empty). */
  plm_status (*begin)(void *context, enum plm_split split, uint64_t *chunks,
                      struct plm_error *error);
  /* The next count chunks, valid until release. */
  plm_status (*next)(void *context, uint32_t count, struct plm_batch *batch,
                     struct plm_error *error);
  void (*release)(void *context, struct plm_batch *batch);
};

struct plm_evaluation_options {
  double mask_rate;
  const double *more_rates; /* for loss_by_mask_rate, beside mask_rate */
  uint32_t more_rate_count;
  uint64_t seed;
};

/* The machinery that is kept between checkpoints of one configuration: operators, model, masks and
 * buffers. */
struct plm_evaluation;
/* Opens for the checkpoint folder: its config.json decides the model; ops is borrowed. */
plm_status plm_evaluation_open(const char *checkpoint, struct plm_ops *ops,
                               struct plm_evaluation **evaluation, struct plm_error *error);
void plm_evaluation_close(struct plm_evaluation *evaluation);
const struct plm_model_config *plm_evaluation_model(const struct plm_evaluation *evaluation);
/* Loads a (verified) checkpoint of the same configuration: EMA weights where there are any. */
plm_status plm_evaluation_load(struct plm_evaluation *evaluation, const char *checkpoint,
                               struct plm_error *error);
const char *plm_evaluation_weights(const struct plm_evaluation *evaluation); /* "ema", "model" */

struct plm_evaluation_result {
  double loss, perplexity;
  struct plm_classification classification;
  uint64_t tokens;
  double rates[PLM_MAX_MASK_RATES + 1], rate_loss[PLM_MAX_MASK_RATES + 1];
  uint32_t rate_count; /* 0 for causal models, which hide nothing */
  double bin_loss[PLM_LENGTH_BINS];
  uint64_t bin_rows[PLM_LENGTH_BINS];
  double seconds;
};

/* Runs one split. stop (may be NULL) is polled between batches: PLM_INTERRUPTED. PLM_CONFIG
 * when the split has no documents. progress (may be NULL) is told chunks done and in all. */
plm_status plm_evaluation_run(struct plm_evaluation *evaluation,
                              const struct plm_chunk_source *source, enum plm_split split,
                              const struct plm_evaluation_options *options,
                              bool (*stop)(void *context), void *stop_context,
                              struct plm_evaluation_result *result, struct plm_error *error);

/* The metrics of operations.md that an evaluation itself knows, appended to a line. */
struct cJSON;
void plm_evaluation_report(const struct plm_evaluation_result *result, const char *weights,
                           double baseline_entropy, struct cJSON *line);

#endif
