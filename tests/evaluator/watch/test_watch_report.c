/* The lines and scalars of an evaluation: each metric has its own value, and those that were not
 * computed are missing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "evaluator/labels/label_report.h"
#include "evaluator/watch/watch_report.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static const struct plm_layer_entropy entropies[] = {
    {"layers.0", 1.25}, {"layers.1", NAN}, {"layers.2", 1.5}};

/* No two values are the same. */
static struct plm_evaluation_result distinct(void)
{
  struct plm_evaluation_result result = {.loss = 2.5,
                                         .perplexity = 12.25,
                                         .classification = {.accuracy = 0.5,
                                                            .precision = 0.375,
                                                            .recall = 0.625,
                                                            .f1 = 0.75,
                                                            .mcc = -0.125},
                                         .tokens = 4321,
                                         .rates = {0.15, 0.3},
                                         .rate_loss = {2.5, 2.75},
                                         .rate_count = 2,
                                         .elbo = 3.5,
                                         .pseudo_perplexity = 11.5,
                                         .pseudo_perplexity_fast = 10.5,
                                         .entropies = entropies,
                                         .entropy_count = 3,
                                         .lengths = {.longest = 64, .cut = 9},
                                         .compute_dtype = "bf16",
                                         .seconds = 6.5};
  result.bin_rows[0] = 7;
  result.bin_loss[0] = 2.125;
  result.bin_loss[1] = NAN; /* empty */
  result.bin_rows[PLM_LENGTH_BINS - 1] = 1;
  result.bin_loss[PLM_LENGTH_BINS - 1] = 1.875;
  return result;
}

static const struct plm_held_out own = {.set = PLM_OWN_SET, .split = PLM_SPLIT_VALID};

static struct plm_watch_report report_of(const struct plm_evaluation_result *result)
{
  return (struct plm_watch_report){.step = 120,
                                   .identity = {.low = 0x1234, .high = 0xabcd},
                                   .weights = "ema",
                                   .held_out = &own,
                                   .baseline_entropy = 2.875,
                                   .result = result};
}

/* Fails unless the line, without its version and time, is this text. */
static void expect_line(const struct plm_watch_report *report, const char *trainer_path,
                        const char *expected)
{
  cJSON *line = plm_watch_report_line(report, trainer_path);
  assert_non_null(line);
  const cJSON *time = cJSON_GetObjectItemCaseSensitive(line, "time");
  assert_true(cJSON_HasObjectItem(line, "v") && time != NULL);
  cJSON_DeleteItemFromObjectCaseSensitive(line, "v");
  cJSON_DeleteItemFromObjectCaseSensitive(line, "time");
  char *text = cJSON_PrintUnformatted(line);
  assert_string_equal(text, expected);
  cJSON_free(text);
  cJSON_Delete(line);
}

static void each_metric_has_its_own_value(void **state)
{
  (void)state;
  const struct plm_evaluation_result result = distinct();
  const struct plm_watch_report report = report_of(&result);
  expect_line(&report, NULL,
              "{\"step\":120,\"checkpoint\":\"checkpoints/step_00000120\","
              "\"identity\":\"000000000000abcd0000000000001234\",\"set\":\"corpus\","
              "\"split\":\"valid\",\"weights\":\"ema\",\"compute_dtype\":\"bf16\",\"cut\":9,"
              "\"loss\":2.5,\"perplexity\":12.25,"
              "\"accuracy\":0.5,\"precision\":0.375,\"recall\":0.625,\"f1\":0.75,\"mcc\":-0.125,"
              "\"tokens\":4321,\"baseline_entropy\":2.875,\"elbo\":3.5,\"pseudo_perplexity\":11.5,"
              "\"pseudo_perplexity_fast\":10.5,\"loss_by_mask_rate\":{\"0.15\":2.5,\"0.3\":2.75},"
              "\"loss_by_length\":{\"<64\":2.125,\">=8192\":1.875},"
              "\"attention_entropy\":{\"layers.0\":1.25,\"layers.1\":null,\"layers.2\":1.5},"
              "\"seconds\":6.5}");
}

