/* Which corpora --corpus and the configuration name. */
#include "common/config/corpus_paths.h"

#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

/* The paths are these: joined by "|". */
static void expect(const char *given, const struct plm_config *config, const char *expected)
{
  struct plm_corpus_paths corpora = {0};
  char joined[PLM_PATH_SIZE] = "";
  assert_int_equal(plm_corpus_paths_find(given, config, &corpora, NULL), PLM_OK);
  for (uint32_t i = 0; i < corpora.count; i++) {
    const size_t used = strlen(joined);
    snprintf(joined + used, sizeof joined - used, "%s%s", i > 0 ? "|" : "", corpora.paths[i]);
  }
  plm_corpus_paths_deinit(&corpora);
  assert_int_equal(corpora.count, 0);
  plm_corpus_paths_deinit(&corpora);
  assert_string_equal(joined, expected);
}

static void expect_of_config(const char *yaml, const char *given, const char *expected)
{
  struct plm_config config;
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, NULL), PLM_OK);
  expect(given, &config, expected);
  plm_config_deinit(&config);
}

static void given_paths_are_split(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  expect("a", NULL, "a");
  expect("a,b/c,d", NULL, "a|b/c|d");
  expect(",a,,b,", NULL, "a|b");
  snprintf(path, sizeof path, "%s", scratch_path("one, two"));
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  expect(path, NULL, path); /* a folder may have a comma in its name */
}

static void the_configuration_counts_if_none_is_given(void **state)
{
  (void)state;
  expect(NULL, NULL, "");
  expect_of_config("version: 1\ncorpus: /here\n", NULL, "/here");
  expect_of_config("version: 1\ncorpus: /here\n", "/there", "/there");
  expect_of_config("version: 1\ncorpus: [{path: /a, weight: 1}, {path: /b, weight: 2}]\n", NULL,
                   "/a|/b");
}

static void there_is_a_limit(void **state)
{
  (void)state;
  char text[2 * PLM_MAX_SOURCES + 3] = "";
  struct plm_corpus_paths corpora = {0};
  struct plm_error error = {0};
  for (int i = 0; i < PLM_MAX_SOURCES; i++) strcat(text, i > 0 ? ",a" : "a");
  assert_int_equal(plm_corpus_paths_find(text, NULL, &corpora, NULL), PLM_OK);
  assert_int_equal(corpora.count, PLM_MAX_SOURCES);
  plm_corpus_paths_deinit(&corpora);
  strcat(text, ",a");
  assert_int_equal(plm_corpus_paths_find(text, NULL, &corpora, &error), PLM_USAGE);
  char expected[64];
  snprintf(expected, sizeof expected, "more than %d corpora", PLM_MAX_SOURCES);
  assert_string_equal(error.what, expected);
  plm_corpus_paths_deinit(&corpora);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(given_paths_are_split),
      cmocka_unit_test(the_configuration_counts_if_none_is_given),
      cmocka_unit_test(there_is_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
