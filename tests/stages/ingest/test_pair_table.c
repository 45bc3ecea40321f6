/* The set of pairs with which ingest finds exact duplicates, while it grows. */
#include "tests/support/harness/cmocka_all.h"

#include "common/base/numbers/philox.h"
#include "stages/ingest/pair_table.h"

enum { PAIRS = 200000 };

/* Pair i. Many share a first number, or only differ in it; the smallest first numbers occur too. */
static void pair_of(uint64_t i, uint64_t *first, uint64_t *second)
{
  const struct plm_philox_words draw = plm_philox(7, (uint32_t)(i / 3), 0, 91);
  *first = i % 1000 == 0 ? 1 + i / 1000 : (uint64_t)draw.w[0] << 32 | draw.w[1];
  *second = i;
}

static void each_pair_is_new_once(void **state)
{
  (void)state;
  struct plm_pair_table *table = plm_pair_table_open();
  assert_non_null(table);
  for (int round = 0; round < 2; round++)
    for (uint64_t i = 0; i < PAIRS; i++) {
      uint64_t first, second;
      bool found = round == 0;
      pair_of(i, &first, &second);
      assert_int_equal(plm_pair_table_add(table, first, second, &found, NULL), PLM_OK);
      assert_int_equal(found, round == 1);
      assert_int_equal(plm_pair_table_count(table), round == 0 ? i + 1 : PAIRS);
    }
  plm_pair_table_close(table);
}

/* A first number of 0 stands for a free place, so it is kept as 1. */
static void zero_is_a_number_like_others(void **state)
{
  (void)state;
  struct plm_pair_table *table = plm_pair_table_open();
  bool found = true;
  assert_int_equal(plm_pair_table_add(table, 0, 5, &found, NULL), PLM_OK);
  assert_false(found);
  assert_int_equal(plm_pair_table_add(table, 0, 6, &found, NULL), PLM_OK);
  assert_false(found);
  assert_int_equal(plm_pair_table_add(table, 0, 5, &found, NULL), PLM_OK);
  assert_true(found);
  assert_int_equal(plm_pair_table_add(table, 1, 5, &found, NULL), PLM_OK);
  assert_true(found);
  assert_int_equal(plm_pair_table_count(table), 2);
  plm_pair_table_close(table);
  plm_pair_table_close(NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_pair_is_new_once),
      cmocka_unit_test(zero_is_a_number_like_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
