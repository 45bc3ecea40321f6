/* common/base/process/program_run: which file PATH finds, what a program says, and how it ended. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/process/program_run.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE]; /* has first/ and second/ */

static void write_program(const char *name, mode_t mode)
{
  const char *path = scratch_path(name);
  scratch_write(path, "#!/bin/sh\n", 10);
  assert_int_equal(chmod(path, mode), 0);
}

static int prepare(void **state)
{
  (void)state;
  snprintf(folder, sizeof folder, "%s", scratch_directory());
  assert_int_equal(mkdir(scratch_path("first"), 0700), 0);
  assert_int_equal(mkdir(scratch_path("second"), 0700), 0);
  assert_int_equal(mkdir(scratch_path("first/hf"), 0700), 0); /* a folder is no program */
  write_program("first/locked", 0600);
  write_program("second/hf", 0700);
  write_program("second/locked", 0700);
  write_program("first/both", 0700);
  write_program("second/both", 0700);
  return chdir(folder);
}

static void the_first_program_on_path_is_taken(void **state)
{
  (void)state;
  static const struct {
    const char *path, *name, *found; /* FOLDER stands for the scratch folder; found NULL: none */
  } rows[] = {
      {"%1$s/first:%1$s/second", "both", "%1$s/first/both"},
      {"%1$s/second:%1$s/first", "both", "%1$s/second/both"},
      {"%1$s/first:%1$s/second", "hf", "%1$s/second/hf"},
      {"%1$s/first:%1$s/second", "locked", "%1$s/second/locked"},
      {"%1$s/first", "hf", NULL},
      {"%1$s/first", "locked", NULL},
      {"%1$s/first:", "none", NULL},
      {"", "both", NULL},
      {"second:first", "both", "second/both"},
      {":first", "both", "first/both"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char path[2 * PLM_PATH_SIZE], expected[PLM_PATH_SIZE], found[PLM_PATH_SIZE];
    snprintf(path, sizeof path, rows[i].path, folder);
    setenv("PATH", path, 1);
    assert_int_equal(plm_program_find(rows[i].name, found), rows[i].found != NULL);
    if (rows[i].found == NULL) continue;
    snprintf(expected, sizeof expected, rows[i].found, folder);
    assert_string_equal(found, expected);
  }
  unsetenv("PATH");
  char found[PLM_PATH_SIZE];
  assert_false(plm_program_find("both", found));
}

/* An empty folder at either end, or between two colons, is the present one. */
static void an_empty_folder_is_the_present_one(void **state)
{
  (void)state;
  char found[PLM_PATH_SIZE];
  assert_int_equal(chdir(scratch_path("second")), 0);
  setenv("PATH", ":/nowhere", 1);
  assert_true(plm_program_find("hf", found));
  assert_string_equal(found, "./hf");
  setenv("PATH", "/nowhere::/elsewhere", 1);
  assert_true(plm_program_find("hf", found));
  assert_int_equal(chdir(folder), 0);
}

static struct plm_program_said run(const char *script, size_t limit_bytes, unsigned limit_s,
                                   bool capture_err)
{
  const char *const arguments[] = {"/bin/sh", "-c", script, NULL};
  struct plm_program_said said = {.capture_err = capture_err};
  struct plm_error error;
  assert_int_equal(plm_program_run(arguments, limit_bytes, limit_s, &said, &error), PLM_OK);
  return said;
}

static void what_a_program_says_is_taken(void **state)
{
  (void)state;
  struct plm_program_said said = run("echo out; echo err >&2; exit 3", 100, 0, true);
  assert_string_equal(said.out.data, "out\n");
  assert_string_equal(said.err.data, "err\n");
  assert_int_equal(said.exit_code, 3);
  plm_program_said_deinit(&said);
  said = run(":", 100, 0, true);
  assert_int_equal(said.out.length, 0);
  assert_int_equal(said.err.length, 0);
  assert_int_equal(said.exit_code, 0);
  plm_program_said_deinit(&said);
}

static void a_limit_is_kept(void **state)
{
  (void)state;
  struct plm_program_said said = run("printf 12345678; printf 123456 >&2", 8, 0, true);
  assert_string_equal(said.out.data, "12345678");
  assert_string_equal(said.err.data, "123456");
  assert_int_equal(said.exit_code, 0);
  plm_program_said_deinit(&said);
  /* more than a pipe holds: it cannot go on once nobody reads */
  said = run("exec /bin/cat /dev/zero", 5000, 0, false);
  assert_int_equal(said.out.length, 5000);
  assert_int_equal(said.exit_code, -1);
  plm_program_said_deinit(&said);
  said = run("exec /bin/sleep 600", 100, 1, false);
  assert_int_equal(said.exit_code, -1);
  plm_program_said_deinit(&said);
}

static void a_missing_program_ends_with_127(void **state)
{
  (void)state;
  const char *const arguments[] = {"/nonexistent/program", NULL};
  struct plm_program_said said = {0};
  assert_int_equal(plm_program_run(arguments, 100, 0, &said, NULL), PLM_OK);
  assert_int_equal(said.exit_code, 127);
  plm_program_said_deinit(&said);
}

/* For the file of standard error, and then for the pipe. */
static void without_descriptors_nothing_is_run(void **state)
{
  (void)state;
  const char *const arguments[] = {"/bin/sh", "-c", ":", NULL};
  struct rlimit before, few;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
  assert_true(next >= 0 && close(next) == 0);
  for (int left = 0; left < 3; left++) {
    struct plm_program_said said = {.capture_err = true};
    struct plm_error error = {0};
    few = (struct rlimit){(rlim_t)(next + left), before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const plm_status status = plm_program_run(arguments, 100, 0, &said, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, PLM_NO_DESCRIPTORS);
    assert_string_equal(error.what, "cannot run /bin/sh: Too many open files");
    assert_int_equal(said.exit_code, -1);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_program_on_path_is_taken),
      cmocka_unit_test(an_empty_folder_is_the_present_one),
      cmocka_unit_test(what_a_program_says_is_taken),
      cmocka_unit_test(a_limit_is_kept),
      cmocka_unit_test(a_missing_program_ends_with_127),
      cmocka_unit_test(without_descriptors_nothing_is_run),
  };
  return cmocka_run_group_tests(tests, prepare, NULL);
}
