/* The precision of contacts: computed here once more from the columns of the heads, the regression
 * and the sums of maps, for proteins of every length that is a bound; and what is refused. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "evaluator/contacts/contact_features.h"
#include "evaluator/contacts/contacts.h"
#include "evaluator/contacts/sparse_logistic.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/shown_progress.h"

enum { L = 64, MOST = L - 2, PROTEINS = 7, TRAINING = 3, FAR = 24, LONGEST = 70 };

/* Of the training, one has no pairs at all. Of the test, one has no pair 24 apart, one has a single
 * one, one is as long as the model sees, and one is longer. */
static const uint32_t lengths[PROTEINS] = {40, 6, 55, FAR, FAR + 1, MOST, LONGEST};

static struct inference_case model;
static struct plm_contact_features *features;
static struct plm_protein_folder folder;
static struct plm_contact_protein proteins[PROTEINS];
static uint8_t residues[PROTEINS][LONGEST];
static struct plm_contact_pair room[PROTEINS][LONGEST * LONGEST];
static char *names[] = {"a", "b", "c", "d", "e", "f", "g"};

static uint32_t seen(size_t p)
{
  return lengths[p] < MOST ? lengths[p] : MOST;
}

/* The columns (heads, pairs) of one protein; the caller frees them. */
static float *columns_of(size_t p, size_t *pairs)
{
  const uint32_t n = seen(p), heads = plm_contact_features_heads(features);
  *pairs = plm_contact_pairs(n, PLM_CONTACT_SEPARATION);
  float *columns = must(calloc(heads * *pairs + 1, sizeof *columns));
  assert_int_equal(plm_contact_features_write(features, &proteins[p], n, columns, *pairs, 0, NULL),
                   PLM_OK);
  return columns;
}

/* Contacts are the pairs with a high value in the first and second head, and some by chance. */
static void make_contacts(size_t p)
{
  size_t pairs, k = 0;
  float *columns = columns_of(p, &pairs);
  double mean = 0;
  for (size_t i = 0; i < 2 * pairs; i++) mean += (double)columns[i] / (double)pairs;
  proteins[p].count = 0;
  for (uint32_t i = 0; i < lengths[p]; i++)
    for (uint32_t j = i + 1; j < lengths[p]; j++) {
      const bool listed = i + PLM_CONTACT_SEPARATION <= j && j < seen(p);
      const bool high = listed && (double)columns[k] + (double)columns[pairs + k] > mean + 2e-4;
      k += listed;
      /* the first and the last contact of one protein are far apart */
      const bool first = i == 0 && j == FAR, last = i == MOST - 1 - FAR && j == MOST - 1;
      if (p == 5 && (i == 0 || i >= 30) && !first && !last) continue;
      if (high || (p == 5 && (first || last)) || plm_philox(8, i, j, 0).w[p % 4] % 16 == 0)
        room[p][proteins[p].count++] = (struct plm_contact_pair){i, j};
    }
  free(columns);
}

/* The features keep memory for the longest protein, which is taken before the tests. */
static void grow(void)
{
  static const float weights[64] = {1};
  struct plm_contact_sum sum;
  assert_int_equal(plm_contact_sum_init(&sum, MOST, NULL), PLM_OK);
  assert_int_equal(
      plm_contact_features_sum(features, &proteins[PROTEINS - 1], MOST, weights, &sum, NULL),
      PLM_OK);
  plm_contact_sum_deinit(&sum);
}

static int begin(void **state)
{
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  inference_case_open(&model, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 1);
  assert_int_equal(plm_contact_features_open(&model.inference, MOST, &features, NULL), PLM_OK);
  for (size_t p = 0; p < PROTEINS; p++) {
    for (uint32_t i = 0; i < lengths[p]; i++)
      residues[p][i] = (uint8_t) "LAGVSERTIDPKQNFYMHWC"[plm_philox(7, i, p, 0).w[0] % 20];
    proteins[p] = (struct plm_contact_protein){
        .name = names[p], .residues = residues[p], .length = lengths[p], .pairs = room[p]};
    make_contacts(p);
  }
  folder = (struct plm_protein_folder){proteins, PROTEINS};
  grow();
  return 0;
}

