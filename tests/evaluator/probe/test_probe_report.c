/* What `probe` prints and writes: each text as a whole, from results that are made up. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "evaluator/probe/probe_report.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

static char *classes[] = {"little", "a,b", "much"};
static struct plm_labelled_row rows[] = {{.line = 2, .part = PLM_PART_TRAIN},
                                         {.line = 5, .part = PLM_PART_VALID},
                                         {.line = 6, .part = PLM_PART_TEST},
                                         {.line = 9, .part = PLM_PART_TEST}};
static uint32_t item_rows[] = {0, 1, 2, 3}, parts[] = {0, 1, 2, 2}, positions[] = {4, 0, 7, 8};
static int32_t labels[] = {0, 0, 2, 1};
static double targets[] = {0.1, 2, -3, 1e9};

static struct plm_labelled_table table_of(enum plm_label_kind kind)
{
  struct plm_labelled_table table = {.path = "t.csv",
                                     .target_name = "y",
                                     .kind = kind,
                                     .rows = rows,
                                     .count = 4,
                                     .parts = {2000, 1, 2}};
  if (kind == PLM_LABEL_NUMBER) return table;
  table.classes = classes;
  table.class_count = 3;
  return table;
}

static struct plm_probe_items items_of(const struct plm_labelled_table *table)
{
  struct plm_probe_items items = {
      .table = table, .max_length = 64, .count = 4, .rows = item_rows, .parts = parts};
  if (table->kind == PLM_LABEL_NUMBER)
    items.targets = targets;
  else
    items.labels = labels;
  if (table->kind == PLM_LABEL_RESIDUES) items.positions = positions;
  return items;
}

/* A fit whose measure k has the value base + k / 8, and intervals of 1/4 around it. */
static void measure(struct plm_probe_fit *fit, double base)
{
  for (int k = 0; k < PLM_MEASURES; k++)
    fit->measured[k] = (struct plm_measured){base + k / 8.0, base + k / 8.0 - 0.25,
                                             base + k / 8.0 + 0.25, (size_t)(10 + k)};
}

static void warns(const struct plm_labelled_table *table, const struct plm_probe_items *items,
                  const char *expected)
{
  captured_begin(STDERR_FILENO);
  plm_probe_warn(table, items);
  const char *said = captured_end();
  if (expected[0] == '\0')
    assert_string_equal(said, "");
  else if (strstr(said, expected) == NULL)
    fail_msg("\"%s\" instead of \"%s\"", said, expected);
}

static void warnings(void **state)
{
  (void)state;
  struct plm_labelled_table table = table_of(PLM_LABEL_CLASS);
  struct plm_probe_items items = items_of(&table);
  plm_log_init("t", PLM_LOG_INFO);
  warns(&table, &items,
        "t.csv:6: the class \"much\" and others are not in the training data, so they are never "
        "predicted");
  labels[3] = 0;
  warns(&table, &items,
        "t.csv:6: the class \"much\" is not in the training data, so it is never predicted");
  labels[3] = 2; /* twice the same */
  warns(&table, &items, "the class \"much\" is not in");
  labels[1] = 2; /* the validation part has it, to which the probe is fitted in the end */
  warns(&table, &items, "");
  table.folds = 4;
  labels[1] = 0;
  warns(&table, &items, "");
  table.folds = 0;
  labels[0] = 1; /* the first item is the only one of its class that is fitted */
  labels[2] = 0;
  labels[3] = 1;
  warns(&table, &items, "");
  labels[0] = 0;
  labels[2] = labels[3] = 2;
  table.parts[PLM_PART_TEST] = 0; /* now the validation part is tested */
  parts[2] = parts[3] = PLM_PART_TRAIN;
  labels[1] = 1;
  warns(&table, &items, "t.csv:5: the class \"a,b\" is not in");
  parts[2] = parts[3] = PLM_PART_TEST;
  labels[1] = 0;
  labels[3] = 1;
  table = table_of(PLM_LABEL_NUMBER);
  items = items_of(&table);
  warns(&table, &items, "");
  table.shared[PLM_PART_TRAIN].count = 5; /* says nothing about the measures */
  table.shared[PLM_PART_TEST].count = 1234;
  table.shared[PLM_PART_TEST].line = 77;
  warns(&table, &items,
        "t.csv:77: rows of the test part with a sequence that another part has too: 1,234; the "
        "measures are too good");
  table.shared[PLM_PART_TEST].count = 0;
  table.shared[PLM_PART_VALID].count = 3;
  table.shared[PLM_PART_VALID].line = 78;
  warns(&table, &items, "");
  const size_t rows_of_test = table.parts[PLM_PART_TEST];
  table.parts[PLM_PART_TEST] = 0; /* now the validation part is tested */
  warns(&table, &items,
        "t.csv:78: rows of the validation part with a sequence that another part has too: 3; the "
        "measures are too good");
  table.parts[PLM_PART_TEST] = rows_of_test;
  table.folds = 2;
  warns(&table, &items, "t.csv:0: rows of the folds with a sequence that another part has too: 5;");
  table.folds = 0;
  items.cut = 5;
  warns(&table, &items, "sequences of more than 64 tokens, cut to their first 64: 5");
}

