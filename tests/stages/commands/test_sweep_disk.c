/* `sweep` over complete runs while each call to the disk fails in turn. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_entries.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE], yaml[PLM_PATH_SIZE], out[PLM_PATH_SIZE];
static char expected[1 << 14]; /* the output when nothing fails */

static plm_status call(void *context, struct plm_error *error)
{
  const int code = command_case(context);
  snprintf(error->what, sizeof error->what, "%s", command_err);
  if (code == 0) assert_string_equal(command_out, expected);
  return code == 0 ? PLM_OK : PLM_FAILURE;
}

static void put(const char *run, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

/* As it would be called first, and then while the disk fails. */
static void try_command(const char *const *words, const char *const *unnoticed)
{
  if (command_case(words) != 0) fail_msg("%s", command_err);
  assert_true(snprintf(expected, sizeof expected, "%s", command_out) < (int)sizeof expected);
  failing_disk_try(call, (void *)words, unnoticed);
}

static void complete_runs_are_measured(void **state)
{
  static const char *const names[] = {"seed=1", "seed=2"};
  /* Whether something is there, who holds a lock, and what ended the run, by which it is complete:
   * if that cannot be read, the run is started again. */
  static const char *const unnoticed[] = {"+stat *", "+open *.lock", "+* */FAILED", "+* */DONE",
                                          NULL};
  const struct plm_done done = {.step = 20};
  (void)state;
  for (size_t i = 0; i < 2; i++) {
    char run[PLM_PATH_SIZE];
    assert_int_equal(plm_path_join(run, out, names[i], NULL), PLM_OK);
    assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
    put(run, PLM_RUN_CONFIG, "corpus: null\n");
    put(run, PLM_RUN_EVALUATOR_METRICS, "{\"v\":1,\"step\":9,\"split\":\"valid\",\"loss\":2}\n");
    put(run, PLM_RUN_TRAINER_METRICS, "{\"v\":1,\"step\":9,\"tokens_per_second\":70}\n");
    assert_int_equal(plm_done_write(run, &done, NULL), PLM_OK);
  }
  static const char *const table[] = {"sweep", yaml, "--set", "seed=1,2", "--output", out, NULL},
                           *const json[] = {"sweep",    yaml, "--set",  "seed=1,2",
                                            "--output", out,  "--json", NULL};
  try_command(table, unnoticed);
  assert_non_null(strstr(expected, "complete          2.0000      2.0000          70"));
  try_command(json, unnoticed);
  assert_non_null(strstr(expected, "\"tokens_per_second\":70"));
}

static int setup(void **state)
{
  static const char text[] = "run: runs/a\ncorpus: null\ntrainer: {steps: 20}\n";
  (void)state;
  scratch_run(folder);
  snprintf(yaml, sizeof yaml, "%.4000s/its.yaml", folder);
  snprintf(out, sizeof out, "%.4000s/out", folder);
  scratch_write(yaml, text, strlen(text));
  command_case_program("plm-pipeline", "#!/bin/sh\nexit 0\n");
  return chdir(folder);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(complete_runs_are_measured)};
  return cmocka_run_group_tests(tests, setup, NULL);
}
