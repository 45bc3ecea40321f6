/* The measures of a model that predicts labels, as a line of evaluator.jsonl has them
 * (doc/inference.md#metrics), and as people read them. */
#ifndef PLM_EVALUATOR_LABELS_LABEL_REPORT_H
#define PLM_EVALUATOR_LABELS_LABEL_REPORT_H

#include "common/base/text/text.h"
#include "evaluator/labels/label_answers.h"

/* Appends loss, the measures, and how many labels there are. A measure that does not exist is null,
 * and `reason` says why. */
struct cJSON;
void plm_label_report(const struct plm_label_result *result, struct cJSON *line);

/* Calls put with each number that is plotted: "loss", "spearman", "spearman_by_label/Tm". Those
 * that do not exist are left out. */
typedef void plm_label_put(void *context, const char *name, double value);
void plm_label_report_each(const struct plm_label_result *result, plm_label_put *put,
                           void *context);

/* Appends "loss 0.1234, accuracy 0.9000, ...", and the reason if there is one. */
void plm_label_report_words(const struct plm_label_result *result, struct plm_text *text);

/* Prints lines to stdout. */
void plm_label_report_print(const struct plm_label_result *result);

#endif
