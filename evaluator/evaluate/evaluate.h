/* One evaluation: the model of a checkpoint predicts the tokens of a split, and the result is one
 * line of metrics. */
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
#include "evaluator/evaluate/attention_entropy.h"
#include "evaluator/evaluate/confusion_matrix.h"
#include "evaluator/labels/label_answers.h"

/* Where chunks come from: the feed of a run (feed_stream.h), or a corpus (corpus_stream.h). */
struct plm_chunk_stream {
  void *context;
  /* Goes to the beginning of a split. *total, for a bar, is how many chunks it has, or 0 if that is
   * not known before its end. NULL: nobody asks, so that they need not be counted. */
  plm_status (*begin)(void *context, enum plm_split split, uint64_t *total,
                      struct plm_error *error);
  /* The next `most` chunks, or those that are left, valid until release. At the end of the split,
   * batch->chunks is 0 and nothing is to be released; an empty one has ended at its beginning. */
  plm_status (*next)(void *context, uint32_t most, struct plm_batch *batch,
                     struct plm_error *error);
  void (*release)(void *context, struct plm_batch *batch);
  /* The schema of the labels that batches have from the next `begin` on; valid until the stream is
   * closed. NULL: there are no labels. */
  plm_status (*labels)(void *context, const struct plm_label_schema **schema,
                       struct plm_error *error);
};

struct plm_evaluation_options {
  double mask_rate;
  const double *more_rates; /* further mask rates, for loss_by_mask_rate only */
  uint32_t more_rate_count;
  uint64_t seed;
  uint32_t elbo_rates; /* K of the ELBO (measures.h); 0: none. Causal models have none */
  bool pseudo_perplexity, pseudo_perplexity_fast;
  double random_fraction, keep_fraction; /* for the fast estimate */
  /* (label_count) of a model that predicts labels: their columns; none: those that fit it
   * (label_match.h). */
  const char *const *labels;
  uint32_t label_count;
  bool labels_of_run; /* they are trainer.labels; for messages */
  bool progress;      /* show a bar for what takes long */
};

/* What is reused from one checkpoint of a configuration to the next: model, masks and buffers. */
struct plm_evaluation;
/* Opens the model that config.json of a checkpoint folder describes, without weights, for chunks of
 * at most max_length tokens (0: the model's own max_length). ops is borrowed. PLM_USAGE: the model
 * cannot take so many. */
plm_status plm_evaluation_open(const char *checkpoint, uint32_t max_length, struct plm_ops *ops,
                               struct plm_evaluation **evaluation, struct plm_error *error);
void plm_evaluation_close(struct plm_evaluation *evaluation); /* NULL is fine */
const struct plm_model_config *plm_evaluation_model(const struct plm_evaluation *evaluation);
const struct plm_tokenizer *plm_evaluation_tokenizer(const struct plm_evaluation *evaluation);
/* Warns once if the model was trained with documents of fewer tokens than this. */
void plm_evaluation_note_length(struct plm_evaluation *evaluation, uint32_t tokens);
/* Loads the weights of a checkpoint of the same configuration: its EMA weights if it has any. The
 * caller has verified the checkpoint. advance (may be NULL): told of the bytes that are read. */
plm_status plm_evaluation_load(struct plm_evaluation *evaluation, const char *checkpoint,
                               struct plm_advance *advance, struct plm_error *error);
const char *plm_evaluation_weights(const struct plm_evaluation *evaluation); /* "ema", "model" */

/* The documents that were read. */
struct plm_document_lengths {
  uint32_t longest; /* tokens of the longest one that the chunks hold */
  uint64_t cut;     /* documents of which they hold only the first tokens */
};

struct plm_evaluation_result {
  /* Of a model that predicts labels, else NULL. It belongs to the evaluation, until the next one
   * runs. Of the other fields, only `loss`, `lengths`, `compute_dtype` and `seconds` then mean
   * anything. */
  const struct plm_label_result *labels;
  double loss, perplexity;
  struct plm_classification classification;
  uint64_t tokens; /* predicted at mask_rate */
  double rates[PLM_MAX_MASK_RATES + 1], rate_loss[PLM_MAX_MASK_RATES + 1];
  uint32_t rate_count;              /* 0 for causal models, which mask nothing */
  double bin_loss[PLM_LENGTH_BINS]; /* NaN for an empty bin */
  uint64_t bin_rows[PLM_LENGTH_BINS];
  double elbo, pseudo_perplexity, pseudo_perplexity_fast; /* NaN if not asked for */
  /* The entropy of attention in the first batch, masked with mask_rate, by layer. It belongs to the
   * evaluation, until the next one runs. */
  const struct plm_layer_entropy *entropies;
  uint32_t entropy_count;
  struct plm_document_lengths lengths;
  const char *compute_dtype; /* "fp32", "bf16" or "int8" */
  double seconds;
};

/* Polled between batches; any status but PLM_OK ends the evaluation with it. */
typedef plm_status plm_evaluation_stop(void *context, struct plm_error *error);

/* Evaluates one split. stop may be NULL. PLM_CONFIG: the split has no documents, a model is asked
 * for a measure that only other ones have, or no labels fit it. PLM_NOT_FINITE: the model computes
 * NaN or infinity for a sequence, which the message names. */
plm_status plm_evaluation_run(struct plm_evaluation *evaluation,
                              const struct plm_chunk_stream *stream, enum plm_split split,
                              const struct plm_evaluation_options *options,
                              plm_evaluation_stop *stop, void *stop_context,
                              struct plm_evaluation_result *result, struct plm_error *error);

/* Appends the metrics of a result to a line of evaluator.jsonl (doc/inference.md#metrics). */
struct cJSON;
void plm_evaluation_report(const struct plm_evaluation_result *result, const char *weights,
                           double baseline_entropy, struct cJSON *line);

#endif
