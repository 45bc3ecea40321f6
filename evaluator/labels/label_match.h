/* Which labels of a corpus a model predicts: the columns that its outputs are about, and the output
 * of each class.
 *
 *   outputs             columns of the corpus
 *   numbers             those called as the outputs; or, for one output, the only one with numbers
 *   classes             the only one of kind class, residues or classes that has one of the
 *                       model's classes
 *   several classes     also columns of kind class with two classes each, called as the outputs
 *
 * Outputs without names (transformers' LABEL_0, LABEL_1, ...) stand for the classes or the columns
 * in their order, if these are as many. */
#ifndef PLM_EVALUATOR_LABELS_LABEL_MATCH_H
#define PLM_EVALUATOR_LABELS_LABEL_MATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/huggingface/head_json.h"
#include "common/labels/label_schema.h"
#include "common/model/head_config.h"
#include "common/plan/batch_labels.h"

/* A head, and the labels among which its columns are looked for. Everything is borrowed. */
struct plm_label_search {
  const struct plm_head_config *head;
  const struct plm_label_names *names;   /* of its outputs */
  const struct plm_label_schema *schema; /* NULL: there are no labels */
  const char *const *columns;            /* (column_count) the user's choice; NULL: none */
  uint32_t column_count;
  bool of_run; /* the choice is trainer.labels, and not --labels; for messages */
};

enum { PLM_NO_OUTPUT = -1 };

/* Begins with {0}. */
struct plm_label_match {
  struct plm_label_choice choice; /* the columns; numbers are scaled as the model's outputs */
  int32_t *output;  /* (classes of the column) of each class, or PLM_NO_OUTPUT: the model does not
                       know it. NULL for numbers, and for columns with two classes each */
  uint32_t foreign; /* classes of the column that the model does not know */
};
void plm_label_match_deinit(struct plm_label_match *match);

/* PLM_CONFIG: there are no labels, no column fits, or several do; the message names the columns. */
plm_status plm_label_match_find(const struct plm_label_search *search,
                                struct plm_label_match *match, struct plm_error *error);

#endif
