/* What a run folder tells `ps` about its processes, number by number. */
#include "stages/supervisor/control/ps_rows.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/run/run.h"
#include "tests/support/cases/answering_supervisor.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE];

/* A new run folder for each test. */
static int setup(void **state)
{
  static unsigned number;
  char name[32];
  (void)state;
  snprintf(name, sizeof name, "run-%u", number++);
  snprintf(run, sizeof run, "%s", scratch_path(name));
  return plm_directory_make(run, NULL) == PLM_OK ? 0 : 1;
}

static void write_file(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
}

static cJSON *parsed(const char *text)
{
  cJSON *json = plm_json_line(text);
  assert_non_null(json);
  return json;
}

/* Fails unless the rows are these, as JSON without blanks. Deletes them. */
static void expect_rows(cJSON *rows, const char *expected)
{
  char *text = cJSON_PrintUnformatted(rows);
  assert_string_equal(text, expected);
  free(text);
  cJSON_Delete(rows);
}

static double number_of(const cJSON *rows, int row, const char *field)
{
  return plm_json_number(cJSON_GetArrayItem(rows, row), field, (double)NAN);
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void locks_tell_who_was_started_by_hand(void **state)
{
  (void)state;
  struct plm_lock *trainer, *evaluator;
  char host[256] = "", expected[1024];
  gethostname(host, sizeof host - 1);
  cJSON *rows = cJSON_CreateArray();
  plm_ps_add_by_hand(run, rows);
  assert_int_equal(cJSON_GetArraySize(rows), 0);
  assert_int_equal(plm_lock_acquire(run, "trainer", &trainer, NULL), PLM_OK);
  assert_int_equal(plm_lock_acquire(run, "evaluator", &evaluator, NULL), PLM_OK);
  assert_int_equal(plm_peers_write(run, "evaluator", "[]", NULL), PLM_OK);
  plm_ps_add_by_hand(run, rows);
  for (int i = 0; i < 2; i++) {
    cJSON *row = cJSON_GetArrayItem(rows, i);
    const double age_s = plm_json_number(row, "age_s", -1);
    if (age_s < 0 || age_s > 60) fail_msg("%g s", age_s);
    cJSON_SetNumberValue(cJSON_GetObjectItem(row, "age_s"), 7);
  }
  snprintf(
      expected, sizeof expected,
      "[{\"stage\":\"trainer\",\"instance\":0,\"node\":\"%s\",\"pid\":%d,\"state\":\"starting\","
      "\"ready\":false,\"restarts\":0,\"age_s\":7},"
      "{\"stage\":\"evaluator\",\"instance\":0,\"node\":\"%s\",\"pid\":%d,\"state\":\"ready\","
      "\"ready\":true,\"restarts\":0,\"age_s\":7}]",
      host, (int)getpid(), host, (int)getpid());
  expect_rows(rows, expected);
  /* those of the supervisor stay as they are */
  rows = parsed("[{\"stage\":\"packer\"},{\"stage\":\"trainer\"},{\"stage\":\"evaluator\"}]");
  plm_ps_add_by_hand(run, rows);
  expect_rows(rows, "[{\"stage\":\"packer\"},{\"stage\":\"trainer\"},{\"stage\":\"evaluator\"}]");
  plm_lock_release(trainer);
  plm_lock_release(evaluator);
}

static void a_lock_is_as_old_as_its_file(void **state)
{
  (void)state;
  struct plm_lock *trainer;
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_lock_acquire(run, "trainer", &trainer, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, run, "trainer.lock", NULL), PLM_OK);
  for (int future = 0; future < 2; future++) {
    cJSON *rows = cJSON_CreateArray();
    scratch_age(path, future ? -5000 : 5000);
    plm_ps_add_by_hand(run, rows);
    const double age_s = number_of(rows, 0, "age_s");
    if (future ? age_s != 0 : age_s < 5000 || age_s > 5100) fail_msg("%g s", age_s);
    cJSON_Delete(rows);
  }
  plm_lock_release(trainer);
}

/* ---- metrics --------------------------------------------------------------------------------- */

static const char ready[] =
    "[{\"stage\":\"packer\",\"ready\":true},{\"stage\":\"trainer\",\"ready\":true},"
    "{\"stage\":\"evaluator\",\"ready\":true}]";

static cJSON *with_metrics(const char *text)
{
  cJSON *rows = parsed(text);
  plm_ps_add_metrics(run, rows);
  return rows;
}

/* The rows of stages that took their locks so long ago, which is what counts, and not the age of a
 * row. */
static cJSON *after(double age_s)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, "trainer.lock", NULL), PLM_OK);
  scratch_age(path, age_s);
  assert_int_equal(plm_path_join(path, run, "evaluator.lock", NULL), PLM_OK);
  scratch_age(path, age_s);
  return with_metrics(ready);
}

