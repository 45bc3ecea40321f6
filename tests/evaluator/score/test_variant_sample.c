/* A sample of the rows of a table: its size, that it does not depend on the order of the rows, that
 * larger samples contain smaller ones, and rows that are equal. */
#include "tests/support/harness/failing_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evaluator/score/variant_sample.h"
#include "tests/support/harness/scratch.h"

enum { ROWS = 400 };

/* A table with the variants A0G, A1G, …; row i has the variant (factor * i) % ROWS. */
static void make_table(int factor)
{
  char text[ROWS * 24];
  int used = sprintf(text, "x,mutant\n");
  for (int i = 0; i < ROWS; i++) used += sprintf(text + used, "%d, A%dG \n", i, factor * i % ROWS);
  scratch_write(scratch_path("t.csv"), text, (size_t)used);
}

/* Which variants the sample has, asked twice. */
static void take(uint64_t most, int factor, bool taken[ROWS])
{
  struct plm_variant_sample sample;
  assert_int_equal(plm_variant_sample_read(scratch_path("t.csv"), "mutant", most, &sample, NULL),
                   PLM_OK);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < ROWS; i++) {
      const bool takes = plm_variant_sample_takes(&sample);
      if (round == 0) taken[factor * i % ROWS] = takes;
      assert_int_equal(taken[factor * i % ROWS], takes);
    }
    plm_variant_sample_rewind(&sample);
  }
  plm_variant_sample_deinit(&sample);
}

static int count(const bool taken[ROWS])
{
  int sum = 0;
  for (int i = 0; i < ROWS; i++) sum += taken[i];
  return sum;
}

static void a_sample_is_random_and_fixed(void **state)
{
  (void)state;
  bool few[ROWS], many[ROWS], again[ROWS], all[ROWS];
  make_table(1);
  take(40, 1, few);
  take(200, 1, many);
  take(0, 1, all);
  assert_int_equal(count(few), 40);
  assert_int_equal(count(many), 200);
  assert_int_equal(count(all), ROWS);
  take(ROWS + 1, 1, all);
  assert_int_equal(count(all), ROWS);
  int low = 0;
  for (int i = 0; i < ROWS; i++) {
    assert_true(!few[i] || many[i]);
    low += many[i] && i < ROWS / 2;
  }
  assert_in_range(low, 70, 130); /* of 100 +- 5 */
  make_table(3);                 /* the same variants in another order */
  take(40, 3, again);
  assert_memory_equal(few, again, sizeof few);
}

static void equal_rows_are_counted_one_by_one(void **state)
{
  (void)state;
  static const char text[] = "mutant\nA1G\nA1G\nA1G\n";
  struct plm_variant_sample sample;
  scratch_write(scratch_path("t.csv"), text, strlen(text));
  assert_int_equal(plm_variant_sample_read(scratch_path("t.csv"), "mutant", 2, &sample, NULL),
                   PLM_OK);
  assert_true(plm_variant_sample_takes(&sample));
  assert_true(plm_variant_sample_takes(&sample));
  assert_false(plm_variant_sample_takes(&sample));
  plm_variant_sample_deinit(&sample);
}

/* A row that ends before the column is like one whose field is empty. */
static void a_short_row_has_an_empty_field(void **state)
{
  (void)state;
  char text[ROWS * 24];
  bool empty[ROWS], absent[ROWS];
  for (int end = 0; end < 2; end++) {
    int used = sprintf(text, "x,mutant\n");
    for (int i = 0; i < ROWS; i++)
      used += i % 2 == 0 ? sprintf(text + used, "%d,A%dG\n", i, i)
                         : sprintf(text + used, end ? "%d\n" : "%d,\n", i);
    scratch_write(scratch_path("t.csv"), text, (size_t)used);
    take(ROWS / 4, 1, end ? absent : empty);
  }
  assert_memory_equal(absent, empty, sizeof empty);
}

static void a_missing_column_is_named(void **state)
{
  (void)state;
  struct plm_variant_sample sample;
  struct plm_error error = {0};
  scratch_write(scratch_path("t.csv"), "a,b\n1,2\n", 8);
  assert_int_equal(plm_variant_sample_read(scratch_path("t.csv"), "mutant", 2, &sample, &error),
                   PLM_CONFIG);
  assert_non_null(strstr(error.what, "t.csv has no column \"mutant\""));
}

static void a_table_without_rows_has_an_empty_sample(void **state)
{
  (void)state;
  struct plm_variant_sample sample;
  scratch_write(scratch_path("t.csv"), "mutant\n", 7);
  assert_int_equal(plm_variant_sample_read(scratch_path("t.csv"), "mutant", 2, &sample, NULL),
                   PLM_OK);
  assert_int_equal(sample.count, 0);
  assert_false(plm_variant_sample_takes(&sample));
  plm_variant_sample_deinit(&sample);
}

static plm_status sample_rows(void *context, struct plm_error *error)
{
  struct plm_variant_sample sample;
  (void)context;
  const plm_status status =
      plm_variant_sample_read(scratch_path("t.csv"), "mutant", 2, &sample, error);
  if (status == PLM_OK) assert_int_equal(sample.count, 2);
  plm_variant_sample_deinit(&sample);
  return status;
}

static void a_lack_of_memory_is_an_error(void **state)
{
  (void)state;
  make_table(1);
  failing_memory_try(sample_rows, NULL, 2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_sample_is_random_and_fixed),
      cmocka_unit_test(equal_rows_are_counted_one_by_one),
      cmocka_unit_test(a_short_row_has_an_empty_field),
      cmocka_unit_test(a_missing_column_is_named),
      cmocka_unit_test(a_table_without_rows_has_an_empty_sample),
      cmocka_unit_test(a_lack_of_memory_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
