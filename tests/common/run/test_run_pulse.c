/* Signs of life: when they are written, and whose they are. */
#include "common/run/run_pulse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/run/run.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE];
static struct plm_lock *lock;

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  return plm_lock_acquire(run, "evaluator", &lock, NULL) == PLM_OK ? 0 : 1;
}

static int teardown(void **state)
{
  (void)state;
  plm_lock_release(lock);
  return 0;
}

static const char *file_of_run(const char *name)
{
  static char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  return path;
}

static void what_is_done_is_read_back(void **state)
{
  (void)state;
  struct plm_run_pulse pulse;
  struct plm_run_sign sign;
  plm_run_pulse_begin(&pulse, run, "evaluator");
  assert_false(plm_run_pulse_read(run, "evaluator", &sign)); /* not written yet */
  plm_run_pulse(&pulse, true, "loading step %d", 7);
  assert_false(plm_run_pulse_read(run, "trainer", &sign));
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  assert_string_equal(sign.doing, "loading step 7");
  assert_true(sign.patient && sign.pace_s == 0 && sign.written_ms > 0);
  assert_true(sign.age_s >= 0 && sign.age_s < 60);
  char path[PLM_PATH_SIZE], *text, expected[32], host[256] = "";
  size_t size;
  gethostname(host, sizeof host - 1);
  assert_string_equal(sign.host, host);
  assert_int_equal(sign.pid, getpid());
  assert_int_equal(plm_path_join(path, run, "pulse.evaluator.json", NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 4096, &text, &size, NULL), PLM_OK);
  snprintf(expected, sizeof expected, "\"pid\":%d}", getpid());
  assert_non_null(strstr(text, expected));
  free(text);
  static const char few[] = "{\"doing\": \"x\"}";
  scratch_write(path, few, sizeof few - 1);
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  assert_true(sign.written_ms == 0 && sign.pid == 0 && sign.wait_s == 0 && sign.pace_s == 0);
  assert_true(!sign.patient && !sign.waits && sign.host[0] == '\0');
  plm_run_pulse(&pulse, false, "evaluating step %d", 7); /* something else is written at once */
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  assert_string_equal(sign.doing, "evaluating step 7");
  assert_false(sign.patient);
  plm_run_pulse_end(&pulse);
  assert_false(plm_run_pulse_read(run, "evaluator", &sign));
  plm_run_pulse(&pulse, false, "nothing is written any more");
  assert_false(plm_run_pulse_read(run, "evaluator", &sign));
  assert_false(plm_file_exists(file_of_run("pulse.evaluator.json.tmp")));
}

/* Signs of the same work are written once a second, and give the pace. */
static void the_same_is_written_once_a_second(void **state)
{
  (void)state;
  struct plm_run_pulse pulse;
  struct plm_run_sign sign;
  plm_run_pulse_begin(&pulse, run, "evaluator");
  plm_run_pulse(&pulse, false, "evaluating");
  scratch_age(file_of_run("evaluator.lock"), 5000);
  scratch_age(file_of_run("pulse.evaluator.json"), 4000);
  pulse.beat_ns -= 400000000u;
  pulse.written_ns += 3600000000000u; /* less than a second ago, however slow the machine is */
  plm_run_pulse(&pulse, false, "evaluating");
  assert_true(plm_run_pulse_read(run, "evaluator", &sign) && sign.age_s >= 4000);
  assert_true(pulse.pace_s >= 0.4 && pulse.pace_s < 60);
  const double pace_s = pulse.pace_s;
  pulse.written_ns -= 3601000000000u;
  pulse.beat_ns -= 100000000000u;
  plm_run_pulse(&pulse, false, "evaluating");
  assert_true(plm_run_pulse_read(run, "evaluator", &sign) && sign.age_s < 60);
  assert_true(pulse.pace_s >= 0.9 * pace_s + 10 && pulse.pace_s < 0.9 * pace_s + 20);
  assert_true(fabs(sign.pace_s - pulse.pace_s) < 1e-6);
}

/* Within one long work item, the share that is done moves; it stays as patient as it was, and
 * is no pace. */
static void reading_a_large_file_gives_signs(void **state)
{
  (void)state;
  struct plm_run_pulse pulse;
  struct plm_run_sign sign;
  plm_run_pulse_begin(&pulse, run, "evaluator");
  struct plm_advance reading = plm_run_pulse_reading(&pulse);
  plm_run_pulse(&pulse, true, "loading step %d", 7);
  plm_advance_begin(&reading, 1000);
  pulse.written_ns += 3600000000000u; /* less than a second ago */
  plm_advance_by(&reading, 100);
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  assert_string_equal(sign.doing, "loading step 7");
  scratch_age(file_of_run("evaluator.lock"), 5000);
  scratch_age(file_of_run("pulse.evaluator.json"), 4000);
  pulse.written_ns -= 3601000000000u;
  plm_advance_by(&reading, 279);
  assert_true(plm_run_pulse_read(run, "evaluator", &sign) && sign.age_s < 60);
  assert_string_equal(sign.doing, "loading step 7 (37 %)");
  assert_true(sign.patient && sign.pace_s == 0);
  scratch_age(file_of_run("pulse.evaluator.json"), 4000);
  pulse.written_ns += 3600000000000u; /* the sign was written just now */
  plm_advance_by(&reading, 100);
  assert_true(plm_run_pulse_read(run, "evaluator", &sign) && sign.age_s >= 4000);
  pulse.written_ns -= 3602000000000u;
  plm_advance_by(&reading, 521);
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  assert_string_equal(sign.doing, "loading step 7 (100 %)");
  plm_advance_begin(&reading, 0); /* it is not known how much there is */
  pulse.written_ns -= 2000000000u;
  plm_advance_by(&reading, 5);
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  assert_string_equal(sign.doing, "loading step 7");
  plm_run_pulse_end(&pulse);
  plm_advance_by(&reading, 1); /* nothing is written any more */
  assert_false(plm_run_pulse_read(run, "evaluator", &sign));
}

