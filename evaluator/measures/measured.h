/* Measures of predictions on held-out data, each with a 95 % interval.
 *
 *   numbers   spearman, pearson, r2 (1 - errors / spread), rmse
 *   classes   accuracy; macro_f1: the mean F1 of the classes that are true or predicted; mcc:
 *             Matthews' correlation (class_counts.h); auroc: of two classes, the area under the ROC
 *             curve for the second one; of more, the mean over the classes, each against the rest,
 *             that are true somewhere but not everywhere
 *
 * The interval of spearman is that of rank_correlation.h. The others are percentiles, interpolated
 * linearly, of 1,000 bootstrap replicates (Efron 1979). A replicate draws as many units as there
 * are, with replacement: a unit is a row or, for labels of residues, a sequence with all its
 * residues, because residues of one protein are not independent. The draws come from Philox (seed
 * 0), so the intervals are always the same. A measure that does not exist is NaN. */
#ifndef PLM_EVALUATOR_MEASURES_MEASURED_H
#define PLM_EVALUATOR_MEASURES_MEASURED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/metrics/measure_table.h"

struct plm_measured {
  double value, low, high;
  size_t count; /* of the predictions */
};

/* predicted and truth (count), finite. Fills the measures of numbers; without intervals, low and
 * high are NaN. PLM_NO_MEMORY. */
plm_status plm_measure_numbers(const double *predicted, const double *truth, size_t count,
                               bool intervals, struct plm_measured measured[PLM_MEASURES],
                               struct plm_error *error);

struct plm_class_predictions {
  const double *probabilities; /* (count, classes); NULL: not known, and there is no auroc */
  const uint32_t *predicted;   /* (count); NULL: the class of the largest probability, the lowest
                                  one on a tie */
  const int32_t *truth;        /* (count) */
  const uint32_t *units;       /* (count) from 0; NULL: each its own */
  size_t count, unit_count;    /* unit_count: count without units */
  uint32_t classes;
};

/* Fills the measures of classes, as above. auroc has no interval if count * classes is more than 4
 * million, because it would take minutes. PLM_NO_MEMORY. */
plm_status plm_measure_classes(const struct plm_class_predictions *predictions, bool intervals,
                               struct plm_measured measured[PLM_MEASURES], struct plm_error *error);

#endif
