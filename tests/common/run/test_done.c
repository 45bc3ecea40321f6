/* common/run/done: what DONE says, and whether it holds under a configuration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"

struct reason {
  const char *metric;
  uint32_t patience;
};

static void done_says_what_ended_the_run(void **state)
{
  (void)state;
  static const struct {
    struct reason before;
    uint64_t steps;
    struct reason now;
    const char *why; /* "" if the run is complete */
  } rows[] = {
      {{"loss", 0}, 40, {"loss", 0}, ""},
      {{"loss", 0}, 39, {"loss", 5}, ""},
      {{"loss", 0}, 41, {"loss", 5}, "trainer.steps was raised to 41"},
      {{"loss", 3}, 41, {"loss", 3}, ""},
      {{"loss", 3}, 99, {"loss", 2}, ""},
      {{"loss", 3}, 40, {"loss", 4}, ""},
      {{"loss", 3}, 41, {"loss", 4}, "trainer.stop_when.patience was raised from 3 to 4"},
      {{"accuracy", 3}, 41, {"accuracy", 0}, "trainer.stop_when.patience is 0 now"},
      {{"accuracy", 3}, 41, {"accuracy", 3}, ""},
      {{"accuracy", 3},
       41,
       {"loss", 2},
       "trainer.stop_when.metric was changed from accuracy to loss"},
      {{"macro_f1", 3}, 41, {"macro_f1", 3}, ""},
      {{"r2", 3}, 41, {"r2", 3}, ""},
  };
  const char *run = scratch_directory();
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, PLM_RUN_DONE, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char why[PLM_DONE_WHY_SIZE];
    struct plm_done done = {
        .step = 40, .identity = {.high = 1, .low = 2}, .patience = rows[i].before.patience};
    snprintf(done.metric, sizeof done.metric, "%s", rows[i].before.metric);
    assert_int_equal(plm_done_write(run, &done, NULL), PLM_OK);
    done = (struct plm_done){0};
    assert_int_equal(plm_done_read(run, &done, NULL), PLM_OK);
    assert_int_equal(done.step, 40);
    assert_string_equal(done.metric, done.patience > 0 ? rows[i].before.metric : "");
    assert_int_equal(done.patience, rows[i].before.patience);
    const bool holds =
        plm_done_holds(&done, rows[i].steps, rows[i].now.metric, rows[i].now.patience, why);
    if (holds != (rows[i].why[0] == '\0') || strcmp(why, rows[i].why) != 0)
      fail_msg("row %zu: %d, \"%s\"", i, holds, why);
  }
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(path, 1 << 16, &text, &size, NULL), PLM_OK);
  assert_string_equal(text, "{\"step\":40,\"identity\":\"00000000000000010000000000000002\","
                            "\"stopped_by\":\"stop_when\",\"metric\":\"r2\",\"patience\":3}\n");
  free(text);
  /* a reason that is not known counts as none */
  static const char other[] = "{\"step\":7,\"identity\":\"00000000000000010000000000000002\","
                              "\"stopped_by\":\"beauty\",\"metric\":\"loss\",\"patience\":3}";
  assert_int_equal(plm_file_write(path, other, sizeof other - 1, 0644, NULL), PLM_OK);
  struct plm_done unknown;
  assert_int_equal(plm_done_read(run, &unknown, NULL), PLM_OK);
  assert_int_equal(unknown.step, 7);
  assert_int_equal(unknown.patience, 0);
  static const char *const wrong[] = {"1e300", "-1", "1.5", "9007199254740994", "\"7\""};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char made[128];
    const int length =
        snprintf(made, sizeof made,
                 "{\"step\":%s,\"identity\":\"00000000000000010000000000000002\"}", wrong[i]);
    assert_int_equal(plm_file_write(path, made, (size_t)length, 0644, NULL), PLM_OK);
    assert_int_equal(plm_done_read(run, &unknown, NULL), PLM_FORMAT);
  }
}

/* Which reasons count that DONE gives; others mean that the run has all its steps. */
static void a_reason_has_a_metric_and_a_patience(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    struct reason reason;
  } rows[] = {
      {"\"stopped_by\":\"stop_when\",\"metric\":\"macro_f1\",\"patience\":1", {"macro_f1", 1}},
      {"\"stopped_by\":\"stop_when\",\"metric\":\"r2\",\"patience\":4294967295",
       {"r2", UINT32_MAX}},
      {"\"stopped_by\":\"stop_when\",\"metric\":\"r2\",\"patience\":4294967296", {"", 0}},
      {"\"stopped_by\":\"stop_when\",\"metric\":\"r2\",\"patience\":0", {"", 0}},
      {"\"stopped_by\":\"stop_when\",\"metric\":\"r2\",\"patience\":\"1\"", {"", 0}},
      {"\"stopped_by\":\"stop_when\",\"metric\":\"r2\"", {"", 0}},
      {"\"stopped_by\":\"stop_when\",\"metric\":2,\"patience\":1", {"", 0}},
      {"\"stopped_by\":\"stop_when\",\"metric\":\"R2\",\"patience\":1", {"", 0}},
      {"\"stopped_by\":\"stop_when\",\"metric\":\"a b\",\"patience\":1", {"", 0}},
      {"\"stopped_by\":\"somebody\",\"metric\":\"r2\",\"patience\":1", {"", 0}},
      {"\"stopped_by\":1,\"metric\":\"r2\",\"patience\":1", {"", 0}},
      {"\"metric\":\"r2\",\"patience\":1", {"", 0}},
  };
  const char *run = scratch_directory();
  char path[PLM_PATH_SIZE], text[300];
  assert_int_equal(plm_path_join(path, run, PLM_RUN_DONE, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_done done;
    struct plm_error error = {0};
    snprintf(text, sizeof text,
             "{\"step\":40,\"identity\":\"00000000000000010000000000000002\",%s}\n", rows[i].text);
    scratch_write(path, text, strlen(text));
    if (plm_done_read(run, &done, &error) != PLM_OK) fail_msg("%s", error.what);
    assert_string_equal(done.metric, rows[i].reason.metric);
    assert_int_equal(done.patience, rows[i].reason.patience);
  }
  /* a name that does not fit is no metric of this program */
  struct plm_done done;
  for (size_t length = sizeof done.metric - 1; length <= sizeof done.metric; length++) {
    snprintf(text, sizeof text,
             "{\"step\":40,\"identity\":\"00000000000000010000000000000002\",\"stopped_by\":\""
             "stop_when\",\"patience\":1,\"metric\":\"%.*s\"}\n",
             (int)length,
             "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    scratch_write(path, text, strlen(text));
    assert_int_equal(plm_done_read(run, &done, NULL), PLM_OK);
    assert_int_equal(strlen(done.metric), length < sizeof done.metric ? length : 0);
  }
}

static plm_status read_done(void *context, struct plm_error *error)
{
  struct plm_done done;
  PLM_TRY(plm_done_read(context, &done, error));
  assert_int_equal(done.step, 7);
  return PLM_OK;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  static const char text[] =
      "{\"step\":7,\"identity\":\"0000000000000000000000000000000a\",\"why\":\"steps\"}\n";
  char run[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  scratch_run(run);
  assert_int_equal(plm_path_join(path, run, PLM_RUN_DONE, NULL), PLM_OK);
  scratch_write(path, text, sizeof text - 1);
  failing_disk_try(read_done, run, NULL);
  failing_memory_try(read_done, run, 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(done_says_what_ended_the_run),
      cmocka_unit_test(a_reason_has_a_metric_and_a_patience),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
