/* The statistics of an assay against numbers of scipy, scikit-learn and numpy, with ties and
 * unknown classes, where they are undefined, and their means over assays. */
#include "tests/support/harness/failing_memory.h"

#include <math.h>
#include <stdlib.h>

#include "evaluator/score/assay_statistics.h"

enum { VARIANTS = 31 };

static void near(const double got[PLM_ASSAY_STATISTICS],
                 const double expected[PLM_ASSAY_STATISTICS])
{
  for (int i = 0; i < PLM_ASSAY_STATISTICS; i++)
    if (isnan(expected[i]) ? !isnan(got[i]) : !(fabs(got[i] - expected[i]) <= 1e-12))
      fail_msg("%s: %.17g is not %.17g", plm_assay_statistic_names[i], got[i], expected[i]);
}

/* spearmanr, roc_auc_score, matthews_corrcoef, ndcg_score, and numpy.percentile, of the first
 * `count` variants. */
static void of_variants(size_t count, const double expected[PLM_ASSAY_STATISTICS])
{
  double score[VARIANTS] = {-0.75, -1.25, -0.25, 0.5,   1.25,  0,     -0.5, -0.75,
                            0.75,  1.75,  0.25,  -1.25, -1,    1.5,   0.25, -1.75,
                            0,     -1.25, -0.75, -0.5,  -0.75, 0.5,   0,    -0.5,
                            0.5,   0.75,  -1.75, -0.25, -1,    -0.25, -1.25};
  double measured[VARIANTS] = {-0.5, -1.5, -0.5, -1,  0.5,  -1.5, -2.5, -0.5, -1, 3.5,  1.5,
                               -4,   -0.5, 0,    0.5, -1.5, -3,   -1.5, -1,   1,  -2.5, 1.5,
                               -1.5, -1,   -1,   3,   -1,   3.5,  0,    1,    0};
  double fit[VARIANTS], got[PLM_ASSAY_STATISTICS];
  for (size_t i = 0; i < VARIANTS; i++)
    fit[i] = i == 3 || i == 11 || i == 20 ? (double)NAN : measured[i] >= 0.5;
  const struct plm_assay_values values = {score, measured, fit, count};
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  near(got, expected);
}

static void they_are_those_of_other_programs(void **state)
{
  (void)state;
  of_variants(31, (double[]){0.4439145590412214, 0.8128654970760234, 0.48738779077803152,
                             0.78017670738857625, 0.4});
  of_variants(30, (double[]){0.47721291667090671, 0.80246913580246915, 0.47434164902525688,
                             0.78017670738857625, 1 / 3.0});
}

/* Ten variants, of which only the one with the highest score counts for NDCG. Its measurement is
 * 6/8 of the way from the lowest to the highest. */
static void what_the_best_variants_have(void **state)
{
  (void)state;
  double score[] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, measured[] = {8, 10, 2, 3, 4, 5, 6, 7, 3, 2};
  double fit[] = {1, 1, 0, 0, 0, 0, 0, 0, 0, 0}, got[PLM_ASSAY_STATISTICS];
  struct plm_assay_values values = {score, measured, fit, 10};
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  assert_true(got[PLM_ASSAY_NDCG] == 0.75);
  assert_true(got[PLM_ASSAY_AUC] == 1);
  assert_true(got[PLM_ASSAY_TOP_RECALL] == 0);
  assert_true(fabs(got[PLM_ASSAY_MCC] - 0.5) < 1e-12); /* 2 of 2 fit and 5 of 8 others are right */
  values.count = 9; /* k is 0; only 10 reaches the percentile 8.4, but its score not 8.2 */
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  assert_true(got[PLM_ASSAY_NDCG] == 0);
  assert_true(got[PLM_ASSAY_TOP_RECALL] == 0);
  score[1] = 9; /* a tie of the best two scores, of which the earlier comes first */
  values.count = 10;
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  assert_true(got[PLM_ASSAY_NDCG] == 0.75);
  assert_true(got[PLM_ASSAY_TOP_RECALL] == 1);
}

