/* Measures of numbers and classes with their intervals. */
#include "evaluator/measures/measured.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "evaluator/measures/bootstrap.h"
#include "evaluator/measures/class_counts.h"
#include "evaluator/measures/correlation.h"
#include "evaluator/measures/rank_correlation.h"
#include "evaluator/measures/roc_area.h"

/* Of the units of the replicates, and the values of each measure in each replicate. */
struct replicates {
  double *drawn;
  double values[PLM_MEASURES][PLM_BOOTSTRAP_REPLICATES];
};

static struct replicates *open_replicates(size_t units, struct plm_error *error)
{
  struct replicates *replicates = malloc(sizeof *replicates);
  double *drawn = malloc((units + 1) * sizeof *drawn);
  if (replicates == NULL || drawn == NULL) {
    free(replicates);
    free(drawn);
    plm_error_set(error, PLM_NO_MEMORY, "out of memory for the bootstrap of %zu units", units);
    return NULL;
  }
  replicates->drawn = drawn;
  for (int measure = 0; measure < PLM_MEASURES; measure++)
    for (int i = 0; i < PLM_BOOTSTRAP_REPLICATES; i++) replicates->values[measure][i] = NAN;
  return replicates;
}

static void close_replicates(struct replicates *replicates)
{
  if (replicates != NULL) free(replicates->drawn);
  free(replicates);
}

static void take_interval(struct replicates *replicates, enum plm_measure measure,
                          struct plm_measured *measured)
{
  if (!isnan(measured->value))
    plm_bootstrap_interval(replicates->values[measure], &measured->low, &measured->high);
}

plm_status plm_measure_numbers(const double *predicted, const double *truth, size_t count,
                               bool intervals, struct plm_measured measured[PLM_MEASURES],
                               struct plm_error *error)
{
  typedef double measure(const double *x, const double *y, const double *weights, size_t n);
  static measure *const measures[] = {[PLM_MEASURE_PEARSON] = plm_pearson,
                                      [PLM_MEASURE_R2] = plm_determination,
                                      [PLM_MEASURE_RMSE] = plm_root_mean_square_error};
  struct plm_rank_correlation ranks;
  PLM_TRY(plm_rank_correlate(predicted, truth, count, &ranks, error));
  measured[PLM_MEASURE_SPEARMAN] =
      intervals ? (struct plm_measured){ranks.value, ranks.low, ranks.high, ranks.count}
                : (struct plm_measured){ranks.value, NAN, NAN, ranks.count};
  for (int k = PLM_MEASURE_PEARSON; k <= PLM_MEASURE_RMSE; k++)
    measured[k] =
        (struct plm_measured){measures[k](predicted, truth, NULL, count), NAN, NAN, count};
  if (!intervals) return PLM_OK;
  struct replicates *replicates = open_replicates(count, error);
  if (replicates == NULL) return PLM_NO_MEMORY;
  for (uint32_t i = 0; i < PLM_BOOTSTRAP_REPLICATES; i++) {
    plm_bootstrap_draw(i, count, replicates->drawn);
    for (int k = PLM_MEASURE_PEARSON; k <= PLM_MEASURE_RMSE; k++)
      replicates->values[k][i] = measures[k](predicted, truth, replicates->drawn, count);
  }
  for (int k = PLM_MEASURE_PEARSON; k <= PLM_MEASURE_RMSE; k++)
    take_interval(replicates, (enum plm_measure)k, &measured[k]);
  close_replicates(replicates);
  return PLM_OK;
}

/* ---- classes ---- */

struct class_measuring {
  const struct plm_class_predictions *predictions;
  uint32_t *predicted;            /* (count) */
  struct plm_class_count *counts; /* (classes) */
  double *weights;                /* (count), of the replicate */
  /* of each class whose area counts, or of one after another: (count) each */
  double *scores;
  size_t *order;
  bool *positive;
};

