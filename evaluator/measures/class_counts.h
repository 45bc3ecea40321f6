/* Measures of predicted classes, from three counts for each class. */
#ifndef PLM_EVALUATOR_MEASURES_CLASS_COUNTS_H
#define PLM_EVALUATOR_MEASURES_CLASS_COUNTS_H

#include <stddef.h>
#include <stdint.h>

/* How often a class is true, is predicted, and is both. */
struct plm_class_count {
  double truth, predicted, correct;
};

/* The class of the highest probability, the first one of those that are equal. */
uint32_t plm_class_best(const double *probabilities, uint32_t classes);

/* 2 p r / (p + r) of precision p and recall r, 0 if both are; *precision (may be NULL) is 0 for a
 * class that is never predicted. */
double plm_class_f1(const struct plm_class_count *count, double *precision);

/* The mean F1 of the classes that are true or predicted anywhere; NaN without any. */
double plm_macro_f1(const struct plm_class_count *counts, uint32_t classes);

/* The multi-class Matthews correlation coefficient (Gorodkin 2004):
 *
 *   (c s - sum_k p_k t_k) / sqrt((s^2 - sum_k p_k^2) (s^2 - sum_k t_k^2))
 *
 * for s samples, c correct ones, and t_k true and p_k predicted counts of class k. It is 0 if a
 * factor under the root is 0. */
double plm_matthews(const struct plm_class_count *counts, uint32_t classes);

#endif
