/* The items of a table, and probes of them: which rows a probe is fitted to, the alpha that it
 * chooses and what it predicts, each computed here once more from the solvers; and its errors. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/hash.h"
#include "common/base/numbers/philox.h"
#include "evaluator/probe/logistic.h"
#include "evaluator/probe/probe_embed.h"
#include "evaluator/probe/probe_fit.h"
#include "evaluator/probe/ridge.h"

enum { ROWS = 60, WIDTH = 3, MAX_LENGTH = 12, CLASSES = 3, ALPHAS = 8 };
static const double alphas[ALPHAS] = {1e5, 1e4, 1e3, 100, 10, 1, 0.1, 0.01};

static struct plm_labelled_row rows[ROWS];
static uint8_t residues[ROWS][MAX_LENGTH + 4];
static int32_t labels[ROWS][MAX_LENGTH + 4];
static char *classes[] = {"little", "middle", "much"};
static float x[ROWS * WIDTH];
static struct plm_labelled_table table;
static struct plm_pool *pool;

static double draw(uint32_t i, uint32_t j)
{
  return plm_philox_unit(plm_philox(5, i, j, 0).w[0]) - 0.5;
}

/* Rows of up to MAX_LENGTH + 2 residues, whose numbers and classes follow from three features and
 * something by chance. Of the residues, every fourth has no label. */
static void make_table(enum plm_label_kind kind)
{
  static const uint32_t parts[] = {PLM_PART_TRAIN, PLM_PART_VALID, PLM_PART_TRAIN, PLM_PART_TEST,
                                   PLM_PART_TRAIN};
  table = (struct plm_labelled_table){.path = "t.csv",
                                      .target_name = "y",
                                      .kind = kind,
                                      .rows = rows,
                                      .count = ROWS,
                                      .classes = kind == PLM_LABEL_NUMBER ? NULL : classes,
                                      .class_count = kind == PLM_LABEL_NUMBER ? 0 : CLASSES};
  for (uint32_t i = 0; i < ROWS; i++) {
    double sum = 2 * draw(i, 98);
    for (uint32_t d = 0; d < WIDTH; d++) {
      x[i * WIDTH + d] = (float)(draw(i, d) * (1 + d) + 7 * d);
      sum += draw(i, d);
    }
    rows[i] = (struct plm_labelled_row){.line = i + 2,
                                        .residues = residues[i],
                                        .length = 1 + i % (MAX_LENGTH + 2),
                                        .number = sum,
                                        .label = sum < -0.3 ? 0 : 1 + (sum > 0.4),
                                        .part = parts[i % 5]};
    for (uint32_t t = 0; t < rows[i].length; t++) {
      residues[i][t] = (uint8_t) "LAGVSERTIDPKQNFYMHWC"[plm_philox(7, i, t, 0).w[0] % 20];
      labels[i][t] = t % 4 == 3 ? -1 : (int32_t)((i + t) % CLASSES);
    }
    if (kind == PLM_LABEL_RESIDUES) rows[i].labels = labels[i];
    table.parts[rows[i].part]++;
  }
}

static void make_folds(uint32_t folds)
{
  table.folds = folds;
  memset(table.parts, 0, sizeof table.parts);
  for (uint32_t i = 0; i < ROWS; i++) rows[i].part = i % folds;
}

static struct plm_probe_items items_of(void)
{
  struct plm_probe_items items;
  assert_int_equal(plm_probe_items_init(&items, &table, MAX_LENGTH, NULL), PLM_OK);
  return items;
}

static plm_status fit_items(const struct plm_probe_items *items, double alpha,
                            struct plm_probe_fit *fit, struct plm_error *error)
{
  error = error != NULL ? error : &(struct plm_error){0};
  return plm_probe_fit_run(items, &(struct plm_features){x, WIDTH}, alpha, pool, fit, error);
}

/* ---- the same once more ---------------------------------------------------------------------- */

