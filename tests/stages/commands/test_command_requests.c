/* What down, restart, scale, wait and ps ask of a supervisor, and what they print of its answers. A
 * thread answers in its place. */
#include "common/run/done.h"
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "tests/support/cases/answering_supervisor.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/scratch.h"

enum { OUTPUT_SIZE = 1 << 14 };

static char program[PLM_PATH_SIZE];
static const char *request; /* the last one */

/* Runs plm-pipeline for the run folder; its standard output and error are in output. Returns the
 * exit code. */
static int pipeline(const char *arguments, char output[OUTPUT_SIZE])
{
  char command[4 * PLM_PATH_SIZE];
  snprintf(command, sizeof command, "'%s' %s --run '%s' 2>&1", program, arguments,
           scratch_directory());
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  const size_t size = fread(output, 1, OUTPUT_SIZE - 1, pipe);
  output[size] = '\0';
  return WEXITSTATUS(pclose(pipe));
}

static int with_answer(const char *arguments, const char *answer, char output[OUTPUT_SIZE])
{
  answering_begin(scratch_directory(), answer, 1);
  const int code = pipeline(arguments, output);
  request = answering_end();
  return code;
}

static void requests_and_answers(void **state)
{
  (void)state;
  static const struct {
    const char *arguments, *request, *answer;
    int code;
    const char *output;
  } cases[] = {
      {"down", "{\"command\":\"down\",\"kill\":false}", "{\"ok\":true}", 0,
       "plm-pipeline: stopped\n"},
      {"down -q --kill", "{\"command\":\"down\",\"kill\":true}", "{\"ok\":true}", 0, ""},
      {"down", "{\"command\":\"down\",\"kill\":false}", "{\"ok\":false,\"error\":\"it cannot\"}", 1,
       "plm-pipeline: it cannot\n"},
      {"down", "{\"command\":\"down\",\"kill\":false}", "{}", 1,
       "plm-pipeline: the supervisor did not understand the request\n"},
      {"restart", "{\"command\":\"restart\",\"stages\":[]}", "{\"ok\":true}", 0, ""},
      {"restart trainer packer.3",
       "{\"command\":\"restart\",\"stages\":[\"trainer\",\"packer.3\"]}", "{\"ok\":true}", 0, ""},
      {"scale packer=0", "{\"command\":\"scale\",\"packer\":0}", "{\"ok\":true}", 0, ""},
      {"scale packer=256", "{\"command\":\"scale\",\"packer\":256}", "{\"ok\":true}", 0, ""},
      {"wait", "{\"command\":\"wait\",\"ready\":false}", "{\"ok\":true}", 0, ""},
      {"wait --ready", "{\"command\":\"wait\",\"ready\":true}", "{\"ok\":true,\"exit\":0}", 0, ""},
      {"wait --timeout 50", "{\"command\":\"wait\",\"ready\":false}", "{\"ok\":true,\"exit\":1}", 1,
       ""},
      {"wait", "{\"command\":\"wait\",\"ready\":false}",
       "{\"ok\":true,\"exit\":2,\"failure\":\"it failed\\n\"}", 2, "plm-pipeline: it failed\n"},
      {"wait", "{\"command\":\"wait\",\"ready\":false}", "{\"ok\":true,\"exit\":3}", 3, ""},
      {"wait", "{\"command\":\"wait\",\"ready\":false}", "{\"ok\":true,\"exit\":4}", 4, ""},
      {"wait", "{\"command\":\"wait\",\"ready\":false}", "{\"ok\":true,\"exit\":130}", 130, ""},
      {"wait", "{\"command\":\"wait\",\"ready\":false}", "{\"ok\":true,\"exit\":143}", 143, ""},
      {"wait", "{\"command\":\"wait\",\"ready\":false}", "{\"ok\":true,\"exit\":77}", 1, ""},
      {"ps", "{\"command\":\"ps\"}", "{\"ok\":true}", 1,
       "plm-pipeline: the supervisor's answer lists no stages\n"},
      {"ps --json", "{\"command\":\"ps\"}", "{\"ok\":true,\"stages\":[{\"stage\":\"trainer\"}]}", 0,
       "[{\"stage\":\"trainer\"}]\n"},
  };
  char output[OUTPUT_SIZE];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int code = with_answer(cases[i].arguments, cases[i].answer, output);
    assert_string_equal(request, cases[i].request);
    assert_string_equal(output, cases[i].output);
    assert_int_equal(code, cases[i].code);
  }
}

