/* packer/packer_metrics: when a line of packers.jsonl is written, and its values. */
#include "packer/packer_metrics.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/run/run.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static char file[PLM_PATH_SIZE];

/* A line without its time; the caller frees it. Fails unless the file has `lines` lines. */
static char *last_of(int lines)
{
  char *text, *line;
  size_t size;
  int count = 0;
  assert_int_equal(plm_file_read(file, 1 << 20, &text, &size, NULL), PLM_OK);
  assert_int_equal(text[size - 1], '\n');
  text[size - 1] = '\0';
  for (size_t i = 0; i + 1 < size; i++) count += text[i] == '\n';
  assert_int_equal(count + 1, lines);
  line = strrchr(text, '\n');
  cJSON *json = cJSON_Parse(line != NULL ? line + 1 : text);
  assert_non_null(json);
  const cJSON *time = cJSON_GetObjectItem(json, "time");
  assert_true(cJSON_IsNumber(time) && time->valuedouble > plm_clock_wall_s() - 1000);
  cJSON_DeleteItemFromObject(json, "time");
  line = cJSON_PrintUnformatted(json);
  cJSON_Delete(json);
  free(text);
  return line;
}

static void expect_line(int lines, const char *wanted)
{
  char *line = last_of(lines);
  assert_string_equal(line, wanted);
  cJSON_free(line);
}

static struct packer_metrics *open_metrics(const char *run)
{
  const struct plm_hello who = {.host = "here", .pid = 77};
  struct packer_metrics *metrics;
  assert_int_equal(packer_metrics_open(run, &who, &metrics, NULL), PLM_OK);
  assert_int_equal(plm_path_join(file, run, PLM_RUN_PACKER_METRICS, NULL), PLM_OK);
  return metrics;
}

/* Rates are those since the last line, without the time in which nothing was served. */
static void a_line_every_five_seconds(void **state)
{
  const char *run = scratch_path("run");
  struct plm_packer_counters counters = {0};
  (void)state;
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  struct packer_metrics *metrics = open_metrics(run);
  const int64_t idle = plm_clock_ms() + 60000;
  packer_metrics_tick(metrics, &counters, idle); /* from here on the time is known */
  counters = (struct plm_packer_counters){.windows = 2,
                                          .chunks = 3,
                                          .documents = 50,
                                          .tokens = 600,
                                          .padded_tokens = 800,
                                          .bytes = 9000,
                                          .queue = 4};
  packer_metrics_tick(metrics, &counters, idle + 4999);
  assert_false(plm_file_exists(file));
  packer_metrics_tick(metrics, &counters, idle + 5000);
  expect_line(1, "{\"v\":1,\"packer\":\"here:77\",\"windows\":2,\"documents_per_second\":10,"
                 "\"tokens_per_second\":120,\"padding_fraction\":0.25,\"queue\":4}");
  packer_metrics_tick(metrics, &counters, idle + 20000); /* nothing was served */
  counters.chunks++;
  counters.documents += 30;
  counters.tokens += 100;
  counters.padded_tokens += 200;
  counters.queue = 0;
  packer_metrics_tick(metrics, &counters, idle + 24999);
  packer_metrics_tick(metrics, &counters, idle + 30000);
  expect_line(2, "{\"v\":1,\"packer\":\"here:77\",\"windows\":2,\"documents_per_second\":3,"
                 "\"tokens_per_second\":10,\"padding_fraction\":0.5,\"queue\":0}");
  counters.chunks++;
  packer_metrics_close(metrics, &counters, idle + 32000); /* the rest */
  expect_line(3, "{\"v\":1,\"packer\":\"here:77\",\"windows\":2,\"documents_per_second\":0,"
                 "\"tokens_per_second\":0,\"padding_fraction\":0,\"queue\":0}");
}

/* Another packer appends to the same file, and one that served nothing adds no line. */
static void packers_append(void **state)
{
  const char *run = scratch_path("appended");
  struct plm_packer_counters counters = {.chunks = 1};
  struct stat information;
  (void)state;
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  struct packer_metrics *metrics = open_metrics(run);
  const int64_t now = plm_clock_ms();
  packer_metrics_close(metrics, &(struct plm_packer_counters){0}, now + 9000);
  assert_false(plm_file_exists(file));
  metrics = open_metrics(run);
  packer_metrics_close(metrics, &counters, now - 60000); /* no time has passed */
  assert_false(plm_file_exists(file));
  for (int lines = 1; lines <= 2; lines++) {
    metrics = open_metrics(run);
    packer_metrics_close(metrics, &counters, now + 9000);
    cJSON_free(last_of(lines));
  }
  assert_int_equal(stat(file, &information), 0);
  assert_int_equal(information.st_mode & 0111, 0);
  packer_metrics_tick(NULL, &counters, now + 9000);
  packer_metrics_close(NULL, &counters, now + 9000);
}

/* It is said once in a row. */
static void a_file_that_cannot_be_written_is_said_once(void **state)
{
  const char *run = scratch_path("missing");
  struct plm_packer_counters counters = {.chunks = 1};
  int lines = 0;
  (void)state;
  struct packer_metrics *metrics = open_metrics(run);
  const int64_t now = plm_clock_ms();
  captured_begin(STDERR_FILENO);
  for (int i = 1; i <= 3; i++, counters.chunks++)
    packer_metrics_tick(metrics, &counters, now + 10000 * i);
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  packer_metrics_tick(metrics, &counters, now + 40000);
  counters.chunks++;
  assert_int_equal(plm_path_remove(run, NULL), PLM_OK);
  packer_metrics_tick(metrics, &counters, now + 50000);
  const char *said = captured_end();
  for (const char *at = said; (at = strstr(at, "cannot open")) != NULL; at++) lines++;
  assert_int_equal(lines, 2);
  packer_metrics_close(metrics, &counters, now + 50000);
}

static void a_long_path_is_refused(void **state)
{
  const struct plm_hello who = {.host = "here", .pid = 77};
  struct packer_metrics *metrics;
  char run[PLM_PATH_SIZE];
  (void)state;
  memset(run, 'r', sizeof run - 1);
  run[sizeof run - 1] = '\0';
  assert_int_equal(packer_metrics_open(run, &who, &metrics, NULL), PLM_LIMIT);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_line_every_five_seconds),
      cmocka_unit_test(packers_append),
      cmocka_unit_test(a_file_that_cannot_be_written_is_said_once),
      cmocka_unit_test(a_long_path_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
