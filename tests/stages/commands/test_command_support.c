/* What several commands share: operands, the run that they are about, and exit codes. */
#include "stages/commands/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static struct plm_arguments arguments;
static struct plm_command_context context;

/* The context of `plm-pipeline COMMAND` with these words. */
static const struct plm_command_context *with(const char *first, const char *second,
                                              const char *third)
{
  static const struct plm_option none = {0, NULL, NULL, NULL};
  const char *words[] = {"plm-pipeline", first, second, third};
  int count = 1;
  while (count < 4 && words[count] != NULL) count++;
  plm_arguments_deinit(&arguments);
  assert_int_equal(plm_arguments_parse(count, (char **)words, &none, &arguments, NULL), PLM_OK);
  context = (struct plm_command_context){
      .arguments = &arguments,
      .run = plm_arguments_get(&arguments, "run"),
  };
  return &context;
}

static int release(void **state)
{
  (void)state;
  plm_arguments_deinit(&arguments);
  arguments = (struct plm_arguments){0};
  return 0;
}

static void write_file(const char *folder, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

static void packers_are_counted(void **state)
{
  static const struct {
    const char *text;
    int packers; /* -1: it is refused */
  } cases[] = {{"packer=0", 0},     {"packer=7", 7},    {"packer=007", 7},
               {"packer=256", 256}, {"packer=257", -1}, {"packer=", -1},
               {"packer=-1", -1},   {"packer=+1", -1},  {"packer= 1", -1},
               {"packer=1 ", -1},   {"packer=1x", -1},  {"packer", -1},
               {"trainer=1", -1},   {"packers=1", -1},  {"packer=9999999999999999999999", -1},
               {"packer=/", -1},    {"packer=:", -1},   {"packer=9", 9}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_error error = {0};
    unsigned packers = 1000;
    const plm_status status = plm_command_parse_scale(cases[i].text, &packers, &error);
    if (cases[i].packers >= 0) {
      assert_int_equal(status, PLM_OK);
      assert_int_equal(packers, cases[i].packers);
      continue;
    }
    char expected[100];
    snprintf(expected, sizeof expected, "expected packer=N with N from 0 to 256, found \"%s\"",
             cases[i].text);
    assert_int_equal(status, PLM_USAGE);
    assert_string_equal(error.what, expected);
    assert_int_equal(packers, 1000);
  }
}

/* main ends with the code that the run ended with, if it is one of ours. */
static void codes_become_statuses(void **state)
{
  static const struct {
    int code;
    plm_status status;
  } cases[] = {
      {0, PLM_OK},      {1, PLM_FAILURE},       {2, PLM_CONFIG},      {3, PLM_NOT_RUNNING},
      {4, PLM_TIMEOUT}, {5, PLM_NOT_FINITE},    {6, PLM_UNAVAILABLE}, {7, PLM_PERMANENT},
      {8, PLM_FAILURE}, {130, PLM_INTERRUPTED}, {137, PLM_FAILURE},   {143, PLM_TERMINATED},
      {-1, PLM_FAILURE}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_error error = {.what = "before"};
    assert_int_equal(plm_command_status_of_code(cases[i].code, &error), cases[i].status);
    if (cases[i].code == 0) continue;
    assert_int_equal(error.status, cases[i].status);
    assert_string_equal(error.what, ""); /* whoever ended the run has explained it */
  }
}

static void operands_are_counted(void **state)
{
  struct plm_error error = {0};
  (void)state;
  assert_int_equal(plm_command_operands(with(NULL, NULL, NULL), 0, &error), PLM_OK);
  assert_int_equal(plm_command_operands(with("a", "b", NULL), 2, &error), PLM_OK);
  assert_int_equal(plm_command_operands(with("a", "b", "--json"), 2, &error), PLM_OK);
  assert_int_equal(plm_command_operands(with("a", "b", "c"), 2, &error), PLM_USAGE);
  assert_string_equal(error.what, "unexpected argument \"c\"");
  assert_int_equal(plm_command_operands(with("a", "b", "c"), 0, &error), PLM_USAGE);
  assert_string_equal(error.what, "unexpected argument \"a\"");
}

/* --set may only choose the run. */
static void settings_without_effect_are_refused(void **state)
{
  static const struct {
    const char *first, *second;
    const char *refused; /* NULL: none */
  } cases[] = {{"--set=run=a", "--set=run=b", NULL},
               {"--run=a", "--json", NULL},
               {"--set=seed=1", "--set=run=b", "seed"},
               {"--set=run=b", "--set=seed=1", "seed"},
               {"--set=trainer.steps=1", "--set=seed=1", "trainer.steps"},
               {"--set=runs=1", "--json", "runs"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_error error = {0};
    char expected[100];
    const plm_status status = plm_command_check_set(
        with(cases[i].first, cases[i].second, NULL)->arguments, "metrics", &error);
    if (cases[i].refused == NULL) {
      assert_int_equal(status, PLM_OK);
      continue;
    }
    snprintf(expected, sizeof expected, "--set %s has no effect on metrics", cases[i].refused);
    assert_int_equal(status, PLM_USAGE);
    assert_string_equal(error.what, expected);
  }
  struct plm_error error = {0};
  assert_int_equal(plm_command_check_set(with("--set=seed", NULL, NULL)->arguments, "ps", &error),
                   PLM_USAGE);
  assert_string_equal(error.what, "option \"--set\" needs KEY=VALUE, not \"seed\"");
}

/* ---- the run -----------------------------------------------------------------------------------
 */

/* --run, relative to the working directory, or else the configuration's. */
static void the_run_folder_is_absolute(void **state)
{
  char path[PLM_PATH_SIZE], expected[PLM_PATH_SIZE];
  (void)state;
  assert_int_equal(chdir(scratch_directory()), 0);
  assert_int_equal(plm_command_run_folder(with("--run", "runs/a", NULL), path, NULL), PLM_OK);
  assert_string_equal(path, scratch_path("runs/a"));
  assert_int_equal(plm_command_run_folder(with("--run", "/b/c", NULL), path, NULL), PLM_OK);
  assert_string_equal(path, "/b/c");
  write_file(scratch_directory(), "other.yaml", "run: from-file\n");
  assert_int_equal(plm_command_run_folder(with("-c", "other.yaml", NULL), path, NULL), PLM_OK);
  assert_string_equal(path, scratch_path("from-file"));
  assert_int_equal(plm_command_run_folder(with("-c", "other.yaml", "--set=run=set"), path, NULL),
                   PLM_OK);
  assert_string_equal(path, scratch_path("set"));
  assert_int_equal(plm_command_run_folder(with("-c", "other.yaml", "--run=r"), path, NULL), PLM_OK);
  assert_string_equal(path, scratch_path("r"));
  assert_int_equal(plm_command_run_folder(with("--json", NULL, NULL), path, NULL), PLM_OK);
  snprintf(expected, sizeof expected, "%s/", scratch_directory()); /* that of the defaults */
  assert_int_equal(strncmp(path, expected, strlen(expected)), 0);
}

static void a_run_is_read_where_it_is_now(void **state)
{
  char run[PLM_PATH_SIZE], where[PLM_PATH_SIZE + 32];
  struct plm_config config;
  struct plm_error error = {0};
  (void)state;
  scratch_run(run);
  assert_int_equal(plm_command_read_run(run, &config, &error), PLM_NOT_FOUND);
  write_file(run, "pipeline.yaml", "run: /elsewhere\nseed: 12\n");
  assert_int_equal(plm_command_read_run(run, &config, &error), PLM_OK);
  assert_string_equal(config.run, run);
  assert_int_equal(config.seed, 12);
  plm_config_deinit(&config);
  write_file(run, "pipeline.yaml", "seed: x\n");
  assert_int_equal(plm_command_read_run(run, &config, &error), PLM_CONFIG);
  snprintf(where, sizeof where, "%s/pipeline.yaml", run);
  assert_string_equal(error.where, where);
  memset(run, 'x', sizeof run - 1);
  run[sizeof run - 1] = '\0';
  assert_int_equal(plm_command_read_run(run, &config, &error), PLM_LIMIT);
}

/* A run that has started is shown as it was started. One that has not, and that the configuration
 * names, is as the configuration and --set say. */
static void the_configuration_of_a_run(void **state)
{
  char run[PLM_PATH_SIZE], yaml[PLM_PATH_SIZE + 32], set[PLM_PATH_SIZE + 16];
  struct plm_config config;
  struct plm_error error = {0};
  (void)state;
  assert_int_equal(chdir(scratch_directory()), 0);
  scratch_run(run);
  snprintf(yaml, sizeof yaml, "run: %s\nseed: 3\n", run);
  write_file(scratch_directory(), "at-hand.yaml", yaml);
  /* it has not started */
  assert_int_equal(
      plm_command_run_config(with("-c", "at-hand.yaml", "--set=seed=4"), &config, &error), PLM_OK);
  assert_int_equal(config.seed, 4);
  plm_config_deinit(&config);
  assert_int_equal(plm_command_run_config(with("-c", "at-hand.yaml", NULL), &config, &error),
                   PLM_OK);
  assert_int_equal(config.seed, 3);
  plm_config_deinit(&config);
  assert_int_equal(plm_command_run_config(with("--run", run, NULL), &config, &error),
                   PLM_NOT_FOUND);
  /* it has */
  write_file(run, "pipeline.yaml", "seed: 12\n");
  assert_int_equal(plm_command_run_config(with("-c", "at-hand.yaml", NULL), &config, &error),
                   PLM_OK);
  assert_int_equal(config.seed, 12);
  plm_config_deinit(&config);
  assert_int_equal(plm_command_run_config(with("--run", run, NULL), &config, &error), PLM_OK);
  assert_int_equal(config.seed, 12);
  assert_string_equal(config.run, run);
  plm_config_deinit(&config);
  snprintf(set, sizeof set, "--set=run=%s", run);
  assert_int_equal(plm_command_run_config(with(set, NULL, NULL), &config, &error), PLM_OK);
  assert_int_equal(config.seed, 12);
  plm_config_deinit(&config);
  assert_int_equal(plm_command_run_config(with("--run", run, "--set=seed=4"), &config, &error),
                   PLM_USAGE);
  assert_string_equal(error.what, "--set seed has no effect on a run that has started");
  /* a mistake in it is no reason to read another one */
  write_file(run, "pipeline.yaml", "seed: x\n");
  assert_int_equal(plm_command_run_config(with("-c", "at-hand.yaml", NULL), &config, &error),
                   PLM_CONFIG);
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(packers_are_counted),
      cmocka_unit_test(codes_become_statuses),
      cmocka_unit_test_teardown(operands_are_counted, release),
      cmocka_unit_test_teardown(settings_without_effect_are_refused, release),
      cmocka_unit_test_teardown(the_run_folder_is_absolute, release),
      cmocka_unit_test(a_run_is_read_where_it_is_now),
      cmocka_unit_test_teardown(the_configuration_of_a_run, release),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
