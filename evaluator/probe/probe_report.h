/* What `probe` prints and writes. */
#ifndef PLM_EVALUATOR_PROBE_PROBE_REPORT_H
#define PLM_EVALUATOR_PROBE_PROBE_REPORT_H

#include <cjson/cJSON.h>

#include "evaluator/probe/probe.h"

/* "regression", "classification", "residues": the names of --task, in the order of enum
 * plm_label_kind from PLM_LABEL_NUMBER. */
extern const char *const plm_probe_task_names[];

/* Warns about what the numbers do not show: sequences that the test part shares with another part,
 * classes that only the test part has, and sequences that were cut. */
void plm_probe_warn(const struct plm_labelled_table *table, const struct plm_probe_items *items);

/* The first and the one after the last measure of a kind of labels. */
enum plm_measure plm_probe_first_measure(enum plm_label_kind kind);
enum plm_measure plm_probe_end_measure(enum plm_label_kind kind);

/* Adds alpha and the measures of a fit: "spearman": {"value", "low", "high", "count"}, and null for
 * what does not exist. */
void plm_probe_add_fit(cJSON *object, enum plm_label_kind kind, const struct plm_probe_fit *fit);
/* Adds what the table has: its path, the target, the task, rows of each part, and classes. */
void plm_probe_add_table(cJSON *object, const struct plm_labelled_table *table);
/* Adds the best layer with its measures, all layers if there are several, and the baseline. */
void plm_probe_add_results(cJSON *object, const struct plm_probe_results *results);

/* Prints to stdout: what the table has; a row for each checkpoint; and a bar for each layer. */
void plm_probe_print_table(const struct plm_labelled_table *table);
void plm_probe_print_header(const struct plm_labelled_table *table);
void plm_probe_print_row(const char *name, const char *layer, enum plm_label_kind kind,
                         const struct plm_probe_fit *fit);
void plm_probe_print_layers(const struct plm_probe_results *results);

/* Writes the predictions of the best layer as CSV (common/cli/output_file.h). The columns are line,
 * the target, `predicted` and, for classes, the probability of each as `p(CLASS)`; labels of
 * residues also have `position`, from 1. */
plm_status plm_probe_write_predictions(const struct plm_probe_results *results, const char *output,
                                       struct plm_error *error);

#endif
