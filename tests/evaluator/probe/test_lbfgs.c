/* Which steps L-BFGS takes, and where it ends: on functions of one or two numbers whose values and
 * gradients the test chooses. */
#include "evaluator/probe/lbfgs.h"

#include <math.h>

#include "tests/support/harness/cmocka_all.h"

struct function {
  double level, slope; /* of `flat` */
  double growth;       /* by this, the gradient of `flat` changes away from x = 0 */
  double rise;         /* of the value of `flat` away from x = 0 */
  uint32_t iterations; /* that `check` has seen */
  uint32_t values;     /* of `flat` that were asked for */
  uint32_t ends_at;    /* the iteration that `check` ends; 0: none */
};

/* A value that hardly changes, as rounding leaves it, with a gradient all the same. */
static double flat(void *context, const double *x, double *gradient)
{
  struct function *function = context;
  function->values++;
  gradient[0] = function->slope + (x[0] != 0 ? function->growth : 0);
  return function->level + (x[0] != 0 ? function->rise : 0);
}

/* (x - 3)^2 + 5 (y + 1)^2 */
static double bowl(void *context, const double *x, double *gradient)
{
  (void)context;
  gradient[0] = 2 * (x[0] - 3);
  gradient[1] = 10 * (x[1] + 1);
  return (x[0] - 3) * (x[0] - 3) + 5 * (x[1] + 1) * (x[1] + 1);
}

/* A narrow curved valley, with its minimum at (1, 1): the function of Rosenbrock. */
static double valley(void *context, const double *x, double *gradient)
{
  (void)context;
  const double across = x[1] - x[0] * x[0], along = 1 - x[0];
  gradient[0] = -400 * x[0] * across - 2 * along;
  gradient[1] = 200 * across;
  return 100 * across * across + along * along;
}

/* The inverse of the Hessian of `bowl`, three times too large. */
static void invert(void *context, double *v)
{
  (void)context;
  v[0] *= 3 / 2.0;
  v[1] *= 3 / 10.0;
}

static plm_status check(void *context, struct plm_error *error)
{
  struct function *function = context;
  function->iterations++;
  if (function->iterations == function->ends_at)
    return plm_error_set(error, PLM_INTERRUPTED, "ended in iteration %u", function->iterations);
  return PLM_OK;
}

static struct plm_lbfgs search_of(struct function *function,
                                  double (*value)(void *, const double *, double *), size_t n,
                                  uint32_t iterations)
{
  return (struct plm_lbfgs){.n = n,
                            .value = value,
                            .check = check,
                            .context = function,
                            .tolerance = 1e-9,
                            .iterations = iterations};
}

/* One iteration from x = 0. Returns where it ends. */
static double step_on(struct function function)
{
  const struct plm_lbfgs search = search_of(&function, flat, 1, 1);
  double x = 0;
  bool converged = true;
  assert_int_equal(plm_lbfgs_run(&search, &x, &converged, NULL), PLM_OK);
  assert_false(converged);
  return x;
}

/* The first step goes along the gradient; it is no longer than 1 and no longer than the gradient.
 */
static void a_flat_function_is_followed_only_to_a_smaller_gradient(void **state)
{
  (void)state;
  /* the value stays: the length of the gradient decides */
  assert_true(step_on((struct function){.slope = 0.5, .growth = -0.25}) == -0.5);
  assert_true(step_on((struct function){.slope = 4, .growth = -0.25}) == -1);
  assert_true(step_on((struct function){.slope = 0.5}) == 0);
  assert_true(step_on((struct function){.slope = 0.5, .growth = 0.25}) == 0);
  assert_true(step_on((struct function){.slope = -0.5, .growth = 0.25}) == 0.5);
  /* it may rise as rounding does, relative to 1 + |value|, and no further */
  const double slope = 1e-8, growth = -5e-9;
  for (int sign = -1; sign <= 1; sign += 2) {
    const double level = sign * 1e4;
    assert_true(step_on((struct function){level, slope, growth, 0.5e-9, 0, 0, 0}) == -slope);
    assert_true(step_on((struct function){level, slope, growth, 2e-9, 0, 0, 0}) == 0);
  }
  /* if it falls enough, the gradient may grow */
  assert_true(step_on((struct function){1, 0.5, 0.25, -1e-3, 0, 0, 0}) == -0.5);
  assert_true(step_on((struct function){1, 0.5, 0.25, -1e-6, 0, 0, 0}) == -0.5 / 32);
}

static void it_ends_at_the_minimum(void **state)
{
  (void)state;
  struct function function = {0};
  const struct plm_lbfgs search = search_of(&function, bowl, 2, 100);
  double x[] = {-20, 7};
  bool converged = false;
  assert_int_equal(plm_lbfgs_run(&search, x, &converged, NULL), PLM_OK);
  assert_true(converged && fabs(x[0] - 3) <= 5e-10 && fabs(x[1] + 1) <= 1e-10);
  assert_true(function.iterations >= 2 && function.iterations < 30);
  function.iterations = 0;
  assert_int_equal(plm_lbfgs_run(&search, x, &converged, NULL), PLM_OK); /* it is there already */
  assert_true(converged && function.iterations == 0);
}

