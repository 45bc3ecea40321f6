/* Counts predictions, and computes metrics from the counts. */
#include "evaluator/evaluate/confusion_matrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "evaluator/measures/class_counts.h"

void plm_confusion_init(struct plm_confusion *confusion, uint32_t V)
{
  *confusion = (struct plm_confusion){.V = V};
  confusion->counts = plm_alloc_zeroed((size_t)V * V, sizeof *confusion->counts);
}

void plm_confusion_deinit(struct plm_confusion *confusion)
{
  free(confusion->counts);
  *confusion = (struct plm_confusion){0};
}

void plm_confusion_reset(struct plm_confusion *confusion)
{
  uint64_t *counts = confusion->counts;
  const uint32_t V = confusion->V;
  memset(counts, 0, (size_t)V * V * sizeof *counts);
  *confusion = (struct plm_confusion){.V = V, .counts = counts};
}

static int bin_of(uint32_t residues)
{
  int bin = 0;
  for (uint32_t end = PLM_FIRST_LENGTH_BIN; bin < PLM_LENGTH_BINS - 1 && residues >= end; end *= 2)
    bin++;
  return bin;
}

void plm_confusion_bin_name(int bin, char name[32])
{
  const unsigned begin = (unsigned)PLM_FIRST_LENGTH_BIN << (bin > 0 ? bin - 1 : 0);
  if (bin == 0)
    snprintf(name, 32, "<%u", begin);
  else if (bin == PLM_LENGTH_BINS - 1)
    snprintf(name, 32, ">=%u", begin);
  else
    snprintf(name, 32, "%u-%u", begin, 2 * begin - 1);
}

/* The cross-entropy of one row, in double; *best becomes its argmax. */
static double row_loss(const float *logits, uint32_t V, int32_t label, uint32_t *best)
{
  *best = 0;
  for (uint32_t v = 1; v < V; v++)
    if (logits[v] > logits[*best]) *best = v;
  const double top = logits[*best];
  double sum = 0.0;
  for (uint32_t v = 0; v < V; v++) sum += exp((double)logits[v] - top);
  return top + log(sum) - (double)logits[label];
}

void plm_confusion_add(struct plm_confusion *confusion, const float *logits, const int32_t *labels,
                       const uint32_t *residues, uint32_t rows)
{
  for (uint32_t row = 0; row < rows; row++) {
    uint32_t best;
    const double loss =
        row_loss(logits + (size_t)row * confusion->V, confusion->V, labels[row], &best);
    const int bin = bin_of(residues[row]);
    confusion->loss_sum += loss;
    confusion->bin_loss[bin] += loss;
    confusion->bin_rows[bin]++;
    confusion->counts[(size_t)labels[row] * confusion->V + best]++;
  }
  confusion->rows += rows;
}

struct plm_classification plm_confusion_classification(const struct plm_confusion *confusion)
{
  struct plm_classification result = {0};
  const uint32_t V = confusion->V;
  const double samples = (double)confusion->rows;
  double correct = 0;
  if (confusion->rows == 0) return result;
  struct plm_class_count *counts = plm_alloc_zeroed(V, sizeof *counts);
  for (uint32_t k = 0; k < V; k++) {
    double precision;
    for (uint32_t j = 0; j < V; j++) {
      counts[k].truth += (double)confusion->counts[(size_t)k * V + j];
      counts[k].predicted += (double)confusion->counts[(size_t)j * V + k];
    }
    counts[k].correct = (double)confusion->counts[(size_t)k * V + k];
    const double f1 = plm_class_f1(&counts[k], &precision);
    result.precision += counts[k].truth / samples * precision;
    result.f1 += counts[k].truth / samples * f1;
    correct += counts[k].correct;
  }
  result.accuracy = correct / samples;
  result.recall = result.accuracy; /* support-weighted recall is accuracy */
  result.mcc = plm_matthews(counts, V);
  free(counts);
  return result;
}
