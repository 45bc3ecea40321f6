/* The labels and splits that a table gives sequences, by line or by name, and what is said of
 * tables that do not fit. */
#include "stages/ingest/label_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static struct plm_error failure;

static plm_status open_table(const char *text, const struct plm_label_options *options,
                             struct plm_label_table **table)
{
  const char *path = scratch_path("table.csv");
  scratch_write(path, text, strlen(text));
  failure = (struct plm_error){0};
  return plm_label_table_open(options, path, PLM_TOKENIZER_ESM, table, &failure);
}

static struct plm_sequence sequence(const char *name, uint64_t line, size_t size)
{
  static const uint8_t residues[] = "LAGVSERT";
  return (struct plm_sequence){
      .name = name, .name_size = strlen(name), .residues = residues, .size = size, .line = line};
}

/* The record of a sequence; NULL: the table leaves it out. */
static const uint8_t *record_of(struct plm_label_table *table, const struct plm_sequence *of)
{
  struct plm_label_row row;
  if (!plm_label_table_includes(table, of, &row)) return NULL;
  must_work(plm_label_table_find(table, of, &row, &failure), &failure);
  assert_int_equal(row.record_size,
                   plm_label_record_size(plm_label_table_schema(table), (uint32_t)of->size));
  return row.record;
}

static const char mixed[] = "sequence,n,c,r,s,part\n"
                            "LA,1.5,b,HE,x;y,train\n"
                            "LAG,,a,,,valid\n"
                            "LA,-2,,?H,y,test\n"
                            "LA,,,,,\n";

static void rows_are_found_by_their_line(void **state)
{
  (void)state;
  struct plm_label_table *table;
  const struct plm_label_options options = {.columns = "n:number,c:class,r:residues,s:classes"};
  must_work(open_table(mixed, &options, &table), &failure);
  const struct plm_label_schema *schema = plm_label_table_schema(table);
  static const char *const names[] = {"n", "c", "r", "s"};
  static const enum plm_label_kind kinds[] = {PLM_LABEL_NUMBER, PLM_LABEL_CLASS, PLM_LABEL_RESIDUES,
                                              PLM_LABEL_CLASSES};
  static const uint32_t counts[] = {0, 2, 2, 2};
  assert_int_equal(schema->count, 4);
  for (uint32_t i = 0; i < 4; i++) {
    assert_string_equal(schema->columns[i].name, names[i]);
    assert_int_equal(schema->columns[i].kind, kinds[i]);
    assert_int_equal(schema->columns[i].class_count, counts[i]);
  }
  assert_string_equal(schema->columns[1].classes[0], "a");
  assert_string_equal(schema->columns[3].classes[1], "y");
  struct plm_sequence of = sequence("any", 2, 2);
  const uint8_t *record = record_of(table, &of);
  assert_true(plm_label_number(record) == 1.5);
  assert_int_equal(plm_label_class(record + plm_label_record_offset(schema, 1, 2)), 1);
  const uint8_t *at = record + plm_label_record_offset(schema, 2, 2);
  assert_int_equal(plm_label_residue(at, 0), 1);
  assert_int_equal(plm_label_residue(at, 1), 0);
  at = record + plm_label_record_offset(schema, 3, 2);
  assert_int_equal(plm_label_has(at, 0), 1);
  assert_int_equal(plm_label_has(at, 1), 1);
  of = sequence("any", 3, 3);
  record = record_of(table, &of);
  assert_true(isnan(plm_label_number(record)));
  assert_int_equal(plm_label_class(record + plm_label_record_offset(schema, 1, 3)), 0);
  assert_int_equal(plm_label_residue(record + plm_label_record_offset(schema, 2, 3), 2), -1);
  assert_int_equal(plm_label_has(record + plm_label_record_offset(schema, 3, 3), 0), -1);
  of = sequence("any", 4, 2);
  record = record_of(table, &of);
  assert_true(plm_label_number(record) == -2);
  at = record + plm_label_record_offset(schema, 3, 2);
  assert_int_equal(plm_label_has(at, 0), 0);
  assert_int_equal(plm_label_has(at, 1), 1);
  of = sequence("any", 99, 2); /* no row: all are missing */
  record = record_of(table, &of);
  assert_true(isnan(plm_label_number(record)));
  of = sequence("P1", 2, 3); /* two labels of residues, three residues */
  struct plm_label_row row;
  assert_true(plm_label_table_includes(table, &of, &row));
  assert_int_equal(plm_label_table_find(table, &of, &row, &failure), PLM_FORMAT);
  assert_string_equal(failure.what, "there are 2 labels, but the sequence P1 has 3 residues");
  assert_non_null(strstr(failure.where, "table.csv:2, column r"));
  plm_label_table_close(table);
}

