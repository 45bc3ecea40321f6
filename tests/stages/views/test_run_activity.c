/* What a trainer does, from the files of its run. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/run/run.h"
#include "stages/views/run_activity.h"
#include "tests/support/harness/scratch.h"

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

/* What is told of a trainer that took the lock so long ago. */
static struct plm_activity read_after(double process_age_s)
{
  struct plm_activity activity;
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, "trainer.lock", NULL), PLM_OK);
  scratch_age(path, process_age_s);
  plm_activity_read(run, &activity);
  return activity;
}

static void expect(const char *text, double process_age_s)
{
  const struct plm_activity activity = read_after(process_age_s);
  if (strcmp(activity.text, text) != 0) fail_msg("\"%s\" instead of \"%s\"", activity.text, text);
}

static void a_trainer_that_trains_has_nothing_to_say(void **state)
{
  (void)state;
  steps_until(1);
  write_file("peers.trainer.json", "[{}]");
  const struct plm_activity activity = read_after(100);
  assert_true(activity.stepped && activity.heard && !activity.pulsed);
  assert_int_equal(activity.step, 5);
  assert_true(activity.step_s == 0.1); /* the median */
  assert_true(activity.age_s >= 0.9 && activity.age_s < 60);
  assert_true(activity.rate > 0 && activity.rate <= 223); /* 200 tokens in 0.9 s at least */
  assert_string_equal(activity.text, "");
}

/* After the clock was set back, the last step is of now, like the lock. */
static void steps_of_the_future_are_of_now(void **state)
{
  (void)state;
  steps_until(-1000);
  const struct plm_activity activity = read_after(-1000);
  assert_true(activity.stepped);
  assert_true(activity.age_s == 0);
  assert_int_equal(activity.step, 5);
  assert_true(activity.rate == 2000);
}

/* Such as that of a checkpoint that was skipped. */
static void a_line_without_a_time_is_no_step(void **state)
{
  char path[PLM_PATH_SIZE];
  (void)state;
  write_file("peers.trainer.json", "[{}]");
  steps_until(61);
  assert_int_equal(plm_path_join(path, run, PLM_RUN_TRAINER_METRICS, NULL), PLM_OK);
  FILE *file = fopen(path, "a");
  assert_non_null(file);
  fprintf(file, "{\"step\":6,\"time\":%.3f}\n{\"step\":7,\"step_ms\":0,\"time\":%.3f}\n",
          plm_clock_wall_s(), plm_clock_wall_s());
  fclose(file);
  expect("no step for 1:01", 1000);
  assert_int_equal(read_after(1000).step, 5);
}

static void a_silent_trainer_is_told_with_its_time(void **state)
{
  (void)state;
  write_file("peers.trainer.json", "[{}]");
  steps_until(20);
  expect("", 1000); /* short silences are usual */
  steps_until(61);
  expect("no step for 1:01", 1000);
  steps_until(181);
  expect("no step for 3:01", 1000);
  steps_until(7201);
  expect("no step for 2:00:01", 10000);
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
    expect(i == 0 ? "" : "no step for 4:01", 1000);
  }
}

/* A trainer that a signal has stopped reports no packers either. */
static void old_reports_of_packers_do_not_count(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  write_file("peers.trainer.json", "[]");
  assert_int_equal(plm_path_join(path, run, "peers.trainer.json", NULL), PLM_OK);
  scratch_age(path, 60);
  steps_until(61);
  expect("no step for 1:01", 1000);
}

/* A trainer that starts or tunes has packers, but no step yet. */
static void a_start_is_no_silence(void **state)
{
  (void)state;
  write_file("peers.trainer.json", "[{}]");
  steps_until(1000); /* of an earlier process */
  struct plm_activity activity = read_after(500);
  assert_false(activity.stepped);
  assert_true(activity.age_s >= 500 && activity.age_s < 560);
  assert_true(activity.rate == 0);
  assert_string_equal(activity.text, "");
  (void)read_after(1000.5);
  steps_until(1000); /* its own, soon after it began */
  plm_activity_read(run, &activity);
  assert_true(activity.stepped);
}

/* ---- signs of life --------------------------------------------------------------------------- */

static void pulse(const char *role, double age_s, const char *json)
{
  char name[64], path[PLM_PATH_SIZE];
  snprintf(name, sizeof name, "pulse.%s.json", role);
  write_file(name, json);
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  scratch_age(path, age_s);
}

