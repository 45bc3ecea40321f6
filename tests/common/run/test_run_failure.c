/* FAILED: what is written is read again, and what cannot be read is no failure. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/run/run_failure.h"
#include "tests/support/harness/scratch.h"

static void a_failure_is_kept_until_it_is_removed(void **state)
{
  (void)state;
  struct plm_run_failure written = {.time_s = 1795631002.5, .exit_code = 5, .stage = "trainer.0"},
                         read;
  const char *run = scratch_path("run");
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  assert_false(plm_run_failure_read(run, &read));
  snprintf(written.cause, sizeof written.cause, "exited with 5: \"a\"\n\tb");
  assert_int_equal(plm_run_failure_write(run, &written, NULL), PLM_OK);
  assert_true(plm_run_failure_read(run, &read));
  assert_true(read.time_s == written.time_s);
  assert_int_equal(read.exit_code, 5);
  assert_string_equal(read.stage, "trainer.0");
  assert_string_equal(read.cause, written.cause);
  plm_run_failure_remove(run);
  assert_false(plm_run_failure_read(run, &read));
  plm_run_failure_remove(run); /* nothing to remove */
}

static void foreign_text_is_no_failure(void **state)
{
  (void)state;
  static const char *const texts[] = {"", "no JSON", "[1]", "7"};
  struct plm_run_failure read;
  const char *path = scratch_path("foreign/FAILED");
  assert_int_equal(plm_directory_make(scratch_path("foreign"), NULL), PLM_OK);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    assert_int_equal(plm_file_write(path, texts[i], strlen(texts[i]), 0644, NULL), PLM_OK);
    assert_false(plm_run_failure_read(scratch_path("foreign"), &read));
  }
  assert_int_equal(plm_file_write(path, "{}", 2, 0644, NULL), PLM_OK);
  assert_true(
      plm_run_failure_read(scratch_path("foreign"), &read)); /* it failed, nobody knows why */
  assert_int_equal(read.exit_code, 1);
  assert_string_equal(read.stage, "a stage");
  assert_string_equal(read.cause, "failed");
  static const struct {
    const char *exit;
    int code; /* 1 if it is none */
  } codes[] = {{"0", 0}, {"255", 255}, {"256", 1}, {"-1", 1}, {"1.5", 1}, {"\"7\"", 1}};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    char text[64];
    const int size = snprintf(text, sizeof text, "{\"exit\":%s,\"time\":2.5}", codes[i].exit);
    assert_int_equal(plm_file_write(scratch_path("foreign/FAILED"), text, (size_t)size, 0644, NULL),
                     PLM_OK);
    assert_true(plm_run_failure_read(scratch_path("foreign"), &read));
    assert_int_equal(read.exit_code, codes[i].code);
    assert_true(read.time_s == 2.5);
  }
}

static void times_are_local(void **state)
{
  (void)state;
  char text[PLM_FAILURE_TIME_SIZE];
  setenv("TZ", "UTC", 1);
  plm_run_failure_time(1795631002.9, text);
  assert_string_equal(text, "2026-11-25 18:23:22");
  plm_run_failure_time(1e18, text); /* a year that no calendar has */
  assert_string_equal(text, "an unknown time");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failure_is_kept_until_it_is_removed),
      cmocka_unit_test(foreign_text_is_no_failure),
      cmocka_unit_test(times_are_local),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
