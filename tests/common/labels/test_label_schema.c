/* Schemas of labels as bytes, and their rules. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/labels/label_schema.h"
#include "tests/support/cases/label_schemas.h"

static void bytes_give_the_schema_back(void **state)
{
  struct plm_label_schema schema, read;
  struct plm_error error = {0};
  (void)state;
  label_schema_make(&schema);
  assert_int_equal(plm_label_schema_check(&schema, &error), PLM_OK);
  const size_t size = plm_label_schema_bytes(&schema);
  uint8_t *bytes = plm_alloc(size);
  plm_label_schema_encode(&schema, bytes);
  assert_int_equal(plm_label_schema_decode(bytes, size, &read, &error), PLM_OK);
  assert_int_equal(read.count, schema.count);
  for (uint32_t i = 0; i < schema.count; i++) {
    const struct plm_label_column *a = &schema.columns[i], *b = &read.columns[i];
    assert_true(plm_label_column_equal(a, b));
    assert_memory_equal(a->labels, b->labels, sizeof a->labels);
    assert_true(a->mean == b->mean && a->deviation == b->deviation);
    for (uint32_t c = 0; c < a->class_count; c++) assert_int_equal(a->counts[c], b->counts[c]);
  }
  const struct plm_proof_digest one = plm_label_schema_digest(&schema),
                                other = plm_label_schema_digest(&read);
  assert_memory_equal(one.bytes, other.bytes, sizeof one.bytes);
  read.columns[1].counts[0]++; /* also statistics are hashed */
  const struct plm_proof_digest changed = plm_label_schema_digest(&read);
  assert_memory_not_equal(one.bytes, changed.bytes, sizeof one.bytes);
  free(bytes);
  plm_label_schema_deinit(&read);
  plm_label_schema_deinit(&schema);
}

/* Whatever is cut off or changed, the result is an error or a valid schema. */
static void damaged_bytes_are_refused(void **state)
{
  struct plm_label_schema schema, read;
  struct plm_error error = {0};
  (void)state;
  label_schema_make(&schema);
  const size_t size = plm_label_schema_bytes(&schema);
  uint8_t *bytes = plm_alloc(size), *copy = plm_alloc(size + 1);
  plm_label_schema_encode(&schema, bytes);
  memset(&read, 0xaa, sizeof read); /* what was there before does not matter */
  for (size_t cut = 0; cut < size; cut++) {
    assert_int_equal(plm_label_schema_decode(bytes, cut, &read, &error), PLM_FORMAT);
    assert_null(read.columns);
  }
  memcpy(copy, bytes, size);
  char *name = memmem(copy, size, schema.columns[0].name, strlen(schema.columns[0].name));
  assert_non_null(name);
  name[1] = '\0';
  assert_int_equal(plm_label_schema_decode(copy, size, &read, &error), PLM_FORMAT);
  memcpy(copy, bytes, size);
  copy[size] = 0;
  assert_int_equal(plm_label_schema_decode(copy, size + 1, &read, &error), PLM_FORMAT);
  for (size_t i = 0; i < size; i++)
    for (unsigned bit = 0; bit < 8; bit++) {
      memcpy(copy, bytes, size);
      copy[i] ^= (uint8_t)(1u << bit);
      if (plm_label_schema_decode(copy, size, &read, &error) != PLM_OK) continue;
      assert_int_equal(plm_label_schema_bytes(&read), size);
      uint8_t *again = plm_alloc(size);
      plm_label_schema_encode(&read, again);
      assert_memory_equal(again, copy, size);
      free(again);
      plm_label_schema_deinit(&read);
    }
  free(bytes);
  free(copy);
  plm_label_schema_deinit(&schema);
}

static void check_fails(struct plm_label_schema *schema, plm_status status, const char *what)
{
  struct plm_error error = {0};
  assert_int_equal(plm_label_schema_check(schema, &error), status);
  assert_non_null(strstr(error.what, what));
  plm_label_schema_deinit(schema);
}

static void replace(char **name, const char *with)
{
  free(*name);
  *name = plm_strdup(with);
}

