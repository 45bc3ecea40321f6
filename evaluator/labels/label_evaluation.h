/* The evaluation of a model that predicts labels: its outputs for the documents of a split, and how
 * good they are. */
#ifndef PLM_EVALUATOR_LABELS_LABEL_EVALUATION_H
#define PLM_EVALUATOR_LABELS_LABEL_EVALUATION_H

#include <stdbool.h>

#include "common/inference/inference.h"
#include "evaluator/labels/label_answers.h"

struct plm_label_evaluation;

/* Reads what the outputs are called from the folder that the inference was opened from, which is
 * borrowed. PLM_CONFIG, PLM_FORMAT: something is wrong with config.json. */
plm_status plm_label_evaluation_open(struct plm_inference *inference, const char *folder,
                                     struct plm_label_evaluation **evaluation,
                                     struct plm_error *error);
void plm_label_evaluation_close(struct plm_label_evaluation *evaluation); /* NULL is fine */

/* Begins with labels of this schema (NULL: there are none); columns (column_count) are the user's
 * choice, and it may be empty. of_run: it is trainer.labels. The schema is borrowed until the next
 * one. Errors are those of plm_label_match_find. */
plm_status plm_label_evaluation_begin(struct plm_label_evaluation *evaluation,
                                      const struct plm_label_schema *schema,
                                      const char *const *columns, uint32_t column_count,
                                      bool of_run, struct plm_error *error);
/* Predicts the labels of a batch, which has label records, and keeps the answers. PLM_NOT_FINITE
 * names the sequence for which the model computes NaN or infinity. */
plm_status plm_label_evaluation_add(struct plm_label_evaluation *evaluation,
                                    const struct plm_batch *batch, struct plm_error *error);
/* What the answers are worth. The result belongs to the evaluation, until the next begin. */
plm_status plm_label_evaluation_end(struct plm_label_evaluation *evaluation,
                                    const struct plm_label_result **result,
                                    struct plm_error *error);

#endif