/* Which items a list takes. */
typedef bool takes(const struct plm_probe_items *items, uint32_t item, uint32_t number);

static bool in_part(const struct plm_probe_items *items, uint32_t item, uint32_t part)
{
  return items->parts[item] == part;
}

static bool not_in_part(const struct plm_probe_items *items, uint32_t item, uint32_t part)
{
  return items->parts[item] != part;
}

static struct plm_row_list list_of(const struct plm_probe_items *items, takes *take,
                                   uint32_t number, uint32_t room[ROWS])
{
  struct plm_row_list list = {room, 0};
  for (uint32_t i = 0; i < items->count; i++)
    if (take(items, i, number)) room[list.count++] = i;
  return list;
}

/* Predictions of all items by a fit to some; numbers, or probabilities of all three classes. */
static void predictions(const struct plm_probe_items *items, const struct plm_row_list *list,
                        double alpha, double out[ROWS * CLASSES])
{
  const struct plm_features features = {x, WIDTH};
  const bool numbers = table.kind == PLM_LABEL_NUMBER;
  struct plm_ridge *ridge = NULL;
  struct plm_logistic *logistic = NULL;
  const struct plm_linear *model;
  double z[8], outputs[CLASSES];
  if (numbers) {
    assert_int_equal(plm_ridge_open(&features, list, items->targets, pool, &ridge, NULL), PLM_OK);
    model = plm_ridge_solve(ridge, alpha);
  } else {
    assert_int_equal(
        plm_logistic_open(&features, list, items->labels, CLASSES, pool, &logistic, NULL), PLM_OK);
    assert_int_equal(plm_logistic_solve(logistic, alpha, false, &model, NULL), PLM_OK);
  }
  for (uint32_t i = 0; i < items->count; i++) {
    plm_linear_standardise(model, &features, i, z);
    plm_linear_apply(model, z, numbers ? &out[i] : outputs);
    if (!numbers) plm_logistic_probabilities(outputs, CLASSES, out + i * CLASSES);
  }
  plm_ridge_close(ridge);
  plm_logistic_close(logistic);
}

static double sum_losses(const struct plm_probe_items *items, const struct plm_row_list *list,
                         const struct plm_row_list *held, double alpha)
{
  static double out[ROWS * CLASSES];
  double sum = 0;
  predictions(items, list, alpha, out);
  for (size_t i = 0; i < held->count; i++) {
    const uint32_t item = held->rows[i];
    sum += table.kind == PLM_LABEL_NUMBER ? pow(out[item] - items->targets[item], 2)
                                          : -log(out[item * CLASSES + items->labels[item]]);
  }
  return sum;
}

static double smallest(const double losses[ALPHAS], double count, double *mean)
{
  int best = 0;
  for (int i = 1; i < ALPHAS; i++)
    if (losses[i] < losses[best]) best = i;
  *mean = losses[best] / count;
  return alphas[best];
}

/* The alpha of five-fold cross-validation among the items of a list. */
static double by_inner_folds(const struct plm_probe_items *items, const struct plm_row_list *list,
                             double *mean)
{
  double losses[ALPHAS] = {0};
  for (uint32_t fold = 0; fold < PLM_INNER_FOLDS; fold++) {
    uint32_t inside[ROWS], beside[ROWS];
    struct plm_row_list held = {inside, 0}, fitted = {beside, 0};
    for (size_t i = 0; i < list->count; i++) {
      const uint32_t item = list->rows[i];
      if (items->inner[item] == fold)
        inside[held.count++] = item;
      else
        beside[fitted.count++] = item;
    }
    assert_true(held.count > 0 && fitted.count > 0);
    for (int a = 0; a < ALPHAS; a++) losses[a] += sum_losses(items, &fitted, &held, alphas[a]);
  }
  return smallest(losses, (double)list->count, mean);
}