static void splits_come_from_a_column(void **state)
{
  (void)state;
  struct plm_label_table *table;
  struct plm_label_row row;
  const struct plm_label_options options = {.split_column = "part"};
  assert_true(plm_label_options_any(&options));
  assert_false(plm_label_options_any(&(struct plm_label_options){.table = "x"}));
  must_work(open_table(mixed, &options, &table), &failure);
  assert_null(plm_label_table_schema(table));
  static const enum plm_split splits[] = {PLM_SPLIT_TRAIN, PLM_SPLIT_VALID, PLM_SPLIT_TEST};
  for (uint64_t line = 2; line <= 5; line++) {
    const struct plm_sequence of = sequence("any", line, line == 3 ? 3 : 2);
    const bool has = line < 5; /* the last row has none */
    assert_int_equal(plm_label_table_includes(table, &of, &row), has);
    assert_int_equal(row.has_split, has);
    if (has) assert_int_equal(row.split, splits[line - 2]);
    if (has) must_work(plm_label_table_find(table, &of, &row, &failure), &failure);
    assert_null(row.record);
  }
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_label_table_report(table, NULL, &failure);
  const char *said = captured_end();
  assert_int_equal(status, PLM_OK);
  assert_non_null(strstr(said, "sequences without a split, which are left out: 1\n"));
  assert_non_null(strstr(said, "sequences of the test split that another split has too: 1, the "
                               "first is in line 4\n"));
  assert_null(strstr(said, "sequences of the valid split"));
  plm_label_table_close(table);
}

/* A column of sequences with another name holds for the splits and for the labels. */
static void splits_and_labels_have_the_same_sequences(void **state)
{
  (void)state;
  struct plm_label_table *table;
  const struct plm_label_options options = {
      .sequence_column = "protein", .split_column = "part", .columns = "n:number"};
  must_work(open_table("protein,n,part\nLA,1.5,valid\n", &options, &table), &failure);
  const struct plm_sequence of = sequence("any", 2, 2);
  struct plm_label_row row;
  assert_true(plm_label_table_includes(table, &of, &row));
  assert_int_equal(row.split, PLM_SPLIT_VALID);
  assert_non_null(record_of(table, &of));
  plm_label_table_close(table);
}

static void rows_are_found_by_name(void **state)
{
  (void)state;
  struct plm_label_table *table;
  static const char text[] = "id,n\nP10,1\nP1,2\nP2,3\n";
  struct plm_label_options options = {
      .columns = "n", .table = scratch_path("table.csv"), .name_column = "id"};
  must_work(open_table(text, &options, &table), &failure);
  static const char *const names[] = {"P1", "P10", "P2", "P"};
  static const double values[] = {2, 1, 3, NAN};
  for (size_t i = 0; i < 4; i++) {
    const struct plm_sequence of = sequence(names[i], 1, 2);
    const double got = plm_label_number(record_of(table, &of));
    assert_true(got == values[i] || (isnan(got) && isnan(values[i])));
  }
  plm_label_table_close(table);
  options.name_column = NULL; /* then it is called name */
  assert_int_equal(open_table(text, &options, &table), PLM_FORMAT);
  assert_string_equal(failure.what, "the table has no column \"name\"");
  assert_null(table);
  options.name_column = "id";
  assert_int_equal(open_table("id,n\na,1\nb,2\na,3\n", &options, &table), PLM_FORMAT);
  assert_string_equal(failure.what, "the name a is also in line 2");
  assert_string_equal(failure.hint, "each sequence can have one row only");
  assert_non_null(strstr(failure.where, "table.csv:4"));
}

static void lists_of_columns_are_checked(void **state)
{
  (void)state;
  static const char text[] = "sequence,n,a:b,empty,fold\nLA,1,x,,1\nLAG,2,y,,2\n";
  static const struct {
    struct plm_label_options options;
    plm_status status;
    const char *what;
  } rows[] = {
      {{.columns = "n,n"}, PLM_USAGE, "--labels names the column n twice"},
      {{.columns = "n,a:b,n:class"}, PLM_USAGE, "--labels names the column n twice"},
      {{.columns = ","}, PLM_USAGE, "--labels names no column"},
      {{.columns = "empty"}, PLM_FORMAT, "column empty has no label"},
      {{.columns = "m"}, PLM_FORMAT, "the table has no column \"m\""},
      {{.columns = "n:klass"}, PLM_FORMAT, "the table has no column \"n:klass\""},
      {{.split_column = "fold"}, PLM_FORMAT, "column fold has the numbers of folds"},
      {{.columns = "n", .table = "-"},
       PLM_USAGE,
       "a table of labels cannot be read from standard input"},
  };
  struct plm_label_table *table;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(open_table(text, &rows[i].options, &table), rows[i].status);
    assert_string_equal(failure.what, rows[i].what);
    assert_null(table);
  }
  static char wide[1 << 14], columns[1 << 13]; /* a table of more columns than there may be */
  size_t used = 0;
  strcpy(wide, "sequence");
  for (int i = 0; i <= PLM_LABEL_COLUMNS_MOST; i++)
    used += (size_t)snprintf(columns + used, sizeof columns - used, ",c%d", i);
  snprintf(wide, sizeof wide, "sequence%s\nLA", columns);
  for (int i = 0; i <= PLM_LABEL_COLUMNS_MOST; i++) strcat(wide, ",1");
  struct plm_label_options all = {.columns = columns};
  assert_int_equal(open_table(wide, &all, &table), PLM_USAGE);
  assert_string_equal(failure.what, "--labels names more than 256 columns");
  *strrchr(columns, ',') = '\0';
  must_work(open_table(wide, &all, &table), &failure);
  assert_int_equal(plm_label_table_schema(table)->count, PLM_LABEL_COLUMNS_MOST);
  plm_label_table_close(table);
  /* a colon that no kind follows is part of the name, and a kind may follow it */
  const struct plm_label_options options = {.columns = "a:b:class,n:class"};
  must_work(open_table(text, &options, &table), &failure);
  assert_string_equal(plm_label_table_schema(table)->columns[0].name, "a:b");
  assert_int_equal(plm_label_table_schema(table)->columns[1].kind, PLM_LABEL_CLASS);
  plm_label_table_close(table);
  plm_label_table_close(NULL);
}

