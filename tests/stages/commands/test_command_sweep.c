/* `plm-pipeline sweep` with a script as the program that trains: which runs it starts and how, what
 * it says of them, and when it skips, waits or stops. */
#include "tests/support/harness/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE];

/* The program writes its words down, and a run gets what lies ready for it in made/NAME, prints and
 * ends with the code in codes/NAME. */
static const char program[] =
    "#!/bin/sh\n"
    "if [ \"$1\" = report ]; then\n"
    "  for i; do echo \"$i\"; done >page\n  [ ! -e code ] || exit \"$(cat code)\"\n  exit 0\nfi\n"
    "echo \"$*\" >>started\nname=${4##*/}\nmkdir -p \"$4\"\n"
    "[ ! -e \"made/$name\" ] || cp \"made/$name\"/* \"$4\"\n"
    "echo \"printed by $name\"\n"
    "[ ! -e \"codes/$name\" ] || exit \"$(cat \"codes/$name\")\"\n";

static int setup(void **state)
{
  static const char yaml[] = "run: runs/a\ncorpus: null\ntrainer: {steps: 20}\n";
  (void)state;
  scratch_run(folder);
  assert_int_equal(chdir(folder), 0);
  scratch_write("its.yaml", yaml, strlen(yaml));
  assert_int_equal(mkdir("made", 0755), 0);
  assert_int_equal(mkdir("codes", 0755), 0);
  command_case_program("plm-pipeline", program);
  return 0;
}

