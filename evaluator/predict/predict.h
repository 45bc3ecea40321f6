/* `predict`: what a model that was fine-tuned with labels predicts for the sequences of the input,
 * in their order (predict_text.h has the columns).
 *
 * It works as `embed` does (evaluator/embed/embed.h), with the same spool, windows and batches: the
 * outputs of the model go to FILE.partial, so that a run that was killed continues with the next
 * batch. Once all are there, FILE is written from them. */
#ifndef PLM_EVALUATOR_PREDICT_PREDICT_H
#define PLM_EVALUATOR_PREDICT_PREDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "common/sequences/sequence_reader.h"

struct plm_predict_request {
  const char *checkpoint;
  const char *weights;       /* NULL, "model" or "ema" */
  const char *const *inputs; /* "-" is standard input */
  size_t input_count;
  const char *output;    /* FILE.csv, FILE.tsv or FILE.jsonl, or a stream, which gets CSV */
  uint32_t max_length;   /* sequences are cut to so many tokens; 0: the model's max_length */
  uint32_t batch_tokens; /* in one forward pass, which has at least one chunk */
  struct plm_sequence_choices choices;
  bool per_residue; /* a row for each residue; only for a model that predicts their classes */
  bool logits;      /* the outputs of the model as they are */
  bool strict;      /* a bad record is an error */
  bool fresh;       /* discard what an earlier run has done */
  bool json;        /* print the summary as one JSON object on one line of stdout */
};

/* Writes the file, and says what it did: on stderr, or as JSON on stdout. PLM_CONFIG: the
 * checkpoint predicts no labels. PLM_INTERRUPTED, PLM_TERMINATED: a signal stopped it, and the same
 * request continues from there.
 */
plm_status plm_predict(const struct plm_predict_request *request, struct plm_ops *ops,
                       struct plm_error *error);

#endif