static void prints(cJSON *object, const char *expected)
{
  char *text = cJSON_PrintUnformatted(object);
  assert_string_equal(text, expected);
  free(text);
  cJSON_Delete(object);
}

static void fits_as_json(void **state)
{
  (void)state;
  double alphas[] = {10, 0.01};
  struct plm_probe_fit fit = {.alphas = alphas, .fits = 1};
  measure(&fit, 0);
  cJSON *object = cJSON_CreateObject();
  plm_probe_add_fit(object, PLM_LABEL_NUMBER, &fit);
  prints(object,
         "{\"alpha\":10,\"spearman\":{\"value\":0,\"low\":-0.25,\"high\":0.25,\"count\":10},"
         "\"pearson\":{\"value\":0.125,\"low\":-0.125,\"high\":0.375,\"count\":11},"
         "\"r2\":{\"value\":0.25,\"low\":0,\"high\":0.5,\"count\":12},"
         "\"rmse\":{\"value\":0.375,\"low\":0.125,\"high\":0.625,\"count\":13}}");
  fit.fits = 2;
  fit.measured[PLM_MEASURE_AUROC] = (struct plm_measured){NAN, NAN, NAN, 17};
  object = cJSON_CreateObject();
  plm_probe_add_fit(object, PLM_LABEL_RESIDUES, &fit);
  prints(
      object,
      "{\"alpha\":[10,0.01],\"accuracy\":{\"value\":0.5,\"low\":0.25,\"high\":0.75,\"count\":14},"
      "\"macro_f1\":{\"value\":0.625,\"low\":0.375,\"high\":0.875,\"count\":15},"
      "\"mcc\":{\"value\":0.75,\"low\":0.5,\"high\":1,\"count\":16},"
      "\"auroc\":{\"value\":null,\"low\":null,\"high\":null,\"count\":17}}");
}

static void tables_as_json(void **state)
{
  (void)state;
  struct plm_labelled_table table = table_of(PLM_LABEL_NUMBER);
  table.missing_labels = 3;
  table.missing_splits = 4;
  table.shared[PLM_PART_VALID].count = 6;
  table.shared[PLM_PART_TEST].count = 5;
  cJSON *object = cJSON_CreateObject();
  plm_probe_add_table(object, &table);
  prints(object, "{\"table\":\"t.csv\",\"target\":\"y\",\"task\":\"regression\",\"rows\":4,"
                 "\"train\":2000,\"valid\":1,\"test\":2,\"tested\":\"test\",\"missing_labels\":3,"
                 "\"missing_splits\":4,\"shared\":5}");
  table = table_of(PLM_LABEL_CLASS);
  table.folds = 7;
  object = cJSON_CreateObject();
  plm_probe_add_table(object, &table);
  prints(object, "{\"table\":\"t.csv\",\"target\":\"y\",\"task\":\"classification\",\"rows\":4,"
                 "\"folds\":7,\"missing_labels\":0,\"missing_splits\":0,\"shared\":0,"
                 "\"classes\":[\"little\",\"a,b\",\"much\"]}");
  table = table_of(PLM_LABEL_RESIDUES);
  table.parts[PLM_PART_TEST] = 0;
  object = cJSON_CreateObject();
  plm_probe_add_table(object, &table);
  prints(object, "{\"table\":\"t.csv\",\"target\":\"y\",\"task\":\"residues\",\"rows\":4,"
                 "\"train\":2000,\"valid\":1,\"test\":0,\"tested\":\"valid\",\"missing_labels\":0,"
                 "\"missing_splits\":0,\"shared\":0,\"classes\":[\"little\",\"a,b\",\"much\"]}");
}

