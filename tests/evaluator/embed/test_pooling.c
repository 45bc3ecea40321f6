/* Pooling against sums by hand, and how it is named. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "evaluator/embed/pooling.h"

static void pooling_is_over_the_residues(void **state)
{
  (void)state;
  enum { D = 2 };
  const float x[5][D] = {{9, -9}, {1, -4}, {2, -2}, {6, -3}, {90, 90}}; /* <cls>, residues, <eos> */
  const float expected[] = {3, -3, 6, -2, 9, -9, (float)sqrt(14.0 / 3), (float)sqrt(2.0 / 3)};
  struct plm_pooling pooling;
  double scratch[2 * D];
  float out[8];
  assert_int_equal(plm_pooling_parse("mean,max,cls,std", &pooling, NULL), PLM_OK);
  plm_pooling_run(&pooling, &x[0][0], 3, D, scratch, out);
  for (int i = 0; i < 8; i++) assert_true(fabsf(out[i] - expected[i]) <= 1e-6f);
  plm_pooling_run(&pooling, &x[0][0], 1, D, scratch, out); /* one residue */
  for (int d = 0; d < D; d++) {
    assert_true(out[d] == x[1][d] && out[D + d] == x[1][d]);
    assert_true(out[3 * D + d] == 0);
  }
  memset(out, 0xff, sizeof out);
  plm_pooling_run(&pooling, &x[0][0], 0, D, scratch, out); /* no residue: zeros, except for <cls> */
  for (int i = 0; i < 8; i++) assert_true(out[i] == (i / D == 2 ? x[0][i % D] : 0));
}

static void pooling_is_parsed_and_named(void **state)
{
  (void)state;
  static const char *const wrong[] = {"", "mean,", ",mean", "Mean", "mean,mean", "mean max", "sum"};
  char name[PLM_POOLING_NAME_SIZE];
  struct plm_pooling pooling;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct plm_error error = {0};
    assert_int_equal(plm_pooling_parse(wrong[i], &pooling, &error), PLM_USAGE);
    assert_non_null(strstr(error.what, "--pooling"));
  }
  static const char *const right[] = {"mean", "std,mean", "mean,cls,max,std"};
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
    assert_int_equal(plm_pooling_parse(right[i], &pooling, NULL), PLM_OK);
    assert_string_equal(plm_pooling_name(&pooling, name), right[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pooling_is_over_the_residues),
      cmocka_unit_test(pooling_is_parsed_and_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
