/* The command line of plm-pipeline beyond its commands: where the command stands, help, versions
 * and words that are not commands. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/scratch.h"

static char program[4096], said[1 << 16];

/* Runs the program with these words of the shell; its standard output and error are in said.
 * Returns the exit code. */
static int pipeline(const char *words)
{
  char command[2 * sizeof program];
  snprintf(command, sizeof command, "cd '%s' && '%s' %s 2>&1", scratch_directory(), program, words);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  const size_t size = fread(said, 1, sizeof said - 1, pipe);
  said[size] = '\0';
  return WEXITSTATUS(pclose(pipe));
}

static void begins(const char *text)
{
  if (strncmp(said, text, strlen(text)) != 0) fail_msg("\"%s\" does not begin: %s", text, said);
}

static void has(const char *text)
{
  if (strstr(said, text) == NULL) fail_msg("\"%s\" is not in: %s", text, said);
}

/* Common options, with and without a value, may come first. */
static void options_may_stand_before_the_command(void **state)
{
  static const char *const words[] = {
      "--quiet completion bash", "-q completion bash",      "--run completion completion bash",
      "-c help completion bash", "--run=x completion bash", "-q --color never completion bash",
      "-- completion bash"};
  char expected[sizeof said];
  (void)state;
  assert_int_equal(pipeline("completion bash"), 0);
  memcpy(expected, said, sizeof said);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (pipeline(words[i]) != 0) fail_msg("%s: %s", words[i], said);
    assert_string_equal(said, expected);
  }
  assert_int_equal(pipeline("-cq completion bash"), 0); /* it is not -q with a value */
  assert_int_equal(pipeline("-"), 2);
  begins("plm-pipeline: unknown command \"-\"");
}

static void help_is_that_of_a_command_or_of_all(void **state)
{
  static const char *const all[] = {"help", "--help", "-h"};
  static const char *const one[] = {"help up", "up --help", "up -h", "-h up", "help -- up"};
  char expected[sizeof said];
  (void)state;
  assert_int_equal(pipeline("help"), 0);
  memcpy(expected, said, sizeof said);
  has("\n  sweep ");
  has("\noptions of every command:\n");
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    assert_int_equal(pipeline(all[i]), 0);
    assert_string_equal(said, expected);
  }
  assert_int_equal(pipeline("help up"), 0);
  memcpy(expected, said, sizeof said);
  begins("usage: plm-pipeline up [FILE] [STAGE...]\n\nstart or resume a run");
  has("\noptions:\n");
  has("--find-lr");
  has("\noptions of every command:\n");
  for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
    if (pipeline(one[i]) != 0) fail_msg("%s: %s", one[i], said);
    assert_string_equal(said, expected);
  }
  assert_int_equal(pipeline("help runs"), 0); /* it has no option of its own */
  assert_null(strstr(said, "\noptions:\n"));
}

static void words_that_are_no_command(void **state)
{
  (void)state;
  assert_int_equal(pipeline("swep"), 2);
  begins("plm-pipeline: unknown command \"swep\"; did you mean \"sweep\"?\n"
         "  try `plm-pipeline -h`\n");
  assert_int_equal(pipeline("help swep"), 2);
  begins("plm-pipeline: unknown command \"swep\"; did you mean \"sweep\"?\n");
  assert_int_equal(pipeline("qqqqqqqqqqqqqq"), 2);
  begins("plm-pipeline: unknown command \"qqqqqqqqqqqqqq\"\n");
  assert_int_equal(pipeline(""), 2);
  begins("plm-pipeline: a command is needed\n  try `plm-pipeline -h`\n");
  assert_int_equal(pipeline("down x"), 2);
  begins("plm-pipeline: unexpected argument \"x\"\n  try `plm-pipeline down -h`\n");
  assert_int_equal(pipeline("down --no-such-option"), 2);
  has("  try `plm-pipeline down -h`\n");
  assert_int_equal(pipeline("up nothing"), 2);
  assert_null(strstr(said, "  try ")); /* it has a hint of its own */
}

static void versions_and_failures_of_output(void **state)
{
  (void)state;
  assert_int_equal(pipeline("--version"), 0);
  assert_string_equal(said, "plm-pipeline " PLM_VERSION "\n");
  assert_int_equal(pipeline("up --version"), 0);
  assert_string_equal(said, "plm-pipeline " PLM_VERSION "\n");
  if (access("/dev/full", W_OK) != 0) skip("no /dev/full");
  assert_int_equal(pipeline("--version 2>said >/dev/full; echo $?; cat said"), 0);
  begins("1\nplm-pipeline: cannot write standard output: No space left on device\n");
  if (!CHECKED_MEMORY) return; /* a sanitizer does not start behind a library that stdbuf loads */
  /* each line is written at once, so nothing is left that could fail at the end */
  static const char lines[] = "--version >/dev/null; stdbuf -oL \"$PROGRAM\" --version 2>said "
                              ">/dev/full; echo $?; cat said";
  setenv("PROGRAM", program, 1);
  assert_int_equal(pipeline(lines), 0);
  if (strstr(said, "not found") != NULL) skip("no stdbuf");
  begins("1\nplm-pipeline: a part of standard output could not be written\n");
  static const char left[] = "--version >/dev/null; mkfifo gone; : <gone & exec 4>gone; wait; "
                             "trap '' PIPE; stdbuf -oL \"$PROGRAM\" help 2>said >&4; echo $?; "
                             "cat said";
  assert_int_equal(pipeline(left), 0);
  assert_string_equal(said, "0\n"); /* its reader wanted no more */
}

int main(void)
{
  const char *bin = getenv("PLM_BIN") != NULL ? getenv("PLM_BIN") : "build/bin";
  unsetenv("PLM_CONFIG");
  if (realpath(bin, said) == NULL) return 77;
  snprintf(program, sizeof program, "%.4000s/plm-pipeline", said);
  if (access(program, X_OK) != 0) {
    printf("%s is missing: run `make`\n", program);
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(options_may_stand_before_the_command),
      cmocka_unit_test(help_is_that_of_a_command_or_of_all),
      cmocka_unit_test(words_that_are_no_command),
      cmocka_unit_test(versions_and_failures_of_output),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
