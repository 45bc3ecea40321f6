/* `up` and `join` with scripts as the programs of the stages: a run that goes on in the
 * background, and packers that join the run of another host. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/run/run.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/cases/scripted_run.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/scratch.h"

/* ---- in the background ------------------------------------------------------------------------
 */

/* The process of the run that `up` has just named. */
static pid_t told_process(const char *where)
{
  char text[2 * PLM_PATH_SIZE];
  snprintf(text, sizeof text, "running in %s (process ", where);
  const char *found = strstr(scripted_err, text);
  if (found == NULL) fail_msg("\"%s\" is not in: %s", text, scripted_err);
  return (pid_t)atoi(found + strlen(text));
}

static void all_have_begun(void)
{
  static const char *const stages[] = {"trainer.0 ", "evaluator.0 ", "packer.0 ", "packer.1 "};
  for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
    assert_true(scratch_appears("words", stages[i], SCRIPTED_LIMIT_MS));
}

/* Waits for a process that this one need not have started. */
static void wait_until_gone(pid_t pid)
{
  for (int i = 0; kill(pid, 0) == 0; i++) {
    char path[64], *text;
    size_t size;
    assert_true(i < SCRIPTED_LIMIT_MS);
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid); /* nobody may have waited for it */
    if (plm_file_read(path, 4096, &text, &size, NULL) != PLM_OK) return;
    const bool ended = strstr(text, ") Z ") != NULL;
    free(text);
    if (ended) return;
    usleep(1000);
  }
}

/* Its lines go to a log, and it keeps nothing of who called it. */
static void a_run_may_go_on_in_the_background(void **state)
{
  static const char *const flags[] = {"-d", "--wait"};
  char log[PLM_PATH_SIZE], byte;
  int ends[2];
  (void)state;
  assert_int_equal(plm_path_join(log, scripted_run, "logs/supervisor.log", NULL), PLM_OK);
  const int before = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
  const int input = open("its.yaml", O_RDONLY | O_CLOEXEC);
  assert_true(before >= 0);
  assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
  close(input);
  for (int i = 0; i < 2; i++) {
    scratch_write("words", "", 0);
    unlink("told");
    assert_int_equal(pipe(ends), 0); /* not closed by exec */
    const int high = fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
    close(ends[0]);
    ends[0] = high;
    const int lowest = dup(ends[1]);
    assert_true(lowest < ends[1]);
    const int code = UP(flags[i]);
    const pid_t pid = told_process(scripted_run);
    close(ends[1]);
    close(lowest);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* nobody else has the other end */
    close(ends[0]);
    assert_int_equal(code, 0);
    if (i == 1)
      assert_non_null(strstr(scratch_contents(log), " plm-pipeline: packer.1 is ready ("));
    assert_true(scratch_appears(log, "packer.1 is ready (", SCRIPTED_LIMIT_MS));
    all_have_begun();
    for (int number = 0; number < 3; number++) {
      char name[64], target[PLM_PATH_SIZE] = "";
      snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)pid, number);
      assert_true(readlink(name, target, sizeof target - 1) > 0);
      assert_string_equal(target, number == STDERR_FILENO ? log : "/dev/null");
    }
    assert_int_equal(getpgid(pid), pid);
    assert_int_equal(kill(pid, SIGTERM), 0);
    wait_until_gone(pid);
    assert_string_equal(scratch_contents("told"), "trainer\nevaluator\npacker\npacker\n");
    assert_true(scratch_appears(log, "stopped before the first checkpoint\n", 0));
    assert_int_equal(unlink(log), 0);
  }
  assert_int_equal(UP("-d", "-q"), 0);
  assert_string_equal(scripted_err, "");
  assert_int_equal(scripted_call((const char *const[]){"down", "--run", scripted_run, "-q", NULL}),
                   0);
  assert_int_equal(dup2(before, STDIN_FILENO), STDIN_FILENO);
  close(before);
}

/* `--wait` tells why the stages do not become ready. */
static void waiting_for_readiness_ends_with_a_failure(void **state)
{
  (void)state;
  command_case_program("plm-trainer", "#!/bin/sh\necho 'plm-trainer: too bad'\nexit 2\n");
  assert_int_equal(UP("--wait"), 2);
  scripted_says("plm-pipeline: failed: trainer.0 exited with ");
  scripted_says("too bad");
  scripted_does_not_say("running in");
}

/* ---- join -------------------------------------------------------------------------------------
 */

/* The keys of a client in the folder `client`, and a corpus, whose path it returns. */
static const char *make_keys_and_corpus(void)
{
  static const struct written_corpus small = {.documents = {20, 20}, .longest = 10};
  static const char *const files[] = {"server.pub", "clients/a.key"};
  static char corpus[PLM_PATH_SIZE];
  if (!plm_file_exists(scratch_path("corpus.0"))) written_corpora(1, &small);
  snprintf(corpus, sizeof corpus, "%s", scratch_path("corpus.0"));
  assert_int_equal(COMMAND("keys", "keys", "--client", "a"), 0);
  assert_int_equal(mkdir("client", 0700), 0);
  for (int i = 0; i < 2; i++) {
    char from[64], to[64];
    snprintf(from, sizeof from, "keys/%s", files[i]);
    snprintf(to, sizeof to, "client/%s", i == 0 ? files[0] : "a.key");
    assert_int_equal(rename(from, to), 0);
  }
  return corpus;
}