static int end(void **state)
{
  (void)state;
  plm_contact_features_close(features);
  inference_case_close(&model);
  return 0;
}

static bool is_contact(size_t p, uint32_t i, uint32_t j)
{
  for (size_t k = 0; k < proteins[p].count; k++)
    if (room[p][k].i == i && room[p][k].j == j) return true;
  return false;
}

/* ---- features -------------------------------------------------------------------------------- */

static void pairs_are_counted(void **state)
{
  (void)state;
  for (uint32_t n = 0; n < 30; n++)
    for (uint32_t apart = 1; apart < 28; apart++) {
      size_t expected = 0;
      for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + apart; j < n; j++) expected++;
      assert_int_equal(plm_contact_pairs(n, apart), expected);
    }
}

/* The column of a head is its map, corrected: the sum with the weight 1 for this head alone. A
 * second protein goes behind the first one. */
static void columns_are_maps(void **state)
{
  (void)state;
  enum { P = 0, BEHIND = 3, MORE = 5 };
  const uint32_t n = lengths[P], heads = plm_contact_features_heads(features);
  const size_t pairs = plm_contact_pairs(n, PLM_CONTACT_SEPARATION), rows = BEHIND + pairs + MORE;
  float *columns = must(calloc(heads * rows, sizeof *columns)),
        *weights = must(calloc(heads, sizeof *weights));
  assert_int_equal(heads, 12); /* six blocks of two heads */
  for (size_t i = 0; i < heads * rows; i++) columns[i] = 99;
  assert_int_equal(
      plm_contact_features_write(features, &proteins[P], n, columns, rows, BEHIND, NULL), PLM_OK);
  for (uint32_t h = 0; h < heads; h++) {
    const float *column = columns + h * rows;
    struct plm_contact_sum sum;
    size_t k = BEHIND;
    weights[h] = 1;
    assert_int_equal(plm_contact_sum_init(&sum, (int32_t)n, NULL), PLM_OK);
    assert_int_equal(plm_contact_features_sum(features, &proteins[P], n, weights, &sum, NULL),
                     PLM_OK);
    for (uint32_t i = 0; i < n; i++)
      for (uint32_t j = i + PLM_CONTACT_SEPARATION; j < n; j++, k++) {
        const float expected = sum.values[i * n + j] + sum.values[j * n + i];
        if (!(fabsf(column[k] - expected) < 2e-5f))
          fail_msg("head %u, pair %u %u: %g is not %g", h, i, j, (double)column[k],
                   (double)expected);
      }
    for (size_t i = 0; i < rows; i++)
      assert_int_equal(column[i] == 99, i < BEHIND || i >= BEHIND + pairs);
    plm_contact_sum_deinit(&sum);
    weights[h] = 0;
  }
  free(columns);
  free(weights);
}

/* ---- the same once more ---------------------------------------------------------------------- */

static plm_status go_on(void *context, struct plm_error *error)
{
  (void)context;
  (void)error;
  return PLM_OK;
}

static void fit(float *weights, struct plm_contacts_results *results)
{
  const uint32_t heads = plm_contact_features_heads(features);
  size_t rows = 0, first = 0;
  double *fitted = must(calloc(heads, sizeof *fitted)), intercept;
  bool converged;
  for (size_t p = 0; p < TRAINING; p++) rows += plm_contact_pairs(seen(p), PLM_CONTACT_SEPARATION);
  struct plm_sparse_problem problem = {
      .rows = rows, .width = heads, .strength = 0.15, .check = go_on};
  float *columns = must(calloc(heads * rows, sizeof *columns));
  uint8_t *labels = must(calloc(rows, 1));
  for (size_t p = 0; p < TRAINING; p++) {
    size_t pairs, k = first;
    float *of = columns_of(p, &pairs);
    for (uint32_t h = 0; h < heads; h++)
      memcpy(columns + h * rows + first, of + h * pairs, pairs * sizeof *of);
    for (uint32_t i = 0; i < seen(p); i++)
      for (uint32_t j = i + PLM_CONTACT_SEPARATION; j < seen(p); j++)
        labels[k++] = is_contact(p, i, j);
    first += pairs;
    free(of);
  }
  problem.columns = columns;
  problem.labels = labels;
  assert_int_equal(plm_pool_open(1, &problem.pool, NULL), PLM_OK);
  assert_int_equal(plm_sparse_logistic(&problem, fitted, &intercept, &converged, NULL), PLM_OK);
  plm_pool_close(problem.pool);
  for (uint32_t h = 0; h < heads; h++) {
    weights[h] = (float)fitted[h];
    results->used += fitted[h] != 0;
  }
  results->heads = heads;
  free(columns);
  free(labels);
  free(fitted);
}

