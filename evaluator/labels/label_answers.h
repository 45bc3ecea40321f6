/* What a model has predicted for the labels of a split, and the measures of it
 * (evaluator/measures).
 *
 * Answers are ordered by their documents before anything is summed, so neither the order of the
 * batches nor the packing changes a result. The loss is the mean over the labels that are not
 * missing of the formulas in doc/model.md#heads-for-labels, with all weights 1 and numbers scaled
 * as for training. Measures of numbers are in the units of the corpus. */
#ifndef PLM_EVALUATOR_LABELS_LABEL_ANSWERS_H
#define PLM_EVALUATOR_LABELS_LABEL_ANSWERS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/labelled_rows.h"
#include "evaluator/labels/label_match.h"
#include "evaluator/measures/measured.h"

enum { PLM_LABEL_REASON_SIZE = 240 };

/* The measures of one column of numbers. */
struct plm_label_column_result {
  const char *name; /* borrowed from the result's owner */
  uint64_t labels;
  double values[PLM_MEASURES];
};

/* A measure that does not exist, or belongs to other labels, is NaN. */
struct plm_label_result {
  enum plm_label_task task;
  double loss;
  double values[PLM_MEASURES]; /* of several columns of numbers: means over those where it exists */
  uint64_t labels, missing;    /* of documents, or of residues; with several columns, of all */
  uint64_t unseen; /* labels of a class that the model does not know, or that the corpus's training
                      split does not have. They count as wrong unless they are predicted */
  /* Of several columns of numbers, in the order of the outputs; otherwise none. */
  struct plm_label_column_result *columns;
  uint32_t column_count;
  char reason[PLM_LABEL_REASON_SIZE]; /* why a measure of these labels does not exist; "" */
};
void plm_label_result_deinit(struct plm_label_result *result);

/* How many probabilities are kept, for auroc, which takes up to 12 bytes for each. */
enum { PLM_LABEL_VALUES_KEPT = 1 << 26 };

struct plm_label_answers;
/* The match is borrowed, and `outputs` is the number of the model's. Of classes, auroc is left out
 * if there are more than `kept` probabilities: PLM_LABEL_VALUES_KEPT. */
struct plm_label_answers *plm_label_answers_open(const struct plm_label_match *match,
                                                 uint32_t outputs, size_t kept);
void plm_label_answers_close(struct plm_label_answers *answers); /* NULL is fine */

/* Adds a batch: values (rows, outputs) are the model's for the rows of its labels. PLM_NO_MEMORY.
 */
plm_status plm_label_answers_add(struct plm_label_answers *answers, const struct plm_batch *batch,
                                 const struct plm_batch_labels *labels,
                                 const struct plm_labelled_rows *rows, const float *values,
                                 struct plm_error *error);

/* Fills the result, which the caller deinits; names in it are those of the match's columns.
 * PLM_NO_MEMORY. */
plm_status plm_label_answers_measure(struct plm_label_answers *answers,
                                     struct plm_label_result *result, struct plm_error *error);

#endif
