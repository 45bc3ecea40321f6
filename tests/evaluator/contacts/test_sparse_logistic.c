/* Logistic regression with an L1 penalty: at the minimum the subgradient contains 0, which is
 * computed here separately, and weights of features without use are 0. The number of threads
 * changes no bit. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "evaluator/contacts/sparse_logistic.h"

enum { ROWS = 9001, WIDTH = 70, MOST_THREADS = 3 };

static float columns[WIDTH * ROWS];
static uint8_t labels[ROWS];

static double draw(uint32_t i, uint32_t j)
{
  return plm_philox_unit(plm_philox(9, i, j, 0).w[0]) - 0.5;
}

/* Few features matter, two are almost alike, and one is 0 everywhere. */
static void make_rows(void)
{
  for (uint32_t i = 0; i < ROWS; i++) {
    for (uint32_t j = 0; j < WIDTH; j++)
      columns[(size_t)j * ROWS + i] = (float)((0.05 + 0.01 * j) * draw(i, j));
    columns[(size_t)8 * ROWS + i] = columns[(size_t)7 * ROWS + i] + (float)(1e-4 * draw(i, 98));
    columns[(size_t)9 * ROWS + i] = 0;
    const double f = 30 * (double)columns[(size_t)7 * ROWS + i] -
                     20 * (double)columns[(size_t)40 * ROWS + i] - 2;
    labels[i] = 1 / (1 + exp(-f)) > draw(i, 99) + 0.5;
  }
}

static plm_status go_on(void *context, struct plm_error *error)
{
  uint32_t *left = context;
  return (*left)-- == 0 ? plm_error_set(error, PLM_INTERRUPTED, "stop") : PLM_OK;
}

static plm_status solve(double strength, uint32_t threads, uint32_t steps, double *weights,
                        double *intercept, struct plm_error *error)
{
  struct plm_sparse_problem problem = {.columns = columns,
                                       .rows = ROWS,
                                       .width = WIDTH,
                                       .labels = labels,
                                       .strength = strength,
                                       .check = go_on,
                                       .context = &steps};
  assert_int_equal(plm_pool_open(threads, &problem.pool, NULL), PLM_OK);
  bool converged;
  const plm_status status = plm_sparse_logistic(&problem, weights, intercept, &converged, error);
  plm_pool_close(problem.pool);
  if (status == PLM_OK) assert_true(converged);
  return status;
}

/* The derivatives of the sum of the cross-entropies by the weights and the intercept. */
static void differentiate(const double *weights, double intercept, double slopes[WIDTH + 1])
{
  memset(slopes, 0, (WIDTH + 1) * sizeof *slopes);
  for (uint32_t i = 0; i < ROWS; i++) {
    double f = intercept;
    for (uint32_t j = 0; j < WIDTH; j++) f += weights[j] * (double)columns[(size_t)j * ROWS + i];
    const double wrong = 1 / (1 + exp(-f)) - labels[i];
    for (uint32_t j = 0; j < WIDTH; j++) slopes[j] += wrong * (double)columns[(size_t)j * ROWS + i];
    slopes[WIDTH] += wrong;
  }
}

static void the_subgradient_contains_0(void **state)
{
  static const double strengths[] = {0.002, 0.05, 0.15, 3, 100};
  (void)state;
  uint32_t last = 0;
  make_rows();
  for (size_t s = 0; s < sizeof strengths / sizeof *strengths; s++) {
    double weights[WIDTH], intercept, slopes[WIDTH + 1];
    uint32_t used = 0;
    assert_int_equal(solve(strengths[s], 1, 1000, weights, &intercept, NULL), PLM_OK);
    differentiate(weights, intercept, slopes);
    for (uint32_t j = 0; j < WIDTH; j++) {
      const double slope = strengths[s] * slopes[j];
      used += weights[j] != 0;
      if (weights[j] != 0)
        assert_true(fabs(slope + (weights[j] > 0 ? 1 : -1)) < 1e-7);
      else
        assert_true(fabs(slope) < 1 + 1e-7);
    }
    assert_true(fabs(strengths[s] * slopes[WIDTH]) < 1e-7);
    assert_true(weights[9] == 0);
    assert_true(used >= last); /* a weaker penalty */
    if (s == 0) assert_int_equal(used, 0);
    if (strengths[s] == 0.15) assert_true(weights[7] + weights[8] > 5 && weights[40] < 0);
    last = used;
  }
  assert_true(last > WIDTH / 2);
}

