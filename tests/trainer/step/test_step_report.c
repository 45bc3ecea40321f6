/* The lines of trainer.jsonl: each metric has its own value, and no line is lost or out of order.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/run/run.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "trainer/step/step_report.h"

static int64_t later_ms; /* how far the monotonic clock is ahead */

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  const int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (clock != CLOCK_MONOTONIC) return failed;
  now->tv_sec += later_ms / 1000;
  now->tv_nsec += later_ms % 1000 * 1000000;
  if (now->tv_nsec >= 1000000000) now->tv_sec++, now->tv_nsec -= 1000000000;
  return failed;
}

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
static void sources_are_reported(void **state)
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
  const uint64_t whole = plm_metrics_size(plm_step_report_file(report));
  plm_step_report_close(report);
  expect_steps(run, "1 2 3 ");
  /* one that is shorter than it was is kept as it is, and told; one that is as long is not */
  captured_begin(STDERR_FILENO);
  plm_step_report_close(open_report(run, whole));
  assert_string_equal(captured_end(), "");
  captured_begin(STDERR_FILENO);
  report = open_report(run, 1 << 20);
  assert_int_equal(captured_times(captured_end(), "lines are missing"), 1);
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
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  write_steps(report, 8, 8);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  expect_steps(run, "1 2 3 4 5 6 7 ");
  plm_step_report_close(report);
  expect_steps(run, "1 2 3 4 5 6 7 8 ");
}

/* ---- TensorBoard ----------------------------------------------------------------------------- */

static uint64_t varint(const unsigned char **at)
{
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    value |= (uint64_t)(**at & 0x7f) << shift;
    if ((*(*at)++ & 0x80) == 0) return value;
  }
}

/* The scalars of the run's only event file, "step tag value" each. The caller frees them. */
static char *scalars_of(const char *run)
{
  char folder[PLM_PATH_SIZE], *bytes, *text = calloc(1, 1 << 16);
  size_t size, used = 0;
  assert_int_equal(plm_path_join(folder, run, PLM_RUN_TENSORBOARD "/trainer", NULL), PLM_OK);
  assert_int_equal(plm_file_read(scratch_only_file(folder), 1 << 20, &bytes, &size, NULL), PLM_OK);
  for (size_t place = 0; place < size;) {
    const unsigned char *at = (const unsigned char *)bytes + place + 12; /* length, checksum */
    uint64_t length;
    float value;
    memcpy(&length, bytes + place, sizeof length);
    place += length + 16;
    at += 9; /* the time */
    if (*at++ != (2 << 3)) continue;
    const uint64_t step = varint(&at);
    if (*at++ != (5 << 3 | 2)) continue; /* the version of the file */
    (void)varint(&at);
    assert_int_equal(*at++, 1 << 3 | 2);
    (void)varint(&at);
    assert_int_equal(*at++, 1 << 3 | 2);
    const int name = (int)varint(&at);
    memcpy(&value, at + name + 1, sizeof value);
    used += (size_t)snprintf(text + used, (1 << 16) - used, "%llu %.*s %g\n",
                             (unsigned long long)step, name, (const char *)at, (double)value);
  }
  free(bytes);
  return text;
}

static struct plm_step_report *open_board(const char *run)
{
  struct plm_step_report *report;
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  assert_int_equal(plm_step_report_open(run, true, 0, -1, 100, &report, NULL), PLM_OK);
  return report;
}

/* This and its three functions take the place of those of layer_norms.c in this program. */
struct plm_layer_norms {
  size_t count;
  const char *names[2];
  double values[PLM_MEASURED_NORMS][2];
};

size_t plm_layer_norms_count(const struct plm_layer_norms *norms)
{
  return norms->count;
}

const char *plm_layer_norms_name(const struct plm_layer_norms *norms, size_t layer)
{
  return norms->names[layer];
}

double plm_layer_norms_value(const struct plm_layer_norms *norms, enum plm_measured_norm kind,
                             size_t layer)
{
  return norms->values[kind][layer];
}

/* Every number, but no text, and none that is not known. */
static void each_number_is_a_scalar(void **state)
{
  (void)state;
  const char *run = scratch_path("board");
  struct plm_step_result result = result_of();
  const struct plm_source_totals sources = {
      .count = 2, .names = {"uniref", "bfd"}, .tokens = {70, 30}, .losses = {2.75, NAN}};
  const struct plm_layer_norms norms = {
      2, {"embeddings", "encoder.0"}, {{10.25, 10.5}, {20.25, 20.5}, {30.25, 30.5}}};
  struct plm_step_line line = line_of(&result);
  result.norms = &norms;
  line.by_source = &sources;
  line.warning = "loss_spike";
  line.product_flops = 0;
  struct plm_step_report *report = open_board(run);
  assert_int_equal(plm_step_report_write(report, &line, NULL), PLM_OK);
  plm_step_report_close(report);
  char *text = scalars_of(run), *memory = strstr(text, "7 memory_bytes ");
  assert_non_null(memory);
  const char *behind = strchr(memory, '\n') + 1;
  memmove(memory, behind, strlen(behind) + 1);
  assert_string_equal(
      text, "7 loss 2.5\n7 accuracy 0.375\n7 lr_hidden 0.5\n7 lr_embed 0.25\n"
            "7 lr_head 0.015625\n7 lr_scalar 0.03125\n7 grad_norm 0.75\n7 clip_norm 1.25\n"
            "7 mask_rate 0.1875\n7 window 512\n7 tokens 4242\n7 tokens_by_source/uniref 70\n"
            "7 tokens_by_source/bfd 30\n7 loss_by_source/uniref 2.75\n7 epoch 1.5\n"
            "7 padding_fraction 0.25\n7 skipped_updates 3\n"
            "7 gradient_norms/embeddings 10.25\n7 gradient_norms/encoder.0 10.5\n"
            "7 weight_norms/embeddings 20.25\n7 weight_norms/encoder.0 20.5\n"
            "7 update_norms/embeddings 30.25\n7 update_norms/encoder.0 30.5\n"
            "7 tokens_per_second 1200\n"
            "7 padded_tokens_per_second 1600\n7 step_ms 500\n7 data_wait_ms 125\n"
            "7 checkpoint_ms 62.5\n");
  free(text);
}