static void without_metrics_only_the_queue_is_known(void **state)
{
  (void)state;
  cJSON *rows = after(9);
  for (int i = 1; i < 3; i++) { /* without any sign, since they took their locks */
    const double sign_age_s = number_of(rows, i, "sign_age_s");
    if (sign_age_s < 9 || sign_age_s > 60) fail_msg("%g s", sign_age_s);
    cJSON_DeleteItemFromObject(cJSON_GetArrayItem(rows, i), "sign_age_s");
  }
  expect_rows(rows, "[{\"stage\":\"packer\",\"ready\":true},"
                    "{\"stage\":\"trainer\",\"ready\":true},"
                    "{\"stage\":\"evaluator\",\"ready\":true,\"queue\":0}]");
  /* what is not ready gets nothing */
  expect_rows(with_metrics("[{\"stage\":\"evaluator\",\"ready\":false}]"),
              "[{\"stage\":\"evaluator\",\"ready\":false}]");
}

static void write_line(const char *name, double age_s, const char *rest)
{
  char text[512];
  snprintf(text, sizeof text, "{\"time\":1,\"tokens\":7,\"seconds\":7}\n{\"time\":%.3f,%s}\n",
           plm_clock_wall_s() - age_s, rest);
  write_file(name, text);
}

/* 2000 tokens a second for half a second are 1000 tokens. If no step ends, they are those of a
 * longer time. */
static void the_rate_of_the_trainer_falls_while_no_step_ends(void **state)
{
  (void)state;
  write_line("trainer.jsonl", -100, "\"step_ms\":500,\"tokens_per_second\":2000");
  cJSON *rows = after(1000);
  assert_true(number_of(rows, 1, "rate") == 2000);
  assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(rows, 0), "rate"));
  assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(rows, 2), "rate"));
  cJSON_Delete(rows);
  write_line("trainer.jsonl", 1000, "\"step_ms\":500,\"tokens_per_second\":2000");
  rows = after(2000);
  const double rate = number_of(rows, 1, "rate"); /* the time in the line is rounded */
  if (rate < 1000.0 / 1060 || rate > 1000.0 / 999) fail_msg("%g tokens a second", rate);
  cJSON_Delete(rows);
  rows = after(900); /* the line is of an earlier process */
  assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(rows, 1), "rate"));
  cJSON_Delete(rows);
  write_line("trainer.jsonl", 0, "\"step_ms\":0,\"tokens_per_second\":2000");
  rows = after(2000);
  assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(rows, 1), "rate"));
  cJSON_Delete(rows);
}

static void checkpoints_wait_for_the_evaluator(void **state)
{
  (void)state;
  static const char *const names[] = {"step_00000000", "step_00000005", "step_00000010",
                                      "step_00000015"};
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(folder, run, "checkpoints", NULL), PLM_OK);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    assert_int_equal(plm_path_join(path, folder, names[i], NULL), PLM_OK);
    assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  }
  cJSON *rows = after(1000);
  assert_true(number_of(rows, 2, "queue") == 4);
  cJSON_Delete(rows);
  write_line("evaluator.jsonl", 500, "\"step\":5,\"tokens\":1500,\"seconds\":0.75");
  rows = after(1000);
  assert_true(number_of(rows, 2, "queue") == 2 && number_of(rows, 2, "rate") == 2000);
  assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(rows, 1), "rate"));
  cJSON_Delete(rows);
  rows = after(100); /* an earlier process has reported it */
  assert_true(number_of(rows, 2, "queue") == 2);
  assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(rows, 2), "rate"));
  cJSON_Delete(rows);
  write_line("evaluator.jsonl", 0, "\"step\":14,\"tokens\":3000,\"seconds\":0");
  rows = after(1000);
  assert_true(number_of(rows, 2, "queue") == 1);
  assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(rows, 2), "rate"));
  cJSON_Delete(rows);
}

/* Of the evaluator and of a trainer that starts, also what they do; of a trainer that steps, the
 * age of its step. */