static void where_they_are_undefined(void **state)
{
  (void)state;
  double score[] = {1, 2, 3}, equal[] = {5, 5, 5}, none[] = {NAN, NAN, NAN}, all[] = {1, 1, 1};
  double classes[] = {1, 0, 1}, zeros[] = {0, 0, 0}, got[PLM_ASSAY_STATISTICS];
  struct plm_assay_values values = {score, equal, none, 0};
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  near(got, (double[]){NAN, NAN, NAN, NAN, NAN});
  values.count = 3;
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  near(got, (double[]){NAN, NAN, NAN, NAN, 1 / 3.0});
  values.fit = all; /* one class */
  values.measured = score;
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  near(got, (double[]){1, NAN, NAN, 0, 1});
  values.fit = zeros;
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  near(got, (double[]){1, NAN, NAN, 0, 1});
  values.fit = classes; /* all scores are the median: everything is predicted to be fit */
  values.score = equal;
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  near(got, (double[]){NAN, 0.5, 0, 0, 1});
  values.count = 1;
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  near(got, (double[]){NAN, NAN, NAN, NAN, 1});
  /* The variants whose classes are known are predicted to be unfit, or fit. */
  double four[] = {1, 2, 3, 4}, low[] = {1, 0, NAN, NAN}, high[] = {NAN, NAN, 1, 0};
  values = (struct plm_assay_values){four, four, low, 4};
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  assert_true(got[PLM_ASSAY_MCC] == 0);
  values.fit = high;
  assert_int_equal(plm_assay_statistics(&values, got, NULL), PLM_OK);
  assert_true(got[PLM_ASSAY_MCC] == 0);
}

/* Three types; one has a protein with two assays, one an assay without a correlation. */
static void means_are_of_proteins_then_of_types(void **state)
{
  (void)state;
  const struct plm_assay_result results[] = {
      {.uniprot = "Q", .selection = "B", .statistics = {0.5, 0.25, NAN, 1, 1}},
      {.uniprot = "P", .selection = "A", .statistics = {1, 2, 4, 8, 16}},
      {.uniprot = "P", .selection = "B", .statistics = {NAN, 0.75, NAN, 3, 2}},
      {.uniprot = "Q", .selection = "A", .statistics = {7, 7, 7, 7, 7}},
      {.uniprot = "P", .selection = "A", .statistics = {3, NAN, 6, 12, 32}},
      {.uniprot = "P", .selection = "C", .statistics = {NAN, 1, NAN, NAN, 5}},
  };
  struct plm_assay_mean *means;
  size_t count;
  double overall[PLM_ASSAY_STATISTICS];
  assert_int_equal(plm_assay_means(results, 6, &means, &count, overall, NULL), PLM_OK);
  assert_int_equal(count, 3);
  assert_string_equal(means[0].selection, "A");
  assert_string_equal(means[1].selection, "B");
  assert_string_equal(means[2].selection, "C");
  near(means[0].statistics, (double[]){4.5, 4.5, 6, 8.5, 15.5});
  near(means[1].statistics, (double[]){0.5, 0.5, NAN, 2, 1.5});
  near(means[2].statistics, (double[]){NAN, 1, NAN, NAN, 5});
  near(overall, (double[]){2.5, 2, 6, 5.25, 22 / 3.0});
  free(means);
  assert_int_equal(plm_assay_means(results, 0, &means, &count, overall, NULL), PLM_OK);
  assert_int_equal(count, 0);
  near(overall, (double[]){NAN, NAN, NAN, NAN, NAN});
  free(means);
}

static plm_status compute(void *context, struct plm_error *error)
{
  double score[] = {1, 2, 3}, fit[] = {1, 0, 1}, overall[PLM_ASSAY_STATISTICS];
  const struct plm_assay_values values = {score, score, fit, 3};
  struct plm_assay_result result = {.uniprot = "P", .selection = "A"};
  struct plm_assay_mean *means;
  size_t count;
  (void)context;
  PLM_TRY(plm_assay_statistics(&values, result.statistics, error));
  PLM_TRY(plm_assay_means(&result, 1, &means, &count, overall, error));
  assert_true(overall[PLM_ASSAY_SPEARMAN] == 1);
  free(means);
  return PLM_OK;
}

static void a_lack_of_memory_is_an_error(void **state)
{
  (void)state;
  failing_memory_try(compute, NULL, 5);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(they_are_those_of_other_programs),
      cmocka_unit_test(what_the_best_variants_have),
      cmocka_unit_test(where_they_are_undefined),
      cmocka_unit_test(means_are_of_proteins_then_of_types),
      cmocka_unit_test(a_lack_of_memory_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