static const char stages[] =
    "{\"ok\":true,\"stages\":["
    "{\"stage\":\"trainer\",\"instance\":0,\"node\":\"here\",\"pid\":1234567,\"state\":\"ready\","
    "\"ready\":true,\"restarts\":0,\"age_s\":59.9,\"sign_age_s\":7.4,\"rate\":9999,\"ranks\":4},"
    "{\"stage\":\"evaluator\",\"instance\":0,\"node\":\"a\\u001bnode\",\"pid\":1,\"state\":"
    "\"fatal\","
    "\"ready\":false,\"restarts\":12,\"age_s\":60,\"rate\":10000,\"queue\":0},"
    "{\"stage\":\"packer\",\"instance\":0,\"node\":\"here\",\"pid\":3,\"state\":\"starting\","
    "\"ready\":false,\"restarts\":1,\"age_s\":3599,\"standby\":true},"
    "{\"stage\":\"packer\",\"instance\":10,\"node\":\"there\",\"pid\":4,\"state\":\"ready\","
    "\"ready\":"
    "true,\"restarts\":0,\"age_s\":3600,\"sign_age_s\":754,\"rate\":123456,\"queue\":7,\"standby\":"
    "false},"
    "{\"stage\":\"packer\",\"instance\":11,\"age_s\":90061},"
    "{\"stage\":\"packer\",\"instance\":12,\"age_s\":1,\"rate\":49,\"ahead\":1},"
    "{\"stage\":\"packer\",\"instance\":13,\"age_s\":1,\"rate\":50,\"ahead\":1},"
    "{\"stage\":\"packer\",\"instance\":14,\"age_s\":1,\"rate\":0,\"ahead\":0}]}";

static void stages_are_a_table(void **state)
{
  (void)state;
  char output[OUTPUT_SIZE];
  assert_int_equal(with_answer("ps", stages, output), 0);
  assert_string_equal(
      output,
      "STAGE       NODE           PID STATE     RESTARTS      AGE   SIGN     RATE QUEUE\n"
      "trainer.0   here       1234567 ready            0     1:00   0:07 10.0 k/s        4 ranks\n"
      "evaluator.0 a\\x1bnode        1 fatal           12     1:00          10 k/s     0\n"
      "packer.0    here             3 starting         1    59:59         standby      \n"
      "packer.10   there            4 ready            0  1:00:00  12:34  123 k/s     7\n"
      "packer.11                    -                  0 25:01:01                      \n"
      "packer.12                    -                  0     0:01           ready      \n"
      "packer.13                    -                  0     0:01         0.1 k/s      \n"
      "packer.14                    -                  0     0:01         0.0 k/s      \n");
  assert_int_equal(with_answer("ps --color always", stages, output), 0);
  assert_non_null(strstr(output, "1234567 \033[32mready    \033[0m "));
  assert_non_null(strstr(output, "      1 \033[31mfatal    \033[0m "));
  assert_non_null(strstr(output, "      3 \033[33mstarting \033[0m "));
}

/* What a stage does, why it failed, and how it is started again. */
static void troubled_stages_have_a_line(void **state)
{
  (void)state;
  static const char answer[] =
      "{\"ok\":true,\"stages\":[{\"stage\":\"trainer\",\"instance\":0,\"activity\":\"no sign for "
      "1:00\"},{\"stage\":\"packer\",\"instance\":2,\"state\":\"fatal\",\"cause\":\"exited with "
      "7\",\"failed_at\":86400,\"continue\":\"plm-pipeline restart packer.2\"},{\"stage\":"
      "\"packer\",\"instance\":3,\"state\":\"back-off\",\"cause\":\"exited with 6\",\"failed_at\":"
      "86461}]}";
  char output[OUTPUT_SIZE];
  setenv("TZ", "UTC", 1);
  assert_int_equal(with_answer("ps", answer, output), 0);
  const char *rows = strchr(output, '\n') + 1;
  const char *lines[6];
  size_t count = 0;
  for (char *line = strtok((char *)rows, "\n"); line != NULL && count < 6;
       line = strtok(NULL, "\n"))
    lines[count++] = line;
  assert_int_equal(count, 6);
  assert_string_equal(lines[1], "  trainer.0: no sign for 1:00");
  assert_int_equal(strncmp(lines[2], "packer.2 ", 9), 0);
  assert_string_equal(lines[3], "  1970-01-02 00:00:00: exited with 7");
  assert_string_equal(lines[4], "  start it again with: plm-pipeline restart packer.2");
  assert_int_equal(strncmp(lines[5], "packer.3 ", 9), 0);
}

/* A run that is not running may have failed. */
static void the_last_failure_is_reported(void **state)
{
  static struct plm_run_failure failure = {
      .time_s = 86400, .exit_code = 5, .stage = "trainer.0", .cause = "exited with 5: too bad"};
  char output[OUTPUT_SIZE], expected[2 * PLM_PATH_SIZE + 300];
  (void)state;
  setenv("TZ", "UTC", 1);
  assert_int_equal(plm_run_failure_write(scratch_directory(), &failure, NULL), PLM_OK);
  assert_int_equal(pipeline("ps", output), 3);
  snprintf(
      expected, sizeof expected,
      "plm-pipeline: %.4000s is not running. It failed at 1970-01-02 00:00:00 with exit code 5: "
      "trainer.0 exited with 5: too bad\n  continue with `plm-pipeline up "
      "%.4000s/pipeline.yaml`\n",
      scratch_directory(), scratch_directory());
  assert_string_equal(output, expected);
  plm_run_failure_remove(scratch_directory());
}

