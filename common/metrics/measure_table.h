/* The measures of predicted labels: one row for each, by which their names in evaluator.jsonl, in
 * settings, in model cards and in reports are made. How they are computed:
 * evaluator/measures/measured.h. */
#ifndef PLM_COMMON_METRICS_MEASURE_TABLE_H
#define PLM_COMMON_METRICS_MEASURE_TABLE_H

#include <stdbool.h>

/* X(ENUMERATOR, name, type, words, title, note): type is the name of
 * https://huggingface.co/metrics, and the note says what a report's chart of it shows. */
#define PLM_MEASURES_OF_NUMBERS_EACH(X)                                                       \
  X(SPEARMAN, spearman, "spearmanr", "Spearman's correlation", "Spearman's correlation",      \
    "of predicted numbers")                                                                   \
  X(PEARSON, pearson, "pearsonr", "Pearson's correlation", "Pearson's correlation",           \
    "of predicted numbers")                                                                   \
  X(R2, r2, "r_squared", "R\xC2\xB2", "R\xC2\xB2", "share of the variance that is explained") \
  X(RMSE, rmse, "rmse", "RMSE", "RMSE", "in the units of the labels")
#define PLM_MEASURES_OF_CLASSES_EACH(X)                                               \
  X(ACCURACY, accuracy, "accuracy", "accuracy", "Accuracy", "% of the labels")        \
  X(MACRO_F1, macro_f1, "f1", "macro F1", "Macro F1", "mean over the classes")        \
  X(MCC, mcc, "matthews_correlation", "Matthews correlation", "Matthews correlation", \
    "of predicted classes")                                                           \
  X(AUROC, auroc, "roc_auc", "AUROC", "AUROC", "mean over the classes")

/* A row's name, followed by a comma: for arrays of names. */
#define PLM_MEASURE_NAME(measure, name, ...) #name,

enum plm_measure {
#define PLM_MEASURE_ENTER(measure, ...) PLM_MEASURE_##measure,
  PLM_MEASURES_OF_NUMBERS_EACH(PLM_MEASURE_ENTER) PLM_MEASURES_OF_CLASSES_EACH(PLM_MEASURE_ENTER)
#undef PLM_MEASURE_ENTER
      PLM_MEASURES
};
enum { PLM_MEASURES_OF_NUMBERS = PLM_MEASURE_ACCURACY };  /* before it: numbers; after: classes */
extern const char *const plm_measure_names[PLM_MEASURES]; /* "spearman", … */

/* Whether a smaller value is better: of rmse, and of the loss, which is no row. */
bool plm_measure_falls(const char *measure);

#endif