static void put(const char *directory, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_directory_make(directory, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, directory, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

/* The run will have this loss at its end, and a configuration, by which it counts as one. */
static void will_have(const char *name, const char *metrics)
{
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "made/%s", name);
  put(path, PLM_RUN_CONFIG, "corpus: null\n");
  if (metrics != NULL) put(path, PLM_RUN_EVALUATOR_METRICS, metrics);
}

static void refuses(const char *what, const char *const *words)
{
  char said[1000], expected[1000];
  const int code = command_case(words);
  const char *line = strstr(command_err, "plm-pipeline: ");
  assert_non_null(line);
  snprintf(said, sizeof said, "%.*s", (int)strcspn(line, "\n"), line);
  snprintf(expected, sizeof expected, "plm-pipeline: %s", what);
  assert_string_equal(said, expected);
  assert_string_equal(command_out, "");
  assert_int_equal(code, 2);
  assert_string_equal(scratch_contents("started"), "");
}
#define REFUSES(what, ...) \
  refuses(what, (const char *const[]){"sweep", "its.yaml", __VA_ARGS__, NULL})

/* ---- what to run ------------------------------------------------------------------------------
 */

static void bad_input_is_refused_before_anything_starts(void **state)
{
  enum { MOST = 64 };
  const char *words[2 * MOST + 8] = {"sweep", "its.yaml", "--dry-run"};
  size_t count = 3;
  (void)state;
  REFUSES("each run of a sweep has a folder of its own", "--set", "seed=1,2", "--run", "x");
  REFUSES("each run of a sweep has a folder of its own", "--set", "run=x");
  REFUSES("--set seed: a value is empty", "--set", "seed=1,");
  REFUSES("run 2 of the sweep (seed=1,hidden_size=63) has no valid configuration", "--set",
          "seed=1,2", "--set", "model.hidden_size=64,63");
  assert_non_null(strstr(command_err, "model.hidden_size: "));
  REFUSES("unexpected argument \"other\"", "other");
  char output[4091], expected[300];
  memset(output, '/', sizeof output);
  memcpy(output, "out", 3);
  output[4083] = '\0'; /* with ./ before it and /seed=1.log behind it, it is too long */
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", output), 1);
  snprintf(expected, sizeof expected, "plm-pipeline: path ./%.198s is too long\n", output);
  assert_string_equal(command_err, expected);
  output[4083] = '/'; /* now even the folder of a run is */
  output[4090] = '\0';
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", output), 1);
  assert_non_null(strstr(command_err, "seed=1 is longer than 4095 bytes\n"));
  assert_int_equal(COMMAND("sweep", "its.yaml", "--jobs", "0"), 2);
  assert_int_equal(COMMAND("sweep", "its.yaml", "--jobs", "65"), 2);
  assert_int_equal(COMMAND("sweep", "its.yaml", "--jobs", "64", "--dry-run"), 0);
  assert_string_equal(scratch_contents("started"), "");
  assert_false(plm_file_exists("runs"));
  for (int i = 0; i < MOST; i++) words[count++] = "--set", words[count++] = "seed=1";
  assert_int_equal(command_case(words), 2);
  assert_null(strstr(command_err, "more than"));
  words[count++] = "--set", words[count++] = "seed=1";
  assert_int_equal(command_case(words), 2);
  assert_non_null(strstr(command_err, "--set is given more than 64 times\n"));
}

/* A run is complete as it is configured now, and if nothing of it failed. */
static void a_dry_run_lists_the_runs(void **state)
{
  char expected[5 * PLM_PATH_SIZE];
  const struct plm_done all = {.step = 20}, less = {.step = 19},
                        stopped = {.step = 5, .metric = "loss", .patience = 3};
  (void)state;
  assert_int_equal(COMMAND("sweep", "its.yaml", "--dry-run", "--set", "seed=1,2", "--set",
                           "evaluator.mask_rates=[0.1,0.2],[0.3]", "--output", "out"),
                   0);
  assert_string_equal(command_out, "./out/seed=1,mask_rates=_0.1_0.2_\n  --set seed=1\n"
                                   "  --set evaluator.mask_rates=[0.1,0.2]\n"
                                   "./out/seed=1,mask_rates=_0.3_\n  --set seed=1\n"
                                   "  --set evaluator.mask_rates=[0.3]\n"
                                   "./out/seed=2,mask_rates=_0.1_0.2_\n  --set seed=2\n"
                                   "  --set evaluator.mask_rates=[0.1,0.2]\n"
                                   "./out/seed=2,mask_rates=_0.3_\n  --set seed=2\n"
                                   "  --set evaluator.mask_rates=[0.3]\n");
  assert_false(plm_file_exists("out"));
  for (int i = 1; i <= 5; i++) {
    char path[64];
    snprintf(path, sizeof path, "runs/a-sweep/seed=%d", i);
    assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  }
  assert_int_equal(plm_done_write("runs/a-sweep/seed=1", &less, NULL), PLM_OK);
  assert_int_equal(plm_done_write("runs/a-sweep/seed=2", &all, NULL), PLM_OK);
  assert_int_equal(plm_done_write("runs/a-sweep/seed=3", &stopped, NULL), PLM_OK);
  assert_int_equal(COMMAND("sweep", "-c", "its.yaml", "--dry-run", "--set", "seed=1,2,3,4"), 0);
  snprintf(expected, sizeof expected,
           "%s/runs/a-sweep/seed=1\n  --set seed=1\n%s/runs/a-sweep/seed=2  (complete)\n"
           "  --set seed=2\n%s/runs/a-sweep/seed=3\n  --set seed=3\n"
           "%s/runs/a-sweep/seed=4\n  --set seed=4\n",
           folder, folder, folder, folder);
  assert_string_equal(command_out, expected);
  static const struct {
    const char *metric, *patience;
    bool complete;
  } cases[] = {
      {"loss", "3", true}, {"loss", "2", true}, {"loss", "4", false}, {"accuracy", "3", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char metric[64], patience[64];
    snprintf(metric, sizeof metric, "trainer.stop_when.metric=%s", cases[i].metric);
    snprintf(patience, sizeof patience, "trainer.stop_when.patience=%s", cases[i].patience);
    assert_int_equal(COMMAND("sweep", "its.yaml", "--dry-run", "--set", "seed=3,6", "--set", metric,
                             "--set", patience),
                     0);
    if ((strstr(command_out, "/seed=3  (complete)\n") != NULL) != cases[i].complete)
      fail_msg("case %zu: %s", i, command_out);
  }
}

/* ---- running ----------------------------------------------------------------------------------
 */

static void each_run_is_started_with_its_values(void **state)
{
  (void)state;
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--set",
                           "model.hidden_size=64", "--output", "out"),
                   0);
  assert_string_equal(scratch_contents("started"),
                      "up its.yaml --run ./out/seed=1 --set seed=1 --set model.hidden_size=64\n"
                      "up its.yaml --run ./out/seed=2 --set seed=2 --set model.hidden_size=64\n");
  assert_string_equal(scratch_contents("out/seed=1.log"), "printed by seed=1\n");
  assert_string_equal(scratch_contents("out/seed=2.log"), "printed by seed=2\n");
  assert_string_equal(command_out, "seed  state               loss        best    tokens/s\n"
                                   "1     complete               -           -           -\n"
                                   "2     complete               -           -           -\n");
  const char *first = strstr(command_err, "run 1 of 2: seed=1\n"),
             *second = strstr(command_err, "run 2 of 2: seed=2\n");
  assert_true(first != NULL && second != NULL && first < second);
  assert_false(plm_file_exists("page")); /* none of them is a run that a page could show */
  char set[4000] = "corpus=";            /* a value may be long */
  memset(set + 7, 'x', sizeof set - 8);
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", set, "--output", "long"), 0);
  assert_non_null(strstr(scratch_contents("started"), set));
}

