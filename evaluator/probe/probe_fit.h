/* Fits a probe and predicts the items that it was not fitted to.
 *
 * With parts, the probe is fitted to the training part. alpha is the one of 0.01, 0.1, …, 100000
 * with the smallest loss (the mean squared error, or the cross-entropy) on the validation part, and
 * the final probe is fitted to both parts. Without a validation part, or if there is no test part
 * and the validation part takes its place, alpha has the smallest loss of five-fold
 * cross-validation in the training part (probe_items.h). With folds, each fold is predicted by a
 * probe that is fitted to the others, for which alpha is chosen by five-fold cross-validation. Of
 * two equal losses, the larger alpha wins. */
#ifndef PLM_EVALUATOR_PROBE_PROBE_FIT_H
#define PLM_EVALUATOR_PROBE_PROBE_FIT_H

#include "common/base/process/pool.h"
#include "evaluator/measures/measured.h"
#include "evaluator/probe/features.h"
#include "evaluator/probe/probe_items.h"

struct plm_probe_fit {
  uint32_t count;    /* of the items that are predicted */
  uint32_t *items;   /* (count) their numbers, ascending */
  double *predicted; /* (count) numbers, or (count, classes) probabilities */
  double *alphas;    /* (fits) chosen or given */
  uint32_t fits;     /* 1, or the number of folds */
  double loss;       /* where alpha was chosen, the mean over its items; NaN: it was given */
  struct plm_measured measured[PLM_MEASURES]; /* those of the kind of labels */
};

/* features has a row for each item. alpha: 0 to choose. The caller frees fit with _deinit.
 * PLM_FORMAT: nothing to fit to or to predict, or only one class to fit to. PLM_NO_MEMORY.
 * PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. */
plm_status plm_probe_fit_run(const struct plm_probe_items *items,
                             const struct plm_features *features, double alpha,
                             struct plm_pool *pool, struct plm_probe_fit *fit,
                             struct plm_error *error);
void plm_probe_fit_deinit(struct plm_probe_fit *fit);

/* The part whose items are predicted, in a table with parts. */
enum plm_label_part plm_probe_tested(const struct plm_labelled_table *table);

#endif
