/* `plm-pipeline runs`: which folders are runs, and what is said of each. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "tests/support/cases/answering_supervisor.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/scratch.h"

#define HEAD \
  "run                        state         step       loss      valid     tokens/s  packers\n"

static char runs[PLM_PATH_SIZE];

static int setup(void **state)
{
  (void)state;
  setenv("TZ", "UTC", 1);
  scratch_run(runs);
  return 0;
}

static void write_file(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, runs, name, NULL), PLM_OK);
  assert_int_equal(plm_path_parent(folder, path, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

static const char *folder_of(const char *name)
{
  static char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, runs, name, NULL), PLM_OK);
  return path;
}

static void expect(const char *out)
{
  assert_string_equal(command_err, "");
  assert_string_equal(command_out, out);
}

/* In the order of their names; what has no pipeline.yaml is no run. */
static void runs_are_listed(void **state)
{
  (void)state;
  write_file("b/pipeline.yaml", "");
  write_file("a-name-that-is-longer-than-26-columns/pipeline.yaml", "");
  write_file(".hidden/pipeline.yaml", "");
  write_file("other/notes", "");
  write_file("file", "");
  write_file("b/trainer.jsonl",
             "{\"step\":1,\"loss\":9}\n"
             "{\"step\":12345678,\"loss\":2.34567,\"tokens_per_second\":999.5}\n");
  assert_int_equal(COMMAND("runs", runs), 0);
  expect(HEAD "a-name-that-is-longer-than stopped          -          -          -            -    "
              "    -\n"
              "b                          stopped   12345678     2.3457          -         1000    "
              "    -\n");
  assert_int_equal(
      plm_done_write(folder_of("b"), &(struct plm_done){.step = 8, .identity = {.high = 1}}, NULL),
      PLM_OK);
  assert_int_equal(COMMAND("runs", runs), 0);
  expect(HEAD "a-name-that-is-longer-than stopped          -          -          -            -    "
              "    -\n"
              "b                          complete  12345678     2.3457          -         1000    "
              "    -\n");
}

/* The last loss of the split that was reported first, of the run's own corpus. */
static void the_loss_is_that_of_the_first_split(void **state)
{
  static const struct {
    const char *lines, *loss;
  } cases[] = {
      {"{\"split\":\"valid\",\"loss\":3}\n{\"split\":\"test\",\"loss\":4}\n"
       "{\"split\":\"valid\",\"loss\":2.5}\n{\"split\":\"test\",\"loss\":5}\n",
       "2.5000"},
      {"{\"split\":\"test\",\"loss\":4}\n{\"split\":\"valid\",\"loss\":3}\n", "4.0000"},
      {"{\"set\":\"refseq\",\"split\":\"test\",\"loss\":4}\n{\"split\":\"valid\",\"loss\":3}\n"
       "{\"set\":\"refseq\",\"split\":\"valid\",\"loss\":6}\n",
       "3.0000"},
      {"{\"split\":\"valid\",\"loss\":3}\n{\"split\":\"valid\",\"loss\":null}\n"
       "{\"split\":\"valid\"}\n{\"loss\":7}\n{\"split\":3,\"loss\":8}\n",
       "3.0000"},
      {"{\"split\":\"valid\",\"loss\":null}\n{\"split\":\"test\",\"loss\":3}\n", "3.0000"},
      {"{\"step\":1,\"skipped\":\"x\"}\n", "-"},
  };
  (void)state;
  write_file("a/pipeline.yaml", "");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char expected[300];
    write_file("a/evaluator.jsonl", cases[i].lines);
    assert_int_equal(COMMAND("runs", runs), 0);
    snprintf(expected, sizeof expected,
             HEAD "a                          stopped          -"
                  "          -%11s            -        -\n",
             cases[i].loss);
    expect(expected);
  }
}