static void packers_join_from_a_corpus_of_this_host(void **state)
{
  char line[4 * PLM_PATH_SIZE], joined[PLM_PATH_SIZE];
  (void)state;
  const char *corpus = make_keys_and_corpus();
  command_case_program("plm-packer",
                       BEGINS "until [ \"$(wc -l <words)\" -ge 2 ]; do sleep 0.01; done\n"
                              "[ \"$PLM_INSTANCE\" != 0 ] || kill -INT $PPID\n" STAYS);
  const char *const foreground[] = {
      "join", "tcp://127.0.0.1:9", "--corpus", corpus, "--keys", "client", "--packers",
      "2",    "--threads",         "3",        NULL};
  assert_int_equal(scripted_call(foreground), 130);
  assert_int_equal(plm_path_join(joined, scripted_folder, "runs/join-127.0.0.1-9", NULL), PLM_OK);
  for (int i = 0; i < 2; i++) {
    snprintf(line, sizeof line,
             "packer.%d -c %s/pipeline.yaml --run %s --corpus %s --connect tcp://127.0.0.1:9 "
             "--threads 3\n",
             i, joined, joined, corpus);
    if (strstr(scratch_contents("words"), line) == NULL) fail_msg("%s", scratch_contents("words"));
  }
  assert_null(strstr(scratch_contents("words"), "packer.2 "));
  snprintf(line, sizeof line, "packers for tcp://127.0.0.1:9; logs are in %s/logs\n", joined);
  scripted_says(line);
  scripted_says("plm-pipeline: stopped\n");
  command_case_program("plm-packer", BEGINS STAYS);
  unlink("told");
  const char *const background[] = {
      "join", "tcp://127.0.0.1:9", "--corpus", corpus, "--keys", "client", "--run", "here", "-d",
      NULL};
  assert_int_equal(scripted_call(background), 0);
  const pid_t pid = told_process("here");
  assert_true(scratch_appears("words", "here/pipeline.yaml --run ", SCRIPTED_LIMIT_MS));
  assert_int_equal(kill(pid, SIGTERM), 0);
  wait_until_gone(pid);
  assert_string_equal(scratch_contents("told"), "packer\n");
  /* corpus and keys of a configuration */
  char yaml[PLM_PATH_SIZE + 100];
  snprintf(yaml, sizeof yaml, "corpus: %s\nnetwork: {keys: client}\n", corpus);
  scratch_write("joins.yaml", yaml, strlen(yaml));
  scratch_write("words", "", 0);
  command_case_program("plm-packer", BEGINS "kill -INT $PPID\n" STAYS);
  const char *const of_file[] = {"join", "tcp://127.0.0.1:9", "-c", "joins.yaml", "--run", "there",
                                 NULL};
  assert_int_equal(scripted_call(of_file), 130);
  snprintf(
      line, sizeof line,
      "packer.0 -c %s/there/pipeline.yaml --run %s/there --connect tcp://127.0.0.1:9 --threads 2\n",
      scripted_folder, scripted_folder);
  assert_string_equal(scratch_contents("words"), line);
  snprintf(yaml, sizeof yaml, "corpus: /nowhere\nnetwork: {keys: client}\n");
  scratch_write("joins.yaml", yaml, strlen(yaml));
  assert_int_equal(scripted_call(of_file), 1);
  scripted_says("/nowhere");
}

/* Each option becomes one of the packer; -q silences the command itself. */
static void packers_get_the_options_of_join(void **state)
{
  static const char all[] = "tcp://127.0.0.1:9,tcp://[::1]:10";
  char line[3 * PLM_PATH_SIZE];
  (void)state;
  const char *corpus = make_keys_and_corpus();
  command_case_program("plm-packer", BEGINS "kill -INT $PPID\n" STAYS);
  const char *const words[] = {"join",           all,         "--corpus", corpus,    "--keys",
                               "client",         "--threads", "8",        "--cache", "a cache",
                               "--allow-remote", "--packers", "1",        "-q",      "--prometheus",
                               "127.0.0.1:1",    NULL};
  assert_int_equal(scripted_call(words), 130);
  snprintf(line, sizeof line,
           "packer.0 -c %s/runs/join-127.0.0.1-9/pipeline.yaml --run %s/runs/join-127.0.0.1-9 "
           "--corpus %s --connect %s --threads 8 --cache a cache --prometheus 127.0.0.1:1 "
           "--allow-remote\n",
           scripted_folder, scripted_folder, corpus, all);
  assert_string_equal(scratch_contents("words"), line);
  scripted_does_not_say("packers for");
  const char *const behind[] = {"join",   all,  "--corpus", corpus, "--keys",
                                "client", "-q", "-d",       NULL};
  scratch_write("words", "", 0);
  unlink("told");
  command_case_program("plm-packer", BEGINS STAYS);
  assert_int_equal(scripted_call(behind), 0);
  assert_string_equal(scripted_err, "");
  assert_true(scratch_appears("words", "packer.0 ", SCRIPTED_LIMIT_MS));
  assert_int_equal(
      scripted_call((const char *const[]){"down", "--run", "runs/join-127.0.0.1-9", "-q", NULL}),
      0);
  assert_string_equal(scratch_contents("told"), "packer\n");
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(a_run_may_go_on_in_the_background, scripted_run_begin),
      cmocka_unit_test_setup(waiting_for_readiness_ends_with_a_failure, scripted_run_begin),
      cmocka_unit_test_setup(packers_join_from_a_corpus_of_this_host, scripted_run_begin),
      cmocka_unit_test_setup(packers_get_the_options_of_join, scripted_run_begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