static void near(double got, double expected, double tolerance)
{
  if (!(fabs(got - expected) <= tolerance * (1 + fabs(expected))))
    fail_msg("%.12g is not %.12g", got, expected);
}

/* What the fit says of the items of `part` is predicted by a fit to the list. */
static void predicted_by(const struct plm_probe_items *items, const struct plm_probe_fit *fit,
                         const struct plm_row_list *list, double alpha, uint32_t part)
{
  static double out[ROWS * CLASSES];
  const uint32_t width = table.kind == PLM_LABEL_NUMBER ? 1 : CLASSES;
  predictions(items, list, alpha, out);
  for (uint32_t i = 0; i < fit->count; i++)
    for (uint32_t k = 0; k < width && items->parts[fit->items[i]] == part; k++)
      near(fit->predicted[i * width + k], out[fit->items[i] * width + k], 1e-8);
}

/* ---- items ----------------------------------------------------------------------------------- */

static void rows_are_items(void **state)
{
  (void)state;
  make_table(PLM_LABEL_NUMBER);
  struct plm_probe_items items = items_of();
  uint64_t cut = 0;
  assert_int_equal(items.count, ROWS);
  assert_true(items.positions == NULL && items.labels == NULL);
  for (uint32_t i = 0; i < ROWS; i++) {
    assert_true(items.rows[i] == i && items.firsts[i] == i && items.parts[i] == rows[i].part);
    assert_true(items.targets[i] == rows[i].number);
    assert_int_equal(items.inner[i],
                     plm_hash64_bytes(residues[i], rows[i].length) / 16 % PLM_INNER_FOLDS);
    cut += rows[i].length > MAX_LENGTH - 1;
  }
  assert_true(cut > 0 && items.cut == cut && items.firsts[ROWS] == ROWS);
  plm_probe_items_deinit(&items);
  make_table(PLM_LABEL_CLASS);
  items = items_of();
  assert_true(items.positions == NULL && items.targets == NULL);
  for (uint32_t i = 0; i < ROWS; i++) assert_int_equal(items.labels[i], rows[i].label);
  plm_probe_items_deinit(&items);
}

/* Only labelled residues that the model sees beside <cls>. */
static void residues_are_items(void **state)
{
  (void)state;
  make_table(PLM_LABEL_RESIDUES);
  struct plm_probe_items items = items_of();
  uint32_t item = 0;
  for (uint32_t i = 0; i < ROWS; i++) {
    assert_int_equal(items.firsts[i], item);
    for (uint32_t t = 0; t < rows[i].length && t < MAX_LENGTH - 1; t++) {
      if (labels[i][t] < 0) continue;
      assert_true(items.rows[item] == i && items.positions[item] == t);
      assert_true(items.labels[item] == labels[i][t] && items.parts[item] == rows[i].part);
      item++;
    }
  }
  assert_true(items.count == item && items.firsts[ROWS] == item);
  plm_probe_items_deinit(&items);
}

static void composition_is_counted(void **state)
{
  (void)state;
  const struct plm_tokenizer *words = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  static float out[ROWS * (MAX_LENGTH + 2) * 40];
  for (int each = 0; each < 2; each++) {
    make_table(each ? PLM_LABEL_RESIDUES : PLM_LABEL_NUMBER);
    struct plm_probe_items items = items_of();
    const uint32_t width = plm_probe_composition_width(&items, words);
    assert_int_equal(width, words->vocab_size + !each);
    plm_probe_composition(&items, words, out);
    for (uint32_t i = 0; i < items.count; i++) {
      const struct plm_labelled_row *row = &rows[items.rows[i]];
      const uint32_t seen = row->length < MAX_LENGTH - 1 ? row->length : MAX_LENGTH - 1;
      for (uint32_t v = 0; v < words->vocab_size; v++) {
        double share = 0;
        for (uint32_t t = 0; t < seen; t++)
          if ((each == 0 || t == items.positions[i]) &&
              plm_tokenizer_encode(words, row->residues[t]) == (int32_t)v)
            share += each ? 1 : 1.0 / seen;
        near((double)out[i * width + v], share, 1e-6);
      }
      if (!each) near((double)out[i * width + words->vocab_size], log(row->length), 1e-6);
    }
    plm_probe_items_deinit(&items);
  }
}

