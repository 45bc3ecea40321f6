/* Templates: where values go, and which lines are left out or repeated. */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>

#include "stages/views/template.h"

static struct plm_template_values values;
static struct plm_text text;

static int teardown(void **state)
{
  (void)state;
  plm_template_deinit(&values);
  plm_text_deinit(&text);
  return 0;
}

static void expect(const char *source, const char *filled)
{
  plm_text_clear(&text);
  plm_text_puts(&text, ">");
  plm_template_fill(source, &values, &text);
  assert_string_equal(text.data + 1, filled);
}

static void give(const char *name, const char *value)
{
  plm_text_puts(plm_template_add(&values, name), value);
}

static void a_name_stands_for_its_value(void **state)
{
  (void)state;
  give("A", "one");
  give("LONG_NAME2", "a @A@ is not looked for in it");
  give("EMPTY", "");
  expect("", "");
  expect("no name\n\n", "no name\n\n");
  expect("@A@@A@: @LONG_NAME2@\n[@EMPTY@]", "oneone: a @A@ is not looked for in it\n[]");
  expect("at@@A@ @ a@b @@ @a@ \"${list[@]}\" \"$@\" @\n",
         "at@one @ a@b @@ @a@ \"${list[@]}\" \"$@\" @\n");
  expect("end @A", "end @A");
}

static void a_line_is_written_for_each_value(void **state)
{
  (void)state;
  give("A", "one");
  give("EACH", "x");
  give("A", "two"); /* in between */
  give("EACH", "y");
  give("EACH", "z");
  give("ONCE", "1");
  plm_template_declare(&values, "NONE");
  plm_template_declare(&values, "ONCE"); /* says nothing new */
  expect("--@EACH@ @ONCE@ @EACH@\n", "--x 1 x\n--y 1 y\n--z 1 z\n");
  expect("@A@@EACH@\n", "onex\ntwoy\ntwoz\n"); /* the last one stays */
  expect("a\n@NONE@\n@ONCE@ @NONE@\nb\n", "a\nb\n");
}

static void a_condition_keeps_or_leaves_out(void **state)
{
  (void)state;
  give("YES", "1");
  plm_template_declare(&values, "NO");
  expect("@if YES@\na\n@end@\n@if NO@\nb\n@end@\n@if !YES@\nc\n@end@\n@if !NO@\nd\n@end@\n",
         "a\nd\n");
  expect("@if NO@\na\n@if YES@\nb\n@end@\nc\n@end@\nd\n", "d\n");
  expect("@if YES@\na\n@if NO@\nb\n@end@\nc\n@end@\nd\n", "a\nc\nd\n");
  expect(" @end@\n", " @end@\n"); /* only on a line of its own */
}

static void each_line_of_a_text_is_a_value(void **state)
{
  (void)state;
  plm_template_add_lines(&values, "LINES", "a\n\n  b @A@\nc");
  plm_template_add_lines(&values, "NOTHING", "");
  expect("0\n  @LINES@\n  @NOTHING@\n1\n", "0\n  a\n  \n    b @A@\n  c\n1\n");
}

#define TEST(name) cmocka_unit_test_teardown(name, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_name_stands_for_its_value),
      TEST(a_line_is_written_for_each_value),
      TEST(a_condition_keeps_or_leaves_out),
      TEST(each_line_of_a_text_is_a_value),
  };
  return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
