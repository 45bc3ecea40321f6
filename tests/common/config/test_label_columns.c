/* The columns of labels that a configuration names: which are chosen from its corpora, and which
 * sets fit the run. */
#include "common/config/label_columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_format.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static void load(const char *yaml, struct plm_config *config)
{
  struct plm_error error = {0};
  must_work(plm_config_load_text(yaml, strlen(yaml), config, &error), &error);
}

static void columns_are_chosen(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_label_schema schema, more;
  struct plm_label_choice choice;
  struct plm_error error = {0};
  const struct plm_label_schema *schemas[2] = {&schema, &more};
  label_schema_make(&schema);
  label_schema_make(&more);
  load("corpus: [{path: /x/one}, {path: /x/two}]\n"
       "trainer: {objective: regression, labels: [stability]}\n",
       &config);
  must_work(plm_config_choose_labels(&config, schemas, &choice, &error), &error);
  assert_int_equal(choice.task, PLM_TASK_REGRESSION);
  assert_int_equal(choice.outputs, 1);
  assert_int_equal(choice.columns[0].labels[0], 80); /* of both corpora */
  plm_label_choice_deinit(&choice);
  /* the corpora are named as messages name them */
  schemas[1] = NULL;
  assert_int_equal(plm_config_choose_labels(&config, schemas, &choice, &error), PLM_CONFIG);
  assert_string_equal(error.what, "corpus two has no labels");
  assert_string_equal(error.where, "trainer.labels");
  schemas[0] = NULL;
  assert_int_equal(plm_config_choose_labels(&config, schemas, &choice, &error), PLM_CONFIG);
  assert_string_equal(error.what, "corpus one has no labels");
  schemas[0] = &schema;
  free(more.columns[0].name);
  more.columns[0].name = strdup("other");
  schemas[1] = &more;
  assert_int_equal(plm_config_choose_labels(&config, schemas, &choice, &error), PLM_CONFIG);
  assert_string_equal(error.what, "corpus two has no column of labels called stability");
  assert_string_equal(error.hint, "its columns are other, family, structure, terms, soluble");
  plm_config_deinit(&config);
  load("corpus: null\ntrainer: {objective: residues, labels: absent}\n", &config);
  assert_int_equal(plm_config_choose_labels(&config, schemas, &choice, &error), PLM_CONFIG);
  assert_string_equal(error.what, "corpus of the run has no column of labels called absent");
  plm_config_deinit(&config);
  plm_label_schema_deinit(&schema);
  plm_label_schema_deinit(&more);
}

/* Writes the description of a corpus with labels; nothing else of it is read. */
static void write_corpus(char folder[PLM_PATH_SIZE])
{
  char path[PLM_PATH_SIZE];
  struct plm_text text = {0};
  struct plm_corpus_description description = {
      .info = {.format = PLM_CORPUS_FORMAT_LABELS, .tokenizer = PLM_TOKENIZER_ESM}};
  label_schema_make(&description.labels);
  description.info.schema = plm_label_schema_digest(&description.labels);
  description.info.fingerprint = plm_corpus_fingerprint(&description.info);
  plm_corpus_description_print(&description, true, &text);
  scratch_run(folder);
  assert_int_equal(plm_path_join(path, folder, PLM_CORPUS_DESCRIPTION, NULL), PLM_OK);
  scratch_write(path, text.data, text.length);
  plm_text_deinit(&text);
  plm_label_schema_deinit(&description.labels);
}

static void descriptions_are_read(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE], second[PLM_PATH_SIZE], yaml[2 * PLM_PATH_SIZE + 200];
  struct plm_config config;
  struct plm_label_choice choice;
  struct plm_error error = {0};
  write_corpus(folder);
  write_corpus(second);
  snprintf(
      yaml, sizeof yaml,
      "corpus: [{path: %s}, {path: %s}]\ntrainer: {objective: classification, labels: family}\n",
      folder, second);
  load(yaml, &config);
  must_work(plm_config_read_labels(&config, &choice, &error), &error);
  assert_int_equal(choice.outputs, 3);
  assert_int_equal(choice.columns[0].counts[2], 24);
  plm_label_choice_deinit(&choice);
  plm_config_deinit(&config);
  snprintf(yaml, sizeof yaml,
           "corpus: [{path: %s}, {path: /nowhere}]\ntrainer: {objective: classification, labels: "
           "family}\n",
           folder);
  load(yaml, &config);
  memset(&choice, 0xff, sizeof choice); /* nothing is left of what was there */
  assert_int_equal(plm_config_read_labels(&config, &choice, &error), PLM_NOT_FOUND);
  assert_true(choice.task == 0 && choice.outputs == 0 && choice.column_count == 0);
  assert_true(choice.columns == NULL && choice.mean == NULL && choice.deviation == NULL);
  assert_string_equal(error.what, "/nowhere is not a corpus: it has no corpus.json");
  plm_config_deinit(&config);
  load("corpus: null\ntrainer: {objective: classification, labels: family}\n", &config);
  assert_int_equal(plm_config_read_labels(&config, &choice, &error), PLM_NOT_FOUND);
  assert_string_equal(error.what, "no corpus is named");
  assert_int_equal(choice.column_count, 0);
  plm_config_deinit(&config);
}

