/* Which columns of a corpus a head predicts, by the names of its outputs, and the output of each
 * class. */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>

#include "evaluator/labels/label_match.h"
#include "tests/support/cases/label_schemas.h"

static struct plm_label_schema schema;

static int open_schema(void **state)
{
  (void)state;
  label_schema_make(&schema);
  return 0;
}

static int close_schema(void **state)
{
  (void)state;
  plm_label_schema_deinit(&schema);
  return 0;
}

struct asked {
  struct plm_head_config head;
  char *names[4];
  const char *columns[3];
  uint32_t column_count;
  bool of_run, unscaled;
};

static plm_status find(struct asked *asked, struct plm_label_match *match, struct plm_error *error)
{
  static double mean[] = {10, 20}, deviation[] = {2, 4};
  uint32_t count = 0;
  memset(match, 0xa5, sizeof *match); /* whatever it was */
  while (count < 4 && asked->names[count] != NULL) count++;
  asked->head.outputs = count;
  const struct plm_label_names names = {count, asked->names, asked->unscaled ? NULL : mean,
                                        asked->unscaled ? NULL : deviation};
  const struct plm_label_search search = {.head = &asked->head,
                                          .names = &names,
                                          .schema = &schema,
                                          .columns = asked->columns,
                                          .column_count = asked->column_count,
                                          .of_run = asked->of_run};
  return plm_label_match_find(&search, match, error);
}

static void finds(struct asked asked, enum plm_label_task task, const char *column,
                  uint32_t columns, const int32_t *output, uint32_t classes)
{
  struct plm_label_match match = {0};
  struct plm_error error = {0};
  if (find(&asked, &match, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(match.choice.task, task);
  assert_string_equal(match.choice.columns[0].name, column);
  assert_int_equal(match.choice.column_count, columns);
  if (output == NULL) {
    assert_null(match.output);
    assert_int_equal(match.foreign, 0);
  } else {
    uint32_t foreign = 0;
    for (uint32_t c = 0; c < classes; c++) foreign += output[c] == PLM_NO_OUTPUT;
    assert_memory_equal(match.output, output, classes * sizeof *output);
    assert_int_equal(match.foreign, foreign);
    assert_int_equal(match.choice.outputs, classes);
  }
  for (uint32_t i = 0; i < columns && task == PLM_TASK_REGRESSION; i++) {
    assert_true(match.choice.mean[i] == (asked.unscaled ? 0 : 10 * (i + 1)));
    assert_true(match.choice.deviation[i] == (asked.unscaled ? 1 : 2 * (i + 1)));
  }
  if (columns == 2)
    assert_string_equal(match.choice.columns[1].name,
                        strcmp(column, "family") == 0 ? "stability" : "family");
  plm_label_match_deinit(&match);
}

#define SEQUENCES(of) .head = {.kind = PLM_PREDICTS_SEQUENCES, .loss = (of)}

static void columns_follow_from_the_names(void **state)
{
  (void)state;
  static const int32_t turned[] = {2, 0, 1}, some[] = {PLM_NO_OUTPUT, 1, PLM_NO_OUTPUT},
                       in_order[] = {0, 1, 2};
  static const int32_t terms[] = {-1, 1, -1, -1, -1, -1, -1, -1, 0};
  finds((struct asked){SEQUENCES(PLM_LOSS_SQUARES), .names = {"stability"}}, PLM_TASK_REGRESSION,
        "stability", 1, NULL, 0);
  finds((struct asked){SEQUENCES(PLM_LOSS_SQUARES), .names = {"LABEL_0"}}, PLM_TASK_REGRESSION,
        "stability", 1, NULL, 0);
  finds((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"Beta", "Ga\xce\xbcma", "Alpha"}},
        PLM_TASK_CLASSIFICATION, "family", 1, turned, 3);
  finds((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"Zeta", "Beta"}},
        PLM_TASK_CLASSIFICATION, "family", 1, some, 3);
  finds((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"LABEL_0", "LABEL_1", "LABEL_2"}},
        PLM_TASK_CLASSIFICATION, "family", 1, in_order, 3);
  finds((struct asked){.head = {.kind = PLM_PREDICTS_RESIDUES, .loss = PLM_LOSS_CLASS},
                       .names = {"E", "H", "C"}},
        PLM_TASK_RESIDUES, "structure", 1, turned, 3);
  finds((struct asked){SEQUENCES(PLM_LOSS_CLASSES), .names = {"t08", "t01"}}, PLM_TASK_MULTILABEL,
        "terms", 1, terms, 9);
  finds((struct asked){SEQUENCES(PLM_LOSS_CLASSES), .names = {"soluble"}}, PLM_TASK_MULTILABEL,
        "soluble", 1, NULL, 0);
  finds((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"0", "1"}, {"soluble"}, 1},
        PLM_TASK_CLASSIFICATION, "soluble", 1, in_order, 2);
}

/* Columns that the user names are taken in the order of the outputs if they are called so, else as
 * the user names them. */