/* With ports of their own. */
static void several_run_at_once(void **state)
{
  (void)state;
  /* each ends only once the other one has begun */
  command_case_program("plm-pipeline",
                       "#!/bin/sh\n[ \"$1\" = up ] || exit 0\necho \"$*\" >>started\n"
                       ": >\"begun.${4##*/}\"\n"
                       "for i in $(seq 6000); do\n"
                       "  [ ! -e begun.seed=1 ] || [ ! -e begun.seed=2 ] || exit 0\n"
                       "  sleep 0.01\ndone\nexit 1\n");
  assert_int_equal(
      COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", "out", "--jobs", "2"), 0);
  static const char one[] =
      "up its.yaml --run ./out/seed=1 --set seed=1 --set network.feed=tcp://127.0.0.1:* --set ";
  assert_non_null(strstr(scratch_contents("started"), one));
}

/* A run that is complete is not started again, and still shown. */
static void complete_runs_are_skipped(void **state)
{
  const struct plm_done done = {.step = 20};
  (void)state;
  put("out/seed=1", PLM_RUN_EVALUATOR_METRICS, "{\"step\":20,\"split\":\"valid\",\"loss\":2.5}\n");
  put("out/seed=1", PLM_RUN_CONFIG, "corpus: null\n");
  assert_int_equal(plm_done_write("out/seed=1", &done, NULL), PLM_OK);
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", "out"), 0);
  assert_string_equal(scratch_contents("started"), "up its.yaml --run ./out/seed=2 --set seed=2\n");
  assert_non_null(strstr(command_err, "run 1 of 2: seed=1 is complete\n"));
  assert_non_null(
      strstr(command_out, "\n1     complete          2.5000      2.5000           -\n"));
}

/* The others are trained all the same. */
static void a_run_that_fails_is_reported(void **state)
{
  (void)state;
  put("codes", "seed=1", "3");
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", "out"), 1);
  assert_string_equal(command_out, "seed  state               loss        best    tokens/s\n"
                                   "1     failed (3)             -           -           -\n"
                                   "2     complete               -           -           -\n");
  assert_non_null(strstr(command_err, "seed=1 failed with exit code 3; see ./out/seed=1.log\n"));
  assert_null(strstr(command_err, "seed=2 failed"));
  assert_non_null(strstr(command_err, "plm-pipeline: 1 of 2 runs failed\n"
                                      "  the same command continues those that are not complete"));
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", "out", "--json"),
                   1);
  assert_string_equal(
      command_out, "{\"run\":\"./out/seed=1\",\"settings\":{\"seed\":\"1\"},\"state\":\"failed\","
                   "\"exit\":3,\"loss\":null,\"best_loss\":null,\"tokens_per_second\":null}\n"
                   "{\"run\":\"./out/seed=2\",\"settings\":{\"seed\":\"2\"},\"state\":"
                   "\"complete\",\"loss\":null,\"best_loss\":null,\"tokens_per_second\":null}\n");
}