/* Three layers with spearman 0.25, 0.5 and below 0, of which the second is the best. */
static struct plm_probe_results results_of(const struct plm_labelled_table *table,
                                           struct plm_probed layers[3], double *alphas)
{
  struct plm_probe_results results = {
      .items = items_of(table), .layers = layers, .count = 3, .best = 1};
  static const double bases[] = {0.25, 0.5, -0.5};
  for (int i = 0; i < 3; i++) {
    layers[i] = (struct plm_probed){.fit = {.alphas = alphas, .fits = 1}};
    snprintf(layers[i].layer, sizeof layers[i].layer, "%d", 4 * i);
    measure(&layers[i].fit, bases[i]);
  }
  results.baseline = (struct plm_probe_fit){.alphas = alphas, .fits = 1};
  measure(&results.baseline, 0);
  return results;
}

static double value_of(const cJSON *object)
{
  return cJSON_GetObjectItem(cJSON_GetObjectItem(object, "rmse"), "value")->valuedouble;
}

static void results_as_json(void **state)
{
  (void)state;
  double alpha = 100;
  struct plm_probed layers[3];
  const struct plm_labelled_table table = table_of(PLM_LABEL_NUMBER);
  struct plm_probe_results results = results_of(&table, layers, &alpha);
  cJSON *object = cJSON_CreateObject();
  plm_probe_add_results(object, &results);
  char *text = cJSON_PrintUnformatted(object); /* numbers are kept as text */
  cJSON *read = cJSON_Parse(text);
  const cJSON *all = cJSON_GetObjectItem(read, "layers");
  assert_string_equal(cJSON_GetObjectItem(read, "layer")->valuestring, "4");
  assert_true(value_of(read) == 0.875 && value_of(cJSON_GetObjectItem(read, "baseline")) == 0.375);
  assert_int_equal(cJSON_GetArraySize(all), 3);
  assert_string_equal(cJSON_GetObjectItem(cJSON_GetArrayItem(all, 2), "layer")->valuestring, "8");
  assert_true(value_of(cJSON_GetArrayItem(all, 0)) == 0.625);
  assert_true(value_of(cJSON_GetArrayItem(all, 2)) == -0.125);
  free(text);
  cJSON_Delete(read);
  cJSON_Delete(object);
  results.count = 1; /* only one layer: no list of them */
  results.best = 0;
  object = cJSON_CreateObject();
  plm_probe_add_results(object, &results);
  assert_null(cJSON_GetObjectItem(object, "layers"));
  assert_string_equal(cJSON_GetObjectItem(object, "layer")->valuestring, "0");
  cJSON_Delete(object);
}

static void printed_table(const struct plm_labelled_table *table, const char *expected)
{
  captured_begin(STDOUT_FILENO);
  plm_probe_print_table(table);
  assert_string_equal(captured_end(), expected);
}

static void tables_as_text(void **state)
{
  (void)state;
  struct plm_labelled_table table = table_of(PLM_LABEL_NUMBER);
  printed_table(&table, "table   t.csv: 4 rows, regression of \"y\"\n"
                        "split   train 2000, valid 1, test 2\n\n");
  table.hashed = true;
  table.missing_labels = 1;
  table.missing_splits = 2;
  printed_table(&table, "table   t.csv: 4 rows, regression of \"y\"\n"
                        "split   train 2000, valid 1, test 2 (by the hash of the sequence)\n"
                        "missing 1 row without a label, left out\n"
                        "missing 2 rows without a split, left out\n\n");
  table = table_of(PLM_LABEL_CLASS);
  table.parts[PLM_PART_TEST] = 0;
  printed_table(&table, "table   t.csv: 4 rows, classification of \"y\", 3 classes\n"
                        "split   train 2000, valid 1, test 0; valid is tested\n\n");
  table.folds = 5;
  printed_table(&table, "table   t.csv: 4 rows, classification of \"y\", 3 classes\n"
                        "split   5 folds, each predicted by a probe of the others\n\n");
}