/* Two features, few rows and almost no penalty: some steps go too far, and the next ones have to
 * make weights smaller. */
static void small_problems(void **state)
{
  enum { FEW = 32, TWO = 2, PROBLEMS = 400 };
  static const double strength = 30;
  (void)state;
  struct plm_sparse_problem problem = {
      .columns = columns, .rows = FEW, .width = TWO, .labels = labels, .strength = strength};
  problem.check = go_on;
  assert_int_equal(plm_pool_open(1, &problem.pool, NULL), PLM_OK);
  for (uint32_t p = 0; p < PROBLEMS; p++) {
    double weights[TWO], intercept, slopes[TWO + 1] = {0};
    uint32_t steps = 1000, count = 0;
    bool converged = false;
    for (uint32_t i = 0; i < FEW; i++) {
      const uint32_t row = 1000 * (p + 1) + i;
      columns[i] = (float)(10 * draw(row, 0));
      columns[FEW + i] = columns[i] + (float)(2 * draw(row, 1));
      labels[i] = (double)columns[i] + 4 * draw(row, 2) > 1.5;
      count += labels[i];
    }
    if (count == 0 || count == FEW) continue;
    problem.context = &steps;
    assert_int_equal(plm_sparse_logistic(&problem, weights, &intercept, &converged, NULL), PLM_OK);
    for (uint32_t i = 0; i < FEW; i++) {
      const double f =
          intercept + weights[0] * (double)columns[i] + weights[1] * (double)columns[FEW + i];
      const double wrong = strength * (1 / (1 + exp(-f)) - labels[i]);
      slopes[0] += wrong * (double)columns[i];
      slopes[1] += wrong * (double)columns[FEW + i];
      slopes[TWO] += wrong;
    }
    for (uint32_t j = 0; j < TWO; j++) {
      const double off = weights[j] != 0 ? fabs(slopes[j] + (weights[j] > 0 ? 1 : -1))
                                         : fmax(0, fabs(slopes[j]) - 1);
      if (!(off < 1e-6)) fail_msg("problem %u, weight %u: %g", p, j, off);
    }
    if (!(fabs(slopes[TWO]) < 1e-6)) fail_msg("problem %u: %g", p, slopes[TWO]);
  }
  plm_pool_close(problem.pool);
}

static void threads_change_no_bit(void **state)
{
  double one[WIDTH], other[WIDTH], intercepts[2];
  (void)state;
  make_rows();
  assert_int_equal(solve(3, 1, 1000, one, &intercepts[0], NULL), PLM_OK);
  for (uint32_t threads = 2; threads <= MOST_THREADS; threads++) {
    assert_int_equal(solve(3, threads, 1000, other, &intercepts[1], NULL), PLM_OK);
    assert_memory_equal(one, other, sizeof one);
    assert_memory_equal(&intercepts[0], &intercepts[1], sizeof(double));
  }
}

static void it_stops_when_it_is_told_to(void **state)
{
  double weights[WIDTH], intercept;
  struct plm_error error = {0};
  (void)state;
  make_rows();
  assert_int_equal(solve(3, 1, 2, weights, &intercept, &error), PLM_INTERRUPTED);
  assert_string_equal(error.what, "stop");
}

static void it_says_whether_it_has_converged(void **state)
{
  static const uint32_t most[] = {1, 2, 100};
  double weights[WIDTH], intercept;
  uint32_t asked = 1000;
  struct plm_sparse_problem problem = {.columns = columns,
                                       .rows = ROWS,
                                       .width = WIDTH,
                                       .labels = labels,
                                       .strength = 3,
                                       .check = go_on,
                                       .context = &asked};
  (void)state;
  make_rows();
  assert_int_equal(plm_pool_open(1, &problem.pool, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
    bool converged = most[i] != 100;
    problem.steps = most[i];
    assert_int_equal(plm_sparse_logistic(&problem, weights, &intercept, &converged, NULL), PLM_OK);
    assert_int_equal(converged, most[i] == 100);
    if (!converged) assert_int_equal(1000 - asked, most[i]); /* it asks once a step */
    asked = 1000;
  }
  plm_pool_close(problem.pool);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_subgradient_contains_0),
      cmocka_unit_test(small_problems),
      cmocka_unit_test(threads_change_no_bit),
      cmocka_unit_test(it_stops_when_it_is_told_to),
      cmocka_unit_test(it_says_whether_it_has_converged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