static void rules_are_checked(void **state)
{
  struct plm_label_schema schema;
  char longest[PLM_LABEL_NAME_MOST + 2];
  (void)state;
  label_schema_make(&schema);
  replace(&schema.columns[1].name, schema.columns[0].name);
  check_fails(&schema, PLM_FORMAT, "two columns of labels are called stability");
  label_schema_make(&schema);
  replace(&schema.columns[1].classes[1], "Alpha");
  check_fails(&schema, PLM_FORMAT, "the classes of column family are not in order");
  label_schema_make(&schema);
  replace(&schema.columns[1].classes[2], "\xff");
  check_fails(&schema, PLM_FORMAT, "the name of a class is not UTF-8");
  label_schema_make(&schema);
  replace(&schema.columns[1].classes[2], "\n");
  check_fails(&schema, PLM_FORMAT, "the name of a class has a control character");
  label_schema_make(&schema);
  replace(&schema.columns[0].name, "");
  check_fails(&schema, PLM_FORMAT, "the name of a column of labels is empty");
  label_schema_make(&schema);
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  replace(&schema.columns[0].name, longest);
  check_fails(&schema, PLM_LIMIT, "the name of a column of labels has 1025 bytes");
}

/* Each bound from its right side, and kinds and counts that no schema has. */
static void rules_have_two_sides(void **state)
{
  (void)state;
  struct plm_label_schema schema;
  char longest[PLM_LABEL_NAME_MOST + 1];
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  label_schema_make(&schema);
  replace(&schema.columns[0].name, longest);
  replace(&schema.columns[1].name, " ~\xce\xbc");
  assert_int_equal(plm_label_schema_check(&schema, NULL), PLM_OK);
  replace(&schema.columns[1].name, "a\x7f");
  check_fails(&schema, PLM_FORMAT, "the name of a column of labels has a control character");
  static const enum plm_label_kind kinds[] = {PLM_LABEL_GUESSED, PLM_LABEL_KINDS};
  for (size_t i = 0; i < 2; i++) {
    label_schema_make(&schema);
    schema.columns[0].kind = kinds[i];
    check_fails(&schema, PLM_FORMAT, "a column of labels is of no known kind");
  }
  label_schema_make(&schema);
  const uint32_t count = schema.columns[4].class_count;
  schema.columns[4].class_count = 0;
  struct plm_error error = {0};
  assert_int_equal(plm_label_schema_check(&schema, &error), PLM_FORMAT);
  assert_string_equal(error.what, "column soluble has no class");
  schema.columns[4].class_count = count;
  schema.columns[0].class_count = 1; /* of numbers */
  assert_int_equal(plm_label_schema_check(&schema, &error), PLM_LIMIT);
  assert_string_equal(error.what, "column stability has 1 classes; 0 is the limit for kind number");
  schema.columns[0].class_count = 0;
  plm_label_schema_deinit(&schema);
  assert_int_equal(plm_label_most_classes(PLM_LABEL_CLASS), 65535);
  assert_int_equal(plm_label_most_classes(PLM_LABEL_RESIDUES), 255);
}

static void a_schema_has_limits(void **state)
{
  (void)state;
  struct plm_label_schema schema = {
      .columns = plm_alloc_zeroed(PLM_LABEL_COLUMNS_MOST + 1, sizeof *schema.columns)};
  struct plm_error error = {0};
  char name[PLM_LABEL_NAME_MOST + 1];
  for (uint32_t i = 0; i <= PLM_LABEL_COLUMNS_MOST; i++) {
    snprintf(name, sizeof name, "n%u", i);
    schema.columns[i].name = plm_strdup(name);
    schema.columns[i].kind = PLM_LABEL_NUMBER;
    schema.count = i + 1;
    if (i + 1 == PLM_LABEL_COLUMNS_MOST)
      assert_int_equal(plm_label_schema_check(&schema, &error), PLM_OK);
  }
  assert_int_equal(plm_label_schema_check(&schema, &error), PLM_LIMIT);
  assert_string_equal(error.what, "there are 257 columns of labels; 256 is the limit");
  plm_label_schema_deinit(&schema);
  /* the bytes of all names: 511 classes of 1024 bytes fit, and 512 do not */
  for (uint32_t classes = 511; classes <= 512; classes++) {
    schema = (struct plm_label_schema){.columns = plm_alloc_zeroed(1, sizeof *schema.columns),
                                       .count = 1};
    struct plm_label_column *column = &schema.columns[0];
    column->name = plm_strdup("c");
    column->kind = PLM_LABEL_CLASS;
    column->classes = plm_alloc_zeroed(classes, sizeof *column->classes);
    column->counts = plm_alloc_zeroed(classes, sizeof *column->counts);
    column->class_count = classes;
    for (uint32_t c = 0; c < classes; c++) {
      memset(name, 'x', sizeof name - 1);
      name[sizeof name - 1] = '\0';
      name[0] = (char)('a' + c / 25);
      name[1] = (char)('a' + c % 25);
      column->classes[c] = plm_strndup(name, 1014);
    }
    const size_t bytes = plm_label_schema_bytes(&schema);
    assert_int_equal(plm_label_schema_check(&schema, &error),
                     bytes <= PLM_LABEL_SCHEMA_LIMIT ? PLM_OK : PLM_LIMIT);
    assert_int_equal(bytes <= PLM_LABEL_SCHEMA_LIMIT, classes == 511);
    plm_label_schema_deinit(&schema);
  }
  assert_string_equal(error.hint, "shorten the names of classes, for example to identifiers");
}