/* auroc of two classes is that of the second one. */
static uint32_t first_class(const struct plm_class_predictions *predictions)
{
  return predictions->classes == 2 ? 1 : 0;
}

static void count_classes(struct class_measuring *measuring, const double *weights)
{
  const struct plm_class_predictions *predictions = measuring->predictions;
  memset(measuring->counts, 0, predictions->classes * sizeof *measuring->counts);
  for (size_t i = 0; i < predictions->count; i++) {
    const double w = weights == NULL ? 1 : weights[i];
    const uint32_t truth = (uint32_t)predictions->truth[i], predicted = measuring->predicted[i];
    measuring->counts[truth].truth += w;
    measuring->counts[predicted].predicted += w;
    if (truth == predicted) measuring->counts[truth].correct += w;
  }
}

static void measure_counts(struct class_measuring *measuring, const double *weights,
                           double values[PLM_MEASURES])
{
  const uint32_t classes = measuring->predictions->classes;
  double correct = 0, all = 0;
  count_classes(measuring, weights);
  for (uint32_t k = 0; k < classes; k++) {
    correct += measuring->counts[k].correct;
    all += measuring->counts[k].truth;
  }
  values[PLM_MEASURE_ACCURACY] = correct / all;
  values[PLM_MEASURE_MACRO_F1] = plm_macro_f1(measuring->counts, classes);
  values[PLM_MEASURE_MCC] = plm_matthews(measuring->counts, classes);
}

/* The weight of each prediction in a replicate. */
static void spread_weights(const struct class_measuring *measuring, const double *drawn)
{
  const struct plm_class_predictions *predictions = measuring->predictions;
  for (size_t i = 0; i < predictions->count; i++)
    measuring->weights[i] = drawn[predictions->units == NULL ? i : predictions->units[i]];
}

/* Lists the scores of class k in their order, at place `slot`. */
static void list_class(const struct class_measuring *measuring, uint32_t k, uint32_t slot)
{
  const struct plm_class_predictions *predictions = measuring->predictions;
  const size_t count = predictions->count, at = slot * count;
  for (size_t i = 0; i < count; i++) {
    measuring->scores[at + i] = predictions->probabilities[i * predictions->classes + k];
    measuring->positive[at + i] = predictions->truth[i] == (int32_t)k;
  }
  plm_roc_order(measuring->scores + at, count, measuring->order + at);
}

static double area_of(const struct class_measuring *measuring, uint32_t slot, const double *weights)
{
  const size_t count = measuring->predictions->count, at = slot * count;
  return plm_roc_area(measuring->scores + at, measuring->order + at, measuring->positive + at,
                      weights, count);
}

/* Whether auroc gets an interval: then the lists of all classes are kept. */
static bool keeps_lists(const struct plm_class_predictions *predictions, bool intervals)
{
  enum { MOST = 4000000 };
  return intervals && predictions->probabilities != NULL &&
         predictions->count <= MOST / predictions->classes;
}

/* The mean area of the classes; replicates NULL: without those of the replicates. */
static void measure_area(struct class_measuring *measuring, struct replicates *replicates,
                         struct plm_measured *measured)
{
  const struct plm_class_predictions *predictions = measuring->predictions;
  const uint32_t first = first_class(predictions);
  double sum = 0, met = 0;
  for (uint32_t k = first; k < predictions->classes; k++) {
    const uint32_t slot = replicates != NULL ? k - first : 0;
    list_class(measuring, k, slot);
    const double area = area_of(measuring, slot, NULL);
    if (isnan(area)) continue;
    sum += area;
    met++;
  }
  measured->value = sum / met;
  for (uint32_t i = 0; i < PLM_BOOTSTRAP_REPLICATES && replicates != NULL; i++) {
    plm_bootstrap_draw(i, predictions->unit_count, replicates->drawn);
    spread_weights(measuring, replicates->drawn);
    sum = met = 0;
    for (uint32_t slot = 0; slot < predictions->classes - first; slot++) {
      const double area = area_of(measuring, slot, measuring->weights);
      if (isnan(area)) continue;
      sum += area;
      met++;
    }
    replicates->values[PLM_MEASURE_AUROC][i] = met > 0 ? sum / met : NAN;
  }
}