/* ---- fits ------------------------------------------------------------------------------------ */

/* The validation part chooses, and the final probe is fitted to both parts. */
static void the_validation_part_chooses(enum plm_label_kind kind, bool featureless)
{
  uint32_t room[2][ROWS];
  double losses[ALPHAS], mean;
  make_table(kind);
  if (featureless) memset(x, 0, sizeof x); /* of alphas that are as good, the largest is taken */
  struct plm_probe_items items = items_of();
  struct plm_probe_fit fit;
  assert_int_equal(fit_items(&items, 0, &fit, NULL), PLM_OK);
  const struct plm_row_list train = list_of(&items, in_part, PLM_PART_TRAIN, room[0]),
                            valid = list_of(&items, in_part, PLM_PART_VALID, room[1]);
  for (int a = 0; a < ALPHAS; a++) losses[a] = sum_losses(&items, &train, &valid, alphas[a]);
  assert_int_equal(fit.fits, 1);
  assert_true(fit.alphas[0] == smallest(losses, (double)valid.count, &mean));
  near(fit.loss, mean, 1e-3);
  assert_int_equal(fit.count, ROWS / 5);
  for (uint32_t i = 0; i < fit.count; i++) assert_int_equal(fit.items[i], 5 * i + 3);
  const struct plm_row_list both = list_of(&items, not_in_part, PLM_PART_TEST, room[0]);
  assert_int_equal(both.count, ROWS / 5 * 4);
  predicted_by(&items, &fit, &both, fit.alphas[0], PLM_PART_TEST);
  plm_probe_fit_deinit(&fit);
  assert_int_equal(fit_items(&items, 2.5, &fit, NULL), PLM_OK); /* given, not chosen */
  assert_true(fit.alphas[0] == 2.5 && isnan(fit.loss));
  predicted_by(&items, &fit, &both, 2.5, PLM_PART_TEST);
  plm_probe_fit_deinit(&fit);
  plm_probe_items_deinit(&items);
}

static void parts(void **state)
{
  (void)state;
  the_validation_part_chooses(PLM_LABEL_NUMBER, false);
  the_validation_part_chooses(PLM_LABEL_NUMBER, true);
  the_validation_part_chooses(PLM_LABEL_CLASS, false);
}

/* Without a test part, the validation part takes its place, and the training part chooses. */
static void the_training_part_chooses(void **state)
{
  (void)state;
  uint32_t room[ROWS];
  double mean;
  make_table(PLM_LABEL_NUMBER);
  for (uint32_t i = 0; i < ROWS; i++)
    if (rows[i].part == PLM_PART_TEST) rows[i].part = PLM_PART_TRAIN;
  table.parts[PLM_PART_TRAIN] += table.parts[PLM_PART_TEST];
  table.parts[PLM_PART_TEST] = 0;
  assert_int_equal(plm_probe_tested(&table), PLM_PART_VALID);
  struct plm_probe_items items = items_of();
  struct plm_probe_fit fit;
  assert_int_equal(fit_items(&items, 0, &fit, NULL), PLM_OK);
  const struct plm_row_list train = list_of(&items, in_part, PLM_PART_TRAIN, room);
  assert_true(fit.alphas[0] == by_inner_folds(&items, &train, &mean));
  near(fit.loss, mean, 1e-6);
  assert_int_equal(fit.count, ROWS / 5);
  for (uint32_t i = 0; i < fit.count; i++) assert_int_equal(fit.items[i], 5 * i + 1);
  predicted_by(&items, &fit, &train, fit.alphas[0], PLM_PART_VALID);
  plm_probe_fit_deinit(&fit);
  plm_probe_items_deinit(&items);
}