static unsigned slept, slept_s; /* how often, and how long together */

/* Takes the place of libc's function in this program. */
unsigned sleep(unsigned seconds)
{
  slept++;
  slept_s += seconds;
  return 0;
}

/* On a terminal, each look overwrites the one before, until the run has ended. */
static void a_terminal_is_redrawn(void **state)
{
  char run[PLM_PATH_SIZE];
  (void)state;
  snprintf(run, sizeof run, "%s", scratch_directory());
  setenv("TERM", "xterm", 1);
  answering_begin(run,
                  "{\"ok\":true,\"stages\":[{\"stage\":\"trainer\",\"instance\":0,\"activity\":"
                  "\"it starts\"}]}",
                  3);
  slept = slept_s = 0;
  const int code = COMMAND_ON_TERMINAL(80, "ps", "--watch", "--run", run, "--color", "never");
  answering_end();
  assert_int_equal(code, 0);
  assert_string_equal(command_err, "");
  assert_int_equal(slept, 3);
  assert_int_equal(slept_s, 3);
  char expected[1000], all[3 * sizeof expected];
  snprintf(
      expected, sizeof expected,
      "\033[H\033[2K%-11s %-10s %7s %-9s %8s %8s %6s %8s %5s\n\033[2K%-11s %-10s %7s %-9s %8s %8s "
      "%6s %8s %5s\n\033[2K  trainer.0: it starts\n\033[J",
      "STAGE", "NODE", "PID", "STATE", "RESTARTS", "AGE", "SIGN", "RATE", "QUEUE", "trainer.0", "",
      "-", "", "0", "0:00", "", "", "");
  snprintf(all, sizeof all, "%s%s%s", expected, expected, expected);
  assert_string_equal(command_out, all);
}

/* ps --watch ends without an error once the supervisor is gone. */
static void a_run_is_watched_to_its_end(void **state)
{
  (void)state;
  char output[OUTPUT_SIZE];
  assert_int_equal(with_answer("ps --watch --json", "{\"ok\":true,\"stages\":[]}", output), 0);
  assert_string_equal(output, "[]\n");
  assert_int_equal(with_answer("ps --watch", stages, output), 0);
  assert_memory_equal(output, "STAGE ", 6); /* and not for a terminal */
  assert_int_equal(pipeline("ps --watch", output), 3);
}

static void operands_are_refused(void **state)
{
  static const char *const commands[][3] = {
      {"ps", "x"}, {"down", "x"}, {"wait", "x"}, {"scale", "packer=1", "x"}};
  (void)state;
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    COMMAND_REFUSES(2, "unexpected argument \"x\"", commands[i][0], commands[i][1], commands[i][2]);
}

static void without_a_supervisor_it_is_not_running(void **state)
{
  (void)state;
  static const char *const commands[] = {"ps",   "down",        "restart", "scale packer=1",
                                         "wait", "wait --ready"};
  char output[OUTPUT_SIZE];
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    assert_int_equal(pipeline(commands[i], output), 3);
  assert_int_equal(plm_done_write(scratch_directory(),
                                  &(struct plm_done){.step = 12, .identity = {.high = 1}}, NULL),
                   PLM_OK);
  assert_int_equal(pipeline("wait", output), 0);
  assert_string_equal(output, "plm-pipeline: complete at step 12\n");
  assert_int_equal(pipeline("wait -q", output), 0);
  assert_string_equal(output, "");
  assert_int_equal(pipeline("wait --ready", output), 3);
  assert_int_equal(unlink(scratch_path("DONE")), 0);
}

int main(void)
{
  const char *bin = getenv("PLM_BIN") != NULL ? getenv("PLM_BIN") : "build/bin";
  snprintf(program, sizeof program, "%s/plm-pipeline", bin);
  if (access(program, X_OK) != 0) {
    printf("%s is missing: run `make`\n", program);
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(requests_and_answers),
      cmocka_unit_test(stages_are_a_table),
      cmocka_unit_test(troubled_stages_have_a_line),
      cmocka_unit_test(the_last_failure_is_reported),
      cmocka_unit_test(a_terminal_is_redrawn),
      cmocka_unit_test(a_run_is_watched_to_its_end),
      cmocka_unit_test(operands_are_refused),
      cmocka_unit_test(without_a_supervisor_it_is_not_running),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
