/* The columns of a table by their names, and the list of them in messages. */
#include "common/sequences/table_columns.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"

enum { MOST = 64 };

/* The row borrows the texts until the next call. */
static struct plm_csv_row row_of(const char *const *texts, size_t count)
{
  static struct plm_csv_field fields[MOST];
  assert_true(count <= MOST);
  for (size_t i = 0; i < count; i++) fields[i] = (struct plm_csv_field){texts[i], strlen(texts[i])};
  return (struct plm_csv_row){.line = 1, .count = count, .fields = fields};
}

static void finds(const struct plm_csv_row *row, const char *name, bool exactly, size_t count,
                  size_t first)
{
  size_t column = 77;
  assert_int_equal(plm_table_columns(row, name, exactly, &column), count);
  assert_int_equal(column, count > 0 ? first : 77);
}

static void names_are_compared_as_a_whole(void **state)
{
  (void)state;
  static const char *const texts[] = {"id", " Tm ", "tm", "tmx", "t", "", "TM"};
  const struct plm_csv_row row = row_of(texts, sizeof texts / sizeof *texts);
  finds(&row, "id", true, 1, 0);
  finds(&row, "tm", true, 1, 2);
  finds(&row, "Tm", true, 1, 1); /* without the blanks around it */
  finds(&row, "tm", false, 3, 1);
  finds(&row, "TM", true, 1, 6);
  finds(&row, "tmxy", false, 0, 0);
  finds(&row, "", true, 1, 5);
  finds(&row, "i", false, 0, 0);
}

static void sequences_have_one_of_several_names(void **state)
{
  (void)state;
  static const char *const one[] = {"id", "Protein_Sequence", "value"},
                           *const two[] = {"SEQ", "x", "sequence", "seq"},
                           *const none[] = {"id", "sequences", "my_seq"};
  size_t column = 77;
  const char *name = NULL;
  struct plm_csv_row row = row_of(one, 3);
  assert_int_equal(plm_table_sequence_columns(&row, &column, &name), 1);
  assert_int_equal(column, 1);
  assert_string_equal(name, "protein_sequence");
  row = row_of(two, 4);
  assert_int_equal(plm_table_sequence_columns(&row, &column, NULL), 3);
  assert_true(column == 0 || column == 2 || column == 3);
  row = row_of(none, 3);
  name = NULL;
  column = 77;
  assert_int_equal(plm_table_sequence_columns(&row, &column, &name), 0);
  assert_true(column == 77 && name == NULL);
  for (size_t i = 0; i < PLM_SEQUENCE_COLUMNS; i++) {
    row = row_of(&plm_sequence_columns[i], 1);
    assert_int_equal(plm_table_sequence_columns(&row, &column, &name), 1);
    assert_string_equal(name, plm_sequence_columns[i]);
  }
}

static void lists(const char *const *texts, size_t count, const char *expected)
{
  struct plm_text names = {0};
  const struct plm_csv_row row = row_of(texts, count);
  plm_text_puts(&names, "the columns are ");
  plm_table_list_columns(&row, &names);
  assert_non_null(names.data);
  assert_string_equal(names.data + strlen("the columns are "), expected);
  plm_text_deinit(&names);
}

/* Each name is cut to 60 bytes, and the list to 300. */
static void the_list_has_a_bounded_length(void **state)
{
  (void)state;
  static const char sixty[] = "abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij";
  char longer[62], expected[310];
  const char *texts[MOST] = {" a ", "", "b c"};
  lists(texts, 3, "\"a\", \"\", \"b c\"");
  snprintf(longer, sizeof longer, "%sk", sixty);
  texts[0] = longer;
  texts[1] = "x";
  lists(texts, 2, "\"abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij\", \"x\"");
  /* Names of 3 bytes with quotes, a comma and a blank: 7 for each but the first. */
  for (size_t i = 0; i < MOST; i++) texts[i] = "abc";
  texts[0] = "abcd";
  for (size_t i = 0, at = 0; i < 43; i++)
    at += (size_t)snprintf(expected + at, sizeof expected - at, "%s\"%s\"", i == 0 ? "" : ", ",
                           texts[i]);
  assert_int_equal(strlen(expected), 300);
  lists(texts, 43, expected);
  memcpy(expected + 300, " ...", 5);
  lists(texts, 44, expected);
  lists(texts, MOST, expected);
  texts[0] = "abcde"; /* a byte more */
  memmove(expected + 6, expected + 5, 294);
  expected[5] = 'e';
  memcpy(expected + 300, " ...", 5);
  lists(texts, 43, expected);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_are_compared_as_a_whole),
      cmocka_unit_test(sequences_have_one_of_several_names),
      cmocka_unit_test(the_list_has_a_bounded_length),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
