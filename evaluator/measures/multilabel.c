/* Measures of each class, and their means. */
#include "evaluator/measures/multilabel.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/base/alloc.h"
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

void plm_multilabel_add(const float *outputs, const float *truth, uint32_t classes,
                        struct plm_multilabel_count *counts)
{
  for (uint32_t k = 0; k < classes; k++) {
    if (isnan(truth[k])) continue;
    const bool is = truth[k] > 0.5F, predicted = outputs[k] > 0;
    counts[k].sides[is].truth++;
    counts[k].sides[predicted].predicted++;
    if (is == predicted) counts[k].sides[is].correct++;
  }
}

/* The area of class k, from its labels that are known. */
static double area_of(const struct plm_multilabel *multilabel, uint32_t k,
                      const struct class_list *list)
{
  size_t known = 0;
  for (size_t i = 0; i < multilabel->count; i++) {
    const size_t at = i * multilabel->classes + k;
    if (isnan(multilabel->truth[at])) continue;
    list->scores[known] = (double)multilabel->outputs[at];
    list->positive[known++] = multilabel->truth[at] > 0.5F;
  }
  plm_roc_order(list->scores, known, list->order);
  return plm_roc_area(list->scores, list->order, list->positive, NULL, known);
}

/* list: NULL: without the areas. */
static void measure_all(const struct plm_multilabel *multilabel, const struct class_list *list,
                        struct plm_class_count *present, double values[PLM_MEASURES])
{
  struct mean accuracy = {0}, matthews = {0}, area = {0};
  for (uint32_t k = 0; k < multilabel->classes; k++) {
    const struct plm_class_count *sides = multilabel->counts[k].sides;
    const double known = sides[0].truth + sides[1].truth;
    present[k] = sides[1];
    if (known > 0) mean_add(&accuracy, (sides[0].correct + sides[1].correct) / known);
    if (!(sides[0].truth > 0 && sides[1].truth > 0)) continue;
    mean_add(&matthews, plm_matthews(sides, 2));
    if (list != NULL) mean_add(&area, area_of(multilabel, k, list));
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
  const bool areas = multilabel->outputs != NULL;
  const size_t count = areas ? multilabel->count : 0;
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
    measure_all(multilabel, areas ? &list : NULL, present, values);
  free(list.scores);
  free(list.positive);
  free(list.order);
  free(present);
  return status;
}
