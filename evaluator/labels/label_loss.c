/* Softmax, cross-entropy and the largest output. */
#include "evaluator/labels/label_loss.h"

#include <math.h>

uint32_t plm_label_largest(const float *outputs, uint32_t count)
{
  uint32_t best = 0;
  for (uint32_t k = 1; k < count; k++)
    if (outputs[k] > outputs[best]) best = k;
  return best;
}

/* sum e^(z - most) */
static double exponentials(const float *outputs, uint32_t count, double most)
{
  double sum = 0;
  for (uint32_t k = 0; k < count; k++) sum += exp((double)outputs[k] - most);
  return sum;
}

double plm_label_class_loss(const float *outputs, uint32_t count, int32_t class)
{
  if (class < 0) return NAN;
  const double most = (double)outputs[plm_label_largest(outputs, count)];
  return log(exponentials(outputs, count, most)) + most - (double)outputs[class];
}

double plm_label_binary_loss(double output, double truth)
{
  return fmax(output, 0) + log1p(exp(-fabs(output))) - truth * output;
}

void plm_label_softmax(const float *outputs, uint32_t count, double *probabilities, uint32_t size)
{
  const double most = (double)outputs[plm_label_largest(outputs, count)];
  const double sum = exponentials(outputs, count, most);
  for (uint32_t k = 0; k < size; k++)
    probabilities[k] = k < count ? exp((double)outputs[k] - most) / sum : 0;
}
