/* A configuration that is loaded while memory runs out: never reported as a mistake in it. The
 * functions below replace those of libyaml. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/config/config.h"
#include "common/config/problems.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

void *yaml_malloc(size_t size);
void *yaml_realloc(void *old, size_t size);
void *yaml_strdup(const void *text);

static int calls, failing, failures;

static bool fails(void)
{
  return calls++ == failing;
}

void *yaml_malloc(size_t size)
{
  return fails() ? NULL : malloc(size > 0 ? size : 1);
}

void *yaml_realloc(void *old, size_t size)
{
  return fails() ? NULL : realloc(old, size > 0 ? size : 1);
}

void *yaml_strdup(const void *text)
{
  return fails() ? NULL : strdup(text);
}

/* Loads with call `number` failing, and returns the number of calls; -1: none fails.
 * path: NULL for only the defaults. */
static int load(const char *path, int number)
{
  struct plm_config config;
  struct plm_config_problems *problems = NULL;
  struct plm_error error = {0};
  calls = 0;
  failing = number;
  const plm_status status = plm_config_load(path, NULL, 0, &config, &problems, &error);
  assert_null(problems);
  if (status == PLM_OK) {
    if (path != NULL) assert_int_equal(config.trainer.steps, 100);
    plm_config_deinit(&config);
  } else {
    assert_int_equal(status, PLM_NO_MEMORY);
    failures++;
  }
  return calls;
}

static void a_lack_of_memory_is_no_mistake(void **state)
{
  (void)state;
  enum { SOME = 101 }; /* every so many of the calls for defaults, which are all alike */
  static const char text[] =
      "run: run\ntrainer:\n  steps: 100\nevaluator: {splits: [valid, test]}\n";
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("pipeline.yaml"));
  scratch_write(path, text, sizeof text - 1);
  const int defaults = load(NULL, -1), all = load(path, -1);
  assert_int_equal(failures, 0);
  assert_true(all > defaults);
  for (int i = 0; i < defaults; i += SOME) (void)load(path, i);
  for (int i = defaults; i < all; i++) (void)load(path, i);
  assert_true(failures > 10);
}

/* Nor is a lack of descriptors; the error says which file could not be opened. */
static void a_lack_of_descriptors_is_no_mistake(void **state)
{
  const char *paths[] = {scratch_path("limited.yaml"), scratch_path("absent.yaml")};
  (void)state;
  scratch_write(paths[0], "trainer: {steps: 100}\n", 22);
  const int lowest = open("/", O_RDONLY);
  assert_true(lowest >= 0);
  for (int i = 0; i < 2; i++) {
    struct plm_config config;
    struct plm_config_problems *problems = NULL;
    struct plm_error error = {0};
    struct rlimit before, few;
    char wanted[PLM_PATH_SIZE + 64];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)lowest + 1; /* nothing more can be opened */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    failing = -1;
    const plm_status status = plm_config_load(paths[i], NULL, 0, &config, &problems, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, PLM_NO_DESCRIPTORS);
    assert_null(problems);
    snprintf(wanted, sizeof wanted, "cannot open %s: Too many open files", paths[i]);
    assert_string_equal(error.what, wanted);
  }
  close(lowest);
}

/* What a file lacks to be read is no mistake in it either. */
static void what_a_file_lacks_is_no_mistake(void **state)
{
  static const plm_status causes[] = {PLM_NO_MEMORY, PLM_NO_DESCRIPTORS, PLM_IO};
  (void)state;
  for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
    struct plm_config_problems *problems = plm_problems_new();
    struct plm_error cause = {0}, error = {0};
    (void)plm_error_set(&cause, causes[i], "because");
    plm_problems_add_error(problems, (struct plm_place){0}, "here ", &cause);
    assert_int_equal(plm_problems_lack(problems, &error), causes[i] == PLM_IO ? PLM_OK : causes[i]);
    assert_int_equal(plm_config_problems_count(problems), causes[i] == PLM_IO ? 1 : 0);
    plm_config_problems_free(problems);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_a_file_lacks_is_no_mistake),
      cmocka_unit_test(a_lack_of_memory_is_no_mistake),
      cmocka_unit_test(a_lack_of_descriptors_is_no_mistake),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