/* Whether the set fits a run on the column; the error otherwise. choice: the run's classes. */
static void fits(const char *objective, const char *labels, const struct plm_label_schema *of_set,
                 const struct plm_label_schema *of_run, const char *what)
{
  char yaml[300];
  struct plm_config config;
  struct plm_label_choice choice = {0};
  struct plm_error error = {0};
  const struct plm_config_set set = {.name = (char *)"far", .corpus = (char *)"/far"};
  snprintf(yaml, sizeof yaml, "corpus: /run\ntrainer: {objective: %s, labels: [%s]}\n", objective,
           labels);
  load(yaml, &config);
  if (of_run != NULL)
    must_work(plm_config_choose_labels(&config, &of_run, &choice, &error), &error);
  const plm_status status =
      plm_config_check_set_labels(&config, &set, of_set, of_run != NULL ? &choice : NULL, &error);
  assert_string_equal(error.what, what != NULL ? what : "");
  assert_int_equal(status, what != NULL ? PLM_CONFIG : PLM_OK);
  if (what != NULL) assert_string_equal(error.where, "evaluator.sets: far");
  plm_label_choice_deinit(&choice);
  plm_config_deinit(&config);
}

static void rename_class(struct plm_label_column *column, uint32_t c, const char *name)
{
  free(column->classes[c]);
  column->classes[c] = strdup(name);
}

static void a_set_needs_the_columns_of_the_run(void **state)
{
  (void)state;
  struct plm_label_schema run, set;
  struct plm_config config;
  label_schema_make(&run);
  label_schema_make(&set);
  set.columns[1].labels[0] = 0; /* its training split needs no labels */
  fits("classification", "family", &set, &run, NULL);
  set.columns[1].labels[0] = 1;
  fits("residues", "structure", &set, &run, NULL);
  fits("multilabel", "terms", &set, NULL, NULL);
  fits("regression", "stability", NULL, &run, "corpus /far has no labels");
  /* one class in common is enough: the last of the one is the first of the other */
  rename_class(&set.columns[1], 0, "Ga\xce\xbcma");
  rename_class(&set.columns[1], 1, "Z");
  rename_class(&set.columns[1], 2, "Zz");
  fits("classification", "family", &set, &run, NULL);
  fits("classification", "family", &run, &set, NULL);
  rename_class(&set.columns[1], 0, "Y");
  static const char none[] = "the labels family of corpus /far have no class in common with those "
                             "that the run trains on";
  fits("classification", "family", &set, &run, none);
  fits("classification", "family", &set, NULL, NULL); /* the run's classes are not known */
  set.columns[2].class_count = 0;
  fits("residues", "structure", &set, &run,
       "the labels structure of corpus /far have no class in common with those that the run trains "
       "on");
  set.columns[2].class_count = 3;
  rename_class(&set.columns[3], 0, "t08");
  set.columns[3].class_count = 1;
  fits("multilabel", "terms", &set, &run, NULL);
  rename_class(&set.columns[3], 0, "t09");
  fits("multilabel", "terms", &set, &run,
       "the labels terms of corpus /far have no class in common with those that the run trains on");
  /* the columns themselves are outputs: their classes may have other names */
  rename_class(&set.columns[4], 0, "no");
  rename_class(&set.columns[4], 1, "yes");
  fits("multilabel", "soluble", &set, &run, NULL);
  set.columns[4].kind = PLM_LABEL_CLASSES;
  fits("multilabel", "soluble", &set, &run,
       "the labels soluble of corpus /far are of kind classes, but the run's are of kind class");
  set.columns[3].class_count = 9;
  /* objectives without labels need none */
  load("corpus: /run\n", &config);
  const struct plm_config_set far = {.name = (char *)"far", .corpus = (char *)"/far"};
  assert_int_equal(plm_config_check_set_labels(&config, &far, NULL, NULL, NULL), PLM_OK);
  plm_config_deinit(&config);
  plm_label_schema_deinit(&run);
  plm_label_schema_deinit(&set);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_are_chosen),
      cmocka_unit_test(descriptions_are_read),
      cmocka_unit_test(a_set_needs_the_columns_of_the_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