/* The last step in the event file; 0: none. */
static int last_scalar(const char *run)
{
  char *text = scalars_of(run);
  int last = 0;
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) last = atoi(line);
  free(text);
  return last;
}

/* Scalars are written every ten seconds, with the last step, and when they are flushed. */
static void scalars_are_written_now_and_then(void **state)
{
  (void)state;
  const char *run = scratch_path("now_and_then");
  struct plm_step_report *report = open_board(run);
  write_steps(report, 1, 1);
  assert_int_equal(last_scalar(run), 1);
  later_ms += 5000;
  write_steps(report, 2, 2);
  assert_int_equal(last_scalar(run), 1);
  later_ms += 5000;
  write_steps(report, 3, 3);
  assert_int_equal(last_scalar(run), 3);
  write_steps(report, 4, 4);
  assert_int_equal(last_scalar(run), 3);
  assert_int_equal(plm_step_report_flush(report, NULL), PLM_OK);
  assert_int_equal(last_scalar(run), 4);
  write_steps(report, 99, 99);
  assert_int_equal(last_scalar(run), 4);
  write_steps(report, 100, 100);
  assert_int_equal(last_scalar(run), 100);
  plm_step_report_close(report);
}

/* A board that cannot be written is given up with a warning, and the lines go on. */
static void a_board_that_fails_is_given_up(void **state)
{
  (void)state;
  for (int by_flush = 0; by_flush < 2; by_flush++) {
    const char *run = scratch_path(by_flush ? "flushed" : "written");
    struct plm_step_report *report = open_board(run);
    struct rlimit limit, small;
    write_steps(report, 1, 1);
    if (by_flush) write_steps(report, 2, 2);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 1024; /* less than the event file has already */
    later_ms += 10000;
    captured_begin(STDERR_FILENO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    if (!by_flush) write_steps(report, 2, 2);
    if (by_flush) assert_int_equal(plm_step_report_flush(report, NULL), PLM_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_non_null(strstr(captured_end(), "no more TensorBoard scalars are written: "));
    later_ms += 10000;
    write_steps(report, 3, 3);
    assert_int_equal(plm_step_report_flush(report, NULL), PLM_OK);
    plm_step_report_close(report);
    expect_steps(run, "1 2 3 ");
    assert_int_equal(last_scalar(run), 1);
  }
}

static void without_its_folder_there_is_no_board(void **state)
{
  (void)state;
  const char *run = scratch_path("no_folder");
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, run, PLM_RUN_TENSORBOARD, NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, "x", 1, 0644, NULL), PLM_OK);
  captured_begin(STDERR_FILENO);
  struct plm_step_report *report = open_board(run);
  assert_non_null(strstr(captured_end(), "no TensorBoard files: "));
  write_steps(report, 1, 1);
  plm_step_report_close(report);
  expect_steps(run, "1 ");
}

/* ---- lines on stderr ------------------------------------------------------------------------- */

/* What a step of the given duration prints. */
static const char *printed(struct plm_step_report *report, uint64_t step, double step_s,
                           bool skipped)
{
  struct plm_step_result result = result_of();
  struct plm_step_line line = line_of(&result);
  result.skipped = skipped;
  line.step = step;
  line.step_s = step_s;
  captured_begin(STDERR_FILENO);
  (void)plm_step_report_write(report, &line, NULL);
  return captured_end();
}

/* The first one, the last one, and one every five seconds. The time that is left follows from a
 * smoothed pace. */
static void steps_are_printed_now_and_then(void **state)
{
  (void)state;
  struct plm_step_report *report = open_report(scratch_path("printed"), 0);
  assert_non_null(strstr(printed(report, 40, 2, false),
                         "step 40/100  loss 2.5000  lr 0.5  300 tokens/s, 2:00 left\n"));
  later_ms += 4000;
  assert_string_equal(printed(report, 50, 2, false), "");
  later_ms += 1000;
  assert_non_null(strstr(printed(report, 60, 12, true),
                         "step 60/100  loss 2.5000  lr 0.5  50 tokens/s, 2:00 left  (update "
                         "skipped)\n"));
  assert_string_equal(printed(report, 99, 2, false), "");
  assert_non_null(
      strstr(printed(report, 100, 2, false), "step 100/100  loss 2.5000  lr 0.5  300 tokens/s\n"));
  plm_step_report_close(report);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_metric_has_its_own_value),
      cmocka_unit_test(sources_are_reported),
      cmocka_unit_test(what_is_not_known_is_null_or_missing),
      cmocka_unit_test(lines_behind_the_checkpoint_are_cut),
      cmocka_unit_test(lines_wait_for_a_full_disk),
      cmocka_unit_test(each_number_is_a_scalar),
      cmocka_unit_test(scalars_are_written_now_and_then),
      cmocka_unit_test(a_board_that_fails_is_given_up),
      cmocka_unit_test(without_its_folder_there_is_no_board),
      cmocka_unit_test(steps_are_printed_now_and_then),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