static void choose_classes(const struct class_measuring *measuring)
{
  const struct plm_class_predictions *predictions = measuring->predictions;
  const uint32_t classes = predictions->classes;
  for (size_t i = 0; i < predictions->count; i++)
    measuring->predicted[i] =
        predictions->predicted != NULL
            ? predictions->predicted[i]
            : plm_class_best(predictions->probabilities + i * classes, classes);
}

static void measure_values(struct class_measuring *measuring,
                           struct plm_measured measured[PLM_MEASURES])
{
  double values[PLM_MEASURES];
  choose_classes(measuring);
  measure_counts(measuring, NULL, values);
  for (int k = PLM_MEASURE_ACCURACY; k <= PLM_MEASURE_AUROC; k++)
    measured[k] = (struct plm_measured){k == PLM_MEASURE_AUROC ? NAN : values[k], NAN, NAN,
                                        measuring->predictions->count};
}

static void measure_intervals(struct class_measuring *measuring, struct replicates *replicates,
                              struct plm_measured measured[PLM_MEASURES])
{
  double values[PLM_MEASURES];
  for (uint32_t i = 0; i < PLM_BOOTSTRAP_REPLICATES; i++) {
    plm_bootstrap_draw(i, measuring->predictions->unit_count, replicates->drawn);
    spread_weights(measuring, replicates->drawn);
    measure_counts(measuring, measuring->weights, values);
    for (int k = PLM_MEASURE_ACCURACY; k < PLM_MEASURE_AUROC; k++)
      replicates->values[k][i] = values[k];
  }
  for (int k = PLM_MEASURE_ACCURACY; k <= PLM_MEASURE_AUROC; k++)
    take_interval(replicates, (enum plm_measure)k, &measured[k]);
}

plm_status plm_measure_classes(const struct plm_class_predictions *predictions, bool intervals,
                               struct plm_measured measured[PLM_MEASURES], struct plm_error *error)
{
  const size_t count = predictions->count;
  const bool keeps = keeps_lists(predictions, intervals);
  const size_t listed = (keeps ? predictions->classes - first_class(predictions) : 1) * count + 1;
  struct class_measuring measuring = {
      .predictions = predictions,
      .predicted = malloc((count + 1) * sizeof *measuring.predicted),
      .counts = plm_alloc_zeroed(predictions->classes, sizeof *measuring.counts),
      .weights = malloc((count + 1) * sizeof *measuring.weights),
      .scores = malloc(listed * sizeof *measuring.scores),
      .order = malloc(listed * sizeof *measuring.order),
      .positive = malloc(listed * sizeof *measuring.positive),
  };
  struct replicates *replicates = NULL;
  plm_status status = PLM_OK;
  if (intervals) replicates = open_replicates(predictions->unit_count, error);
  if (intervals && replicates == NULL)
    status = PLM_NO_MEMORY;
  else if (measuring.predicted == NULL || measuring.weights == NULL || measuring.scores == NULL ||
           measuring.order == NULL || measuring.positive == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu predictions", count);
  if (status == PLM_OK) {
    measure_values(&measuring, measured);
    if (predictions->probabilities != NULL)
      measure_area(&measuring, keeps ? replicates : NULL, &measured[PLM_MEASURE_AUROC]);
    if (intervals) measure_intervals(&measuring, replicates, measured);
  }
  close_replicates(replicates);
  free(measuring.predicted);
  free(measuring.counts);
  free(measuring.weights);
  free(measuring.scores);
  free(measuring.order);
  free(measuring.positive);
  return status;
}