static void signs_of_life_have_an_age(void **state)
{
  (void)state;
  static const char *const names[] = {"pulse.trainer.json", "pulse.evaluator.json"};
  char path[PLM_PATH_SIZE];
  for (int i = 0; i < 2; i++) {
    write_file(names[i], i == 0 ? "{\"doing\":\"loading the weights\",\"patient\":true}"
                                : "{\"doing\":\"evaluating step 5 (valid)\"}");
    assert_int_equal(plm_path_join(path, run, names[i], NULL), PLM_OK);
    scratch_age(path, 700);
  }
  cJSON *rows = after(1000);
  for (int i = 1; i < 3; i++) {
    const cJSON *row = cJSON_GetArrayItem(rows, i);
    assert_true(number_of(rows, i, "sign_age_s") >= 700 && number_of(rows, i, "sign_age_s") < 760);
    assert_string_equal(plm_json_string(row, "doing", ""),
                        i == 1 ? "loading the weights" : "evaluating step 5 (valid)");
    const char *activity = plm_json_string(row, "activity", "");
    assert_int_equal(strncmp(activity, "no sign for 11:4", 16), 0);
  }
  cJSON_Delete(rows);
  write_line("trainer.jsonl", 500, "\"step_ms\":500,\"tokens_per_second\":2000");
  rows = after(1000);
  assert_true(number_of(rows, 1, "sign_age_s") == number_of(rows, 1, "step_age_s"));
  assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(rows, 1), "doing"));
  cJSON_Delete(rows);
}

/* ---- packers --------------------------------------------------------------------------------- */

static void packers_are_those_of_the_peers_files(void **state)
{
  (void)state;
  static const char own[] = "[{\"stage\":\"packer\",\"instance\":0,\"node\":\"n1\",\"pid\":5},"
                            "{\"stage\":\"packer\",\"instance\":3,\"node\":\"n1\",\"pid\":6},"
                            "{\"stage\":\"trainer\",\"instance\":9,\"node\":\"n1\",\"pid\":7}]";
  cJSON *rows = parsed(own);
  plm_ps_add_packers(run, rows);
  expect_rows(rows, own); /* nobody tells anything */
  assert_int_equal(
      plm_peers_write(
          run, "trainer",
          "[{\"host\":\"n1\",\"pid\":6,\"rate\":10,\"queue\":2,\"ahead\":7,\"standby\":false,"
          "\"sign_age_s\":2,\"corpora\":[\"/data/a\"]},"
          "{\"host\":\"n2\",\"pid\":5,\"rate\":30,\"queue\":4,\"standby\":true,"
          "\"age_s\":8},"
          "{\"host\":\"n1\",\"pid\":7,\"rate\":1}]",
          NULL),
      PLM_OK);
  assert_int_equal(
      plm_peers_write(
          run, "evaluator",
          "[{\"host\":\"n1\",\"pid\":6,\"rate\":20,\"queue\":3,\"ahead\":4,\"standby\":true,"
          "\"sign_age_s\":1.5},"
          "{\"host\":\"n2\",\"pid\":5,\"rate\":25,\"queue\":1}]",
          NULL),
      PLM_OK);
  rows = parsed(own);
  plm_ps_add_packers(run, rows);
  expect_rows(rows,
              "[{\"stage\":\"packer\",\"instance\":0,\"node\":\"n1\",\"pid\":5},"
              "{\"stage\":\"packer\",\"instance\":3,\"node\":\"n1\",\"pid\":6,\"corpora\":[\"/data/"
              "a\"],\"sign_age_s\":1.5,"
              "\"rate\":20,\"queue\":5,"
              "\"ahead\":11,\"standby\":false},"
              "{\"stage\":\"trainer\",\"instance\":9,\"node\":\"n1\",\"pid\":7},"
              "{\"stage\":\"packer\",\"instance\":4,\"node\":\"n2\",\"pid\":5,\"state\":\"joined\","
              "\"ready\":true,\"restarts\":0,\"age_s\":8,\"sign_age_s\":0,\"rate\":30,\"queue\":5,"
              "\"ahead\":0,\"standby\":"
              "true},"
              "{\"stage\":\"packer\",\"instance\":5,\"node\":\"n1\",\"pid\":7,\"state\":\"joined\","
              "\"ready\":true,\"restarts\":0,\"age_s\":0,\"sign_age_s\":0,\"rate\":1,\"queue\":0,"
              "\"ahead\":0,\"standby\":"
              "false}]");
  rows = cJSON_CreateArray();
  plm_ps_add_packers(run, rows);
  assert_true(number_of(rows, 0, "instance") == 0 && number_of(rows, 2, "instance") == 2);
  cJSON_Delete(rows);
}

/* Without a supervisor, as `ps` tells it. */
static void packers_that_serve_are_counted(void **state)
{
  (void)state;
  struct plm_ps_packers packers;
  plm_ps_packers(run, &packers);
  assert_int_equal(packers.serve, 0);
  cJSON_Delete(packers.troubled);
  write_file("peers.trainer.json", "[{\"host\":\"n1\",\"pid\":5},{\"host\":\"n2\",\"pid\":5,"
                                   "\"standby\":true}]");
  write_file("peers.evaluator.json", "[{\"host\":\"n1\",\"pid\":5}]");
  plm_ps_packers(run, &packers);
  assert_int_equal(packers.serve, 2);
  assert_int_equal(cJSON_GetArraySize(packers.troubled), 0);
  cJSON_Delete(packers.troubled);
}

