/* `plm-pipeline logs`: which logs are shown, and in which order their lines are merged. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE], logs[PLM_PATH_SIZE];

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  assert_int_equal(plm_path_join(logs, run, "logs", NULL), PLM_OK);
  return plm_directory_make(logs, NULL) != PLM_OK;
}

static void write_log(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, logs, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

#define AT(second) "2026-11-21T10:00:0" #second ".000Z "

static void expect(int code, const char *out)
{
  assert_string_equal(command_err, "");
  assert_string_equal(command_out, out);
  assert_int_equal(code, 0);
}

/* Lines without a time belong to the one before them, and of equal times those of one log stay
 * together. */
static void lines_are_merged_by_time(void **state)
{
  (void)state;
  write_log("trainer.0.log",
            AT(1) "t1\n" AT(2) "t2\n" AT(4) "t4\n  more\n" AT(4) "t4 again\n" AT(9) "t9");
  write_log("packer.0.log", AT(2) "p2\n" AT(4) "p4\n" AT(5) "p5\n");
  expect(COMMAND("logs", "--run", run),
         "trainer.0   | " AT(1) "t1\ntrainer.0   | " AT(
             2) "t2\n"
                "packer.0    | " AT(2) "p2\n"
                                       "packer.0    | " AT(
                                           4) "p4\n"
                                              "trainer.0   | " AT(
                                                  4) "t4\n"
                                                     "trainer.0   |   more\n"
                                                     "trainer.0   | " AT(
                                                         4) "t4 again\n"
                                                            "packer.0    | " AT(
                                                                5) "p5\n"
                                                                   "trainer.0   | " AT(9) "t9\n");
  expect(COMMAND("logs", "--run", run, "--tail", "1"),
         "packer.0    | " AT(5) "p5\n"
                                "trainer.0   | " AT(9) "t9\n");
  expect(COMMAND("logs", "--run", run, "--tail", "2", "packer"), AT(4) "p4\n" AT(5) "p5\n");
  expect(COMMAND("logs", "--run", run, "--tail", "0", "packer"), "");
  expect(COMMAND("logs", "--run", run, "--tail", "2000000000", "packer"),
         AT(2) "p2\n" AT(4) "p4\n" AT(5) "p5\n");
}

/* A stage means all of its instances. One log alone needs no name, unless it is followed and others
 * may come. */
static void logs_are_chosen_by_name(void **state)
{
  static const struct {
    const char *first, *second, *third; /* words after --run RUN */
    const char *out;                    /* NULL: there is no such log */
  } cases[] = {
      {"packer", NULL, NULL, "packer.1    | p1\npacker.10   | p10\n"},
      {"packer.1", NULL, NULL, "p1\n"},
      {"packer.1", "trainer", NULL, "packer.1    | p1\ntrainer.0   | t\n"},
      {"trainer", "packer.10", NULL, "packer.10   | p10\ntrainer.0   | t\n"},
      {"packer.2", NULL, NULL, NULL},
      {"pack", NULL, NULL, NULL},
      {"packer.", NULL, NULL, NULL},
      {"packers", NULL, NULL, NULL},
      {"--follow", "trainer", "evaluator", "trainer.0   | t\n"},
      {"packer", "pack", NULL, "packer.1    | p1\npacker.10   | p10\n"},
  };
  (void)state;
  write_log("packer.10.log", "p10\n");
  write_log("packer.1.log", "p1\n");
  write_log("trainer.0.log", "t\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *words[] = {"logs",          "--run",        run, cases[i].first,
                           cases[i].second, cases[i].third, NULL};
    const int code = command_case(words);
    if (cases[i].out != NULL) {
      expect(code, cases[i].out);
      continue;
    }
    char expected[PLM_PATH_SIZE + 100];
    snprintf(expected, sizeof expected, "plm-pipeline: there is no log of \"%s\" in %s\n",
             cases[i].first, logs);
    assert_string_equal(command_err, expected);
    assert_int_equal(code, 1);
  }
}

