/* Measures of each class, and their means. */
#include "evaluator/measures/multilabel.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "evaluator/measures/class_counts.h"
#include "evaluator/measures/roc_area.h"

/* A sum, and of how many. */
struct mean {
  double sum, count;
};

static void mean_add(struct mean *mean, double value)
{
  if (isnan(value)) return;
  mean->sum += value;
  mean->count++;
}

struct class_list {
  double *scores; /* (count) of the labels that are known */
  bool *positive;
  size_t *order;
};

/* Lists the known labels of class k. Returns how many there are. */
static size_t list_known(const struct plm_multilabel *multilabel, uint32_t k,
                         const struct class_list *list, struct plm_class_count *counts)
{
  size_t known = 0;
  counts[0] = counts[1] = (struct plm_class_count){0};
  for (size_t i = 0; i < multilabel->count; i++) {
    const size_t at = i * multilabel->classes + k;
    if (isnan(multilabel->truth[at])) continue;
    const bool truth = multilabel->truth[at] > 0.5F, predicted = multilabel->outputs[at] > 0;
    counts[truth].truth++;
    counts[predicted].predicted++;
    if (truth == predicted) counts[truth].correct++;
    list->scores[known] = (double)multilabel->outputs[at];
    list->positive[known++] = truth;
  }
  return known;
}

static void measure_all(const struct plm_multilabel *multilabel, const struct class_list *list,
                        struct plm_class_count *present, double values[PLM_MEASURES])
{
  struct mean accuracy = {0}, matthews = {0}, area = {0};
  for (uint32_t k = 0; k < multilabel->classes; k++) {
    struct plm_class_count counts[2];
    const size_t known = list_known(multilabel, k, list, counts);
    present[k] = counts[1];
    if (known > 0) mean_add(&accuracy, (counts[0].correct + counts[1].correct) / (double)known);
    if (!(counts[0].truth > 0 && counts[1].truth > 0)) continue;
    mean_add(&matthews, plm_matthews(counts, 2));
    plm_roc_order(list->scores, known, list->order);
    mean_add(&area, plm_roc_area(list->scores, list->order, list->positive, NULL, known));
  }
  for (int k = 0; k < PLM_MEASURES; k++) values[k] = NAN;
  values[PLM_MEASURE_ACCURACY] = accuracy.sum / accuracy.count;
  values[PLM_MEASURE_MACRO_F1] = plm_macro_f1(present, multilabel->classes);
  values[PLM_MEASURE_MCC] = matthews.sum / matthews.count;
  values[PLM_MEASURE_AUROC] = area.sum / area.count;
}

plm_status plm_measure_multilabel(const struct plm_multilabel *multilabel,
                                  double values[PLM_MEASURES], struct plm_error *error)
{
  const size_t count = multilabel->count;
  const struct class_list list = {
      .scores = malloc((count + 1) * sizeof *list.scores),
      .positive = malloc((count + 1) * sizeof *list.positive),
      .order = malloc((count + 1) * sizeof *list.order),
  };
  struct plm_class_count *present = plm_alloc_zeroed(multilabel->classes, sizeof *present);
  plm_status status = PLM_OK;
  if (list.scores == NULL || list.positive == NULL || list.order == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu predictions", count);
  else
    measure_all(multilabel, &list, present, values);
  free(list.scores);
  free(list.positive);
  free(list.order);
  free(present);
  return status;
}