/* It says so itself, and for how long it has waited. */
static void a_trainer_that_waits_says_so(void **state)
{
  (void)state;
  static const char shortly[] = "{\"doing\":\"waiting for packers\",\"waits\":true,\"waited_s\":8}",
                    packers[] =
                        "{\"doing\":\"waiting for packers\",\"waits\":true,\"waited_s\":59.2}",
                    writer[] =
                        "{\"doing\":\"waiting for the writer of checkpoints\",\"waits\":true,"
                        "\"waited_s\":119.2}";
  write_file("peers.trainer.json", "[]");
  steps_until(70);
  expect("no step for 1:10", 1000); /* that no packer is listed says nothing of the trainer */
  pulse("trainer", 1, shortly);
  expect("", 1000);
  const struct plm_activity activity = read_after(1000);
  assert_true(activity.pulsed && activity.sign_age_s < 60 && activity.age_s >= 70);
  pulse("trainer", 1, packers);
  expect("waiting for packers 1:00", 1000);
  expect("waiting for packers 1:00", 40); /* or since its start, if it has not stepped */
  assert_string_equal(read_after(1000).word, "waiting for packers");
  pulse("trainer", 1, writer);
  expect("waiting for the writer of checkpoints 2:00", 1000);
  pulse("trainer", 45, packers); /* and then it hangs */
  expect("no sign for 0:45: waiting for packers", 1000);
  steps_until(5); /* it has stepped since */
  expect("", 1000);
}

/* Until its first step, a trainer says what it does. */
static void a_start_without_signs_is_told(void **state)
{
  (void)state;
  static const char loads[] = "{\"doing\":\"loading the weights\",\"patient\":true}";
  write_file("peers.trainer.json", "[{}]");
  pulse("trainer", 20, loads);
  const struct plm_activity activity = read_after(500);
  assert_true(activity.pulsed && activity.sign.patient && activity.age_s >= 500);
  assert_true(activity.sign_age_s >= 20 && activity.sign_age_s < 60);
  assert_string_equal(activity.text, "");
  pulse("trainer", 61, loads);
  expect("no sign for 1:01: loading the weights", 500);
  assert_string_equal(read_after(500).word, "no sign for: loading the weights");
  write_file("peers.trainer.json", "[]"); /* which does not say that it waits for them */
  expect("no sign for 1:01: loading the weights", 500);
  steps_until(1); /* from now on its steps count */
  assert_false(read_after(500).pulsed);
  assert_true(read_after(500).sign_age_s < 60);
}

static void expect_evaluator(const char *text, const char *word)
{
  struct plm_activity activity;
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, "evaluator.lock", NULL), PLM_OK);
  scratch_age(path, 5000);
  plm_activity_read_evaluator(run, &activity);
  if (strcmp(activity.text, text) != 0) fail_msg("\"%s\" instead of \"%s\"", activity.text, text);
  assert_string_equal(activity.word, word);
}

static void an_evaluator_without_signs_is_told(void **state)
{
  (void)state;
  static const char slow[] = "{\"doing\":\"evaluating step 5 (valid)\",\"pace_s\":10}",
                    quick[] = "{\"doing\":\"evaluating step 5 (valid)\",\"pace_s\":0.1}";
  expect_evaluator("", ""); /* nothing is known */
  pulse("evaluator", 25, quick);
  expect_evaluator("", "");
  pulse("evaluator", 61, quick);
  expect_evaluator("no sign for 1:01: evaluating step 5 (valid)",
                   "no sign for: evaluating step 5 (valid)");
  pulse("evaluator", 190, slow); /* twenty batches take 200 s */
  expect_evaluator("", "");
  pulse("evaluator", 241, slow);
  expect_evaluator("no sign for 4:01: evaluating step 5 (valid)",
                   "no sign for: evaluating step 5 (valid)");
  write_file("peers.evaluator.json", "[]"); /* it hangs, and does not wait for packers */
  pulse("evaluator", 61, quick);
  expect_evaluator("no sign for 1:01: evaluating step 5 (valid)",
                   "no sign for: evaluating step 5 (valid)");
  pulse("evaluator", 1, "{\"doing\":\"waiting for packers\",\"waits\":true,\"waited_s\":5}");
  expect_evaluator("", "");
  pulse("evaluator", 1, "{\"doing\":\"waiting for packers\",\"waits\":true,\"waited_s\":59.2}");
  expect_evaluator("waiting for packers 1:00", "waiting for packers");
  pulse("evaluator", 61, "{\"doing\":\"waiting for packers\",\"waits\":true,\"waited_s\":59}");
  expect_evaluator("no sign for 1:01: waiting for packers", "no sign for: waiting for packers");
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_trainer_that_trains_has_nothing_to_say),
      TEST(steps_of_the_future_are_of_now),
      TEST(a_line_without_a_time_is_no_step),
      TEST(a_silent_trainer_is_told_with_its_time),
      TEST(slow_steps_are_no_silence),
      TEST(a_trainer_that_waits_says_so),
      TEST(old_reports_of_packers_do_not_count),
      TEST(a_start_is_no_silence),
      TEST(a_start_without_signs_is_told),
      TEST(an_evaluator_without_signs_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