/* Also while it is followed. */
static void a_log_that_cannot_be_read_is_an_error(void **state)
{
  char path[PLM_PATH_SIZE], expected[PLM_PATH_SIZE + 100];
  (void)state;
  write_log("packer.0.log", "p0\n");
  assert_int_equal(plm_path_join(path, logs, "trainer.0.log", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  snprintf(expected, sizeof expected, "plm-pipeline: cannot read %s: Is a directory\n", path);
  for (int follow = 0; follow < 2; follow++) {
    assert_int_equal(COMMAND("logs", "--run", run, follow ? "--follow" : NULL), 1);
    assert_string_equal(command_err, expected);
    assert_non_null(strstr(command_out, "p0\n"));
  }
}

/* Not a log that is silently missing. */
static void a_path_that_is_too_long_is_an_error(void **state)
{
  char padded[PLM_PATH_SIZE], expected[PLM_PATH_SIZE + 100];
  const size_t length = sizeof padded - 11; /* with /logs it fits */
  (void)state;
  write_log("trainer.0.log", "t\n");
  memset(padded, '/', length);
  strcpy(padded + length - strlen(run), run);
  assert_int_equal(COMMAND("logs", "--run", padded), 1);
  snprintf(expected, sizeof expected, "trainer.0.log is longer than %d bytes\n", PLM_PATH_SIZE - 1);
  assert_string_equal(command_out, "");
  if (strstr(command_err, expected) == NULL) fail_msg("%s", command_err);
}

/* The names of logs end with .log, and have 5 to 60 bytes. */
static void other_files_are_no_logs(void **state)
{
  char name[80], expected[200];
  (void)state;
  memset(name, 'x', sizeof name);
  strcpy(name + 56, ".log");
  write_log(name, "60\n");
  strcpy(name + 57, ".log");
  name[56] = 'x';
  write_log(name, "61\n");
  write_log("a.log", "a\n");
  write_log(".log", "none\n");
  write_log("a.log.1", "old\n");
  write_log("notes.txt", "notes\n");
  write_log("log", "log\n");
  snprintf(expected, sizeof expected, "a           | old\na           | a\n%.56s | 60\n", name);
  name[0] = '\0';
  expect(COMMAND("logs", "--run", run), expected);
}

/* A single log that is followed without a choice of stages has its name too. */
static void one_log_alone_needs_no_name(void **state)
{
  (void)state;
  write_log("trainer.0.log", "t\n");
  expect(COMMAND("logs", "--run", run), "t\n");
  expect(COMMAND("logs", "--run", run, "-f"), "trainer.0   | t\n");
  expect(COMMAND("logs", "--run", run, "--color", "always", "-f"),
         "\033[32mtrainer.0   |\033[0m t\n");
  write_log("packer.0.log", "\033[31mp\n");
  expect(COMMAND("logs", "--run", run, "--color", "always"),
         "\033[32mpacker.0    |\033[0m \\x1b[31mp\n\033[32mtrainer.0   |\033[0m t\n");
}

static void without_logs_it_is_an_error(void **state)
{
  char expected[PLM_PATH_SIZE + 200];
  (void)state;
  expect(COMMAND("logs", "--run", run), "");
  assert_int_equal(COMMAND("logs", "--run", scratch_path("nowhere")), 1);
  snprintf(expected, sizeof expected,
           "plm-pipeline: there are no logs in %s/logs: No such file or directory\n  start a run "
           "with `plm-pipeline up`, or name one with --run DIR\n",
           scratch_path("nowhere"));
  assert_string_equal(command_err, expected);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(lines_are_merged_by_time, setup),
      cmocka_unit_test_setup(logs_are_chosen_by_name, setup),
      cmocka_unit_test_setup(a_log_that_cannot_be_read_is_an_error, setup),
      cmocka_unit_test_setup(other_files_are_no_logs, setup),
      cmocka_unit_test_setup(a_path_that_is_too_long_is_an_error, setup),
      cmocka_unit_test_setup(one_log_alone_needs_no_name, setup),
      cmocka_unit_test_setup(without_logs_it_is_an_error, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