static void named_columns_have_an_order(void **state)
{
  (void)state;
  struct plm_label_column *family = &schema.columns[1];
  assert_string_equal(family->name, "family");
  family->kind = PLM_LABEL_NUMBER;
  finds((struct asked){SEQUENCES(PLM_LOSS_SQUARES),
                       .names = {"family", "stability"},
                       {"stability", "family"},
                       2},
        PLM_TASK_REGRESSION, "family", 2, NULL, 0);
  finds(
      (struct asked){
          SEQUENCES(PLM_LOSS_SQUARES), .names = {"family", "x"}, {"stability", "family"}, 2},
      PLM_TASK_REGRESSION, "stability", 2, NULL, 0);
  finds(
      (struct asked){
          SEQUENCES(PLM_LOSS_SQUARES), .names = {"x", "family"}, {"stability", "family"}, 2},
      PLM_TASK_REGRESSION, "stability", 2, NULL, 0);
  finds((struct asked){SEQUENCES(PLM_LOSS_SQUARES), .names = {"LABEL_0", "LABEL_1"}},
        PLM_TASK_REGRESSION, "stability", 2, NULL, 0);
  finds((struct asked){SEQUENCES(PLM_LOSS_SQUARES), .names = {"family", "stability"},
                       .unscaled = true},
        PLM_TASK_REGRESSION, "family", 2, NULL, 0);
  struct asked others = {SEQUENCES(PLM_LOSS_SQUARES), .names = {"LABEL_0", "LABEL_2"}};
  struct plm_label_match match = {0};
  struct plm_error error = {0};
  assert_int_equal(find(&others, &match, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "no column of labels fits the model"));
  family->kind = PLM_LABEL_CLASS;
}

static void refuses(struct asked asked, const char *what)
{
  struct plm_label_match match = {0};
  struct plm_error error = {0};
  assert_int_equal(find(&asked, &match, &error), PLM_CONFIG);
  assert_true(match.output == NULL && match.choice.columns == NULL);
  if (strstr(error.what, what) == NULL) fail_msg("%s", error.what);
  assert_non_null(strstr(error.hint, "stability (number), family (class), structure (residues), "
                                     "terms (classes), soluble (class)"));
  assert_non_null(strstr(error.hint, asked.of_run ? "; the run trains on those of trainer.labels"
                                                  : "; choose one with --labels"));
}

static void what_does_not_fit_is_refused(void **state)
{
  (void)state;
  refuses((struct asked){SEQUENCES(PLM_LOSS_SQUARES), .names = {"a", "b"}},
          "no column of labels fits the model; the model predicts numbers: a, b");
  refuses((struct asked){SEQUENCES(PLM_LOSS_SQUARES), .names = {"stability", "stability"}},
          "no column of labels fits the model; the model predicts numbers: stability, stability");
  refuses((struct asked){SEQUENCES(PLM_LOSS_SQUARES), .names = {"a", "b"}, {"stability"}, 1},
          "columns of labels that are chosen: 1, outputs of the model: 2");
  refuses((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"x", "y"}},
          "no column of labels fits the model; the model predicts a class: x, y");
  refuses((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"Beta", "0"}},
          "several columns of labels fit the model");
  refuses((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"Beta"}, {"structure"}, 1},
          "the column structure of labels does not fit the model");
  refuses((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"x"}, {"family"}, 1},
          "the model knows no class of the column family of labels");
  refuses((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"Beta"}, {"colour"}, 1},
          "there is no column of labels called colour");
  refuses((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"Beta"}, {"colour"}, 1, true},
          "there is no column of labels called colour");
  refuses((struct asked){SEQUENCES(PLM_LOSS_CLASS), .names = {"Beta"}, {"family", "soluble"}, 2},
          "the column family of labels does not fit the model");
}

static void a_column_is_named_once(void **state)
{
  (void)state;
  struct asked asked = {
      SEQUENCES(PLM_LOSS_SQUARES), .names = {"a", "b"}, {"stability", "stability"}, 2};
  struct plm_label_match match = {0};
  struct plm_error error = {0};
  assert_int_equal(find(&asked, &match, &error), PLM_CONFIG);
  assert_string_equal(error.what, "the column stability of labels is named twice");
}

static void a_corpus_without_labels_is_refused(void **state)
{
  (void)state;
  char *outputs[] = {"a"};
  const struct plm_head_config head = {.kind = PLM_PREDICTS_SEQUENCES, .outputs = 1};
  const struct plm_label_names names = {.count = 1, .names = outputs};
  const struct plm_label_schema none = {0};
  const struct plm_label_schema *const schemas[] = {NULL, &none};
  for (int i = 0; i < 2; i++) {
    const struct plm_label_search search = {.head = &head, .names = &names, .schema = schemas[i]};
    struct plm_label_match match;
    struct plm_error error = {0};
    assert_int_equal(plm_label_match_find(&search, &match, &error), PLM_CONFIG);
    assert_string_equal(error.what, "the corpus has no labels, which this model predicts");
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_follow_from_the_names),
      cmocka_unit_test(named_columns_have_an_order),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(a_column_is_named_once),
      cmocka_unit_test(a_corpus_without_labels_is_refused),
  };
  return cmocka_run_group_tests(tests, open_schema, close_schema);
}