static void printed_row(const struct plm_probe_fit *fit, enum plm_label_kind kind,
                        const char *expected)
{
  captured_begin(STDOUT_FILENO);
  plm_probe_print_row("run", "last", kind, fit);
  assert_string_equal(captured_end(), expected);
}

static void rows_as_text(void **state)
{
  (void)state;
  double alphas[] = {10, 10, 0.5};
  struct plm_probe_fit fit = {.alphas = alphas, .fits = 2};
  struct plm_labelled_table table = table_of(PLM_LABEL_NUMBER);
  measure(&fit, 0);
  captured_begin(STDOUT_FILENO);
  plm_probe_print_header(&table);
  assert_string_equal(captured_end(),
                      "checkpoint                        layer   alpha   spearman                 "
                      "pearson                  r2                       rmse\n");
  printed_row(&fit, PLM_LABEL_NUMBER,
              "run                               last    10      0.000 [-0.250, 0.250]    "
              "0.125 [-0.125, 0.375]    0.250 [0.000, 0.500]     0.375 [0.125, 0.625]\n");
  fit.fits = 3;
  fit.measured[PLM_MEASURE_MACRO_F1].low = NAN;
  fit.measured[PLM_MEASURE_AUROC].value = NAN;
  printed_row(&fit, PLM_LABEL_CLASS,
              "run                               last    various 0.500 [0.250, 0.750]     "
              "0.625                    0.750 [0.500, 1.000]     -\n");
}

static void layers_as_bars(void **state)
{
  (void)state;
  double alpha = 100;
  struct plm_probed layers[3];
  const struct plm_labelled_table table = table_of(PLM_LABEL_NUMBER);
  struct plm_probe_results results = results_of(&table, layers, &alpha);
  captured_begin(STDOUT_FILENO);
  plm_probe_print_layers(&results);
  assert_string_equal(
      captured_end(),
      "\nlayer    spearman of the test part (* has the smallest loss where alpha was chosen)\n"
      "      0   0.250  ####################\n"
      "*     4   0.500  ########################################\n"
      "      8  -0.500  \n");
  results.count = 1;
  captured_begin(STDOUT_FILENO);
  plm_probe_print_layers(&results);
  assert_string_equal(captured_end(), "");
}

static void writes(enum plm_label_kind kind, uint32_t count, double *predicted,
                   const char *expected)
{
  struct plm_labelled_table table = table_of(kind);
  uint32_t items[] = {2, 3};
  double alpha = 1;
  struct plm_probed layers[2] = {
      {.fit = {.alphas = &alpha, .fits = 1}},
      {.fit = {
           .alphas = &alpha, .fits = 1, .count = count, .items = items, .predicted = predicted}}};
  const struct plm_probe_results results = {
      .items = items_of(&table), .layers = layers, .count = 2, .best = 1};
  const char *path = scratch_path("out.csv");
  char *text;
  size_t size;
  table.target_name = "a,b";
  assert_int_equal(plm_probe_write_predictions(&results, path, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 16, &text, &size, NULL), PLM_OK);
  assert_string_equal(text, expected);
  free(text);
  assert_int_equal(unlink(path), 0);
}

static void predictions(void **state)
{
  (void)state;
  double numbers[] = {0.25, -1e9}, probabilities[] = {0.5, 0.25, 0.25, 0, 0.5, 0.5};
  writes(PLM_LABEL_NUMBER, 2, numbers,
         "line,\"a,b\",predicted\n6,-3,0.25\n9,1000000000,-1000000000\n");
  writes(PLM_LABEL_CLASS, 2, probabilities,
         "line,\"a,b\",predicted,p(little),\"p(a,b)\",p(much)\n"
         "6,much,little,0.5,0.25,0.25\n9,\"a,b\",\"a,b\",0,0.5,0.5\n");
  writes(PLM_LABEL_RESIDUES, 1, probabilities,
         "line,position,\"a,b\",predicted,p(little),\"p(a,b)\",p(much)\n"
         "6,8,much,little,0.5,0.25,0.25\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(warnings),       cmocka_unit_test(fits_as_json),
      cmocka_unit_test(tables_as_json), cmocka_unit_test(results_as_json),
      cmocka_unit_test(tables_as_text), cmocka_unit_test(rows_as_text),
      cmocka_unit_test(layers_as_bars), cmocka_unit_test(predictions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
