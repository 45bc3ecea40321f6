/* What a child of a command is started with, what becomes of it, and how it is asked to stop. */
#include "stages/commands/child_up.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/config/settings.h"
#include "common/run/stop.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { LIMIT_MS = 120 * 1000 };

static char programs[PLM_PATH_SIZE], log_path[PLM_PATH_SIZE];

/* The program is this script of the shell. */
static void begin(const char *script)
{
  char path[PLM_PATH_SIZE];
  scratch_run(programs);
  assert_int_equal(plm_path_join(path, programs, "plm-pipeline", NULL), PLM_OK);
  scratch_write(path, script, strlen(script));
  assert_int_equal(chmod(path, 0755), 0);
  assert_int_equal(plm_path_join(log_path, programs, "log", NULL), PLM_OK);
}

static void wait_for(struct plm_child *child)
{
  const int64_t start = plm_clock_ms();
  while (!plm_child_ended(child)) {
    if (plm_clock_ms() - start > LIMIT_MS) {
      kill(child->pid, SIGKILL);
      fail_msg("the child had not ended after %d s", LIMIT_MS / 1000);
    }
    usleep(1000);
  }
  assert_int_equal(child->pid, 0);
}

static void prints(const char *expected)
{
  char *text;
  size_t size;
  struct plm_error error = {0};
  must_work(plm_file_read(log_path, 1 << 16, &text, &size, &error), &error);
  assert_string_equal(text, expected);
  free(text);
}

static void start(const struct plm_child_options *options, struct plm_child *child)
{
  struct plm_error error = {0};
  must_work(plm_child_start(options, child, &error), &error);
  assert_true(child->pid > 0 && !child->asked);
}

static const char *const up[] = {"up", "--run", "a folder", NULL};

/* Both halves of own_ports: without it, the child has the arguments only. */
static void the_child_has_the_arguments(void **state)
{
  (void)state;
  begin("#!/bin/sh\nfor i; do echo \"<$i>\"; done\necho last >&2\nexit 3\n");
  struct plm_child_options options = {
      .program_directory = programs, .arguments = up, .log = log_path};
  struct plm_child child;
  start(&options, &child);
  wait_for(&child);
  assert_int_equal(child.code, 3);
  prints("<up>\n<--run>\n<a folder>\nlast\n");
  assert_true(plm_child_ended(&child)); /* and it stays so */
  assert_int_equal(child.code, 3);
  assert_int_equal(unlink(log_path), 0);
  options.own_ports = true;
  start(&options, &child);
  wait_for(&child);
  prints("<up>\n<--run>\n<a folder>\n"
         "<--set>\n<network.feed=tcp://127.0.0.1:*>\n"
         "<--set>\n<network.evaluation_feed=tcp://127.0.0.1:*>\n"
         "<--set>\n<network.announcements=tcp://127.0.0.1:*>\n"
         "<--set>\n<network.feed_address=null>\n"
         "<--set>\n<network.evaluation_feed_address=null>\n"
         "<--set>\n<network.announcements_address=null>\n"
         "<--set>\n<metrics.prometheus=null>\nlast\n");
}

/* The first and the last setting of the table that has a variable. */
static void settings_of_the_environment_may_be_left_out(void **state)
{
  (void)state;
  size_t count, first = 0;
  char one[96], other[96], script[512];
  const struct plm_setting *table = plm_settings(&count);
  while (!plm_setting_variable(table[first].key, one)) first++;
  while (!plm_setting_variable(table[count - 1].key, other)) count--;
  snprintf(script, sizeof script, "#!/bin/sh\necho \"${%s-unset} ${%s-unset} ${PLM_NO_SETTING}\"\n",
           one, other);
  begin(script);
  assert_int_equal(setenv(one, "7", 1), 0);
  assert_int_equal(setenv(other, "9", 1), 0);
  assert_int_equal(setenv("PLM_NO_SETTING", "8", 1), 0);
  struct plm_child_options options = {
      .program_directory = programs, .arguments = up, .log = log_path};
  struct plm_child child;
  start(&options, &child);
  wait_for(&child);
  assert_int_equal(child.code, 0);
  options.isolated = true;
  start(&options, &child);
  wait_for(&child);
  prints("7 9 8\nunset unset 8\n"); /* the log is continued */
  assert_string_equal(getenv(one), "7");
  assert_int_equal(unsetenv(one), 0);
  assert_int_equal(unsetenv(other), 0);
  assert_int_equal(unsetenv("PLM_NO_SETTING"), 0);
}

static void without_a_log_it_prints_where_this_process_does(void **state)
{
  (void)state;
  begin("#!/bin/sh\necho here\n");
  const struct plm_child_options options = {.program_directory = programs, .arguments = up};
  struct plm_child child;
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_child_start(&options, &child, NULL);
  if (status == PLM_OK) wait_for(&child);
  const char *printed = captured_end();
  assert_int_equal(status, PLM_OK);
  assert_string_equal(printed, "here\n");
}

static void the_child_has_the_usual_signals(void **state)
{
  (void)state;
  begin("#!/bin/sh\nkill -INT $$\nexit 4\n");
  const struct plm_child_options options = {
      .program_directory = programs, .arguments = up, .log = log_path};
  struct plm_child child;
  assert_true(signal(SIGINT, SIG_IGN) != SIG_ERR);
  start(&options, &child);
  wait_for(&child);
  assert_true(signal(SIGINT, SIG_DFL) != SIG_ERR);
  assert_int_equal(child.code, 128 + SIGINT);
}