/* Without a supervisor: what locks and files tell, if there is anybody. */
static void a_run_by_hand_is_read(void **state)
{
  (void)state;
  struct plm_lock *trainer;
  struct plm_error error = {0};
  cJSON *rows = NULL;
  assert_int_equal(plm_ps_read(run, &rows, &error), PLM_NOT_RUNNING);
  assert_null(rows);
  assert_int_equal(plm_lock_acquire(run, "trainer", &trainer, NULL), PLM_OK);
  write_file("trainer.jsonl", "");
  write_file("peers.trainer.json", "[{\"host\":\"n1\",\"pid\":5,\"rate\":10}]");
  assert_int_equal(plm_ps_read(run, &rows, &error), PLM_OK);
  assert_int_equal(cJSON_GetArraySize(rows), 2);
  assert_string_equal(plm_json_string(cJSON_GetArrayItem(rows, 0), "stage", ""), "trainer");
  assert_string_equal(plm_json_string(cJSON_GetArrayItem(rows, 1), "stage", ""), "packer");
  assert_true(number_of(rows, 1, "rate") == 10);
  cJSON_Delete(rows);
  plm_lock_release(trainer);
}

/* A supervisor that lives knows all stages. */
static void the_supervisor_is_asked(void **state)
{
  static const char *const others[] = {"{\"ok\":true}", "{\"stages\":{}}", "no json"};
  cJSON *rows = NULL;
  (void)state;
  write_file("peers.trainer.json", "[{\"host\":\"n1\",\"pid\":5}]"); /* it has added these */
  answering_begin(run, "{\"ok\":true,\"stages\":[{\"stage\":\"trainer\"}]}", 1);
  assert_int_equal(plm_ps_read(run, &rows, NULL), PLM_OK);
  assert_string_equal(answering_end(), "{\"command\":\"ps\"}");
  expect_rows(rows, "[{\"stage\":\"trainer\"}]");
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    struct plm_error error = {0};
    answering_begin(run, others[i], 1);
    assert_int_equal(plm_ps_read(run, &rows, &error), PLM_PROTOCOL);
    (void)answering_end();
    assert_string_equal(error.what, "the supervisor's answer lists no stages");
  }
}

/* Those that wait for something, or are not there. Consumers know whether one is on standby. */
static void packers_in_trouble_are_named(void **state)
{
  struct plm_ps_packers packers;
  (void)state;
  answering_begin(run,
                  "{\"stages\":["
                  "{\"stage\":\"trainer\",\"instance\":9,\"state\":\"fatal\",\"standby\":true},"
                  "{\"stage\":\"packer\",\"instance\":1,\"state\":\"ready\",\"standby\":false,"
                  "\"activity\":\"heard by nobody\"},"
                  "{\"stage\":\"packer\",\"instance\":2,\"state\":\"ready\",\"standby\":true},"
                  "{\"stage\":\"packer\",\"instance\":3,\"state\":\"back-off\",\"activity\":\"x\"},"
                  "{\"stage\":\"packer\",\"instance\":12,\"state\":\"fatal\"},"
                  "{\"stage\":\"evaluator\",\"activity\":\"x\"}]}",
                  1);
  plm_ps_packers(run, &packers);
  (void)answering_end();
  assert_int_equal(packers.serve, 2);
  expect_rows(packers.troubled, "[{\"packer\":\"packer.1\",\"activity\":\"heard by nobody\"},"
                                "{\"packer\":\"packer.3\",\"activity\":\"back-off\"},"
                                "{\"packer\":\"packer.12\",\"activity\":\"fatal\"}]");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(locks_tell_who_was_started_by_hand, setup),
      cmocka_unit_test_setup(a_lock_is_as_old_as_its_file, setup),
      cmocka_unit_test_setup(without_metrics_only_the_queue_is_known, setup),
      cmocka_unit_test_setup(the_rate_of_the_trainer_falls_while_no_step_ends, setup),
      cmocka_unit_test_setup(checkpoints_wait_for_the_evaluator, setup),
      cmocka_unit_test_setup(signs_of_life_have_an_age, setup),
      cmocka_unit_test_setup(packers_are_those_of_the_peers_files, setup),
      cmocka_unit_test_setup(packers_that_serve_are_counted, setup),
      cmocka_unit_test_setup(a_run_by_hand_is_read, setup),
      cmocka_unit_test_setup(the_supervisor_is_asked, setup),
      cmocka_unit_test_setup(packers_in_trouble_are_named, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
