/* common/cli/options_config: which file and which changes make the configuration. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/cli/options.h"
#include "common/cli/program.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { WORDS_MAX = 8 };
static const struct plm_option none[] = {{0, NULL, NULL, NULL}};

static void parse(const char *const words[WORDS_MAX], struct plm_arguments *arguments)
{
  char *argv[WORDS_MAX + 1] = {"program"};
  int argc = 1;
  for (; argc <= WORDS_MAX && words[argc - 1] != NULL; argc++) argv[argc] = (char *)words[argc - 1];
  assert_int_equal(plm_arguments_parse(argc, argv, none, arguments, NULL), PLM_OK);
}

static void changes_keep_their_order(void **state)
{
  (void)state;
  static const char *const words[WORDS_MAX] = {"--set=a.b=c=d", "-q", "--run", "x", "--set=e="};
  struct plm_arguments arguments;
  struct plm_config_override *overrides;
  size_t count;
  parse(words, &arguments);
  assert_int_equal(plm_arguments_overrides(&arguments, &overrides, &count, NULL), PLM_OK);
  assert_int_equal(count, 3);
  assert_string_equal(overrides[0].key, "a.b");
  assert_string_equal(overrides[0].value, "c=d");
  assert_string_equal(overrides[1].key, "run");
  assert_string_equal(overrides[1].value, "x");
  assert_string_equal(overrides[2].key, "e");
  assert_string_equal(overrides[2].value, "");
  plm_arguments_overrides_free(overrides, count);
  plm_arguments_deinit(&arguments);
}

static void a_change_needs_a_key(void **state)
{
  (void)state;
  static const char *const wrong[] = {"seed", "=5"};
  for (size_t i = 0; i < 2; i++) {
    const char *const words[WORDS_MAX] = {"--set", "seed=1", "--set", wrong[i]};
    char wanted[64];
    struct plm_arguments arguments;
    struct plm_config_override *overrides;
    struct plm_error error = {0};
    size_t count = 7;
    parse(words, &arguments);
    assert_int_equal(plm_arguments_overrides(&arguments, &overrides, &count, &error), PLM_USAGE);
    snprintf(wanted, sizeof wanted, "option \"--set\" needs KEY=VALUE, not \"%s\"", wrong[i]);
    assert_string_equal(error.what, wanted);
    assert_null(overrides);
    assert_int_equal(count, 0);
    plm_arguments_deinit(&arguments);
  }
}

/* The seed of the configuration, or -1. In the order in which they count: the given file, -c,
 * PLM_CONFIG and pipeline.yaml; NULL leaves one out. */
static long seed_of(const char *file, const char *option, const char *variable, bool required,
                    struct plm_error *error)
{
  const char *const words[WORDS_MAX] = {option != NULL ? "-c" : NULL, option};
  struct plm_arguments arguments;
  struct plm_config config;
  parse(words, &arguments);
  if (variable != NULL)
    setenv("PLM_CONFIG", variable, 1);
  else
    unsetenv("PLM_CONFIG");
  const plm_status status = plm_arguments_load_config(&arguments, file, required, &config, error);
  plm_arguments_deinit(&arguments);
  if (status != PLM_OK) return -1;
  const long seed = (long)config.seed;
  plm_config_deinit(&config);
  return seed;
}

static void the_nearest_file_counts(void **state)
{
  (void)state;
  struct plm_error error = {0};
  assert_int_equal(chdir(scratch_directory()), 0);
  assert_int_equal(seed_of(NULL, NULL, NULL, false, &error), 1); /* the default */
  assert_int_equal(seed_of(NULL, NULL, "", false, &error), 1);
  captured_begin(STDERR_FILENO);
  const long required = seed_of(NULL, NULL, NULL, true, &error);
  assert_string_equal(captured_end(), "cannot open pipeline.yaml: No such file or directory\n");
  assert_int_equal(required, -1);
  scratch_write("2.yaml", "seed: 2\n", 8);
  scratch_write("3.yaml", "seed: 3\n", 8);
  scratch_write("4.yaml", "seed: 4\n", 8);
  scratch_write("pipeline.yaml", "seed: 5\n", 8);
  assert_int_equal(seed_of("2.yaml", "3.yaml", "4.yaml", true, &error), 2);
  assert_int_equal(seed_of(NULL, "3.yaml", "4.yaml", true, &error), 3);
  assert_int_equal(seed_of(NULL, NULL, "4.yaml", true, &error), 4);
  assert_int_equal(seed_of(NULL, NULL, "", true, &error), 5);
  assert_int_equal(seed_of(NULL, NULL, NULL, true, &error), 5);
  assert_int_equal(seed_of(NULL, NULL, NULL, false, &error), 5);
  captured_begin(STDERR_FILENO);
  const long missing = seed_of(NULL, "none.yaml", NULL, false, &error);
  assert_string_equal(captured_end(), "cannot open none.yaml: No such file or directory\n");
  assert_int_equal(missing, -1);
}

