/* The mask of attention that reads the result of some queries only. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_case.h"

enum { B = 2, L = 70, N = B * L, ROWS = 5 };

static void narrow(struct ops_case *c)
{
  static const int32_t positions[ROWS] = {3, -1, N - 1, L, 0};
  int32_t begin[N], end[N], expected[2][N] = {{0}}, got[N], full[N];
  if (c->ops->narrow_mask == NULL) return;
  for (int32_t i = 0; i < N; i++) {
    begin[i] = 1 + i % 40;
    end[i] = 41 + i % 30;
    full[i] = -7;
  }
  for (int r = 0; r < ROWS; r++) {
    if (positions[r] < 0) continue;
    expected[0][positions[r]] = begin[positions[r]];
    expected[1][positions[r]] = end[positions[r]];
  }
  const struct plm_interval_mask mask = {.B = B,
                                         .L = L,
                                         .key_begin = ops_case_device(c, begin, sizeof begin),
                                         .key_end = ops_case_device(c, end, sizeof end)};
  int32_t *to[2] = {ops_case_device(c, full, sizeof full), ops_case_device(c, full, sizeof full)};
  c->ops->narrow_mask(c->ops, to[0], to[1], &mask, ops_case_device(c, positions, sizeof positions),
                      ROWS);
  for (int k = 0; k < 2; k++) {
    c->ops->download(c->ops, got, to[k], sizeof got);
    assert_memory_equal(got, expected[k], sizeof got);
  }
}

static void other_queries_see_nothing(void **state)
{
  (void)state;
  ops_case_each(narrow);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(other_queries_see_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
