/* The bound on sums of tensor cores holds for sums that are cut off as theirs are, and is exceeded
 * if a product is missing. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "tests/support/operators/tensor_sum.h"

enum { MOST = 8192, SUMS = 256 };

static float x[SUMS][MOST], y[SUMS][MOST];

static float bf16_normal(uint64_t seed, uint32_t i, uint32_t j)
{
  const struct plm_philox_words w = plm_philox(seed, i, j, 7);
  const double r = sqrt(-2 * log(plm_philox_unit(w.w[0]) + 0x1p-25));
  const float value = (float)(r * cos(6.283185307179586 * plm_philox_unit(w.w[1])));
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

static int draw(void **state)
{
  (void)state;
  for (uint32_t i = 0; i < SUMS; i++)
    for (uint32_t j = 0; j < MOST; j++) {
      x[i][j] = bf16_normal(1, i, j);
      y[i][j] = bf16_normal(2, i, j);
    }
  return 0;
}

/* |error| / |result| over all sums of so many terms, of which the last ones are missing; *worst is
 * the largest error in units of 2^-24 of the largest result. */
static double error_of(int64_t terms, int64_t missing, int wider, int bits, double *worst)
{
  double difference = 0, size = 0, largest = 0;
  *worst = 0;
  for (int i = 0; i < SUMS; i++) {
    double exact = 0;
    for (int64_t j = 0; j < terms; j++) exact += (double)x[i][j] * (double)y[i][j];
    const double error = (double)tensor_sum(0, x[i], y[i], terms - missing, wider, bits) - exact;
    difference += error * error;
    size += exact * exact;
    largest = fmax(largest, fabs(exact));
    *worst = fmax(*worst, fabs(error));
  }
  *worst /= 0x1p-24 * largest;
  return sqrt(difference / size);
}

/* Cards differ in how many products they add at a time, and in the bits that they keep. */
static void a_sum_that_is_cut_off_is_within_the_bound(void **state)
{
  (void)state;
  static const int64_t terms[] = {1, 8, 9, 64, 1000, 4129, 8192};
  for (size_t t = 0; t < sizeof terms / sizeof *terms; t++)
    for (int wider = 1; wider <= 2; wider++)
      for (int bits = 0; bits <= 2; bits++) {
        double worst, worst_of_missing;
        const double error = error_of(terms[t], 0, wider, bits, &worst);
        const double missing = error_of(terms[t], 1, wider, bits, &worst_of_missing);
        if (!(error <= tensor_sum_error(terms[t]) && worst <= tensor_sum_slack(terms[t])))
          fail_msg("%lld terms, %d at a time, %d bits: error %.3g, worst %.3g", (long long)terms[t],
                   wider * TENSOR_SUM_PRODUCTS, bits, error, worst);
        assert_true(missing > 100 * tensor_sum_error(terms[t]));
        assert_true(worst_of_missing > 100 * tensor_sum_slack(terms[t]));
      }
}

/* Rounding to nearest would leave less than 1e-5, cutting off leaves more. */
static void cutting_off_is_what_the_bound_is_for(void **state)
{
  (void)state;
  double worst, difference = 0, size = 0;
  assert_true(error_of(MOST, 0, 1, 2, &worst) > 1e-5);
  for (int i = 0; i < SUMS; i++) {
    double exact = 0;
    float nearest = 0;
    for (int64_t j = 0; j < MOST; j++) {
      exact += (double)x[i][j] * (double)y[i][j];
      nearest += x[i][j] * y[i][j];
    }
    difference += ((double)nearest - exact) * ((double)nearest - exact);
    size += exact * exact;
  }
  assert_true(sqrt(difference / size) < 1e-5);
}

/* By hand: 2^24 has the unit 2, so the ones are lost each by itself, and kept together. */
static void single_sums_are_right(void **state)
{
  (void)state;
  static const float a[] = {0x1p12f, 1, 1, 1}, b[] = {0x1p12f, 1, 1, 1};
  assert_true(tensor_sum(0, a, b, 4, 1, 0) == 0x1p24f);
  assert_true(tensor_sum(0, a, b, 4, 1, 1) == 0x1p24f + 2);
  assert_true(tensor_sum(0, a, b, 3, 1, 1) == 0x1p24f + 2);
  assert_true(tensor_sum(0, a, b, 2, 1, 1) == 0x1p24f);
  static const float minus[] = {-0x1p12f, -1, -1, -1};
  assert_true(tensor_sum(0, minus, b, 4, 1, 1) == -0x1p24f - 2); /* toward zero, not downward */
  assert_true(tensor_sum(0.5f, a + 1, b + 1, 3, 1, 0) == 3.5f);
  static const float many[] = {0x1p12f, 0, 0, 0, 0, 0, 0, 0, 1, 1};
  assert_true(tensor_sum(0, many, many, 10, 1, 1) == 0x1p24f + 2); /* two are added later */
  assert_true(tensor_sum(0, many, many, 9, 1, 1) == 0x1p24f);
}

static void the_bound_grows_with_the_additions(void **state)
{
  (void)state;
  assert_true(tensor_sum_error(8192) == 1024.0 * 2 / 3 * 0x1p-23);
  assert_true(tensor_sum_error(8193) == 1025.0 * 2 / 3 * 0x1p-23);
  assert_true(tensor_sum_error(64) == 1e-5);
  assert_true(tensor_sum_slack(8) == 2 && tensor_sum_slack(9) == 4);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_sum_that_is_cut_off_is_within_the_bound),
      cmocka_unit_test(cutting_off_is_what_the_bound_is_for),
      cmocka_unit_test(single_sums_are_right),
      cmocka_unit_test(the_bound_grows_with_the_additions),
  };
  return cmocka_run_group_tests(tests, draw, NULL);
}
