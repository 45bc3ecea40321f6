/* Which corpora are looked at for the labels that a run predicts, and what is wrong with them. */
#include "stages/supervisor/prepare/run_labels.h"

#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_format.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static char labelled[PLM_PATH_SIZE], damaged[PLM_PATH_SIZE];

/* Two folders with the description of a corpus, of which one is not whole. */
static int begin(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  struct plm_text text = {0};
  struct plm_corpus_description description = {
      .info = {.format = PLM_CORPUS_FORMAT_LABELS, .tokenizer = PLM_TOKENIZER_ESM}};
  label_schema_make(&description.labels);
  description.info.schema = plm_label_schema_digest(&description.labels);
  description.info.fingerprint = plm_corpus_fingerprint(&description.info);
  plm_corpus_description_print(&description, true, &text);
  scratch_run(labelled);
  scratch_run(damaged);
  assert_int_equal(plm_path_join(path, labelled, PLM_CORPUS_DESCRIPTION, NULL), PLM_OK);
  scratch_write(path, text.data, text.length);
  assert_int_equal(plm_path_join(path, damaged, PLM_CORPUS_DESCRIPTION, NULL), PLM_OK);
  scratch_write(path, text.data, text.length - 1);
  plm_text_deinit(&text);
  plm_label_schema_deinit(&description.labels);
  return 0;
}

/* trainer: {...}; the corpora of the run and of its only set. `what` NULL: nothing is wrong. */
static void checks(const char *trainer, const char *corpus, const char *set, plm_status status,
                   const char *what, const char *where)
{
  char yaml[3 * PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_error error = {0};
  snprintf(yaml, sizeof yaml,
           "corpus: %s\ntrainer: {%s}\nevaluator: {sets: [{name: far, corpus: %s}]}\n", corpus,
           trainer, set);
  must_work(plm_config_load_text(yaml, strlen(yaml), &config, &error), &error);
  const plm_status got = plm_run_labels_check(&config, &error);
  assert_int_equal(got, status);
  if (what != NULL && strstr(error.what, what) == NULL) fail_msg("%s", error.what);
  if (where != NULL) assert_string_equal(error.where, where);
  plm_config_deinit(&config);
}

#define FAMILY "objective: classification, labels: family"
#define ABSENT "objective: classification, labels: tm"

static void only_what_is_here_is_checked(void **state)
{
  (void)state;
  checks("objective: mlm", damaged, damaged, PLM_OK, NULL, NULL); /* it needs no labels */
  checks(FAMILY, labelled, labelled, PLM_OK, NULL, NULL);
  checks(FAMILY, "/nowhere", labelled, PLM_OK, NULL, NULL);
  checks(FAMILY, labelled, "/nowhere", PLM_OK, NULL, NULL);
  checks(FAMILY, "null", labelled, PLM_OK, NULL, NULL);
}

static void what_is_wrong_is_said(void **state)
{
  (void)state;
  checks(ABSENT, labelled, "/nowhere", PLM_CONFIG, "has no column of labels called tm",
         "trainer.labels");
  checks(ABSENT, "/nowhere", labelled, PLM_CONFIG, "has no column of labels called tm",
         "evaluator.sets: far");
  checks(FAMILY, damaged, labelled, PLM_CORRUPT, "is not what ingest wrote", NULL);
  checks(FAMILY, labelled, damaged, PLM_CORRUPT, "is not what ingest wrote", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(only_what_is_here_is_checked, begin),
      cmocka_unit_test_setup(what_is_wrong_is_said, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
