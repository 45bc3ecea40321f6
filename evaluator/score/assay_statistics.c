/* The statistics of assays, and their means. */
#include "evaluator/score/assay_statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "evaluator/measures/rank_correlation.h"
#include "evaluator/measures/roc_area.h"

const char *const plm_assay_statistic_names[PLM_ASSAY_STATISTICS] = {"Spearman", "AUC", "MCC",
                                                                     "NDCG", "Top_recall"};

static const double top = 0.1; /* the share of the best variants, for NDCG and Top_recall */

struct scratch {
  double *sorted, *chosen;
  bool *fit;
  size_t *order;
};

static int assay_statistics_ascending(const void *left, const void *right)
{
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static void sort_into(double *sorted, const double *values, size_t count)
{
  memcpy(sorted, values, count * sizeof *values);
  qsort(sorted, count, sizeof *sorted, assay_statistics_ascending);
}

/* Between two of the sorted values if `share` of the way from the first to the last is there. */
static double percentile(const double *sorted, size_t count, double share)
{
  const double place = (double)(count - 1) * share, below = floor(place), part = place - below;
  const size_t i = (size_t)below, next = i + 1 < count ? i + 1 : i;
  const double step = sorted[next] - sorted[i];
  return part < 0.5 ? sorted[i] + step * part : sorted[next] - step * (1 - part);
}

static double area_under_curve(const struct plm_assay_values *values, struct scratch *scratch)
{
  size_t known = 0;
  for (size_t i = 0; i < values->count; i++) {
    if (isnan(values->fit[i])) continue;
    scratch->chosen[known] = values->score[i];
    scratch->fit[known++] = values->fit[i] == 1;
  }
  plm_roc_order(scratch->chosen, known, scratch->order);
  return plm_roc_area(scratch->chosen, scratch->order, scratch->fit, NULL, known);
}

static double matthews(const struct plm_assay_values *values, struct scratch *scratch)
{
  double counts[2][2] = {{0}}; /* [fit][predicted] */
  sort_into(scratch->sorted, values->score, values->count);
  const size_t half = values->count / 2;
  const double median = values->count % 2 == 1
                            ? scratch->sorted[half]
                            : 0.5 * (scratch->sorted[half - 1] + scratch->sorted[half]);
  for (size_t i = 0; i < values->count; i++)
    if (!isnan(values->fit[i])) counts[values->fit[i] == 1][values->score[i] >= median]++;
  const double fit = counts[1][0] + counts[1][1], unfit = counts[0][0] + counts[0][1];
  const double yes = counts[0][1] + counts[1][1], no = counts[0][0] + counts[1][0];
  if (fit == 0 || unfit == 0) return NAN;
  if (yes == 0 || no == 0) return 0;
  return (counts[1][1] * counts[0][0] - counts[0][1] * counts[1][0]) /
         (sqrt(fit * unfit) * sqrt(yes * no));
}

static int by_score(const void *left, const void *right, void *context)
{
  const double *score = context;
  const size_t a = *(const size_t *)left, b = *(const size_t *)right;
  if (score[a] != score[b]) return score[a] > score[b] ? -1 : 1;
  return (a > b) - (a < b);
}

static double discounted_gain(const struct plm_assay_values *values, struct scratch *scratch)
{
  const size_t count = values->count, k = (size_t)floor((double)count * top);
  double gain = 0, ideal = 0;
  sort_into(scratch->sorted, values->measured, count);
  const double low = scratch->sorted[0], range = scratch->sorted[count - 1] - low;
  if (!(range > 0)) return NAN;
  for (size_t i = 0; i < count; i++) scratch->order[i] = i;
  qsort_r(scratch->order, count, sizeof *scratch->order, by_score, values->score);
  for (size_t i = 0; i < k; i++) {
    const double discount = log2((double)i + 2);
    gain += (values->measured[scratch->order[i]] - low) / range / discount;
    ideal += (scratch->sorted[count - 1 - i] - low) / range / discount;
  }
  return k > 0 ? gain / ideal : 0;
}

static double recall_of_top(const struct plm_assay_values *values, struct scratch *scratch)
{
  sort_into(scratch->sorted, values->measured, values->count);
  const double measured = percentile(scratch->sorted, values->count, 1 - top);
  sort_into(scratch->sorted, values->score, values->count);
  const double score = percentile(scratch->sorted, values->count, 1 - top);
  double found = 0, all = 0;
  for (size_t i = 0; i < values->count; i++) {
    if (values->measured[i] < measured) continue;
    all++;
    found += values->score[i] >= score;
  }
  return found / all; /* the largest value is always among them */
}

plm_status plm_assay_statistics(const struct plm_assay_values *values,
                                double statistics[PLM_ASSAY_STATISTICS], struct plm_error *error)
{
  const size_t count = values->count;
  struct plm_rank_correlation correlation;
  for (int i = 0; i < PLM_ASSAY_STATISTICS; i++) statistics[i] = NAN;
  if (count == 0) return PLM_OK;
  PLM_TRY(plm_rank_correlate(values->score, values->measured, count, &correlation, error));
  statistics[PLM_ASSAY_SPEARMAN] = correlation.value;
  double *numbers = malloc(2 * count * sizeof *numbers);
  bool *fit = malloc(count * sizeof *fit);
  size_t *order = malloc(count * sizeof *order);
  plm_status status = PLM_OK;
  if (numbers == NULL || fit == NULL || order == NULL) {
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu variants", count);
  } else {
    struct scratch scratch = {numbers, numbers + count, fit, order};
    statistics[PLM_ASSAY_AUC] = area_under_curve(values, &scratch);
    statistics[PLM_ASSAY_MCC] = matthews(values, &scratch);
    statistics[PLM_ASSAY_NDCG] = discounted_gain(values, &scratch);
    statistics[PLM_ASSAY_TOP_RECALL] = recall_of_top(values, &scratch);
  }
  free(numbers);
  free(fit);
  free(order);
  return status;
}

/* ---- means ---- */

struct sums {
  double sum[PLM_ASSAY_STATISTICS], count[PLM_ASSAY_STATISTICS];
};

static void assay_statistics_add(struct sums *sums, const double statistics[PLM_ASSAY_STATISTICS])
{
  for (int i = 0; i < PLM_ASSAY_STATISTICS; i++) {
    if (isnan(statistics[i])) continue;
    sums->sum[i] += statistics[i];
    sums->count[i]++;
  }
}

static void assay_statistics_divide(const struct sums *sums,
                                    double statistics[PLM_ASSAY_STATISTICS])
{
  for (int i = 0; i < PLM_ASSAY_STATISTICS; i++)
    statistics[i] = sums->count[i] > 0 ? sums->sum[i] / sums->count[i] : NAN;
}

/* By type of selection, then by protein, then in the order of the list. */
static int by_group(const void *left, const void *right, void *context)
{
  const struct plm_assay_result *results = context;
  const size_t a = *(const size_t *)left, b = *(const size_t *)right;
  int order = strcmp(results[a].selection, results[b].selection);
  if (order == 0) order = strcmp(results[a].uniprot, results[b].uniprot);
  return order != 0 ? order : (a > b) - (a < b);
}

/* order (count) lists the results by group. Returns the number of means. */
static size_t group(const struct plm_assay_result *results, const size_t *order, size_t count,
                    struct plm_assay_mean *means)
{
  size_t types = 0;
  for (size_t i = 0; i < count;) {
    struct sums of_type = {0};
    const char *selection = results[order[i]].selection;
    while (i < count && strcmp(results[order[i]].selection, selection) == 0) {
      struct sums of_protein = {0};
      double mean[PLM_ASSAY_STATISTICS];
      const char *uniprot = results[order[i]].uniprot;
      for (; i < count && strcmp(results[order[i]].selection, selection) == 0 &&
             strcmp(results[order[i]].uniprot, uniprot) == 0;
           i++)
        assay_statistics_add(&of_protein, results[order[i]].statistics);
      assay_statistics_divide(&of_protein, mean);
      assay_statistics_add(&of_type, mean);
    }
    means[types].selection = selection;
    assay_statistics_divide(&of_type, means[types++].statistics);
  }
  return types;
}

plm_status plm_assay_means(const struct plm_assay_result *results, size_t count,
                           struct plm_assay_mean **means, size_t *mean_count,
                           double overall[PLM_ASSAY_STATISTICS], struct plm_error *error)
{
  size_t *order = malloc((count + 1) * sizeof *order);
  struct sums sums = {0};
  *means = calloc(count + 1, sizeof **means);
  if (order == NULL || *means == NULL) {
    free(order);
    free(*means);
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the means of %zu assays", count);
  }
  for (size_t i = 0; i < count; i++) order[i] = i;
  qsort_r(order, count, sizeof *order, by_group, (void *)results);
  *mean_count = group(results, order, count, *means);
  for (size_t i = 0; i < *mean_count; i++) assay_statistics_add(&sums, (*means)[i].statistics);
  assay_statistics_divide(&sums, overall);
  free(order);
  return PLM_OK;
}