static void what_was_not_computed_is_missing(void **state)
{
  (void)state;
  struct plm_evaluation_result result = distinct();
  const struct plm_held_out other = {.set = "refseq", .split = PLM_SPLIT_TEST};
  struct plm_watch_report report = report_of(&result);
  report.held_out = &other;
  result.elbo = result.pseudo_perplexity = result.pseudo_perplexity_fast = NAN;
  result.rate_count = result.entropy_count = 0;
  memset(result.bin_rows, 0, sizeof result.bin_rows);
  result.loss = INFINITY;
  expect_line(&report, NULL,
              "{\"step\":120,\"checkpoint\":\"checkpoints/step_00000120\","
              "\"identity\":\"000000000000abcd0000000000001234\",\"set\":\"refseq\","
              "\"split\":\"test\",\"weights\":\"ema\",\"compute_dtype\":\"bf16\",\"cut\":9,"
              "\"loss\":null,\"perplexity\":12.25,"
              "\"accuracy\":0.5,\"precision\":0.375,\"recall\":0.625,\"f1\":0.75,\"mcc\":-0.125,"
              "\"tokens\":4321,\"baseline_entropy\":2.875,\"loss_by_mask_rate\":{},"
              "\"loss_by_length\":{},\"attention_entropy\":{},\"seconds\":6.5}");
}

static double lag_of(const char *trainer_path, uint64_t step)
{
  const struct plm_evaluation_result result = distinct();
  struct plm_watch_report report = report_of(&result);
  report.step = step;
  cJSON *line = plm_watch_report_line(&report, trainer_path);
  const cJSON *lag = cJSON_GetObjectItemCaseSensitive(line, "lag_steps");
  assert_true(cJSON_IsRaw(lag)); /* as plm_metrics_number writes it */
  const double steps = strtod(lag->valuestring, NULL);
  cJSON_Delete(line);
  return steps;
}

static void lag_is_the_distance_to_the_last_step(void **state)
{
  (void)state;
  static const char lines[] = "{\"v\":1,\"step\":7}\n{\"v\":1,\"step\":125}\n";
  const char *path = scratch_path("trainer.jsonl");
  assert_true(lag_of(path, 0) == 0); /* the trainer has written no line */
  scratch_write(path, lines, strlen(lines));
  assert_true(lag_of(path, 120) == 5);
  assert_true(lag_of(path, 125) == 0);
  assert_true(lag_of(path, 130) == 0); /* the trainer was reset; never negative */
}

/* ---- TensorBoard --------------------------------------------------------------------------- */

/* The value of a tag in an event file: Summary.Value has the tag, then simple_value (field 2). */
static bool find_scalar(const char *events, size_t size, const char *tag, float *value)
{
  const size_t length = strlen(tag);
  for (size_t i = 1; i + length + 5 <= size; i++) {
    if (memcmp(events + i, tag, length) != 0 || (size_t)events[i - 1] != length ||
        events[i + length] != (2 << 3 | 5))
      continue;
    memcpy(value, events + i + length + 1, sizeof *value);
    return true;
  }
  return false;
}

/* Writes scalars, of a report or of a task's line, into a new folder, and returns the bytes of its
 * event file. */
static char *events_of(const struct plm_watch_report *report, const cJSON *line, const char *name,
                       size_t *size)
{
  const char *folder = scratch_path(name);
  struct plm_tensorboard *board;
  char *events;
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(plm_tensorboard_open(folder, -1, &board, NULL), PLM_OK);
  if (report != NULL) plm_watch_report_board(report, board);
  if (line != NULL) plm_watch_task_board(120, line, board);
  assert_int_equal(plm_file_read(scratch_only_file(folder), 1 << 20, &events, size, NULL), PLM_OK);
  plm_tensorboard_close(board); /* only now: it is shown while the evaluator runs */
  return events;
}

static char *board_of(const struct plm_watch_report *report, const char *name, size_t *size)
{
  return events_of(report, NULL, name, size);
}