/* Whether pair a is ranked before pair b. */
static bool before(const float *scores, uint32_t n, uint32_t a, uint32_t b)
{
  (void)n;
  return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}

/* Precisions of one protein, by the rank of each contact. */
static void add(size_t p, const float *weights, struct plm_contacts_results *results)
{
  const uint32_t n = seen(p), divisors[] = {1, 2, 5};
  static float scores[MOST * MOST];
  static bool contact[MOST * MOST];
  struct plm_contact_sum sum;
  uint32_t count = 0, contacts = 0;
  assert_int_equal(plm_contact_sum_init(&sum, (int32_t)n, NULL), PLM_OK);
  assert_int_equal(plm_contact_features_sum(features, &proteins[p], n, weights, &sum, NULL),
                   PLM_OK);
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = i + FAR; j < n; j++) {
      scores[count] = sum.values[i * n + j] + sum.values[j * n + i];
      contact[count] = is_contact(p, i, j);
      contacts += contact[count++];
    }
  plm_contact_sum_deinit(&sum);
  for (int m = 0; m < PLM_CONTACT_MEASURES; m++) {
    const uint32_t most = n / divisors[m];
    double right = 0;
    for (uint32_t a = 0; a < count; a++) {
      uint32_t rank = 0;
      for (uint32_t b = 0; b < count && contact[a]; b++) rank += before(scores, n, b, a);
      right += contact[a] && rank < most;
    }
    results->precision[m] += right / most;
  }
  results->chance += (double)contacts / count;
  results->tested++;
}