/* Each fold is predicted by a probe of the others, which chooses among them. */
static void folds(void **state)
{
  (void)state;
  enum { FOLDS = 3 };
  double mean, loss = 0;
  make_table(PLM_LABEL_NUMBER);
  make_folds(FOLDS);
  struct plm_probe_items items = items_of();
  struct plm_probe_fit fit;
  assert_int_equal(fit_items(&items, 0, &fit, NULL), PLM_OK);
  assert_true(fit.fits == FOLDS && fit.count == ROWS);
  for (uint32_t fold = 0; fold < FOLDS; fold++) {
    uint32_t room[ROWS];
    const struct plm_row_list others = list_of(&items, not_in_part, fold, room);
    assert_true(fit.alphas[fold] == by_inner_folds(&items, &others, &mean));
    loss += mean / FOLDS;
    predicted_by(&items, &fit, &others, fit.alphas[fold], fold);
  }
  near(fit.loss, loss, 1e-6);
  plm_probe_fit_deinit(&fit);
  plm_probe_items_deinit(&items);
}

/* A class that is never fitted has the probability 0, and the others share the rest. If there is
 * one more class than two, the others are numbered anew. */
static void classes_that_are_not_fitted(void **state)
{
  (void)state;
  make_table(PLM_LABEL_CLASS);
  for (uint32_t i = 0; i < ROWS; i++)
    if (rows[i].label == 1) rows[i].label = rows[i].part == PLM_PART_TEST ? 1 : 2;
  struct plm_probe_items items = items_of();
  struct plm_probe_fit fit;
  double right = 0, truths = 0, sum = 0;
  assert_int_equal(fit_items(&items, 1, &fit, NULL), PLM_OK);
  for (uint32_t i = 0; i < fit.count; i++) {
    const double *p = fit.predicted + i * CLASSES;
    const int32_t label = items.labels[fit.items[i]];
    assert_true(p[1] == 0 && p[0] > 0 && p[2] > 0);
    near(p[0] + p[2], 1, 1e-12);
    right += label == (p[0] >= p[2] ? 0 : 2);
    truths += label == 1;
    sum += p[0];
  }
  assert_true(truths > 0 && sum > 0);
  near(fit.measured[PLM_MEASURE_ACCURACY].value, right / fit.count, 1e-12);
  assert_int_equal(fit.measured[PLM_MEASURE_ACCURACY].count, fit.count);
  plm_probe_fit_deinit(&fit);
  plm_probe_items_deinit(&items);
}

static void measures_of_numbers(void **state)
{
  (void)state;
  double squares = 0;
  make_table(PLM_LABEL_NUMBER);
  struct plm_probe_items items = items_of();
  struct plm_probe_fit fit;
  assert_int_equal(fit_items(&items, 1, &fit, NULL), PLM_OK);
  for (uint32_t i = 0; i < fit.count; i++)
    squares += pow(fit.predicted[i] - items.targets[fit.items[i]], 2) / fit.count;
  near(fit.measured[PLM_MEASURE_RMSE].value, sqrt(squares), 1e-12);
  assert_true(fit.measured[PLM_MEASURE_RMSE].low < fit.measured[PLM_MEASURE_RMSE].high);
  plm_probe_fit_deinit(&fit);
  plm_probe_items_deinit(&items);
}

