/* Ridge and logistic regression: at the minimum the gradient is 0, which is computed here
 * separately, and the minimum is unique. The number of threads changes no bit. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "evaluator/probe/gram.h"
#include "evaluator/probe/logistic.h"
#include "evaluator/probe/ridge.h"

enum { ROWS = 300, WIDTH = 21 };

struct problem {
  uint32_t width;
  size_t count;
  float x[ROWS * WIDTH];
  double y[ROWS];
  int32_t labels[ROWS];
  uint32_t rows[ROWS];
};

static double draw(uint32_t i, uint32_t j)
{
  return plm_philox_unit(plm_philox(5, i, j, 0).w[0]) - 0.5;
}

/* Rows 0, 2, 4 and so on are used, in that order. The last feature never varies. */
static void make_problem(struct problem *problem, size_t count, uint32_t classes)
{
  *problem = (struct problem){.width = WIDTH, .count = count};
  for (uint32_t i = 0; i < ROWS; i++) {
    double sum = 0;
    for (uint32_t d = 0; d < WIDTH; d++) {
      problem->x[i * WIDTH + d] = d == 1 ? 3.25F : (float)((1 + d) * draw(i, d) + 100.0 * d);
      sum += d % 3 == 0 ? draw(i, d) : -draw(i, d);
    }
    problem->y[i] = sum + draw(i, 99);
    problem->labels[i] = (int32_t)((uint32_t)(int)floor(problem->y[i] * 3 + 300) % classes);
  }
  for (size_t i = 0; i < count; i++) problem->rows[i] = (uint32_t)(2 * i);
}

static void outputs_of(const struct problem *problem, const struct plm_linear *model, size_t i,
                       double *z, double *out)
{
  const struct plm_features features = {problem->x, problem->width};
  plm_linear_standardise(model, &features, problem->rows[i], z);
  plm_linear_apply(model, z, out);
}

static void check_ridge(size_t count, double alpha)
{
  static struct problem problem;
  struct plm_pool *pool;
  struct plm_ridge *ridge;
  double gradient[WIDTH] = {0}, z[WIDTH + 8], out, mean = 0, sum = 0;
  make_problem(&problem, count, 2);
  const struct plm_features features = {problem.x, WIDTH};
  const struct plm_row_list list = {problem.rows, count};
  assert_int_equal(plm_pool_open(2, &pool, NULL), PLM_OK);
  assert_int_equal(plm_ridge_open(&features, &list, problem.y, pool, &ridge, NULL), PLM_OK);
  (void)plm_ridge_solve(ridge, 2 * alpha); /* a solution leaves nothing behind */
  const struct plm_linear *model = plm_ridge_solve(ridge, alpha);
  for (size_t i = 0; i < count; i++) {
    outputs_of(&problem, model, i, z, &out);
    const double error = out - problem.y[problem.rows[i]];
    for (uint32_t d = 0; d < WIDTH; d++) gradient[d] += error * z[d];
    mean += problem.y[problem.rows[i]] / (double)count;
    sum += error;
  }
  for (uint32_t d = 0; d < WIDTH; d++) gradient[d] += alpha * model->weights[d];
  for (uint32_t d = 0; d < WIDTH; d++) assert_true(fabs(gradient[d]) <= 1e-9);
  assert_true(fabs(sum) <= 1e-9 && fabs(model->intercepts[0] - mean) <= 1e-12);
  assert_true(model->weights[1] == 0 && fabs(model->weights[0]) > 1e-3);
  plm_ridge_close(ridge);
  plm_pool_close(pool);
}

static void ridge_is_at_its_minimum(void **state)
{
  (void)state;
  check_ridge(130, 1);
  check_ridge(130, 1e-3);
  check_ridge(130, 1e4);
  check_ridge(12, 0.5); /* fewer rows than features */
}

/* (scale Z' Z + alpha) x = b for a b that is made from a known x, with Z' Z computed here. */
static void linear_equations_are_solved(void **state)
{
  (void)state;
  static struct problem problem;
  const double scale = 0.25, alpha = 0.5;
  double z[WIDTH + 8], x[WIDTH + 8] = {0};
  struct plm_linear model;
  struct plm_gram gram;
  struct plm_pool *pool;
  make_problem(&problem, 103, 2); /* the last block of four rows is not full */
  const struct plm_features features = {problem.x, WIDTH};
  const struct plm_row_list list = {problem.rows, problem.count};
  assert_int_equal(plm_pool_open(2, &pool, NULL), PLM_OK);
  assert_int_equal(plm_linear_init(&model, &features, &list, 1, NULL), PLM_OK);
  assert_int_equal(plm_gram_open(&features, &list, &model, false, pool, &gram, NULL), PLM_OK);
  assert_int_equal(gram.order, WIDTH);
  for (uint32_t d = 0; d < WIDTH; d++) { /* the mean is 0, and the variance 1 */
    double sum = 0, squares = 0;
    for (size_t i = 0; i < problem.count; i++) {
      plm_linear_standardise(&model, &features, problem.rows[i], z);
      sum += z[d];
      squares += z[d] * z[d];
    }
    const double variance = d == 1 ? 0 : 1; /* that one is the same in all rows */
    assert_true(fabs(sum) <= 1e-9 && fabs(squares / (double)problem.count - variance) <= 1e-9);
  }
  for (size_t i = 0; i < problem.count; i++) {
    double product = 0;
    plm_linear_standardise(&model, &features, problem.rows[i], z);
    for (uint32_t d = 0; d < WIDTH; d++) product += z[d] * (d + 1.0);
    for (uint32_t d = 0; d < WIDTH; d++) x[d] += scale * z[d] * product;
  }
  for (uint32_t d = 0; d < WIDTH; d++) x[d] += alpha * (d + 1.0);
  plm_gram_decompose(&gram, 2, 3); /* a decomposition leaves nothing behind */
  plm_gram_decompose(&gram, scale, alpha);
  plm_gram_solve(&gram, x);
  for (uint32_t d = 0; d < WIDTH; d++) assert_true(fabs(x[d] - (d + 1.0)) <= 1e-10);
  plm_gram_close(&gram);
  plm_linear_deinit(&model);
  plm_pool_close(pool);
}

