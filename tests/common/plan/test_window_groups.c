/* Which groups of documents each window of an epoch has. */
#include "tests/support/harness/cmocka_all.h"

#include "common/plan/plan.h"

enum { GROUPS = 64, IN_WINDOW = 8, DOCUMENTS = GROUPS * 256 };

static struct plm_plan *open_plan(bool shuffle, uint64_t seed)
{
  const struct plm_plan_parameters parameters = {.seed = seed,
                                                 .max_length = 256,
                                                 .alignment = 1,
                                                 .window_groups = IN_WINDOW,
                                                 .packing = PLM_PACKING_BEST_FIT,
                                                 .truncate = PLM_TRUNCATE_HEAD,
                                                 .tokenizer = PLM_TOKENIZER_ESM,
                                                 .shuffle = shuffle};
  struct plm_plan *plan;
  assert_int_equal(plm_plan_open(&parameters, DOCUMENTS, 0, &plan, NULL), PLM_OK);
  return plan;
}

/* The groups of an epoch, window after window. Each is there once. */
static void groups_of(const struct plm_plan *plan, uint64_t epoch, uint64_t of[GROUPS])
{
  int times[GROUPS] = {0};
  for (uint64_t window = 0; window < GROUPS / IN_WINDOW; window++)
    assert_int_equal(plm_plan_window_groups(plan, epoch, window, of + window * IN_WINDOW),
                     IN_WINDOW);
  for (int g = 0; g < GROUPS; g++) times[of[g]]++;
  for (int g = 0; g < GROUPS; g++) assert_int_equal(times[g], 1);
}

static int same(const uint64_t a[GROUPS], const uint64_t b[GROUPS])
{
  int count = 0;
  for (int g = 0; g < GROUPS; g++) count += a[g] == b[g];
  return count;
}

/* A random permutation has one fixed point on average; ten are out of the question. */
static void epochs_and_seeds_have_other_permutations(void **state)
{
  (void)state;
  uint64_t first[GROUPS], second[GROUPS], third[GROUPS], of_other_seed[GROUPS], again[GROUPS];
  struct plm_plan *plan = open_plan(true, 11), *other = open_plan(true, 12);
  groups_of(plan, 0, first);
  groups_of(plan, 1, second);
  groups_of(plan, 2, third);
  groups_of(other, 0, of_other_seed);
  groups_of(plan, 0, again); /* after other epochs have taken the place of this one */
  assert_true(same(first, second) < 10 && same(first, third) < 10 && same(second, third) < 10);
  assert_true(same(first, of_other_seed) < 10);
  assert_int_equal(same(first, again), GROUPS);
  plm_plan_close(plan);
  plm_plan_close(other);
}

static void without_shuffling_they_stay_in_order(void **state)
{
  (void)state;
  uint64_t of[GROUPS];
  struct plm_plan *plan = open_plan(false, 11);
  for (uint64_t epoch = 0; epoch < 3; epoch++) {
    groups_of(plan, epoch, of);
    for (int g = 0; g < GROUPS; g++) assert_int_equal(of[g], g);
  }
  plm_plan_close(plan);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(epochs_and_seeds_have_other_permutations),
      cmocka_unit_test(without_shuffling_they_stay_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
