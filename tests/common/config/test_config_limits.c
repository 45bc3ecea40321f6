/* Configurations that are made to be slow: too deep, too long, with too many values, anchors or
 * unknown keys. Each is refused at the first excess. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/config/config.h"
#include "common/config/yaml_limits.h"
#include "tests/support/harness/scratch.h"

/* Loads a text from a file and compares the first problem; returns the number of problems. */
static size_t problems_of(const struct plm_text *text, const char *first)
{
  struct plm_config config;
  struct plm_config_problems *problems = NULL;
  const char *path = scratch_path("limits.yaml");
  assert_int_equal(plm_file_write(path, text->data, text->length, 0600, NULL), PLM_OK);
  assert_int_equal(plm_config_load(path, NULL, 0, &config, &problems, NULL), PLM_CONFIG);
  if (strstr(plm_config_problem(problems, 0), first) == NULL)
    fail_msg("\"%s\", not \"%s\"", plm_config_problem(problems, 0), first);
  const size_t count = plm_config_problems_count(problems);
  plm_config_problems_free(problems);
  return count;
}

static void repeat(struct plm_text *text, const char *part, size_t count)
{
  for (size_t i = 0; i < count; i++) plm_text_puts(text, part);
}

static void nesting_is_bounded(void **state)
{
  (void)state;
  static const char *const parts[] = {"[", "{a: ", "- "};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    struct plm_text text = {0};
    repeat(&text, parts[i], PLM_YAML_MAX_BYTES / 5);
    assert_int_equal(problems_of(&text, "nested more than 16 deep"), 1);
    plm_text_deinit(&text);
  }
}

static void values_and_anchors_are_bounded(void **state)
{
  (void)state;
  struct plm_text text = {0};
  plm_text_puts(&text, "run: [");
  repeat(&text, "1,", PLM_YAML_MAX_NODES);
  assert_int_equal(problems_of(&text, "limits.yaml:1:16385: more than 8192 keys and values"), 1);
  plm_text_clear(&text);
  plm_text_puts(&text, "run: [");
  for (int i = 0; i < PLM_YAML_MAX_NODES; i++) plm_text_printf(&text, "&a%d x,", i);
  assert_int_equal(problems_of(&text, "more than 8192 keys and values"), 1);
  plm_text_deinit(&text);
}

static void length_is_bounded(void **state)
{
  (void)state;
  struct plm_text text = {0};
  repeat(&text, "# a comment\n", PLM_YAML_MAX_BYTES / 12 + 1);
  assert_int_equal(problems_of(&text, "larger than the limit of 131072 bytes"), 1);
  struct plm_config config;
  struct plm_error error = {0};
  assert_int_equal(plm_config_load_text(text.data, text.length, &config, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "exceed the limit of 131072"));
  plm_text_deinit(&text);
}

static void unknown_keys_are_reported_up_to_a_limit(void **state)
{
  (void)state;
  struct plm_text text = {0};
  for (int i = 0; i < PLM_YAML_MAX_NODES / 2 - 1; i++)
    plm_text_printf(&text, "trainers_%d: 1\n", i);
  assert_int_equal(problems_of(&text, "limits.yaml:1:1: unknown key \"trainers_0\""), 200);
  plm_text_deinit(&text);
}

/* A relative path has a folder, which needs room and a working folder that exists. */
static void a_path_needs_its_folder(void **state)
{
  struct plm_config config;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE], left[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  (void)state;
  memset(path, 'p', sizeof path);
  path[sizeof path - 1] = '\0';
  assert_int_equal(plm_config_load(path, NULL, 0, &config, NULL, &error), PLM_LIMIT);
  assert_non_null(strstr(error.what, "is longer than"));
  snprintf(folder, sizeof folder, "%s", scratch_path("gone"));
  assert_non_null(getcwd(left, sizeof left));
  assert_int_equal(mkdir(folder, 0700), 0);
  assert_int_equal(chdir(folder), 0);
  assert_int_equal(rmdir(folder), 0);
  const plm_status from_file = plm_config_load("a.yaml", NULL, 0, &config, NULL, &error);
  char what[sizeof error.what];
  snprintf(what, sizeof what, "%s", error.what);
  error = (struct plm_error){0};
  const plm_status from_text = plm_config_load_text("seed: 1\n", 8, &config, &error);
  assert_int_equal(chdir(left), 0);
  assert_int_equal(from_file, PLM_NOT_FOUND);
  assert_int_equal(from_text, PLM_NOT_FOUND);
  assert_memory_equal(what, "working directory", 17);
  assert_memory_equal(error.what, "working directory", 17);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_path_needs_its_folder),
      cmocka_unit_test(nesting_is_bounded),
      cmocka_unit_test(values_and_anchors_are_bounded),
      cmocka_unit_test(length_is_bounded),
      cmocka_unit_test(unknown_keys_are_reported_up_to_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