static void a_program_without_a_path_is_an_error(void **state)
{
  char longest[PLM_PATH_SIZE];
  const char *kept = command_programs;
  (void)state;
  memset(longest, 'p', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  command_programs = longest;
  assert_int_not_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", "out"), 0);
  command_programs = kept;
  assert_non_null(strstr(command_err, "/plm-pipeline is longer than 4095 bytes"));
  assert_string_equal(command_out, "");
}

/* Neither the run that is stopped nor those after it are reported as failed. */
static void a_signal_stops_the_sweep(void **state)
{
  (void)state;
  command_case_program("plm-pipeline", "#!/bin/sh\ntrap 'echo asked >asked; exit 9' INT\n"
                                       "echo \"$*\" >>started\nkill -INT $PPID\n" STAYS);
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", "out"), 130);
  plm_stop_requested = 0;
  assert_string_equal(scratch_contents("asked"), "asked\n");
  assert_string_equal(scratch_contents("started"), "up its.yaml --run ./out/seed=1 --set seed=1\n");
  assert_non_null(strstr(command_err, "stopped by Ctrl-C; the same command continues the sweep\n"));
  assert_null(strstr(command_err, "failed"));
  assert_string_equal(command_out, "");
}

/* Releases the lock some looks after the sweep has said that it waits. */
static void *release(void *lock)
{
  command_case_says("waiting for an earlier start of seed=1 to end\n");
  usleep(250000);
  plm_lock_release(lock);
  return NULL;
}

static void an_earlier_start_is_waited_for(void **state)
{
  struct plm_lock *lock;
  pthread_t thread;
  (void)state;
  assert_int_equal(plm_directory_make("out/seed=1", NULL), PLM_OK);
  assert_int_equal(plm_lock_acquire("out/seed=1", "trainer", &lock, NULL), PLM_OK);
  assert_int_equal(pthread_create(&thread, NULL, release, lock), 0);
  const int code = COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", "out");
  pthread_join(thread, NULL);
  assert_int_equal(code, 0);
  assert_int_equal(captured_times(command_err, "waiting for an earlier start of seed=1 to end\n"),
                   1);
  assert_null(strstr(command_err, "waiting for an earlier start of seed=2"));
  assert_non_null(strstr(scratch_contents("started"), "seed=1\n"));
}

/* ---- the report -------------------------------------------------------------------------------
 */

/* The loss is that of the first split at the end and at best, the speed the median. */
static void losses_and_speeds_are_measured(void **state)
{
  (void)state;
  will_have("seed=1,hidden_size=64", "{\"step\":5,\"split\":\"valid\",\"loss\":2.25}\n"
                                     "{\"step\":5,\"split\":\"test\",\"loss\":1}\n"
                                     "{\"step\":10,\"split\":\"valid\",\"loss\":1.5}\n"
                                     "{\"step\":20,\"split\":\"valid\",\"loss\":1.75}\n");
  put("made/seed=1,hidden_size=64", PLM_RUN_TRAINER_METRICS,
      "{\"step\":1,\"tokens_per_second\":100}\n{\"step\":2,\"tokens_per_second\":300}\n"
      "{\"step\":3,\"tokens_per_second\":1000}\n");
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--set",
                           "model.hidden_size=64,128", "--set", "trainer.threads=1", "--output",
                           "out", "--jobs", "4"),
                   0);
  assert_string_equal(
      command_out, "seed  model.hidden_size  state               loss        best    tokens/s\n"
                   "1     64                 complete          1.7500      1.5000         300\n"
                   "1     128                complete               -           -           -\n"
                   "2     64                 complete               -           -           -\n"
                   "2     128                complete               -           -           -\n");
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--set",
                           "model.hidden_size=64,128", "--output", "out", "--jobs", "4", "--json"),
                   0);
  static const char first[] =
      "{\"run\":\"./out/seed=1,hidden_size=64\",\"settings\":{\"seed\":\"1\","
      "\"model.hidden_size\":\"64\"},\"state\":\"complete\",\"loss\":1.75,\"best_loss\":1.5,"
      "\"tokens_per_second\":300}\n";
  assert_int_equal(strncmp(command_out, first, strlen(first)), 0);
}