static void each_scalar_has_its_own_value(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    float value;
  } expected[] = {{"loss", 2.5f},
                  {"perplexity", 12.25f},
                  {"accuracy", 0.5f},
                  {"f1", 0.75f},
                  {"mcc", -0.125f},
                  {"baseline_entropy", 2.875f},
                  {"elbo", 3.5f},
                  {"attention_entropy/layers.0", 1.25f},
                  {"attention_entropy/layers.2", 1.5f}};
  const struct plm_held_out sets[] = {own, {.set = "refseq", .split = PLM_SPLIT_TEST}};
  static const char *const subjects[] = {"valid", "refseq/test"}, *const folders[] = {"a", "b"};
  struct plm_evaluation_result result = distinct();
  for (int set = 0; set < 2; set++) {
    struct plm_watch_report report = report_of(&result);
    report.held_out = &sets[set];
    size_t size;
    char *events = board_of(&report, folders[set], &size);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
      char tag[96];
      float value = 0;
      snprintf(tag, sizeof tag, "%s/%s", subjects[set], expected[i].name);
      if (!find_scalar(events, size, tag, &value)) fail_msg("no %s", tag);
      if (value != expected[i].value) fail_msg("%s is %g", tag, (double)value);
    }
    free(events);
  }
  float value;
  size_t size;
  result.elbo = NAN;
  const struct plm_watch_report report = report_of(&result);
  char *events = board_of(&report, "c", &size);
  assert_false(find_scalar(events, size, "valid/elbo", &value));
  assert_true(find_scalar(events, size, "valid/loss", &value));
  assert_true(find_scalar(events, size, "valid/attention_entropy/layers.2", &value));
  free(events);
  result.entropy_count = 2;
  events = board_of(&report, "d", &size);
  assert_false(find_scalar(events, size, "valid/attention_entropy/layers.2", &value));
  free(events);
  plm_watch_report_board(&report, NULL);
}

static void the_log_has_one_line(void **state)
{
  (void)state;
  const struct plm_held_out sets[] = {own, {.set = "refseq", .split = PLM_SPLIT_TEST}};
  static const char *const lines[] = {
      "t: step 120 valid: loss 2.5000 (composition 2.8750), perplexity 12.25, accuracy 50.0 %\n",
      "t: step 120 refseq test: loss 2.5000 (composition 2.8750), perplexity 12.25, accuracy 50.0 "
      "%\n"};
  const struct plm_evaluation_result result = distinct();
  plm_log_init("t", PLM_LOG_INFO);
  for (int set = 0; set < 2; set++) {
    struct plm_watch_report report = report_of(&result);
    report.held_out = &sets[set];
    captured_begin(STDERR_FILENO);
    plm_watch_report_log(&report);
    const char *text = captured_end();
    assert_string_equal(text, lines[set]);
  }
}

