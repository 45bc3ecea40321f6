/* `predict`: what a model that was fine-tuned with labels predicts for the sequences of the input,
 * in their order (predict_text.h has the columns).
 *
 * The outputs of the model go to FILE.partial, as sequence_run.h does it, so that a run that was
 * killed continues with the next batch. Once all are there, FILE is written from them. */
#ifndef PLM_EVALUATOR_PREDICT_PREDICT_H
#define PLM_EVALUATOR_PREDICT_PREDICT_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "evaluator/embed/sequence_request.h"

struct plm_predict_request {
  struct plm_sequence_request of; /* its output: FILE.csv, FILE.tsv or FILE.jsonl, or a stream,
                                   * which gets CSV */
  bool per_residue; /* a row for each residue; only for a model that predicts their classes */
  bool logits;      /* the outputs of the model as they are */
};

/* Writes the file, and says what it did: on stderr, or as JSON on stdout. PLM_CONFIG: the
 * checkpoint predicts no labels. PLM_INTERRUPTED, PLM_TERMINATED: a signal stopped it, and the same
 * request continues from there.
 */
plm_status plm_predict(const struct plm_predict_request *request, struct plm_ops *ops,
                       struct plm_error *error);

#endif