static void precisions(void **state)
{
  (void)state;
  float weights[64];
  struct plm_contacts_results expected = {.trained = TRAINING, .cut = 1}, got;
  const struct plm_contacts_request request = {.training = TRAINING};
  fit(weights, &expected);
  assert_true(expected.used > 0 && expected.used < expected.heads);
  add(4, weights, &expected);
  add(5, weights, &expected);
  add(6, weights, &expected);
  shown_progress_begin();
  assert_int_equal(plm_contacts_run(&request, &folder, &model.inference, &got, NULL), PLM_OK);
  shown_progress_end("contacts 15 %  1 protein, \ncontacts 17 %  2 proteins, \n"
                     "contacts 37 %  3 proteins, \ncontacts 46 %  5 proteins, \n"
                     "contacts 69 %  6 proteins, \ncontacts 91 %  7 proteins, ");
  assert_int_equal(got.trained, expected.trained);
  assert_int_equal(got.tested, expected.tested);
  assert_int_equal(got.heads, expected.heads);
  assert_int_equal(got.used, expected.used);
  assert_int_equal(got.cut, expected.cut);
  assert_true(fabs(got.chance - expected.chance / 3) < 1e-12);
  for (int m = 0; m < PLM_CONTACT_MEASURES; m++) {
    assert_true(got.precision[m] > 0 && got.precision[m] < 1);
    assert_true(fabs(got.precision[m] - expected.precision[m] / 3) < 1e-12);
  }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static plm_status run_some(struct plm_contact_protein *some, size_t count, uint32_t training,
                           struct plm_error *error)
{
  const struct plm_protein_folder of = {some, count};
  const struct plm_contacts_request request = {.training = training};
  struct plm_contacts_results results;
  *error = (struct plm_error){0};
  return plm_contacts_run(&request, &of, &model.inference, &results, error);
}

static void what_cannot_be_learnt(void **state)
{
  (void)state;
  static struct plm_contact_pair all[40 * 40];
  struct plm_contact_protein some[2] = {proteins[0], proteins[4]};
  struct plm_error error;
  some[0].count = 0;
  assert_int_equal(run_some(some, 2, 1, &error), PLM_FORMAT);
  assert_string_equal(error.what,
                      "none of the 595 pairs of residues at least 6 apart in the training proteins "
                      "are contacts, so nothing can be learnt");
  assert_string_equal(error.hint, "the training proteins are the first 1 by name");
  some[0].pairs = all;
  for (uint32_t i = 0; i < 40; i++)
    for (uint32_t j = i + 1; j < 40; j++) all[some[0].count++] = (struct plm_contact_pair){i, j};
  assert_int_equal(run_some(some, 2, 1, &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, "all of the 595 pairs"));
  some[0] = proteins[0];
  some[1] = proteins[3];
  assert_int_equal(run_some(some, 2, 1, &error), PLM_FORMAT);
  assert_string_equal(error.what, "no protein after the first 1 has residues that are 24 apart");
}

static plm_status stop(void *context, struct plm_error *error)
{
  int *left = context;
  return (*left)-- > 0 ? PLM_OK : plm_error_set(error, PLM_INTERRUPTED, "enough");
}

/* It is asked before each protein of the training and of the test. */
static void it_stops_when_it_is_told_to(void **state)
{
  (void)state;
  struct plm_contacts_results results;
  for (int proteins_done = 0; proteins_done < TRAINING; proteins_done++) {
    int left = proteins_done;
    struct plm_error error = {0};
    const struct plm_contacts_request request = {
        .training = TRAINING, .check = stop, .context = &left};
    assert_int_equal(plm_contacts_run(&request, &folder, &model.inference, &results, &error),
                     PLM_INTERRUPTED);
    assert_string_equal(error.what, "enough");
    assert_int_equal(results.trained, proteins_done);
  }
}

static void folders_are_checked(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_contact_pair near_ones[] = {{0, FAR - 1}, {3, FAR + 2}},
                          far_one[] = {{0, 1}, {1, FAR + 1}};
  struct plm_contact_protein some[5] = {proteins[0], proteins[3], proteins[4], proteins[5],
                                        proteins[6]};
  const struct plm_protein_folder of = {some, 5};
  assert_int_equal(plm_contacts_check(&of, 5, " (--train)", &error), PLM_FORMAT);
  assert_string_equal(
      error.what, "5 proteins are too few: 5 for training (--train) and at least one for the test");
  assert_string_equal(error.hint, "each is a pair of files, NAME.fasta and NAME.contacts");
  plm_log_init("t", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  assert_int_equal(plm_contacts_check(&of, 4, "", &error), PLM_OK);
  assert_string_equal(captured_end(), "");
  some[0].count = some[1].count = 0; /* for training, and too short for pairs 24 apart */
  some[2].pairs = near_ones;
  some[2].count = 2;
  some[3].pairs = far_one;
  some[3].count = 2;
  some[4].count = 0;
  captured_begin(STDERR_FILENO);
  assert_int_equal(plm_contacts_check(&of, 1, "", &error), PLM_OK);
  const char *said = captured_end();
  assert_non_null(strstr(said,
                         "proteins of the test without contacts at least 24 apart, which count "
                         "with a precision of 0: 2; the first is e"));
  plm_log_init("t", PLM_LOG_ERROR);
}

/* The names of proteins are in errors. */
static void not_finite_attention_is_named(void **state)
{
  (void)state;
  struct inference_case broken;
  struct plm_contacts_results results;
  struct plm_error error = {0};
  const struct plm_contacts_request request = {.training = TRAINING};
  inference_case_open(&broken, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 1);
  inference_case_overflow(&broken, 'L');
  assert_int_equal(plm_contacts_run(&request, &folder, &broken.inference, &results, &error),
                   PLM_NOT_FINITE);
  assert_string_equal(error.where, "a");
  assert_string_equal(error.what, "the model's attention is not finite");
  inference_case_close(&broken);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pairs_are_counted),
      cmocka_unit_test(columns_are_maps),
      cmocka_unit_test(precisions),
      cmocka_unit_test(what_cannot_be_learnt),
      cmocka_unit_test(it_stops_when_it_is_told_to),
      cmocka_unit_test(folders_are_checked),
      cmocka_unit_test(not_finite_attention_is_named),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