/* A set that the model cannot be evaluated on has a line that says why, and no scalars. */
static void a_set_without_a_result_says_why(void **state)
{
  (void)state;
  const struct plm_held_out set = {.set = "refseq", .split = PLM_SPLIT_TEST};
  const struct plm_evaluation_result result = distinct();
  struct plm_watch_report report = report_of(&result);
  size_t size;
  float value;
  report.held_out = &set;
  report.skipped = "it has other labels";
  cJSON *line = plm_watch_report_line(&report, NULL);
  assert_string_equal(plm_json_string(line, "task_skipped", ""), "it has other labels");
  assert_string_equal(plm_json_string(line, "set", ""), "refseq");
  assert_false(cJSON_HasObjectItem(line, "loss"));
  assert_false(cJSON_HasObjectItem(line, "skipped"));
  char *text = cJSON_PrintUnformatted(line);
  assert_non_null(strstr(text, "\"step\":120,"));
  cJSON_free(text);
  cJSON_Delete(line);
  char *events = board_of(&report, "skipped", &size);
  assert_false(find_scalar(events, size, "refseq/test/loss", &value));
  free(events);
  plm_log_init("t", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  plm_watch_report_log(&report);
  assert_string_equal(captured_end(), "t: warning: step 120 refseq test: it has other labels\n");
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static const char probe[] =
    "{\"v\":1,\"step\":120,\"set\":\"stability\",\"layer\":\"layers.1\",\"alpha\":10,"
    "\"predictions\":11,\"assays\":12,\"trained\":13,\"tested\":14,\"heads\":15,\"heads_used\":16,"
    "\"spearman\":0.5,\"rmse\":0.25,\"r2\":null,\"low\":{\"spearman\":0.4},"
    "\"baseline\":{\"spearman\":0.125,\"rmse\":null,\"words\":\"x\"},"
    "\"seconds\":17,\"lag_steps\":18,\"time\":19}";

/* Measures are scalars, and other numbers are not. */
static void the_measures_of_a_task_are_scalars(void **state)
{
  (void)state;
  static const char *const others[] = {
      "v",      "step",  "alpha",      "predictions",  "assays",        "trained",
      "tested", "heads", "heads_used", "seconds",      "lag_steps",     "time",
      "layer",  "r2",    "low",        "low/spearman", "baseline/rmse", "baseline/words"};
  cJSON *line = cJSON_Parse(probe);
  size_t size;
  float value;
  char tag[96], *events = events_of(NULL, line, "task", &size);
  assert_true(find_scalar(events, size, "stability/spearman", &value) && value == 0.5f);
  assert_true(find_scalar(events, size, "stability/rmse", &value) && value == 0.25f);
  assert_true(find_scalar(events, size, "stability/baseline/spearman", &value) && value == 0.125f);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    snprintf(tag, sizeof tag, "stability/%s", others[i]);
    if (find_scalar(events, size, tag, &value)) fail_msg("%s is a scalar", tag);
  }
  plm_watch_task_board(120, line, NULL);
  free(events);
  cJSON_Delete(line);
}

static void the_log_has_the_measures_of_a_task(void **state)
{
  (void)state;
  cJSON *lines[] = {cJSON_Parse(probe),
                    cJSON_Parse("{\"step\":120,\"set\":\"contacts\",\"p_at_l\":0.75,\"time\":2}"),
                    cJSON_Parse("{\"step\":120,\"set\":\"dms\",\"spearman\":null,\"assays\":2}")};
  static const char *const expected[] = {
      "t: step 120 stability: spearman 0.5000 (composition 0.1250), rmse 0.2500\n",
      "t: step 120 contacts: p_at_l 0.7500\n", "t: step 120 dms: no measure exists\n"};
  plm_log_init("t", PLM_LOG_INFO);
  for (int i = 0; i < 3; i++) {
    captured_begin(STDERR_FILENO);
    plm_watch_task_log(120, lines[i]);
    assert_string_equal(captured_end(), expected[i]);
    cJSON_Delete(lines[i]);
  }
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* The measures of a model that predicts labels, in place of those of a language model. */
static void labels_have_their_own_measures(void **state)
{
  (void)state;
  const struct plm_label_result labels = {.task = PLM_TASK_REGRESSION, .loss = 0.75, .labels = 9};
  struct plm_evaluation_result result = distinct();
  struct plm_text words = {0};
  char expected[500];
  size_t size;
  float value;
  result.labels = &labels;
  const struct plm_held_out set = {.set = "refseq", .split = PLM_SPLIT_TEST};
  struct plm_watch_report report = report_of(&result);
  report.held_out = &set;
  char *events = board_of(&report, "labels", &size);
  assert_true(find_scalar(events, size, "refseq/test/loss", &value) && value == 0.75f);
  assert_false(find_scalar(events, size, "refseq/test/perplexity", &value));
  free(events);
  plm_label_report_words(&labels, &words);
  snprintf(expected, sizeof expected, "t: step 120 refseq test: %s\n", words.data);
  plm_text_deinit(&words);
  plm_log_init("t", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  plm_watch_report_log(&report);
  assert_string_equal(captured_end(), expected);
}

/* ---- the table of settings ------------------------------------------------------------------- */

/* It is only a convenience, so a failure is a warning. */
static void settings_that_cannot_be_written_are_a_warning(void **state)
{
  (void)state;
  struct plm_config config;
  const struct plm_held_out_list list = {.items = {own}, .count = 1};
  const char *none = scratch_path("none/at/all");
  assert_int_equal(plm_config_load_text("version: 1\n", 11, &config, NULL), PLM_OK);
  plm_log_init("t", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  plm_watch_report_settings(&config, &list, none);
  assert_non_null(strstr(captured_end(), "t: warning: TensorBoard has no table of the settings: "));
  captured_begin(STDERR_FILENO);
  plm_watch_report_complete(none);
  assert_non_null(strstr(captured_end(), "t: warning: TensorBoard shows the run as running: "));
  const char *folder = scratch_path("settings");
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  captured_begin(STDERR_FILENO);
  plm_watch_report_settings(&config, &list, folder);
  plm_watch_report_complete(folder);
  assert_string_equal(captured_end(), "");
  plm_config_deinit(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_metric_has_its_own_value),
      cmocka_unit_test(what_was_not_computed_is_missing),
      cmocka_unit_test(lag_is_the_distance_to_the_last_step),
      cmocka_unit_test(each_scalar_has_its_own_value),
      cmocka_unit_test(the_log_has_one_line),
      cmocka_unit_test(a_set_without_a_result_says_why),
      cmocka_unit_test(the_measures_of_a_task_are_scalars),
      cmocka_unit_test(the_log_has_the_measures_of_a_task),
      cmocka_unit_test(labels_have_their_own_measures),
      cmocka_unit_test(settings_that_cannot_be_written_are_a_warning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