/* A step that rounding swallows has no curvature: the search goes on without it. */
static void a_step_without_curvature_is_forgotten(void **state)
{
  (void)state;
  struct function function = {.level = 1, .slope = 1e-20};
  struct plm_lbfgs search = search_of(&function, flat, 1, 3);
  double x = 1;
  bool converged;
  search.tolerance = 1e-30;
  assert_int_equal(plm_lbfgs_run(&search, &x, &converged, NULL), PLM_OK);
  assert_true(x == 1 && !converged);
  assert_int_equal(function.values, 1 + 3);
}

/* After three iterations, the value is large wherever the search looks, for as long as it looks. */
static double blocked(void *context, const double *x, double *gradient)
{
  struct function *function = context;
  const double value = valley(NULL, x, gradient);
  return function->iterations == 4 ? 1e9 : value;
}

/* It goes on along the gradient, without what it remembers. */
static void it_begins_anew_where_no_step_is_good(void **state)
{
  (void)state;
  struct function function = {0};
  const struct plm_lbfgs search = search_of(&function, blocked, 2, 1000);
  double x[] = {-1.2, 1};
  bool converged = false;
  assert_int_equal(plm_lbfgs_run(&search, x, &converged, NULL), PLM_OK);
  assert_true(converged && fabs(x[0] - 1) <= 1e-8 && fabs(x[1] - 1) <= 1e-8);
}

/* The valley takes more iterations than the ten steps that it remembers. */
static void the_steps_are_taken_back_from_the_newest_to_the_oldest(void **state)
{
  (void)state;
  struct function function = {0};
  const struct plm_lbfgs search = search_of(&function, valley, 2, 1000);
  double x[] = {-1.2, 1};
  bool converged = false;
  assert_int_equal(plm_lbfgs_run(&search, x, &converged, NULL), PLM_OK);
  assert_true(converged && fabs(x[0] - 1) <= 1e-8 && fabs(x[1] - 1) <= 1e-8);
  assert_true(function.iterations > 10 && function.iterations < 60);
}

/* The first step leads three times as far as the minimum and is halved once; the next one is scaled
 * to the curvature along it, so that it ends at the minimum, where L-BFGS alone would go on. */
static void a_preconditioner_leads_to_the_minimum_at_once(void **state)
{
  (void)state;
  struct function function = {0};
  struct plm_lbfgs search = search_of(&function, bowl, 2, 100);
  double x[] = {-20, 7};
  bool converged = false;
  search.precondition = invert;
  assert_int_equal(plm_lbfgs_run(&search, x, &converged, NULL), PLM_OK);
  assert_true(converged && fabs(x[0] - 3) <= 5e-10 && fabs(x[1] + 1) <= 1e-10);
  assert_int_equal(function.iterations, 2);
}

/* The largest component of the gradient may be as large as the tolerance. */
static void the_tolerance_is_that_of_the_largest_component(void **state)
{
  (void)state;
  struct function function = {0};
  struct plm_lbfgs search = search_of(&function, bowl, 2, 0);
  bool converged = false;
  double x[] = {3.25, -1.25}; /* the gradient is (0.5, -2.5) */
  search.tolerance = 2.5;
  assert_int_equal(plm_lbfgs_run(&search, x, &converged, NULL), PLM_OK);
  assert_true(converged && x[0] == 3.25 && x[1] == -1.25);
  search.tolerance = 2.49;
  assert_int_equal(plm_lbfgs_run(&search, x, &converged, NULL), PLM_OK);
  assert_true(!converged && x[0] == 3.25 && x[1] == -1.25); /* no iteration is allowed */
}

static void each_iteration_may_end_it(void **state)
{
  (void)state;
  struct function function = {.ends_at = 2};
  struct plm_error error = {0};
  const struct plm_lbfgs search = search_of(&function, bowl, 2, 100);
  double x[] = {-20, 7};
  bool converged;
  assert_int_equal(plm_lbfgs_run(&search, x, &converged, &error), PLM_INTERRUPTED);
  assert_string_equal(error.what, "ended in iteration 2");
  assert_int_equal(function.iterations, 2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_flat_function_is_followed_only_to_a_smaller_gradient),
      cmocka_unit_test(it_ends_at_the_minimum),
      cmocka_unit_test(a_step_without_curvature_is_forgotten),
      cmocka_unit_test(it_begins_anew_where_no_step_is_good),
      cmocka_unit_test(the_steps_are_taken_back_from_the_newest_to_the_oldest),
      cmocka_unit_test(a_preconditioner_leads_to_the_minimum_at_once),
      cmocka_unit_test(the_tolerance_is_that_of_the_largest_component),
      cmocka_unit_test(each_iteration_may_end_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
