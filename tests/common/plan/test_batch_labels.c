/* The labels of a batch: packed documents, pieces, missing labels and mixtures. */
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plan/batch_labels.h"
#include "tests/support/cases/label_schemas.h"

enum { L = 12, DOCUMENTS = 4, RECORD = 64 };

/* Chunk 0: a whole document of 3 residues, and residues 4 to 7 of one of 9. Chunk 1: the first 10
 * residues of one of 12, with <cls>. Chunk 2: the end of that one, only <eos>. */
static const uint32_t begin[] = {0, 2, 3, 4};
static const struct plm_chunk_document documents[] = {
    {.number = 1, .start = 0, .tokens = 5, .offset = 0, .residues = 3},
    {.number = 2, .start = 6, .tokens = 4, .offset = 4, .residues = 9},
    {.number = 3, .start = 0, .tokens = 11, .offset = 0, .residues = 12},
    {.number = 3, .start = 0, .tokens = 1, .offset = 12, .residues = 12},
};

struct labelled {
  struct plm_label_schema schema;
  uint8_t records[DOCUMENTS * RECORD];
  uint64_t at[DOCUMENTS];
  struct plm_batch batch;
};

static void fill(struct labelled *of)
{
  label_schema_make(&of->schema);
  for (uint32_t d = 0; d < DOCUMENTS; d++) {
    const uint32_t residues = documents[d].residues;
    uint8_t *record = of->records + (of->at[d] = (uint64_t)d * RECORD);
    plm_label_record_clear(&of->schema, residues, record);
    if (documents[d].number == 2) continue; /* all its labels but these are missing */
    plm_label_put_number(record, documents[d].number == 1 ? 5.25 : -2.75);
    plm_label_put_class(record + 8, (int32_t)documents[d].number - 1);
    uint8_t *terms = record + plm_label_record_offset(&of->schema, 3, residues);
    plm_label_put_one_of(terms, documents[d].number == 1 ? 8 : -1);
    plm_label_put_class(record + plm_label_record_offset(&of->schema, 4, residues),
                        documents[d].number == 3);
  }
  for (uint32_t d = 0; d < DOCUMENTS; d++)
    for (uint32_t i = 0; i < documents[d].residues; i++)
      plm_label_put_residue(of->records + of->at[d] + 10, i, (int32_t)(i % 4) - 1);
  of->batch = (struct plm_batch){.chunks = 3,
                                 .max_length = L,
                                 .document_begin = begin,
                                 .documents = documents,
                                 .labels = of->records,
                                 .label_at = of->at};
}