/* Whoever waits says so each second, and for how long. */
static void a_wait_is_told_once_it_has_lasted_a_second(void **state)
{
  (void)state;
  struct plm_run_pulse pulse;
  struct plm_run_sign sign;
  plm_run_pulse_begin(&pulse, run, "evaluator");
  plm_run_pulse(&pulse, true, "evaluating");
  plm_run_pulse_wait(&pulse, "waiting for packers");
  pulse.waits_since_ns += 3600000000000u; /* less than a second ago, however slow the machine is */
  plm_run_pulse_wait(&pulse, "waiting for packers");
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  assert_string_equal(sign.doing, "evaluating");
  assert_false(sign.waits);
  pulse.waits_since_ns -= 3670000000000u;
  plm_run_pulse_wait(&pulse, "waiting for packers");
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  assert_string_equal(sign.doing, "waiting for packers");
  assert_true(sign.waits && !sign.patient && sign.wait_s >= 69.9 && sign.wait_s < 130);
  scratch_age(file_of_run("evaluator.lock"), 5000);
  scratch_age(file_of_run("pulse.evaluator.json"), 4000);
  assert_true(plm_run_pulse_read(run, "evaluator", &sign) && sign.wait_s >= 4069);
  pulse.written_ns += 3600000000000u;
  plm_run_pulse_wait(&pulse, "waiting for packers"); /* at most once a second */
  assert_true(plm_run_pulse_read(run, "evaluator", &sign) && sign.age_s >= 4000);
  pulse.written_ns -= 3602000000000u;
  plm_run_pulse_wait(&pulse, "waiting for packers");
  assert_true(plm_run_pulse_read(run, "evaluator", &sign) && sign.age_s < 60);
  pulse.waits_since_ns += 3600000000000u;
  plm_run_pulse_wait(&pulse, "waiting for chunks"); /* another wait begins */
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  assert_string_equal(sign.doing, "waiting for packers");
  assert_true(pulse.pace_s == 0);
  plm_run_pulse(&pulse, false, "evaluating"); /* what is not a wait is written at once */
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  assert_string_equal(sign.doing, "evaluating");
  assert_true(!sign.waits && sign.wait_s == 0 && sign.pace_s == 0);
}

/* A trainer that steps says only that it waits. */
static void a_pulse_may_be_suspended(void **state)
{
  (void)state;
  struct plm_run_pulse pulse;
  struct plm_run_sign sign;
  plm_run_pulse_begin(&pulse, run, "evaluator");
  plm_run_pulse_suspend(&pulse);
  plm_run_pulse(&pulse, true, "computing");
  plm_run_pulse_suspend(&pulse);
  assert_false(plm_file_exists(file_of_run("pulse.evaluator.json")));
  plm_run_pulse_wait(&pulse, "waiting for packers");
  pulse.waits_since_ns -= 2000000000u;
  plm_run_pulse_wait(&pulse, "waiting for packers");
  assert_true(plm_run_pulse_read(run, "evaluator", &sign) && sign.waits);
  plm_run_pulse_suspend(&pulse);
  assert_false(plm_run_pulse_read(run, "evaluator", &sign));
  plm_run_pulse_end(&pulse);
  plm_run_pulse_wait(&pulse, "waiting for packers"); /* nothing is written any more */
  assert_true(pulse.waits_for == NULL);
}

/* A process that was killed leaves its file. The next one has taken the lock later. */
static void a_sign_from_before_the_lock_does_not_count(void **state)
{
  (void)state;
  struct plm_run_pulse pulse;
  struct plm_run_sign sign;
  plm_run_pulse_begin(&pulse, run, "evaluator");
  plm_run_pulse(&pulse, false, "evaluating");
  scratch_age(file_of_run("pulse.evaluator.json"), 100);
  scratch_age(file_of_run("evaluator.lock"), 99);
  assert_false(plm_run_pulse_read(run, "evaluator", &sign));
  scratch_age(file_of_run("evaluator.lock"), 101);
  assert_true(plm_run_pulse_read(run, "evaluator", &sign));
  scratch_write(file_of_run("pulse.evaluator.json"), "[", 1);
  assert_false(plm_run_pulse_read(run, "evaluator", &sign));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(what_is_done_is_read_back),        TEST(the_same_is_written_once_a_second),
      TEST(reading_a_large_file_gives_signs), TEST(a_wait_is_told_once_it_has_lasted_a_second),
      TEST(a_pulse_may_be_suspended),         TEST(a_sign_from_before_the_lock_does_not_count),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
