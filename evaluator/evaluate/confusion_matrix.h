/* What an evaluation counts, and the metrics that follow from the counts.
 *
 * The confusion matrix C[truth][predicted] over V classes gives accuracy, support-weighted
 * precision, recall and F1 (each class weighted by its true count; a class that is never predicted
 * has precision 0), and the multi-class Matthews correlation coefficient (Gorodkin 2004):
 *   (c s - sum_k p_k t_k) / sqrt((s^2 - sum_k p_k^2) (s^2 - sum_k t_k^2)),
 * s samples, c correct, t_k true and p_k predicted counts; 0 where a factor is 0.
 * All sums are exact integers or doubles in a fixed order: independent of threads and ranks.
 */
#ifndef PLM_EVALUATOR_EVALUATE_CONFUSION_MATRIX_H
#define PLM_EVALUATOR_EVALUATE_CONFUSION_MATRIX_H

#include <stdint.h>

#include "common/base/status.h"

/* Lengths are binned by residues: [0, 64), [64, 128), … doubling, the last one open. */
enum { PLM_LENGTH_BINS = 9, PLM_FIRST_LENGTH_BIN = 64 };

struct plm_confusion {
  uint32_t V;
  uint64_t *counts; /* C (V, V) */
  double loss_sum;  /* nats over all rows */
  uint64_t rows;
  double bin_loss[PLM_LENGTH_BINS];
  uint64_t bin_rows[PLM_LENGTH_BINS];
};

plm_status plm_confusion_init(struct plm_confusion *confusion, uint32_t V, struct plm_error *error);
void plm_confusion_deinit(struct plm_confusion *confusion);
void plm_confusion_reset(struct plm_confusion *confusion);

/* Rows of capped logits (rows, V): cross-entropy in double, and the argmax (lowest id on a tie). */
void plm_confusion_add(struct plm_confusion *confusion, const float *logits, const int32_t *labels,
                       const uint32_t *residues, uint32_t rows);

struct plm_classification {
  double accuracy, precision, recall, f1, mcc;
};
struct plm_classification plm_confusion_classification(const struct plm_confusion *confusion);

/* "<64", "64-127", …, ">=8192" */
void plm_confusion_bin_name(int bin, char name[32]);

#endif
