/* What an evaluation counts, and the metrics that are computed from the counts.
 *
 * The confusion matrix C[truth][predicted] over V classes gives accuracy, precision, recall, F1 and
 * the Matthews correlation coefficient. Precision, recall and F1 are means over the classes, each
 * weighted by its true count; a class that is never predicted has precision 0. With these weights,
 * recall equals accuracy. evaluator/measures/class_counts.h has the formulas. All sums are
 * integers, or doubles added in a fixed order, so the result does not depend on the number of
 * threads.
 */
#ifndef PLM_EVALUATOR_EVALUATE_CONFUSION_MATRIX_H
#define PLM_EVALUATOR_EVALUATE_CONFUSION_MATRIX_H

#include <stdint.h>

#include "common/base/status.h"

/* Bins of sequence lengths in residues: [0, 64), [64, 128), [128, 256) and so on; the last is open.
 */
enum { PLM_LENGTH_BINS = 9, PLM_FIRST_LENGTH_BIN = 64 };

struct plm_confusion {
  uint32_t V;
  uint64_t *counts; /* C (V, V), truth by predicted */
  double loss_sum;  /* of all rows, nats */
  uint64_t rows;
  double bin_loss[PLM_LENGTH_BINS];
  uint64_t bin_rows[PLM_LENGTH_BINS];
};

/* All counts and sums are zero. */
void plm_confusion_init(struct plm_confusion *confusion, uint32_t V);
void plm_confusion_deinit(struct plm_confusion *confusion);
/* Sets all counts and sums to zero. */
void plm_confusion_reset(struct plm_confusion *confusion);

/* Adds predictions: logits (rows, V) after the soft cap, and for each row its true class and the
 * length of its sequence. The prediction is the argmax, the lowest class on a tie. */
void plm_confusion_add(struct plm_confusion *confusion, const float *logits, const int32_t *labels,
                       const uint32_t *residues, uint32_t rows);

/* Fractions, except mcc, which lies in [-1, 1]. All are 0 if nothing was counted. */
struct plm_classification {
  double accuracy, precision, recall, f1, mcc;
};
struct plm_classification plm_confusion_classification(const struct plm_confusion *confusion);

/* "<64", "64-127", …, ">=8192" for bins 0 to PLM_LENGTH_BINS - 1. */
void plm_confusion_bin_name(int bin, char name[32]);

#endif