static void problems_are_printed_once(void **state)
{
  (void)state;
  static const char *const words[WORDS_MAX] = {"--set", "seed=x"};
  struct plm_arguments arguments;
  struct plm_config config;
  struct plm_error error = {0};
  parse(words, &arguments);
  unsetenv("PLM_CONFIG");
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_arguments_load_config(&arguments, NULL, false, &config, &error);
  assert_string_equal(captured_end(), "--set seed: seed: expected a whole number, found \"x\"\n");
  assert_int_equal(status, PLM_CONFIG);
  assert_int_equal(error.status, PLM_CONFIG);
  assert_string_equal(error.what, "");
  plm_arguments_deinit(&arguments);
}

/* The seed that a stage gets; the folder `run` has the seed 6, pipeline.yaml 5. */
static long seed_of_stage(const char *run, const char *option, const char *variable)
{
  const char *const words[WORDS_MAX] = {"--run", run, option != NULL ? "-c" : NULL, option};
  struct plm_arguments arguments;
  struct plm_config config;
  struct plm_error error = {0};
  parse(words, &arguments);
  if (variable != NULL)
    setenv("PLM_CONFIG", variable, 1);
  else
    unsetenv("PLM_CONFIG");
  if (plm_program_config(&arguments, &config, &error) != PLM_OK) fail_msg("%s", error.what);
  const long seed = (long)config.seed;
  plm_config_deinit(&config);
  plm_arguments_deinit(&arguments);
  return seed;
}

static void a_stage_reads_its_runs_file(void **state)
{
  (void)state;
  assert_int_equal(chdir(scratch_directory()), 0);
  assert_int_equal(plm_directory_make("with", NULL), PLM_OK);
  assert_int_equal(plm_directory_make("without", NULL), PLM_OK);
  scratch_write("with/pipeline.yaml", "seed: 6\n", 8);
  scratch_write("pipeline.yaml", "seed: 5\n", 8);
  scratch_write("3.yaml", "seed: 3\n", 8);
  assert_int_equal(seed_of_stage("with", NULL, NULL), 6);
  assert_int_equal(seed_of_stage("without", NULL, NULL), 5);
  assert_int_equal(seed_of_stage("with", "3.yaml", NULL), 3);
  assert_int_equal(seed_of_stage("with", NULL, "3.yaml"), 3);
}

static void quiet_and_verbose_choose_the_messages(void **state)
{
  (void)state;
  static const struct {
    const char *const words[WORDS_MAX];
    enum plm_log_level least;
  } cases[] = {{{NULL}, PLM_LOG_INFO},
               {{"-q"}, PLM_LOG_WARNING},
               {{"-v"}, PLM_LOG_DEBUG},
               {{"-vq"}, PLM_LOG_DEBUG}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_arguments arguments;
    parse(cases[i].words, &arguments);
    plm_arguments_log(&arguments, "plm-some");
    assert_int_equal(plm_log_least(), cases[i].least);
    plm_arguments_deinit(&arguments);
  }
  captured_begin(STDERR_FILENO);
  plm_warning("take care");
  assert_string_equal(captured_end(), "plm-some: warning: take care\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(changes_keep_their_order),
      cmocka_unit_test(a_change_needs_a_key),
      cmocka_unit_test(the_nearest_file_counts),
      cmocka_unit_test(problems_are_printed_once),
      cmocka_unit_test(a_stage_reads_its_runs_file),
      cmocka_unit_test(quiet_and_verbose_choose_the_messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