static void a_failure_is_explained(void **state)
{
  (void)state;
  const struct plm_run_failure failure = {
      .time_s = 86400, .exit_code = 5, .stage = "trainer.0", .cause = "exited with 5: too bad"};
  char expected[3 * PLM_PATH_SIZE];
  write_file("a/pipeline.yaml", "");
  assert_int_equal(plm_run_failure_write(folder_of("a"), &failure, NULL), PLM_OK);
  assert_int_equal(COMMAND("runs", runs), 0);
  snprintf(expected, sizeof expected,
           HEAD "a                          failed           -          -          -            -  "
                "      -\n  1970-01-02 00:00:00: trainer.0 exited with 5: too bad\n"
                "  continue with: plm-pipeline up %s/a/pipeline.yaml\n",
           runs);
  expect(expected);
  assert_int_equal(COMMAND("runs", runs, "--json"), 0);
  snprintf(expected, sizeof expected,
           "{\"name\":\"a\",\"run\":\"%s/a\",\"state\":\"failed\",\"step\":null,\"loss\":null,"
           "\"evaluator_loss\":null,\"tokens_per_second\":null,\"failure\":{\"time\":86400,"
           "\"exit\":5,\"stage\":\"trainer.0\",\"cause\":\"exited with 5: too bad\",\"continue\":"
           "\"plm-pipeline up %s/a/pipeline.yaml\"}}\n",
           runs, runs);
  expect(expected);
}

/* A run that is running has packers, and its speed falls while no step ends. */
static void a_running_run_has_packers(void **state)
{
  struct plm_lock *lock;
  char line[200], expected[PLM_PATH_SIZE + 400];
  (void)state;
  write_file("a/pipeline.yaml", "");
  assert_int_equal(plm_lock_acquire(folder_of("a"), "trainer", &lock, NULL), PLM_OK);
  write_file("a/peers.trainer.json", "[{}]");
  assert_int_equal(COMMAND("runs", runs), 0);
  expect(HEAD "a                          running          -          -          -            -    "
              "    1\n");
  snprintf(line, sizeof line,
           "{\"step\":3,\"loss\":2.5,\"step_ms\":100,\"tokens_per_second\":1e6,\"time\":%.3f}\n",
           plm_clock_wall_s() + 0.5);
  write_file("a/trainer.jsonl", line);
  assert_int_equal(COMMAND("runs", runs, "--json"), 0);
  snprintf(expected, sizeof expected,
           "{\"name\":\"a\",\"run\":\"%s/a\",\"state\":\"running\",\"step\":3,\"loss\":2.5,"
           "\"evaluator_loss\":null,\"tokens_per_second\":",
           runs);
  assert_int_equal(strncmp(command_out, expected, strlen(expected)), 0);
  assert_non_null(strstr(command_out, ",\"step_age_s\":"));
  assert_non_null(strstr(command_out, ",\"packers\":1,\"packer_activities\":["));
  assert_null(strstr(command_out, "\"failure\""));
  plm_lock_release(lock);
}

#define FATAL(number) "{\"stage\":\"packer\",\"instance\":" number ",\"state\":\"fatal\"},"