static void intervals_draw_whole_sequences(void **state)
{
  (void)state;
  struct plm_measured expected[PLM_MEASURES] = {0};
  float wide[ROWS * MAX_LENGTH];
  int32_t truth[ROWS * MAX_LENGTH];
  uint32_t units[ROWS * MAX_LENGTH], count = 0, row = UINT32_MAX;
  struct plm_probe_fit fit;
  make_table(PLM_LABEL_RESIDUES);
  for (uint32_t i = 0; i < ROWS * MAX_LENGTH; i++) wide[i] = (float)draw(i, 50);
  struct plm_probe_items items = items_of();
  assert_int_equal(plm_probe_fit_run(&items, &(struct plm_features){wide, 1}, 1, pool, &fit, NULL),
                   PLM_OK);
  for (uint32_t i = 0; i < fit.count; row = items.rows[fit.items[i++]]) {
    truth[i] = items.labels[fit.items[i]];
    units[i] = (count += items.rows[fit.items[i]] != row) - 1;
  }
  const struct plm_class_predictions all = {fit.predicted, NULL,  truth,  units,
                                            fit.count,     count, CLASSES};
  assert_int_equal(plm_measure_classes(&all, true, expected, NULL), PLM_OK);
  assert_true(fit.measured[PLM_MEASURE_ACCURACY].low == expected[PLM_MEASURE_ACCURACY].low);
  plm_probe_fit_deinit(&fit);
  plm_probe_items_deinit(&items);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void refused(double alpha, const char *what, const char *hint)
{
  struct plm_probe_items items = items_of();
  struct plm_probe_fit fit;
  struct plm_error error = {0};
  assert_int_equal(fit_items(&items, alpha, &fit, &error), PLM_FORMAT);
  assert_string_equal(error.what, what);
  assert_string_equal(error.where, "t.csv");
  assert_non_null(strstr(error.hint, hint));
  assert_true(fit.items == NULL && fit.predicted == NULL && fit.alphas == NULL);
  plm_probe_items_deinit(&items);
}

static void what_cannot_be_fitted(void **state)
{
  (void)state;
  static const char none[] = "there are no labels to test a probe with";
  make_table(PLM_LABEL_NUMBER);
  for (uint32_t i = 0; i < ROWS; i++) rows[i].part = PLM_PART_TRAIN;
  memset(table.parts, 0, sizeof table.parts);
  table.parts[PLM_PART_TRAIN] = ROWS;
  refused(0, none, "the column of the split needs rows of test or valid");
  table.hashed = true;
  refused(0, none, "too small to be split by chance; name the column of its split with --split");
  make_table(PLM_LABEL_NUMBER);
  make_folds(1);
  refused(0, "all rows are in one fold, so there is nothing to fit to", "at least two folds");
  make_table(PLM_LABEL_NUMBER);
  for (uint32_t i = 0; i < ROWS; i++)
    if (rows[i].part == PLM_PART_TRAIN) rows[i].part = PLM_PART_TEST;
  for (int given = 0; given < 2; given++)
    refused(given, "there are no labels to fit a probe to", "the training part of t.csv is empty");
  make_table(PLM_LABEL_CLASS);
  for (uint32_t i = 0; i < ROWS; i++)
    if (rows[i].part == PLM_PART_TRAIN) rows[i].label = 2;
  for (int given = 0; given < 2; given++)
    refused(given, "all labels in \"y\" that a probe is fitted to are \"much\"",
            "a probe needs at least two classes in its training data");
}

static int begin(void **state)
{
  (void)state;
  return plm_pool_open(1, &pool, NULL) == PLM_OK ? 0 : 1;
}

static int end(void **state)
{
  (void)state;
  plm_pool_close(pool);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_items),
                                     cmocka_unit_test(residues_are_items),
                                     cmocka_unit_test(composition_is_counted),
                                     cmocka_unit_test(parts),
                                     cmocka_unit_test(the_training_part_chooses),
                                     cmocka_unit_test(folds),
                                     cmocka_unit_test(classes_that_are_not_fitted),
                                     cmocka_unit_test(measures_of_numbers),
                                     cmocka_unit_test(intervals_draw_whole_sequences),
                                     cmocka_unit_test(what_cannot_be_fitted)};
  return cmocka_run_group_tests(tests, begin, end);
}
