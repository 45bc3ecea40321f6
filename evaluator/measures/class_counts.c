/* F1 and Matthews' correlation from counts. */
#include "evaluator/measures/class_counts.h"

#include <math.h>

uint32_t plm_class_best(const double *probabilities, uint32_t classes)
{
  uint32_t best = 0;
  for (uint32_t k = 1; k < classes; k++)
    if (probabilities[k] > probabilities[best]) best = k;
  return best;
}

double plm_class_f1(const struct plm_class_count *count, double *precision)
{
  const double recall = count->truth > 0 ? count->correct / count->truth : 0.0;
  const double p = count->predicted > 0 ? count->correct / count->predicted : 0.0;
  if (precision != NULL) *precision = p;
  return p + recall > 0 ? 2 * p * recall / (p + recall) : 0.0;
}

double plm_macro_f1(const struct plm_class_count *counts, uint32_t classes)
{
  double sum = 0, met = 0;
  for (uint32_t k = 0; k < classes; k++) {
    if (!(counts[k].truth > 0 || counts[k].predicted > 0)) continue;
    sum += plm_class_f1(&counts[k], NULL);
    met++;
  }
  return sum / met;
}

double plm_matthews(const struct plm_class_count *counts, uint32_t classes)
{
  double samples = 0, correct = 0, products = 0, predicted_squares = 0, truth_squares = 0;
  for (uint32_t k = 0; k < classes; k++) {
    samples += counts[k].truth;
    correct += counts[k].correct;
    products += counts[k].predicted * counts[k].truth;
    predicted_squares += counts[k].predicted * counts[k].predicted;
    truth_squares += counts[k].truth * counts[k].truth;
  }
  const double scale =
      (samples * samples - predicted_squares) * (samples * samples - truth_squares);
  return scale > 0 ? (correct * samples - products) / sqrt(scale) : 0.0;
}