static void a_record_has_a_limit(void **state)
{
  (void)state;
  struct plm_label_table *table;
  struct plm_label_row row;
  const struct plm_label_options options = {.columns = "r:residues"};
  must_work(open_table("sequence,r\nLA,HE\n", &options, &table), &failure);
  const size_t each = plm_label_record_size(plm_label_table_schema(table), 1),
               most = PLM_LABEL_RECORD_LIMIT / each;
  char what[200];
  struct plm_sequence of = sequence("long", 99, most); /* without a row */
  assert_int_equal(plm_label_residue(record_of(table, &of), (uint32_t)most - 1), -1);
  of = sequence("longer", 99, most + 1);
  assert_true(plm_label_table_includes(table, &of, &row));
  assert_int_equal(plm_label_table_find(table, &of, &row, &failure), PLM_LIMIT);
  snprintf(what, sizeof what,
           "the labels of a sequence of %zu residues take %zu bytes; 1048576 is the limit",
           most + 1, each * (most + 1));
  assert_string_equal(failure.what, what);
  assert_string_equal(failure.hint, "drop such sequences with --max-residues");
  plm_label_table_close(table);
}

/* What is said once all sequences were looked up. */
static void what_is_unusual_is_said(void **state)
{
  (void)state;
  struct plm_label_table *table;
  uint64_t counts[2] = {4, 0}, one[1] = {4};
  static const char text[] = "name,n,c,d\nP1,1,a,z\nP2,2,b,z\nP3,3,a,z\n";
  const struct plm_label_options options = {.columns = "n,c:class,d:class",
                                            .table = scratch_path("table.csv")};
  must_work(open_table(text, &options, &table), &failure);
  struct plm_label_schema schema;
  plm_label_schema_copy(plm_label_table_schema(table), &schema);
  memcpy(schema.columns[1].counts, counts, sizeof counts);
  memcpy(schema.columns[2].counts, one, sizeof one);
  struct plm_sequence of = sequence("Q", 1, 2);
  (void)record_of(table, &of);
  assert_int_equal(plm_label_table_report(table, &schema, &failure), PLM_FORMAT);
  assert_string_equal(failure.what, "no sequence has a label");
  assert_string_equal(failure.hint,
                      "names must be the same: the table has \"P1\", and the sequences have \"Q\"");
  of = sequence("P1", 2, 2);
  (void)record_of(table, &of);
  of = sequence("P2", 3, 2);
  (void)record_of(table, &of);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_label_table_report(table, &schema, &failure);
  const char *said = captured_end();
  assert_int_equal(status, PLM_OK);
  static const char *const lines[] = {
      "labels n: numbers, 2 of 3 sequences have one\n",
      "labels n: rows without a sequence in the corpus: 1\n",
      "labels c: kind class with 2 classes, 2 of 3 sequences have one\n",
      "labels c: classes that the training split does not have: 1, such as \"b\"\n",
      "labels d: kind class with 1 classes, 2 of 3 sequences have one\n",
      "labels d: all are \"z\"; there is nothing to learn\n"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    if (strstr(said, lines[i]) == NULL) fail_msg("%s lacks %s", said, lines[i]);
  plm_label_schema_deinit(&schema);
  plm_label_table_close(table);
}

int main(void)
{
  plm_log_init("t", PLM_LOG_INFO);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_found_by_their_line),
      cmocka_unit_test(splits_come_from_a_column),
      cmocka_unit_test(splits_and_labels_have_the_same_sequences),
      cmocka_unit_test(rows_are_found_by_name),
      cmocka_unit_test(lists_of_columns_are_checked),
      cmocka_unit_test(a_record_has_a_limit),
      cmocka_unit_test(what_is_unusual_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
