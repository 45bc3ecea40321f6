/* Following a metrics file: growth, torn lines, cuts, and a file that was cut and has grown beyond
 * its old size before the next look. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "stages/views/follow.h"
#include "tests/support/scratch.h"

static void append(const char *path, const char *text)
{
  FILE *file = fopen(path, "a");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static void expect(struct plm_follower *follower, const char *expected)
{
  const char *line;
  assert_int_equal(plm_follower_next(follower, &line, NULL), PLM_OK);
  if (expected == NULL)
    assert_null(line);
  else
    assert_string_equal(line, expected);
}

static void lines_come_as_the_file_grows(void **state)
{
  (void)state;
  const char *path = scratch_path("grow.jsonl");
  struct plm_follower *follower;
  assert_int_equal(plm_follower_open(path, &follower, NULL), PLM_OK);
  expect(follower, NULL); /* not there yet */
  append(path, "one\ntw");
  expect(follower, "one");
  expect(follower, NULL);
  append(path, "o\n");
  expect(follower, "two");
  expect(follower, NULL);
  plm_follower_close(follower);
}

static void a_cut_goes_back(void **state)
{
  (void)state;
  const char *path = scratch_path("cut.jsonl");
  struct plm_follower *follower;
  append(path, "1\n2\n3\n4\n");
  assert_int_equal(plm_follower_open(path, &follower, NULL), PLM_OK);
  expect(follower, "1");
  expect(follower, "2");
  expect(follower, "3");
  expect(follower, "4");
  assert_int_equal(truncate(path, 4), 0); /* a resume after line 2 */
  expect(follower, NULL);
  append(path, "3\n");
  expect(follower, "3");
  assert_int_equal(truncate(path, 4), 0);
  append(path, "x\ny\nz\n"); /* longer than before at the next look */
  expect(follower, "x");
  expect(follower, "y");
  expect(follower, "z");
  expect(follower, NULL);
  plm_follower_close(follower);
}

/* More lines than there is room for at first, of which all are cut at once. */
static void many_lines_are_remembered(void **state)
{
  (void)state;
  enum { LINES = 600 };
  const char *path = scratch_path("many.jsonl");
  struct plm_follower *follower;
  char line[32];
  for (int i = 0; i < LINES; i++) {
    snprintf(line, sizeof line, "line %d\n", i);
    append(path, line);
  }
  assert_int_equal(plm_follower_open(path, &follower, NULL), PLM_OK);
  for (int i = 0; i < LINES; i++) {
    snprintf(line, sizeof line, "line %d", i);
    expect(follower, line);
  }
  expect(follower, NULL);
  assert_int_equal(truncate(path, 7), 0); /* "line 0\n" */
  append(path, "line 1\nother\n");
  expect(follower, "other"); /* lines 0 and 1 are there as before */
  expect(follower, NULL);
  assert_int_equal(truncate(path, 0), 0);
  expect(follower, NULL);
  append(path, "line 0\n");
  expect(follower, "line 0");
  plm_follower_close(follower);
  plm_follower_close(NULL);
}

/* The same size, and the same place of each line. */
static void other_lines_of_the_same_size_are_seen(void **state)
{
  (void)state;
  const char *path = scratch_path("same.jsonl");
  struct plm_follower *follower;
  append(path, "aa\nbb\n");
  assert_int_equal(plm_follower_open(path, &follower, NULL), PLM_OK);
  expect(follower, "aa");
  expect(follower, "bb");
  expect(follower, NULL);
  FILE *file = fopen(path, "r+");
  assert_non_null(file);
  fputs("aa\ncc\n", file);
  fclose(file);
  expect(follower, "cc");
  expect(follower, NULL);
  plm_follower_close(follower);
}

static void a_file_that_cannot_be_read_is_an_error(void **state)
{
  (void)state;
  const char *line = "before";
  struct plm_follower *follower;
  struct plm_error error = {0};
  assert_int_equal(plm_follower_open(scratch_directory(), &follower, NULL), PLM_OK);
  assert_int_equal(plm_follower_next(follower, &line, &error), PLM_IO); /* a folder */
  assert_non_null(strstr(error.what, "cannot read "));
  assert_null(line);
  plm_follower_close(follower);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_come_as_the_file_grows),
      cmocka_unit_test(a_cut_goes_back),
      cmocka_unit_test(many_lines_are_remembered),
      cmocka_unit_test(other_lines_of_the_same_size_are_seen),
      cmocka_unit_test(a_file_that_cannot_be_read_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
