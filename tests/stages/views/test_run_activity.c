/* What a trainer does, from the files of its run. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <utime.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/run/run.h"
#include "stages/views/run_activity.h"
#include "tests/support/scratch.h"

static char run[PLM_PATH_SIZE];

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  return 0;
}

static void write_file(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
}

/* Steps of 100 ms, of which the last is so many seconds ago, and one that took a minute. */
static void steps_until(double age_s)
{
  char text[1024] = "";
  const double now_s = plm_clock_wall_s();
  for (int step = 1; step <= 5; step++)
    snprintf(text + strlen(text), sizeof text - strlen(text),
             "{\"step\":%d,\"step_ms\":%d,\"tokens_per_second\":2000,\"time\":%.3f}\n", step,
             step == 3 ? 60000 : 100, now_s - age_s);
  write_file(PLM_RUN_TRAINER_METRICS, text);
}

static void expect(const char *regular, double process_age_s)
{
  struct plm_activity activity;
  plm_activity_read(run, process_age_s, &activity);
  if (strcmp(activity.text, regular) != 0)
    fail_msg("\"%s\" instead of \"%s\"", activity.text, regular);
}

static void a_trainer_that_trains_has_nothing_to_say(void **state)
{
  (void)state;
  struct plm_activity activity;
  steps_until(1);
  write_file("peers.trainer.json", "[{}]");
  plm_activity_read(run, 100, &activity);
  assert_true(activity.stepped && activity.heard && !activity.saves);
  assert_int_equal(activity.step, 5);
  assert_int_equal(activity.packers, 1);
  assert_true(activity.step_s == 0.1); /* the median */
  assert_true(activity.age_s >= 0.9 && activity.age_s < 60);
  assert_true(activity.rate > 0 && activity.rate <= 223); /* 200 tokens in 0.9 s at least */
  assert_string_equal(activity.text, "");
}

static void a_silent_trainer_is_told_with_its_time(void **state)
{
  (void)state;
  write_file("peers.trainer.json", "[{}]");
  steps_until(20);
  expect("", 1000); /* short silences are usual */
  steps_until(61);
  expect("no step for 61 s", 1000);
  steps_until(181);
  expect("no step for 3 min", 1000);
  steps_until(7201);
  expect("no step for 2 h", 10000);
}

/* Its steps take long: twenty of them are no silence. */
static void slow_steps_are_no_silence(void **state)
{
  (void)state;
  char line[128];
  write_file("peers.trainer.json", "[{}]");
  for (int i = 0; i < 2; i++) {
    snprintf(line, sizeof line, "{\"step\":1,\"step_ms\":10000,\"time\":%.3f}\n",
             plm_clock_wall_s() - (i == 0 ? 100 : 241));
    write_file(PLM_RUN_TRAINER_METRICS, line);
    expect(i == 0 ? "" : "no step for 4 min", 1000);
  }
}

static void without_packers_it_waits_for_them(void **state)
{
  (void)state;
  write_file("peers.trainer.json", "[]");
  steps_until(5);
  expect("", 1000);
  steps_until(61);
  expect("waiting for packers 61 s", 1000);
  /* since its start, if it has not stepped */
  expect("waiting for packers 45 s", 45);
}

/* A trainer that a signal has stopped reports no packers either. */
static void old_reports_of_packers_do_not_count(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  const struct utimbuf old = {.actime = time(NULL) - 60, .modtime = time(NULL) - 60};
  write_file("peers.trainer.json", "[]");
  assert_int_equal(plm_path_join(path, run, "peers.trainer.json", NULL), PLM_OK);
  assert_int_equal(utime(path, &old), 0);
  steps_until(61);
  expect("no step for 61 s", 1000);
}

static void a_checkpoint_that_is_written_is_told(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  write_file("peers.trainer.json", "[{}]");
  steps_until(61);
  assert_int_equal(plm_path_join(path, run, "checkpoints/.tmp-step_00000005", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  expect("writing a checkpoint, no step for 61 s", 1000);
}

/* A trainer that starts or tunes has packers, but no step yet. */
static void a_start_is_no_silence(void **state)
{
  (void)state;
  struct plm_activity activity;
  write_file("peers.trainer.json", "[{}]");
  steps_until(1000); /* of an earlier process */
  plm_activity_read(run, 500, &activity);
  assert_false(activity.stepped);
  assert_true(activity.age_s == 500);
  assert_true(activity.rate == 0);
  assert_string_equal(activity.text, "");
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_trainer_that_trains_has_nothing_to_say),
      TEST(a_silent_trainer_is_told_with_its_time),
      TEST(slow_steps_are_no_silence),
      TEST(without_packers_it_waits_for_them),
      TEST(old_reports_of_packers_do_not_count),
      TEST(a_checkpoint_that_is_written_is_told),
      TEST(a_start_is_no_silence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