/* The weights after a search with some number of threads; the caller frees them. */
static double *fit_logistic(const struct problem *problem, uint32_t classes, double alpha,
                            uint32_t threads, struct plm_linear *copy)
{
  const struct plm_features features = {problem->x, WIDTH};
  const struct plm_row_list list = {problem->rows, problem->count};
  struct plm_pool *pool;
  struct plm_logistic *logistic;
  const struct plm_linear *model;
  assert_int_equal(plm_pool_open(threads, &pool, NULL), PLM_OK);
  assert_int_equal(
      plm_logistic_open(&features, &list, problem->labels, classes, pool, &logistic, NULL), PLM_OK);
  assert_int_equal(plm_logistic_solve(logistic, 10 * alpha, true, &model, NULL), PLM_OK);
  assert_int_equal(plm_logistic_solve(logistic, alpha, false, &model, NULL), PLM_OK);
  const size_t padded = plm_padded_width(WIDTH), n = model->outputs * (padded + 1);
  double *memory = malloc((n + 2 * WIDTH) * sizeof *memory);
  assert_non_null(memory);
  *copy = (struct plm_linear){WIDTH,      model->outputs,
                              memory + n, memory + n + WIDTH,
                              memory,     memory + model->outputs * padded};
  memcpy(copy->weights, model->weights, model->outputs * padded * sizeof *memory);
  memcpy(copy->intercepts, model->intercepts, model->outputs * sizeof *memory);
  memcpy(copy->mean, model->mean, WIDTH * sizeof *memory);
  memcpy(copy->factor, model->factor, WIDTH * sizeof *memory);
  plm_logistic_close(logistic);
  plm_pool_close(pool);
  return memory;
}

static void check_logistic(size_t count, uint32_t classes, double alpha)
{
  static struct problem problem;
  struct plm_linear model, other;
  double z[WIDTH + 8], out[8], probabilities[8], gradient[8][WIDTH + 1] = {{0}};
  make_problem(&problem, count, classes);
  double *memory = fit_logistic(&problem, classes, alpha, 1, &model);
  double *more = fit_logistic(&problem, classes, alpha, 3, &other);
  const size_t padded = plm_padded_width(WIDTH);
  assert_memory_equal(memory, more, model.outputs * (padded + 1) * sizeof *memory);
  for (size_t i = 0; i < problem.count; i++) {
    double total = 0;
    outputs_of(&problem, &model, i, z, out);
    plm_logistic_probabilities(out, classes, probabilities);
    for (uint32_t k = 0; k < classes; k++) total += probabilities[k];
    assert_true(fabs(total - 1) <= 1e-12);
    for (uint32_t k = 0; k < model.outputs; k++) {
      const uint32_t class = classes == 2 ? 1 : k;
      const double wrong =
          probabilities[class] - (problem.labels[problem.rows[i]] == (int32_t) class);
      for (uint32_t d = 0; d < WIDTH; d++) gradient[k][d] += wrong * z[d];
      gradient[k][WIDTH] += wrong;
    }
  }
  for (uint32_t k = 0; k < model.outputs; k++)
    for (uint32_t d = 0; d <= WIDTH; d++) {
      const double own = d < WIDTH ? alpha * model.weights[k * padded + d] : 0;
      if (!(fabs(gradient[k][d] + own) <= 1e-7)) fail_msg("%g", gradient[k][d] + own);
    }
  free(memory);
  free(more);
}

static void logistic_is_at_its_minimum(void **state)
{
  (void)state;
  check_logistic(150, 2, 1);
  check_logistic(150, 2, 0.01);
  check_logistic(150, 5, 1);
  check_logistic(150, 3, 100);
  check_logistic(40, 2, 1); /* too few rows for a preconditioner */
  check_logistic(40, 3, 0.5);
}

/* The outputs may be far from 0. */
static void probabilities_do_not_overflow(void **state)
{
  (void)state;
  double two[2], three[] = {1000, -1000, 1000};
  plm_logistic_probabilities((double[]){-800}, 2, two);
  assert_true(two[0] == 1 && two[1] >= 0 && two[1] < 1e-300);
  plm_logistic_probabilities(three, 3, three);
  assert_true(three[0] == 0.5 && three[1] == 0 && three[2] == 0.5);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ridge_is_at_its_minimum),
      cmocka_unit_test(linear_equations_are_solved),
      cmocka_unit_test(logistic_is_at_its_minimum),
      cmocka_unit_test(probabilities_do_not_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
