/* The lines of trainer.jsonl: each metric has its own value, and no line is lost or out of order.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/run/run.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "trainer/step/step_report.h"

/* No two values are the same. */
static struct plm_step_result result_of(void)
{
  return (struct plm_step_result){
      .loss = 2.5,
      .grad_norm = 0.75,
      .clip_norm = 1.25,
      .accuracy = 0.375,
      .totals = {.count = 11, .rows = 12, .real_tokens = 600, .padded_tokens = 800},
      .flops = 3e9,
      .window = 512,
      .slowest_rank = -1};
}

static struct plm_step_line line_of(const struct plm_step_result *result)
{
  struct plm_step_line line = {.step = 7,
                               .result = result,
                               .mask_rate = 0.1875,
                               .tokens = 4242,
                               .epoch = 1.5,
                               .skipped_updates = 3,
                               .exact = true,
                               .step_s = 0.5,
                               .data_wait_s = 0.125,
                               .checkpoint_s = 0.0625,
                               .product_flops = 24e9};
  line.rates.of[PLM_GROUP_HIDDEN] = 0.5;
  line.rates.of[PLM_GROUP_EMBED] = 0.25;
  line.rates.of[PLM_GROUP_HEAD] = 0.015625;
  line.rates.of[PLM_GROUP_SCALAR] = 0.03125;
  return line;
}

static struct plm_step_report *open_report(const char *run, uint64_t keep_bytes)
{
  struct plm_step_report *report;
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  assert_int_equal(plm_step_report_open(run, false, keep_bytes, -1, 100, &report, NULL), PLM_OK);
  return report;
}

/* The whole file; the caller frees it. */
static char *lines_of(const char *run)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  assert_int_equal(plm_path_join(path, run, PLM_RUN_TRAINER_METRICS, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  return text;
}

/* Writes one line to a new run. Returns its text without what differs from call to call (version,
 * memory, time); the caller frees it. */
static char *text_of(const struct plm_step_line *line, const char *name)
{
  struct plm_step_report *report = open_report(scratch_path(name), 0);
  assert_int_equal(plm_step_report_write(report, line, NULL), PLM_OK);
  plm_step_report_close(report);
  char *text = lines_of(scratch_path(name));
  cJSON *json = cJSON_Parse(text);
  free(text);
  const cJSON *memory = cJSON_GetObjectItemCaseSensitive(json, "memory_bytes");
  const cJSON *time = cJSON_GetObjectItemCaseSensitive(json, "time");
  assert_true(cJSON_IsNumber(memory) && memory->valuedouble >= 4096 * 16);
  assert_true(cJSON_IsNumber(time) && time->valuedouble > 1.6e9);
  cJSON_DeleteItemFromObjectCaseSensitive(json, "v");
  cJSON_DeleteItemFromObjectCaseSensitive(json, "memory_bytes");
  cJSON_DeleteItemFromObjectCaseSensitive(json, "time");
  text = cJSON_PrintUnformatted(json);
  cJSON_Delete(json);
  return text;
}

static void each_metric_has_its_own_value(void **state)
{
  (void)state;
  const struct plm_step_result result = result_of();
  const struct plm_step_line line = line_of(&result);
  char *text = text_of(&line, "values");
  assert_string_equal(
      text,
      "{\"step\":7,\"loss\":2.5,\"accuracy\":0.375,\"lr_hidden\":0.5,\"lr_embed\":0.25,"
      "\"lr_head\":0.015625,\"lr_scalar\":0.03125,\"grad_norm\":0.75,\"clip_norm\":1.25,"
      "\"mask_rate\":0.1875,\"window\":512,\"tokens\":4242,\"epoch\":1.5,\"padding_fraction\":0.25,"
      "\"skipped_updates\":3,\"tokens_per_second\":1200,\"padded_tokens_per_second\":1600,"
      "\"step_ms\":500,\"data_wait_ms\":125,\"checkpoint_ms\":62.5,\"mfu\":0.25}");
  free(text);
}

/* In a run on several corpora, their tokens and losses follow the tokens of the run. */
static void sources_are_told(void **state)
{
  (void)state;
  const struct plm_step_result result = result_of();
  struct plm_step_line line = line_of(&result);
  struct plm_source_totals sources = {.count = 3,
                                      .names = {"uniref", "bfd", "none"},
                                      .tokens = {70, 30, 0},
                                      .losses = {2.75, 0.1, NAN}};
  line.by_source = &sources;
  char *text = text_of(&line, "sources");
  assert_non_null(
      strstr(text, "\"tokens\":4242,\"tokens_by_source\":{\"uniref\":70,\"bfd\":30,\"none\":0},"
                   "\"loss_by_source\":{\"uniref\":2.75,\"bfd\":0.1,\"none\":null},\"epoch\":1.5"));
  free(text);
  sources.count = 0; /* of one corpus */
  text = text_of(&line, "one");
  assert_null(strstr(text, "by_source"));
  free(text);
}

static void what_is_not_known_is_null_or_missing(void **state)
{
  (void)state;
  struct plm_step_result result = result_of();
  result.loss = result.accuracy = result.grad_norm = NAN;
  result.slowest_rank = 0;
  struct plm_step_line line = line_of(&result);
  line.product_flops = 0;
  line.exact = false;
  char *text = text_of(&line, "unknown");
  assert_string_equal(
      text,
      "{\"step\":7,\"loss\":null,\"accuracy\":null,\"lr_hidden\":0.5,\"lr_embed\":0.25,"
      "\"lr_head\":0.015625,\"lr_scalar\":0.03125,\"grad_norm\":null,\"clip_norm\":1.25,"
      "\"mask_rate\":0.1875,\"window\":512,\"tokens\":4242,\"epoch\":1.5,\"padding_fraction\":0.25,"
      "\"skipped_updates\":3,\"exact\":false,\"tokens_per_second\":1200,"
      "\"padded_tokens_per_second\":1600,\"step_ms\":500,\"data_wait_ms\":125,"
      "\"checkpoint_ms\":62.5,\"mfu\":null,\"slowest_rank\":0}");
  free(text);
}

/* The steps of the lines, in order: "1 2 ". */
static void expect_steps(const char *run, const char *expected)
{
  char *text = lines_of(run), steps[128] = "";
  size_t used = 0;
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    cJSON *json = cJSON_Parse(line);
    assert_non_null(json);
    used += (size_t)snprintf(steps + used, sizeof steps - used, "%d ",
                             cJSON_GetObjectItemCaseSensitive(json, "step")->valueint);
    cJSON_Delete(json);
  }
  assert_string_equal(steps, expected);
  free(text);
}