static void metrics_that_cannot_be_read_are_an_error(void **state)
{
  (void)state;
  assert_int_equal(plm_directory_make("out/seed=2/evaluator.jsonl", NULL), PLM_OK);
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", "out"), 1);
  assert_non_null(strstr(command_err, "evaluator.jsonl: Is a directory\n"));
  assert_string_equal(command_out, "");
}

/* A column is as wide as its key or its longest value. */
static void columns_are_wide_enough(void **state)
{
  (void)state;
  assert_int_equal(
      COMMAND("sweep", "its.yaml", "--set", "seed=1,1234567", "--output", "out", "--jobs", "2"), 0);
  assert_string_equal(command_out, "seed     state               loss        best    tokens/s\n"
                                   "1        complete               -           -           -\n"
                                   "1234567  complete               -           -           -\n");
}

/* At most eight, those with the least loss first; those without one come last. */
static void a_page_shows_the_best_runs(void **state)
{
  (void)state;
  static const char *const losses[] = {"5", "3", NULL, "8", "1", "4", "7", "2", "9", "6"};
  for (int i = 0; i < 10; i++) {
    char name[16], line[100];
    snprintf(name, sizeof name, "seed=%d", i);
    snprintf(line, sizeof line, "{\"step\":20,\"split\":\"valid\",\"loss\":%s}\n",
             losses[i] != NULL ? losses[i] : "null");
    will_have(name, line);
  }
  assert_int_equal(
      COMMAND("sweep", "its.yaml", "--set", "seed=8,0,1,2,3", "--output", "out", "--jobs", "5"), 0);
  assert_string_equal(scratch_contents("page"), "report\n./out/seed=1\n./out/seed=0\n./out/seed=3\n"
                                                "./out/seed=8\n./out/seed=2\n--output\n"
                                                "./out/report.html\n--quiet\n");
  assert_non_null(strstr(command_err, "./out/report.html is written\n"));
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=0,1,2,3,4,5,6,7,8,9", "--output",
                           "out", "--jobs", "10"),
                   0);
  assert_string_equal(scratch_contents("page"),
                      "report\n./out/seed=4\n./out/seed=7\n./out/seed=1\n"
                      "./out/seed=5\n./out/seed=0\n./out/seed=9\n./out/seed=6\n"
                      "./out/seed=3\n--output\n./out/report.html\n--quiet\n");
  assert_non_null(strstr(command_err, "./out/report.html is written; it shows the runs with the "
                                      "least loss\n"));
  put(".", "code", "4");
  assert_int_equal(COMMAND("sweep", "its.yaml", "--set", "seed=1,2", "--output", "out"), 1);
  assert_non_null(strstr(command_err, "plm-pipeline: ./out/report.html could not be written\n"));
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(bad_input_is_refused_before_anything_starts, setup),
      cmocka_unit_test_setup(a_dry_run_lists_the_runs, setup),
      cmocka_unit_test_setup(each_run_is_started_with_its_values, setup),
      cmocka_unit_test_setup(several_run_at_once, setup),
      cmocka_unit_test_setup(complete_runs_are_skipped, setup),
      cmocka_unit_test_setup(a_run_that_fails_is_reported, setup),
      cmocka_unit_test_setup(a_program_without_a_path_is_an_error, setup),
      cmocka_unit_test_setup(a_signal_stops_the_sweep, setup),
      cmocka_unit_test_setup(an_earlier_start_is_waited_for, setup),
      cmocka_unit_test_setup(losses_and_speeds_are_measured, setup),
      cmocka_unit_test_setup(metrics_that_cannot_be_read_are_an_error, setup),
      cmocka_unit_test_setup(columns_are_wide_enough, setup),
      cmocka_unit_test_setup(a_page_shows_the_best_runs, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
