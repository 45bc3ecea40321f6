/* The rate of products, on a device that needs a given time for each product and a long one for the
 * first of each size, by a clock that only products move. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/tuning/product_rate.h"

enum { MOST_PRODUCTS = 100 };
static const uint64_t MILLISECOND = 1000000;

static struct device {
  struct plm_ops ops;
  double flops;      /* a second */
  uint64_t least_ns; /* of a product, however small */
  uint64_t first_ns; /* of the first product of a size, more than later ones */
  int64_t largest;   /* for which there is memory */
  int fails;         /* the product with this number fails */
  uint64_t now_ns;
  int64_t sides[MOST_PRODUCTS];
  int products, buffers, workspaces_released;
} device;

static uint64_t clock_ns(void)
{
  return device.now_ns;
}

static plm_status allocate(struct plm_ops *ops, size_t bytes, void **buffer,
                           struct plm_error *error)
{
  (void)ops, (void)error;
  if (bytes > (size_t)device.largest * (size_t)device.largest * device.ops.act_bytes)
    return PLM_NO_MEMORY;
  *buffer = malloc(1);
  device.buffers++;
  return PLM_OK;
}

static void release(struct plm_ops *ops, void *buffer)
{
  (void)ops;
  free(buffer);
  device.buffers--;
}

static void release_workspace(struct plm_ops *ops)
{
  (void)ops;
  device.workspaces_released++;
}

static void upload(struct plm_ops *ops, void *to, const void *from, size_t bytes)
{
  (void)ops, (void)to, (void)from, (void)bytes;
}

static void linear_forward(struct plm_ops *ops, act *y, const act *x, const act *w,
                           const act *residual, int64_t N, int64_t I, int64_t O)
{
  (void)ops, (void)y, (void)x, (void)w, (void)residual;
  assert_true(N == I && N == O);
  assert_true(device.products < MOST_PRODUCTS);
  const bool first = device.products == 0 || device.sides[device.products - 1] != N;
  const uint64_t ns = (uint64_t)(2e9 * (double)N * (double)N * (double)N / device.flops);
  device.now_ns += (ns > device.least_ns ? ns : device.least_ns) + (first ? device.first_ns : 0);
  device.sides[device.products++] = N;
}

static plm_status synchronize(struct plm_ops *ops, struct plm_error *error)
{
  (void)ops, (void)error;
  return device.products > 0 && device.products == device.fails ? PLM_FAILURE : PLM_OK;
}

/* Returns the rate that is measured, as a share of the device's. */
static double share(double flops, uint64_t least_ns, uint64_t first_ns, int64_t largest, int fails)
{
  device = (struct device){.ops = {.act_bytes = 2,
                                   .allocate = allocate,
                                   .release = release,
                                   .release_workspace = release_workspace,
                                   .upload = upload,
                                   .copy = upload,
                                   .linear_forward = linear_forward,
                                   .synchronize = synchronize},
                           .flops = flops,
                           .least_ns = least_ns,
                           .first_ns = first_ns,
                           .largest = largest,
                           .fails = fails};
  const double rate = plm_product_rate(&device.ops, clock_ns);
  assert_int_equal(device.buffers, 0);
  assert_int_equal(device.workspaces_released, device.products > 0 ? 1 : 0);
  return rate / flops;
}

static void is_about(double got, double expected)
{
  if (!(fabs(got - expected) <= 1e-3 * expected)) fail_msg("%g instead of %g", got, expected);
}

static int products_of(int64_t side)
{
  int count = 0;
  for (int i = 0; i < device.products; i++) count += device.sides[i] == side;
  return count;
}

/* A card of 800 TFLOP/s, whose small products take 12 us and whose first ones load kernels. */
static void a_fast_device_is_measured_at_large_products(void **state)
{
  (void)state;
  static const uint64_t first_ms[] = {0, 50, 130, 2000};
  for (size_t i = 0; i < sizeof first_ms / sizeof *first_ms; i++) {
    is_about(share(8e14, 12000, first_ms[i] * MILLISECOND, 8192, 0), 1);
    assert_int_equal(products_of(8192), 32); /* 31 of 1.4 ms, and the first one */
    assert_int_equal(products_of(256), 2);
    assert_int_equal(products_of(2048), 2);
    assert_int_equal(device.products, 36);
  }
}

/* A product of 1024 takes just more than a millisecond, or just less. */
static void a_product_takes_a_millisecond(void **state)
{
  (void)state;
  is_about(share(2.14e12, 0, MILLISECOND, 8192, 0), 1);
  assert_int_equal(products_of(1024), 32);
  assert_int_equal(products_of(2048), 0);
  is_about(share(2.15e12, 0, MILLISECOND, 8192, 0), 1);
  assert_int_equal(products_of(2048),
                   17); /* 16 of 8 ms, until 120 ms are over, and the first one */
}

/* 256 wide takes 7 ms, 50 ms or 200 ms. */
static void a_slow_device_is_measured_for_a_tenth_of_a_second(void **state)
{
  (void)state;
  static const struct {
    double flops;
    int products;
  } cases[] = {{4.8e9, 1 + 18}, {6.8e8, 1 + 3}, {1.6e8, 1 + 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    is_about(share(cases[i].flops, 0, 500 * MILLISECOND, 8192, 0), 1);
    assert_int_equal(products_of(256), cases[i].products);
    assert_int_equal(device.products, cases[i].products);
  }
}

static void less_memory_means_a_smaller_product(void **state)
{
  (void)state;
  is_about(share(8e14, 12000, 0, 4096, 0), 1);
  assert_int_equal(products_of(4096), 32);
  assert_int_equal(products_of(8192), 0);
  is_about(share(8e14, 12000, 0, 1023, 0), 2 * 0x1p27 / 12e-6 / 8e14);
  assert_int_equal(products_of(512), 32);
  assert_true(share(8e14, 12000, 0, 255, 0) == 0);
  assert_int_equal(device.products, 0);
}

/* The fourth product is the second one of 2048, and the sixth is the second one of 8192. */
static void a_failure_ends_the_measurement(void **state)
{
  (void)state;
  for (int fails = 1; fails <= 6; fails++) {
    assert_true(share(8e14, 12000, 0, 8192, fails) == 0);
    assert_int_equal(device.products, fails);
  }
  is_about(share(8e14, 12000, 0, 8192, 7), 1);
  assert_int_equal(device.products, 7);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_fast_device_is_measured_at_large_products),
      cmocka_unit_test(a_product_takes_a_millisecond),
      cmocka_unit_test(a_slow_device_is_measured_for_a_tenth_of_a_second),
      cmocka_unit_test(less_memory_means_a_smaller_product),
      cmocka_unit_test(a_failure_ends_the_measurement),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