static void kinds_have_names_and_limits(void **state)
{
  static const struct {
    enum plm_label_kind kind;
    const char *name;
    uint32_t most;
  } rows[] = {{PLM_LABEL_NUMBER, "number", 0},
              {PLM_LABEL_CLASS, "class", PLM_LABEL_CLASS_MOST},
              {PLM_LABEL_RESIDUES, "residues", PLM_LABEL_RESIDUES_MOST},
              {PLM_LABEL_CLASSES, "classes", PLM_LABEL_CLASSES_MOST}};
  (void)state;
  assert_int_equal(sizeof rows / sizeof *rows, PLM_LABEL_KINDS - PLM_LABEL_NUMBER);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_string_equal(plm_label_kind_name(rows[i].kind), rows[i].name);
    assert_int_equal(plm_label_most_classes(rows[i].kind), rows[i].most);
  }
}

/* A copy has all that describes the columns, and stays when the original is gone. */
static void a_copy_stays(void **state)
{
  struct plm_label_schema schema, copy, expected;
  (void)state;
  label_schema_make(&schema);
  label_schema_make(&expected);
  plm_label_schema_copy(&schema, &copy);
  plm_label_schema_deinit(&schema);
  assert_int_equal(copy.count, expected.count);
  for (uint32_t i = 0; i < copy.count; i++) {
    const struct plm_label_column *a = &copy.columns[i], *b = &expected.columns[i];
    assert_true(plm_label_column_equal(a, b));
    assert_memory_equal(a->labels, b->labels, sizeof a->labels);
    assert_true(a->mean == b->mean && a->deviation == b->deviation);
    for (uint32_t c = 0; c < a->class_count; c++) assert_int_equal(a->counts[c], b->counts[c]);
  }
  plm_label_schema_deinit(&copy);
  plm_label_schema_deinit(&expected);
}

static void columns_are_compared(void **state)
{
  (void)state;
  struct plm_label_schema a, b;
  label_schema_make(&a);
  label_schema_make(&b);
  struct plm_label_column *x = &a.columns[1], *y = &b.columns[1];
  y->counts[0]++; /* statistics do not count */
  y->labels[0]++;
  assert_true(plm_label_column_equal(x, y));
  y->kind = PLM_LABEL_RESIDUES;
  assert_false(plm_label_column_equal(x, y));
  y->kind = x->kind;
  y->class_count = 2;
  assert_false(plm_label_column_equal(x, y));
  y->class_count = 3;
  replace(&y->classes[2], "Z");
  assert_false(plm_label_column_equal(x, y));
  replace(&y->classes[2], x->classes[2]);
  assert_true(plm_label_column_equal(x, y));
  replace(&y->name, "other");
  assert_false(plm_label_column_equal(x, y));
  plm_label_schema_deinit(&a);
  plm_label_schema_deinit(&b);
}

static void too_many_classes_are_refused(void **state)
{
  struct plm_label_schema schema = {.count = 1};
  (void)state;
  schema.columns = plm_alloc_zeroed(1, sizeof *schema.columns);
  struct plm_label_column *column = &schema.columns[0];
  column->name = plm_strdup("go");
  column->kind = PLM_LABEL_CLASSES;
  column->class_count = PLM_LABEL_CLASSES_MOST + 1;
  column->classes = plm_alloc_zeroed(column->class_count, sizeof *column->classes);
  column->counts = plm_alloc_zeroed(column->class_count, sizeof *column->counts);
  for (uint32_t c = 0; c < column->class_count; c++) {
    char name[16];
    snprintf(name, sizeof name, "GO:%05u", c);
    column->classes[c] = plm_strdup(name);
  }
  check_fails(&schema, PLM_LIMIT, "column go has 16385 classes; 16384 is the limit");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_give_the_schema_back),
      cmocka_unit_test(damaged_bytes_are_refused),
      cmocka_unit_test(rules_are_checked),
      cmocka_unit_test(rules_have_two_sides),
      cmocka_unit_test(a_schema_has_limits),
      cmocka_unit_test(kinds_have_names_and_limits),
      cmocka_unit_test(a_copy_stays),
      cmocka_unit_test(columns_are_compared),
      cmocka_unit_test(too_many_classes_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