static void choose(struct labelled *of, enum plm_label_task task, const char *const *names,
                   uint32_t count, struct plm_label_choice *choice)
{
  const struct plm_label_schema *schema = &of->schema;
  const char *source = "corpus";
  struct plm_error error = {0};
  if (plm_label_choose(task, names, count, &schema, &source, 1, choice, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

static void labels_of(struct labelled *of, enum plm_label_task task, const char *const *names,
                      uint32_t count, struct plm_batch_labels *labels)
{
  const struct plm_label_schema *schema = &of->schema;
  struct plm_label_choice choice;
  struct plm_error error = {0};
  choose(of, task, names, count, &choice);
  assert_int_equal(plm_batch_labels_fill(&choice, &schema, &of->batch, labels, &error), PLM_OK);
  assert_int_equal(labels->documents, DOCUMENTS);
  assert_int_equal(labels->task, task);
  assert_memory_equal(labels->begin, begin, sizeof begin);
  plm_label_choice_deinit(&choice);
}

static void numbers_and_classes_belong_to_documents(void **state)
{
  struct labelled of;
  struct plm_batch_labels labels = {0};
  (void)state;
  fill(&of);
  labels_of(&of, PLM_TASK_REGRESSION, (const char *[]){"stability"}, 1, &labels);
  assert_int_equal(labels.outputs, 1);
  assert_true(labels.values[0] == 2 && labels.values[2] == -2 && labels.values[3] == -2);
  assert_true(isnan(labels.values[1]));
  assert_int_equal(labels.known, 3);
  labels_of(&of, PLM_TASK_CLASSIFICATION, (const char *[]){"family"}, 1, &labels);
  assert_int_equal(labels.outputs, 3);
  assert_memory_equal(labels.classes, ((int32_t[]){0, -1, 2, 2}), 4 * sizeof(int32_t));
  labels_of(&of, PLM_TASK_MULTILABEL, (const char *[]){"terms"}, 1, &labels);
  assert_int_equal(labels.outputs, 9);
  assert_int_equal(labels.known, 27);
  for (uint32_t k = 0; k < 9; k++) {
    assert_true(labels.values[k] == (k == 8 ? 1 : 0));
    assert_true(isnan(labels.values[9 + k]));
    assert_true(labels.values[18 + k] == 0);
  }
  labels_of(&of, PLM_TASK_MULTILABEL, (const char *[]){"soluble"}, 1, &labels);
  assert_int_equal(labels.outputs, 1);
  assert_true(labels.values[0] == 0 && isnan(labels.values[1]) && labels.values[2] == 1);
  plm_batch_labels_deinit(&labels);
  plm_label_schema_deinit(&of.schema);
}

/* Memory of a smaller batch is replaced, that of the spans as well as that of nine values for each
 * document. */
static void a_larger_batch_follows_a_smaller_one(void **state)
{
  enum { MANY = 25 }; /* more than there is room for one, but not for its values */
  static const uint32_t many_begin[] = {0, 1, MANY};
  struct plm_chunk_document many[MANY];
  uint64_t many_at[MANY];
  struct labelled of;
  struct plm_batch_labels labels = {0};
  const struct plm_label_schema *schema = &of.schema;
  struct plm_label_choice choice;
  (void)state;
  fill(&of);
  for (int d = 0; d < MANY; d++) {
    many[d] = documents[0];
    many_at[d] = of.at[0];
  }
  of.batch.document_begin = many_begin;
  of.batch.documents = many;
  of.batch.label_at = many_at;
  choose(&of, PLM_TASK_MULTILABEL, (const char *[]){"terms"}, 1, &choice);
  for (uint32_t chunks = 1; chunks <= 2; chunks++) {
    of.batch.chunks = chunks;
    assert_int_equal(plm_batch_labels_fill(&choice, &schema, &of.batch, &labels, NULL), PLM_OK);
    assert_int_equal(labels.documents, many_begin[chunks]);
    assert_memory_equal(labels.begin, many_begin, (chunks + 1) * sizeof *many_begin);
    for (uint32_t d = 0; d < labels.documents; d++) {
      assert_true(labels.spans[d].whole && labels.spans[d].residues == 3);
      assert_int_equal(labels.spans[d].chunk, d > 0);
      for (uint32_t k = 0; k < 9; k++) assert_true(labels.values[d * 9 + k] == (k == 8));
    }
  }
  plm_label_choice_deinit(&choice);
  plm_batch_labels_deinit(&labels);
  plm_label_schema_deinit(&of.schema);
}

static void residues_are_cut_with_their_piece(void **state)
{
  struct labelled of;
  struct plm_batch_labels labels = {0};
  (void)state;
  fill(&of);
  labels_of(&of, PLM_TASK_RESIDUES, (const char *[]){"structure"}, 1, &labels);
  /* residue i has class i % 4 - 1 */
  const int32_t expected[3][L] = {
      {-1, -1, 0, 1, -1, -1, -1, 0, 1, 2, -1, -1},
      {-1, -1, 0, 1, 2, -1, 0, 1, 2, -1, 0, -1},
      {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
  };
  assert_memory_equal(labels.residues, expected, sizeof expected);
  assert_int_equal(labels.known, 2 + 3 + 7);
  const struct plm_label_span *spans = labels.spans;
  for (uint32_t d = 0; d < labels.documents; d++) {
    assert_int_equal(spans[d].start, of.batch.documents[d].start);
    assert_int_equal(spans[d].tokens, of.batch.documents[d].tokens);
  }
  assert_true(spans[0].whole && spans[0].first_residue == 1 && spans[0].residues == 3);
  assert_true(!spans[1].whole && spans[1].first_residue == 6 && spans[1].residues == 4);
  assert_true(!spans[2].whole && spans[2].first_residue == 1 && spans[2].residues == 10);
  assert_true(!spans[3].whole && spans[3].chunk == 2 && spans[3].residues == 0);
  plm_batch_labels_deinit(&labels);
  plm_label_schema_deinit(&of.schema);
}

/* Returns what is said to be done. */
static const char *refuses(enum plm_label_task task, const char *const *names, uint32_t count,
                           const struct plm_label_schema *const *schemas, uint32_t sources,
                           const char *what)
{
  static char hint[512];
  const char *const paths[] = {"a.corpus", "b.corpus"};
  struct plm_label_choice choice;
  struct plm_error error = {0};
  assert_int_equal(plm_label_choose(task, names, count, schemas, paths, sources, &choice, &error),
                   PLM_CONFIG);
  if (strstr(error.what, what) == NULL) fail_msg("\"%s\" is not in \"%s\"", what, error.what);
  assert_true(choice.columns == NULL && choice.mean == NULL && choice.deviation == NULL);
  assert_true(choice.task == 0 && choice.column_count == 0 && choice.outputs == 0);
  snprintf(hint, sizeof hint, "%s", error.hint);
  return hint;
}

/* Columns are listed until their names have 300 characters. */
static void the_first_columns_are_listed(void **state)
{
  enum { COLUMNS = 20 };
  (void)state;
  for (size_t first = 28; first <= 31; first++) {
    struct plm_label_column columns[COLUMNS] = {{0}};
    char names[COLUMNS][32], expected[500] = "its columns are ";
    const struct plm_label_schema schema = {columns, COLUMNS}, none = {columns, 0},
                                  alone = {columns, 1};
    for (size_t i = 0; i < COLUMNS; i++) {
      memset(names[i], 'a' + (int)i, 31);
      names[i][i == 0 ? first : 28] = '\0';
      columns[i].name = names[i];
    }
    for (size_t i = 0; i < (first < 30 ? 11 : 10); i++)
      snprintf(strchr(expected, '\0'), 40, "%s%s", i == 0 ? "" : ", ", names[i]);
    const struct plm_label_schema *schemas[] = {&schema};
    const char *const wanted[] = {"tm"};
    assert_string_equal(refuses(PLM_TASK_REGRESSION, wanted, 1, schemas, 1,
                                "corpus a.corpus has no column of labels called tm"),
                        expected);
    schemas[0] = &none;
    refuses(PLM_TASK_REGRESSION, wanted, 1, schemas, 1, "corpus a.corpus has no labels");
    schemas[0] = &alone;
    snprintf(expected, sizeof expected, "its columns are %s", names[0]);
    assert_string_equal(refuses(PLM_TASK_REGRESSION, wanted, 1, schemas, 1,
                                "corpus a.corpus has no column of labels called tm"),
                        expected);
  }
}

static void wrong_choices_are_refused(void **state)
{
  struct plm_label_schema one, other;
  const struct plm_label_schema *schemas[] = {&one, &other};
  (void)state;
  label_schema_make(&one);
  label_schema_make(&other);
  const char *hint = refuses(PLM_TASK_REGRESSION, (const char *[]){"tm"}, 1, schemas, 1,
                             "corpus a.corpus has no column of labels called tm");
  assert_string_equal(hint, "its columns are stability, family, structure, terms, soluble");
  refuses(PLM_TASK_REGRESSION, (const char *[]){"family"}, 1, schemas, 1,
          "objective regression needs columns of numbers");
  refuses(PLM_TASK_CLASSIFICATION, (const char *[]){"family", "soluble"}, 2, schemas, 1,
          "objective classification needs one column of kind class");
  refuses(PLM_TASK_MULTILABEL, (const char *[]){"soluble", "soluble"}, 2, schemas, 1,
          "column soluble is named twice");
  other.columns[1].classes[0][0] = '@';
  refuses(PLM_TASK_CLASSIFICATION, (const char *[]){"family"}, 1, schemas, 2,
          "the labels family of corpus b.corpus have another kind or other classes");
  schemas[1] = NULL;
  hint = refuses(PLM_TASK_REGRESSION, (const char *[]){"stability"}, 1, schemas, 2,
                 "corpus b.corpus has no labels");
  assert_string_equal(hint, "plm-pipeline ingest TABLE --corpus DIR --labels stability makes one "
                            "with labels");
  one.columns[0].labels[0] = 0;
  refuses(PLM_TASK_REGRESSION, (const char *[]){"stability"}, 1, schemas, 1,
          "no document of the training split has a label stability");
  plm_label_schema_deinit(&one);
  plm_label_schema_deinit(&other);
}

/* Each objective with each kind of column, alone and together with another one. */
static void objectives_need_kinds(void **state)
{
  (void)state;
  static const char *const names[] = {"stability", "family", "structure", "terms", "soluble"};
  static const bool fits[PLM_LABEL_TASKS][5] = {
      [PLM_TASK_REGRESSION] = {true},
      [PLM_TASK_CLASSIFICATION] = {[1] = true, [4] = true},
      [PLM_TASK_MULTILABEL] = {[3] = true, [4] = true},
      [PLM_TASK_RESIDUES] = {[2] = true}};
  static const char *const needs[PLM_LABEL_TASKS] = {
      [PLM_TASK_REGRESSION] = "objective regression needs columns of numbers",
      [PLM_TASK_CLASSIFICATION] = "objective classification needs one column of kind class",
      [PLM_TASK_MULTILABEL] = "objective multilabel needs one column of kind classes, or several "
                              "of kind class with two classes each",
      [PLM_TASK_RESIDUES] = "objective residues needs one column of kind residues"};
  static const char *const kinds[] = {"number with 0 classes", "class with 3 classes",
                                      "residues with 3 classes", "classes with 9 classes",
                                      "class with 2 classes"};
  struct plm_label_schema schema;
  label_schema_make(&schema);
  schema.columns[0].deviation = 0;
  for (int task = 0; task < PLM_LABEL_TASKS; task++)
    for (int i = 0; i < 5; i++) {
      char what[300];
      struct plm_error error = {0};
      const plm_status status = plm_label_check_columns((enum plm_label_task)task, &names[i], 1,
                                                        &schema, "a.corpus", &error);
      assert_int_equal(status, fits[task][i] ? PLM_OK : PLM_CONFIG);
      if (fits[task][i]) continue;
      snprintf(what, sizeof what, "%s, and %s of 1 is of kind %s", needs[task], names[i], kinds[i]);
      assert_string_equal(error.what, what);
    }
  /* numbers, and columns of two classes, may be several */
  free(schema.columns[1].classes[2]);
  schema.columns[1].class_count = 2;
  static const char *const several[] = {"family", "soluble"}, *const terms[] = {"terms", "soluble"};
  assert_int_equal(plm_label_check_columns(PLM_TASK_MULTILABEL, several, 2, &schema, "a", NULL),
                   PLM_OK);
  assert_int_equal(plm_label_check_columns(PLM_TASK_MULTILABEL, terms, 2, &schema, "a", NULL),
                   PLM_CONFIG);
  assert_int_equal(plm_label_check_columns(PLM_TASK_CLASSIFICATION, several, 2, &schema, "a", NULL),
                   PLM_CONFIG);
  static const char *const numbers[] = {"stability", "stability"};
  assert_int_equal(plm_label_check_columns(PLM_TASK_REGRESSION, numbers, 2, &schema, "a", NULL),
                   PLM_OK);
  /* two classes of residues are no answers */
  free(schema.columns[2].classes[2]);
  schema.columns[2].class_count = 2;
  assert_int_equal(plm_label_check_columns(PLM_TASK_MULTILABEL, &names[2], 1, &schema, "a", NULL),
                   PLM_CONFIG);
  /* one that is trained on needs two classes, unless each is an answer of its own */
  const struct plm_label_schema *schemas[] = {&schema};
  const char *const paths[] = {"a.corpus"};
  struct plm_label_choice choice;
  free(schema.columns[1].classes[1]);
  schema.columns[1].class_count = 1;
  refuses(PLM_TASK_CLASSIFICATION, (const char *[]){"family"}, 1, schemas, 1,
          "column family has one class only, so nothing can be learnt");
  for (uint32_t c = 1; c < schema.columns[3].class_count; c++) free(schema.columns[3].classes[c]);
  schema.columns[3].class_count = 1;
  assert_int_equal(
      plm_label_choose(PLM_TASK_MULTILABEL, terms, 1, schemas, paths, 1, &choice, NULL), PLM_OK);
  assert_int_equal(choice.outputs, 1);
  plm_label_choice_deinit(&choice);
  /* numbers that are all the same are divided by 1 */
  assert_int_equal(
      plm_label_choose(PLM_TASK_REGRESSION, names, 1, schemas, paths, 1, &choice, NULL), PLM_OK);
  assert_true(choice.mean[0] == 1.25 && choice.deviation[0] == 1);
  plm_label_choice_deinit(&choice);
  plm_label_schema_deinit(&schema);
}

/* Both sources' numbers together: 40 of mean 1.25 and deviation 2, and 10 of mean 6.25 and 1. */
static void sources_share_one_normalisation(void **state)
{
  struct plm_label_schema one, other;
  const struct plm_label_schema *schemas[] = {&one, &other};
  const char *const paths[] = {"a.corpus", "b.corpus"};
  struct plm_label_choice choice;
  (void)state;
  label_schema_make(&one);
  label_schema_make(&other);
  other.columns[0].labels[0] = 10;
  other.columns[0].mean = 6.25;
  other.columns[0].deviation = 1;
  assert_int_equal(plm_label_choose(PLM_TASK_REGRESSION, (const char *[]){"stability"}, 1, schemas,
                                    paths, 2, &choice, NULL),
                   PLM_OK);
  assert_memory_equal(choice.columns[0].labels, ((uint64_t[]){50, 6, 4}),
                      PLM_PROOF_SPLITS * sizeof(uint64_t));
  assert_float_equal(choice.mean[0], 2.25, 1e-12);
  assert_float_equal(choice.deviation[0], sqrt((40 * (4 + 1) + 10 * (1 + 16)) / 50.0), 1e-12);
  plm_label_choice_deinit(&choice);
  assert_int_equal(plm_label_choose(PLM_TASK_CLASSIFICATION, (const char *[]){"family"}, 1, schemas,
                                    paths, 2, &choice, NULL),
                   PLM_OK);
  for (uint64_t c = 0; c < 3; c++) assert_int_equal(choice.columns[0].counts[c], 2 * (10 + c));
  plm_label_choice_deinit(&choice);
  plm_label_schema_deinit(&one);
  plm_label_schema_deinit(&other);
}

/* Sources without labels change nothing, also if they are the first ones; one label is enough. */
static void sources_may_lack_labels(void **state)
{
  enum { SOURCES = 4 };
  static const struct {
    uint64_t labels;
    double mean, deviation;
  } given[SOURCES] = {{0, 0, 0}, {0, 0, 0}, {10, 6.25, 1}, {1, 17.25, 0}};
  struct plm_label_schema made[SOURCES];
  const struct plm_label_schema *schemas[SOURCES];
  const char *const paths[SOURCES] = {"a", "b", "c", "d"};
  (void)state;
  for (int k = 0; k < SOURCES; k++) {
    label_schema_make(&made[k]);
    made[k].columns[0].labels[0] = given[k].labels;
    made[k].columns[0].mean = given[k].mean;
    made[k].columns[0].deviation = given[k].deviation;
    schemas[k] = &made[k];
  }
  const double mean = (10 * 6.25 + 17.25) / 11,
               squares = 10 * (1 + (6.25 - mean) * (6.25 - mean)) + (17.25 - mean) * (17.25 - mean);
  for (uint32_t sources = 3; sources <= SOURCES; sources++) {
    struct plm_label_choice choice;
    assert_int_equal(plm_label_choose(PLM_TASK_REGRESSION, (const char *[]){"stability"}, 1,
                                      schemas, paths, sources, &choice, NULL),
                     PLM_OK);
    assert_int_equal(choice.columns[0].labels[0], sources == 3 ? 10 : 11);
    assert_true(fabs(choice.mean[0] - (sources == 3 ? 6.25 : mean)) < 1e-12);
    assert_true(fabs(choice.deviation[0] - (sources == 3 ? 1 : sqrt(squares / 11))) < 1e-12);
    plm_label_choice_deinit(&choice);
  }
  for (int k = 0; k < SOURCES; k++) plm_label_schema_deinit(&made[k]);
}

struct filling {
  struct labelled of;
  struct plm_label_choice choice;
};

static plm_status fill_labels(void *context, struct plm_error *error)
{
  const struct filling *filling = context;
  const struct plm_label_schema *schema = &filling->of.schema;
  struct plm_batch_labels labels = {0};
  const plm_status status =
      plm_batch_labels_fill(&filling->choice, &schema, &filling->of.batch, &labels, error);
  plm_batch_labels_deinit(&labels);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  static const char *const names[] = {"structure"};
  struct filling filling;
  fill(&filling.of);
  choose(&filling.of, PLM_TASK_RESIDUES, names, 1, &filling.choice);
  failing_memory_try(fill_labels, &filling, 3);
  plm_label_choice_deinit(&filling.choice);
  plm_label_schema_deinit(&filling.of.schema);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_and_classes_belong_to_documents),
      cmocka_unit_test(a_larger_batch_follows_a_smaller_one),
      cmocka_unit_test(residues_are_cut_with_their_piece),
      cmocka_unit_test(the_first_columns_are_listed),
      cmocka_unit_test(wrong_choices_are_refused),
      cmocka_unit_test(sources_share_one_normalisation),
      cmocka_unit_test(sources_may_lack_labels),
      cmocka_unit_test(objectives_need_kinds),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