static void write_steps(struct plm_step_report *report, uint64_t first, uint64_t last)
{
  const struct plm_step_result result = result_of();
  struct plm_step_line line = line_of(&result);
  for (line.step = first; line.step <= last; line.step++)
    assert_int_equal(plm_step_report_write(report, &line, NULL), PLM_OK);
}

static void lines_behind_the_checkpoint_are_cut(void **state)
{
  (void)state;
  const char *run = scratch_path("cut");
  struct plm_step_report *report = open_report(run, 0);
  write_steps(report, 1, 2);
  const uint64_t bytes = plm_metrics_size(plm_step_report_file(report));
  write_steps(report, 3, 4);
  plm_step_report_close(report);
  expect_steps(run, "1 2 3 4 ");
  report = open_report(run, bytes);
  assert_int_equal(plm_metrics_size(plm_step_report_file(report)), bytes);
  write_steps(report, 3, 3);
  plm_step_report_close(report);
  expect_steps(run, "1 2 3 ");
  /* one that is shorter than it was is kept as it is */
  report = open_report(run, 1 << 20);
  write_steps(report, 4, 4);
  plm_step_report_close(report);
  expect_steps(run, "1 2 3 4 ");
}

static void lines_wait_for_a_full_disk(void **state)
{
  (void)state;
  const char *run = scratch_path("full");
  struct plm_step_report *report = open_report(run, 0);
  struct rlimit limit, small;
  write_steps(report, 1, 1);
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  small = limit;
  small.rlim_cur = plm_metrics_size(plm_step_report_file(report));
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  write_steps(report, 2, 4); /* no error: they wait */
  const plm_status status = plm_step_report_flush(report, NULL);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  assert_int_not_equal(status, PLM_OK);
  expect_steps(run, "1 ");
  write_steps(report, 5, 5);
  expect_steps(run, "1 2 3 4 5 ");
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  write_steps(report, 6, 7);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  assert_int_equal(plm_step_report_flush(report, NULL), PLM_OK);
  expect_steps(run, "1 2 3 4 5 6 7 ");
  plm_step_report_close(report);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_metric_has_its_own_value),
      cmocka_unit_test(sources_are_told),
      cmocka_unit_test(what_is_not_known_is_null_or_missing),
      cmocka_unit_test(lines_behind_the_checkpoint_are_cut),
      cmocka_unit_test(lines_wait_for_a_full_disk),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
