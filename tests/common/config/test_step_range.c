/* common/config/step_range: which texts are ranges of steps, and what is said about the others. */
#include "common/config/step_range.h"

#include <string.h>

#include "tests/support/harness/cmocka_all.h"

static void ranges_are_read(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    uint64_t first, last;
  } cases[] = {{"10-12", 10, 12},
               {"7", 7, 7},
               {"1-1", 1, 1},
               {"1-100", 1, 100},
               {"999999999999999901-999999999999999999", 999999999999999901, 999999999999999999}};
  char message[PLM_STEP_RANGE_MESSAGE];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_step_range steps = {0};
    if (!plm_step_range_parse(cases[i].text, &steps, message)) fail_msg("%s", message);
    assert_int_equal(steps.first, cases[i].first);
    assert_int_equal(steps.last, cases[i].last);
  }
}

static void other_texts_are_refused_with_a_reason(void **state)
{
  (void)state;
  static const char *const cases[][2] = {
      {"12-10", "the last step, 10, is before the first, 12; write 10-12"},
      {"0", "there is no step 0; the first step is 1"},
      {"0-4", "there is no step 0; the first step is 1"},
      {"1-101", "101 steps are too many; a profile has at most 100"},
      {"", "expected a step or FIRST-LAST, for example 10-12, found \"\""},
      {"-", "expected a step or FIRST-LAST, for example 10-12, found \"-\""},
      {"3-", "expected a step or FIRST-LAST, for example 10-12, found \"3-\""},
      {"-3", "expected a step or FIRST-LAST, for example 10-12, found \"-3\""},
      {"1-2-3", "expected a step or FIRST-LAST, for example 10-12, found \"1-2-3\""},
      {"1.5", "expected a step or FIRST-LAST, for example 10-12, found \"1.5\""},
      {" 1", "expected a step or FIRST-LAST, for example 10-12, found \" 1\""},
      {"1 - 2", "expected a step or FIRST-LAST, for example 10-12, found \"1 - 2\""},
      {"1000000000000000000",
       "expected a step or FIRST-LAST, for example 10-12, found \"1000000000000000000\""}};
  char message[PLM_STEP_RANGE_MESSAGE];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_step_range steps = {5, 6};
    assert_false(plm_step_range_parse(cases[i][0], &steps, message));
    assert_string_equal(message, cases[i][1]);
    assert_int_equal(steps.first, 5);
    assert_int_equal(steps.last, 6);
  }
}

static void null_is_no_step(void **state)
{
  (void)state;
  char message[PLM_STEP_RANGE_MESSAGE];
  struct plm_step_range steps = {5, 6};
  assert_true(plm_step_range_store(&(struct plm_scalar){.text = "2-3"}, &steps, message));
  assert_int_equal(steps.last, 3);
  assert_true(plm_step_range_store(&(struct plm_scalar){.text = "null"}, &steps, message));
  assert_int_equal(steps.first, 0);
  assert_int_equal(steps.last, 0);
  assert_false(
      plm_step_range_store(&(struct plm_scalar){.text = "null", .quoted = true}, &steps, message));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_are_read),
      cmocka_unit_test(other_texts_are_refused_with_a_reason),
      cmocka_unit_test(null_is_no_step),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