/* With the signal that this process got, or else with SIGINT. */
static void it_is_asked_to_stop(void **state)
{
  (void)state;
  static const int signals[][2] = {{0, 2}, {SIGINT, 2}, {SIGUSR1, 2}, {SIGTERM, 15}};
  begin("#!/bin/sh\ntrap 'exit 2' INT\ntrap 'exit 15' TERM\necho ready\n"
        "for i in $(seq 12000); do sleep 0.01; done\n"); /* it ends by itself */
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    const struct plm_child_options options = {
        .program_directory = programs, .arguments = up, .log = log_path};
    struct plm_child child;
    start(&options, &child);
    if (!scratch_appears(log_path, "ready\n", LIMIT_MS)) fail_msg("the child printed nothing");
    assert_false(plm_child_ended(&child));
    assert_int_equal(getpgid(child.pid), child.pid);
    plm_stop_requested = signals[i][0];
    plm_child_stop(&child);
    plm_stop_requested = 0;
    assert_true(child.asked);
    wait_for(&child);
    assert_int_equal(child.code, signals[i][1]);
    assert_int_equal(unlink(log_path), 0);
  }
}

static volatile sig_atomic_t asked;

static void note(int number)
{
  (void)number;
  asked++;
}

/* Here the child is this process, where a signal comes before kill returns. */
static void it_is_asked_once_if_it_is_there(void **state)
{
  (void)state;
  struct plm_child here = {.pid = getpid()}, none = {0}, stranger = {.pid = getpid() == 1 ? 2 : 1};
  assert_true(signal(SIGINT, note) != SIG_ERR);
  plm_child_stop(&here);
  plm_child_stop(&here);
  assert_int_equal(asked, 1);
  plm_child_stop(&none);
  assert_int_equal(asked, 1);
  assert_true(signal(SIGINT, SIG_DFL) != SIG_ERR);
  assert_true(plm_child_ended(&none) && none.code == 0);
  assert_true(plm_child_ended(&stranger)); /* it is no child, so nothing is known of it */
  assert_true(stranger.pid == 0 && stranger.code == 1);
}

/* Exactly as many as there is room for, with the settings of own_ports, and one more. */
static void too_many_arguments_are_refused(void **state)
{
  (void)state;
  enum { MOST = 240 };
  const char *arguments[MOST + 2];
  begin("#!/bin/sh\necho $#\n");
  const struct plm_child_options options = {
      .program_directory = programs, .arguments = arguments, .log = log_path, .own_ports = true};
  struct plm_child child;
  struct plm_error error = {0};
  for (int i = 0; i <= MOST; i++) arguments[i] = "x";
  arguments[MOST] = NULL;
  start(&options, &child);
  wait_for(&child);
  prints("254\n");
  arguments[MOST] = "x";
  arguments[MOST + 1] = NULL;
  assert_int_equal(plm_child_start(&options, &child, &error), PLM_LIMIT);
  assert_string_equal(error.what, "more than 240 arguments");
  assert_int_equal(child.pid, 0);
}

static void what_cannot_be_started_ends_with_127(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  struct plm_child child;
  begin("#!/bin/sh\nexit 0\n");
  assert_int_equal(plm_path_join(path, programs, "none", NULL), PLM_OK);
  const struct plm_child_options none = {
      .program_directory = path, .arguments = up, .log = log_path};
  start(&none, &child);
  wait_for(&child);
  assert_int_equal(child.code, 127);
  assert_true(scratch_appears(log_path, "none/plm-pipeline: No such file or directory\n", 0));
  const struct plm_child_options no_log = {
      .program_directory = programs, .arguments = up, .log = programs};
  captured_begin(STDERR_FILENO); /* a folder is no log */
  const plm_status status = plm_child_start(&no_log, &child, NULL);
  if (status == PLM_OK) wait_for(&child);
  const char *said = captured_end();
  assert_int_equal(status, PLM_OK);
  assert_int_equal(child.code, 127);
  assert_non_null(strstr(said, programs));
  assert_non_null(strstr(said, "Is a directory"));
}

static void a_path_that_is_too_long_is_an_error(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  memset(path, 'x', sizeof path - 1);
  path[sizeof path - 1] = '\0';
  const struct plm_child_options options = {.program_directory = path, .arguments = up};
  struct plm_child child = {.pid = 1};
  assert_int_not_equal(plm_child_start(&options, &child, NULL), PLM_OK);
  assert_int_equal(child.pid, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_child_has_the_arguments),
      cmocka_unit_test(settings_of_the_environment_may_be_left_out),
      cmocka_unit_test(without_a_log_it_prints_where_this_process_does),
      cmocka_unit_test(the_child_has_the_usual_signals),
      cmocka_unit_test(it_is_asked_to_stop),
      cmocka_unit_test(it_is_asked_once_if_it_is_there),
      cmocka_unit_test(too_many_arguments_are_refused),
      cmocka_unit_test(what_cannot_be_started_ends_with_127),
      cmocka_unit_test(a_path_that_is_too_long_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
