/* Loads configurations and compares their problems or values. */
#include "tests/support/expected/config_outcome.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/config/problems.h"
#include "common/config/settings.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static void put_values(const struct plm_config *config, const char *keys, struct plm_text *text)
{
  char *copy = strdup(keys), *rest = NULL;
  for (char *key = strtok_r(copy, " ", &rest); key != NULL; key = strtok_r(NULL, " ", &rest)) {
    const struct plm_setting *setting = plm_setting_find(key);
    if (setting == NULL) fail_msg("there is no setting %s", key);
    char *value = plm_setting_print(setting, config);
    plm_text_printf(text, "%s: %s\n", key, value);
    free(value);
  }
  free(copy);
}

/* Appends text with DIR for each occurrence of the folder. */
static void put_without_folder(struct plm_text *out, const char *text, const char *folder)
{
  for (const char *at; (at = strstr(text, folder)) != NULL; text = at + strlen(folder)) {
    plm_text_append(out, text, (size_t)(at - text));
    plm_text_puts(out, "DIR");
  }
  plm_text_puts(out, text);
}

void expect_config_outcome(const struct config_outcome *one,
                           const struct plm_config_override *overrides, size_t count)
{
  struct plm_config config;
  struct plm_config_problems *problems = NULL;
  struct plm_text text = {0}, outcome = {0};
  char folder[PLM_PATH_SIZE];
  assert_int_equal(chdir(scratch_directory()), 0);
  assert_non_null(getcwd(folder, sizeof folder));
  if (one->text != NULL) scratch_write("pipeline.yaml", one->text, strlen(one->text));
  if (plm_config_load_with(one->text != NULL ? "pipeline.yaml" : NULL, overrides, count,
                           plm_config_check_schedule, &config, &problems, NULL) == PLM_OK) {
    put_values(&config, one->keys, &text);
    plm_config_deinit(&config);
  }
  for (size_t i = 0; i < plm_config_problems_count(problems); i++)
    plm_text_printf(&text, "%s\n", plm_config_problem(problems, i));
  plm_config_problems_free(problems);
  put_without_folder(&outcome, text.data != NULL ? text.data : "", folder);
  if (strcmp(outcome.data, one->expected) != 0)
    fail_msg("\n%snot\n%sfrom\n%s", outcome.data, one->expected,
             one->text != NULL ? one->text : "no file");
  plm_text_deinit(&text);
  plm_text_deinit(&outcome);
}

void expect_config_outcomes(const struct config_outcome *cases, size_t count)
{
  for (size_t i = 0; i < count; i++) expect_config_outcome(&cases[i], NULL, 0);
}
