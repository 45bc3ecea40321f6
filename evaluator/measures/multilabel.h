/* Measures of several classes that may be true together (multilabel), from what is known of each.
 *
 *   accuracy   the mean over the classes of how many of its labels are predicted
 *   macro_f1   the mean F1 of the classes that are true or predicted anywhere
 *   mcc        the mean of Matthews' correlation (class_counts.h) over the classes that are true
 *              somewhere but not everywhere
 *   auroc      the mean area under the ROC curve over the same classes
 *
 * A class is predicted where its output is above 0, that is, its probability above 0.5. Labels that
 * are missing do not count. */
#ifndef PLM_EVALUATOR_MEASURES_MULTILABEL_H
#define PLM_EVALUATOR_MEASURES_MULTILABEL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "evaluator/measures/class_counts.h"
#include "evaluator/measures/measured.h"

/* Of one class: of its labels that are known, those where it is false, and those where it is true.
 */
struct plm_multilabel_count {
  struct plm_class_count sides[2];
};

/* Adds one row, outputs and truth (classes), to the counts (classes), which begin with {0}. truth
 * is 0, 1, or NaN: missing. */
void plm_multilabel_add(const float *outputs, const float *truth, uint32_t classes,
                        struct plm_multilabel_count *counts);

struct plm_multilabel {
  const struct plm_multilabel_count *counts; /* (classes) of all rows */
  const float *outputs, *truth; /* (count, classes); NULL: not known, and there is no auroc */
  size_t count;
  uint32_t classes;
};

/* Fills the values of the measures of classes; a measure that does not exist is NaN. PLM_NO_MEMORY.
 */
plm_status plm_measure_multilabel(const struct plm_multilabel *multilabel,
                                  double values[PLM_MEASURES], struct plm_error *error);

#endif