/* At most eight packers are named; what the trainer and the evaluator do is always reported. */
static void what_takes_long_is_reported(void **state)
{
  static const char packers[] =
      "{\"ok\":true,\"stages\":["
      "{\"stage\":\"packer\",\"instance\":0,\"state\":\"ready\",\"standby\":false},"
      "{\"stage\":\"packer\",\"instance\":1,\"state\":\"fatal\",\"activity\":\"x\"},"
      "{\"stage\":\"packer\",\"instance\":2,\"state\":\"back-off\"},"
      "{\"stage\":\"packer\",\"instance\":3,\"state\":\"ready\",\"activity\":\"no sign for 1:00\","
      "\"standby\":true}," FATAL("4") FATAL("5") FATAL("6") FATAL("7") FATAL("8") FATAL("9")
          FATAL("10") "{\"stage\":\"trainer\",\"instance\":0,\"state\":\"fatal\"}]}";
  struct plm_lock *trainer, *evaluator;
  char path[PLM_PATH_SIZE];
  (void)state;
  write_file("a/pipeline.yaml", "");
  snprintf(path, sizeof path, "%s", folder_of("a"));
  assert_int_equal(plm_lock_acquire(path, "trainer", &trainer, NULL), PLM_OK);
  assert_int_equal(plm_lock_acquire(path, "evaluator", &evaluator, NULL), PLM_OK);
  write_file("a/pulse.trainer.json", "{\"doing\":\"loading\"}");
  write_file("a/pulse.evaluator.json", "{\"doing\":\"evaluating step 5\"}");
  const char *const old[] = {"a/trainer.lock", "a/evaluator.lock"}, *const signs[] = {
                                                                        "a/pulse.trainer.json",
                                                                        "a/pulse.evaluator.json"};
  for (int i = 0; i < 2; i++) {
    scratch_age(folder_of(old[i]), 1000);
    scratch_age(folder_of(signs[i]), 700);
  }
  answering_begin(path, packers, 1);
  const int code = COMMAND("runs", runs);
  answering_end();
  assert_int_equal(code, 0);
  static const char row[] = HEAD
      "a                          running          -          -          -            -        "
      "2\n";
  assert_int_equal(strncmp(command_out, row, strlen(row)), 0);
  assert_non_null(strstr(command_out, "\n  evaluator: no sign for 11:4"));
  assert_non_null(strstr(command_out,
                         "\n  packer.1: fatal\n  packer.2: back-off\n  packer.3: no sign "
                         "for 1:00\n  packer.4: fatal\n"));
  assert_non_null(strstr(command_out, "\n  packer.8: fatal\n  and 2 more packers; see plm-pipeline "
                                      "ps\n"));
  answering_begin(path, packers, 1);
  const int json = COMMAND("runs", runs, "--json");
  answering_end();
  plm_lock_release(trainer);
  plm_lock_release(evaluator);
  assert_int_equal(json, 0);
  assert_non_null(strstr(command_out, ",\"evaluator_sign_age_s\":70"));
  assert_non_null(strstr(command_out, ",\"evaluator_doing\":\"evaluating step 5\","));
  assert_non_null(strstr(command_out, ",\"evaluator_activity\":\"no sign for 11:4"));
  assert_non_null(strstr(command_out, ",\"activity\":\"no sign for 11:4"));
  assert_non_null(strstr(command_out, ",\"packers\":2,\"packer_activities\":[{\"packer\":"
                                      "\"packer.1\",\"activity\":\"fatal\"},"));
}

static void what_is_no_folder_is_an_error(void **state)
{
  char expected[2 * PLM_PATH_SIZE];
  (void)state;
  assert_int_equal(COMMAND("runs", "/nowhere"), 1);
  assert_string_equal(command_err,
                      "plm-pipeline: cannot read the folder /nowhere: No such file or directory\n"
                      "  name the folder that holds the runs: plm-pipeline runs DIR\n");
  assert_int_equal(COMMAND("runs", runs, runs), 2);
  assert_int_equal(chdir(runs), 0);
  assert_int_equal(COMMAND("runs"), 1);
  assert_memory_equal(command_err, "plm-pipeline: cannot read the folder runs: No such", 50);
  assert_int_equal(COMMAND("runs", runs), 0);
  snprintf(expected, sizeof expected, "plm-pipeline: there are no runs in %s\n", runs);
  assert_string_equal(command_err, expected);
  assert_string_equal(command_out, "");
  assert_int_equal(COMMAND("runs", runs, "--json"), 0);
  assert_string_equal(command_err, "");
  assert_string_equal(command_out, "");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(runs_are_listed, setup),
      cmocka_unit_test_setup(the_loss_is_that_of_the_first_split, setup),
      cmocka_unit_test_setup(a_failure_is_explained, setup),
      cmocka_unit_test_setup(a_running_run_has_packers, setup),
      cmocka_unit_test_setup(what_takes_long_is_reported, setup),
      cmocka_unit_test_setup(what_is_no_folder_is_an_error, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
