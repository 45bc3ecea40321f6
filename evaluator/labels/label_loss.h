/* Losses and probabilities of the outputs of a head for labels, in double. */
#ifndef PLM_EVALUATOR_LABELS_LABEL_LOSS_H
#define PLM_EVALUATOR_LABELS_LABEL_LOSS_H

#include <stdint.h>

/* The largest output, the first one of those that are equal. */
uint32_t plm_label_largest(const float *outputs, uint32_t count);
/* log(sum e^z) - z of class `class`; NaN if that is below 0. */
double plm_label_class_loss(const float *outputs, uint32_t count, int32_t class);
/* log(1 + e^z) - truth z. */
double plm_label_binary_loss(double output, double truth);
/* Fills probabilities (size >= count): e^z / sum e^z, and 0 after the outputs. */
void plm_label_softmax(const float *outputs, uint32_t count, double *probabilities, uint32_t size);

#endif
