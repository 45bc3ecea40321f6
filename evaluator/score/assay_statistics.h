/* How well scores agree with the measurements of one assay, by ProteinGym's definitions (Notin et
 * al., "ProteinGym: Large-Scale Benchmarks for Protein Fitness Prediction and Design", NeurIPS
 * 2023, and the program that makes its tables), and their means over assays. n variants have
 * measurements y and scores x; higher is better in both.
 *
 *   Spearman    the correlation of the ranks of x and y
 *   AUC         of x as a classifier of the binary measurements: the area under the ROC curve
 *   MCC         Matthews' correlation of the binary measurements with x >= median(x)
 *   NDCG        the discounted cumulative gain of the k = floor(n * 0.1) variants with the highest
 *               x, sum of g / log2(rank + 1), divided by that of the k highest y. The gain g is
 *               (y - min y) / (max y - min y). Variants with equal x keep their order.
 *   Top_recall  the share of the variants with y >= the 90th percentile of y that also have
 *               x >= the 90th percentile of x; percentiles are interpolated linearly
 *
 * A statistic that does not exist (all y are equal, or all variants are in one class) is NaN. NDCG
 * is 0 if k is 0. */
#ifndef PLM_EVALUATOR_SCORE_ASSAY_STATISTICS_H
#define PLM_EVALUATOR_SCORE_ASSAY_STATISTICS_H

#include <stddef.h>

#include "common/base/status.h"

enum plm_assay_statistic {
  PLM_ASSAY_SPEARMAN,
  PLM_ASSAY_AUC,
  PLM_ASSAY_MCC,
  PLM_ASSAY_NDCG,
  PLM_ASSAY_TOP_RECALL,
  PLM_ASSAY_STATISTICS
};
extern const char *const plm_assay_statistic_names[PLM_ASSAY_STATISTICS];

/* The variants of an assay, (count) each and finite. fit is 1, 0, or NaN if it is not known; such
 * variants count for neither AUC nor MCC. */
struct plm_assay_values {
  double *score, *measured, *fit;
  size_t count;
};

/* PLM_NO_MEMORY. */
plm_status plm_assay_statistics(const struct plm_assay_values *values,
                                double statistics[PLM_ASSAY_STATISTICS], struct plm_error *error);

/* The statistics of an assay, and the two names by which means are taken. */
struct plm_assay_result {
  const char *id, *uniprot, *selection; /* borrowed */
  size_t variants;
  double statistics[PLM_ASSAY_STATISTICS];
};

struct plm_assay_mean {
  const char *selection; /* of the results */
  double statistics[PLM_ASSAY_STATISTICS];
};

/* First the mean over the assays that share a protein (uniprot) and a type of selection, then for
 * each type over its proteins, into means (in the order of the types' names; the caller frees it),
 * and then over the types, into overall. NaN are left out, and the mean of nothing is NaN.
 * PLM_NO_MEMORY. */
plm_status plm_assay_means(const struct plm_assay_result *results, size_t count,
                           struct plm_assay_mean **means, size_t *mean_count,
                           double overall[PLM_ASSAY_STATISTICS], struct plm_error *error);

#endif
