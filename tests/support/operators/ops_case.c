/* Runs tests of operators on every backend and compares results; see ops_case.h. */
#include "tests/support/operators/ops_case.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/hash.h"
#include "common/base/numbers/philox.h"
#include "common/ops/device.h"
#include "kernels/cpu/processor.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/device_case.h"

static const char *const isas[] = {"portable", "avx2", "avx512"};

enum buffer_place { ON_HOST, ON_DEVICE };

static void remember(struct ops_case *c, void *memory, enum buffer_place place)
{
  if (c->buffer_count == c->buffer_capacity) {
    c->buffer_capacity = 2 * c->buffer_capacity + 64;
    c->buffers = realloc(c->buffers, (size_t)c->buffer_capacity * sizeof *c->buffers);
    assert_non_null(c->buffers);
  }
  c->buffers[c->buffer_count++] =
      (struct ops_case_buffer){.memory = memory, .on_device = place == ON_DEVICE};
}

static void *keep(struct ops_case *c, size_t bytes)
{
  void *buffer = calloc(1, bytes > 0 ? bytes : 1);
  assert_non_null(buffer);
  remember(c, buffer, ON_HOST);
  return buffer;
}

void *ops_case_device(struct ops_case *c, const void *host, size_t bytes)
{
  void *buffer = device_case_upload(c->ops, host, bytes);
  remember(c, buffer, ON_DEVICE);
  return buffer;
}

static void *poisoned(struct ops_case *c, size_t bytes)
{
  void *host = malloc(bytes > 0 ? bytes : 1);
  assert_non_null(host);
  memset(host, 0xff, bytes); /* NaN in both precisions */
  void *buffer = ops_case_device(c, host, bytes);
  free(host);
  return buffer;
}

/* Copies a buffer to the host; the case owns the copy. */
static const void *fetch(struct ops_case *c, const void *device, size_t bytes)
{
  void *host = keep(c, bytes);
  device_case_download(c->ops, host, device, bytes);
  return host;
}

void ops_case_release(struct ops_case *c)
{
  for (int i = 0; i < c->buffer_count; i++)
    if (c->buffers[i].on_device)
      c->ops->release(c->ops, c->buffers[i].memory);
    else
      free(c->buffers[i].memory);
  free(c->buffers);
}

bool ops_case_quick(void)
{
  return getenv("PLM_TEST_QUICK") != NULL;
}

static bool only_once(void)
{
  return ops_case_quick() || getenv("PLM_TEST_ONCE") != NULL;
}

static uint64_t run_once(void (*test)(struct ops_case *c), struct plm_ops *ops)
{
  struct ops_case c = {.ops = ops, .seed = 42};
  test(&c);
  struct plm_error error = {0};
  assert_int_equal(ops->synchronize(ops, &error), PLM_OK);
  ops_case_release(&c);
  return c.digest;
}

static void run_on(void (*test)(struct ops_case *c), const char *isa, int precision)
{
  static const uint32_t counts[] = {1, 3}; /* three threads seldom share the work evenly */
  uint64_t first = 0;
  for (int i = 0; i < 2; i++) {
    struct plm_ops *ops;
    struct plm_error error = {0};
    const plm_status status = plm_ops_cpu_open(precision, counts[i], isa, &ops, &error);
    if (status == PLM_UNSUPPORTED) return;
    assert_int_equal(status, PLM_OK);
    assert_string_equal(ops->isa, isa);
    const uint64_t once = run_once(test, ops);
    const uint64_t again = only_once() ? once : run_once(test, ops);
    if (i == 0) first = once;
    assert_int_equal(once, first);
    assert_int_equal(again, first);
    ops->close(ops);
  }
}

static void run_cuda(void (*test)(struct ops_case *c), int precision)
{
  uint64_t first = 0;
  const uint64_t orders = only_once() ? 1 : 3;
  const char *only = getenv("PLM_TEST_SEED"); /* the only order to run besides the first */
  for (uint64_t order = 1; order <= orders; order++) {
    if (only != NULL && order > 1) order = strtoull(only, NULL, 10);
    struct plm_ops *ops = device_case_open(precision, order);
    const uint64_t digest = run_once(test, ops);
    if (order == 1) first = digest;
    if (digest != first)
      fail_msg("cuda, %zu bytes: the result depends on the order of threads: a barrier is missing; "
               "PLM_TEST_SEED=%llu compares only this order with the first",
               ops->act_bytes, (unsigned long long)order);
    ops->close(ops);
    if (only != NULL && order > 1) break;
  }
}

void ops_case_each_cuda(void (*test)(struct ops_case *c))
{
  if (ops_case_quick()) return;
  run_cuda(test, PLM_PRECISION_FP32);
  run_cuda(test, PLM_PRECISION_BF16);
}

/* With PLM_CPU_ISA or PLM_TEST_QUICK, the best instruction set of the processor, the only one to
 * test; otherwise NULL, since all are tested. */
static const char *limited_isa(void)
{
  static const char *const of_level[PLM_PROCESSOR_LEVELS] = {"portable", "avx2", "avx512", "avx512",
                                                             "avx512"};
  enum plm_processor_level level;
  bool limited;
  struct plm_error error = {0};
  assert_int_equal(plm_processor_limit(&level, &limited, &error), PLM_OK);
  return limited || ops_case_quick() ? of_level[level] : NULL;
}

void ops_case_each(void (*test)(struct ops_case *c))
{
  ops_case_each_cpu(test);
  if (limited_isa() == NULL) ops_case_each_cuda(test); /* the emulation is the same at any level */
}

/* Programs that are linked a second time, with cuBLASLt's interface (the Makefile's CUBLASLT_BIN),
 * do the same on the CPU as the first time. */
static bool is_linked_again(void)
{
  return strstr(program_invocation_short_name, "_cublaslt") != NULL;
}

void ops_case_each_cpu(void (*test)(struct ops_case *c))
{
  if (device_case_is_real() || is_linked_again()) return; /* only the device is tested */
  const char *limited = limited_isa();
  for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
    if (limited != NULL && strcmp(limited, isas[i]) != 0) continue;
    run_on(test, isas[i], PLM_PRECISION_FP32);
    run_on(test, isas[i], PLM_PRECISION_BF16);
  }
}

static double draw_normal(uint64_t seed, uint64_t number)
{
  const struct plm_philox_words words = plm_philox(seed, 0, number, 99);
  const double u = (plm_philox_unit(words.w[0]) * 0x1p24 + 0.5) * 0x1p-24;
  return sqrt(-2 * log(u)) * cos(2 * acos(-1) * plm_philox_unit(words.w[1]));
}

/* A test draws the same values for each instruction set, precision, number of threads and order, so
 * the first ones are kept. */
static double normal(struct ops_case *c)
{
  enum { KEPT = 1 << 20 };
  static double kept[KEPT];
  static bool known[KEPT];
  static uint64_t seed;
  const uint64_t number = c->drawn++;
  if (number >= KEPT) return draw_normal(c->seed, number);
  if (seed != c->seed) memset(known, 0, sizeof known);
  seed = c->seed;
  if (!known[number]) kept[number] = draw_normal(seed, number);
  known[number] = true;
  return kept[number];
}

double *ops_case_values(struct ops_case *c, int64_t n, double deviation)
{
  double *values = keep(c, (size_t)n * sizeof *values);
  for (int64_t i = 0; i < n; i++) values[i] = deviation * normal(c);
  return values;
}

int32_t *ops_case_integers(struct ops_case *c, int64_t n, int32_t limit)
{
  int32_t *values = keep(c, (size_t)n * sizeof *values);
  for (int64_t i = 0; i < n; i++)
    values[i] = (int32_t)(plm_philox_unit(plm_philox(c->seed, 1, c->drawn++, 99).w[0]) * limit);
  return values;
}

double *ops_case_zeros(struct ops_case *c, int64_t n)
{
  return keep(c, (size_t)n * sizeof(double));
}

static bf16 to_bf16(double value)
{
  const float single = (float)value;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  bits += 0x7fff + ((bits >> 16) & 1);
  return (uint16_t)(bits >> 16);
}

static double from_bf16(bf16 value)
{
  const uint32_t bits = (uint32_t)value << 16;
  float single;
  memcpy(&single, &bits, sizeof single);
  return (double)single;
}

float *ops_case_float(struct ops_case *c, double *values, int64_t n)
{
  float *out = malloc((size_t)n * sizeof *out);
  assert_non_null(out);
  for (int64_t i = 0; i < n; i++) {
    out[i] = (float)values[i];
    values[i] = (double)out[i];
  }
  float *device = ops_case_device(c, out, (size_t)n * sizeof *out);
  free(out);
  return device;
}

void *ops_case_act(struct ops_case *c, double *values, int64_t n)
{
  if (c->ops->act_bytes == 4) return ops_case_float(c, values, n);
  uint16_t *out = malloc((size_t)n * sizeof *out);
  assert_non_null(out);
  for (int64_t i = 0; i < n; i++) {
    out[i] = to_bf16(values[i]);
    values[i] = from_bf16(out[i]);
  }
  void *device = ops_case_device(c, out, (size_t)n * sizeof *out);
  free(out);
  return device;
}

void *ops_case_empty_act(struct ops_case *c, int64_t n)
{
  return poisoned(c, (size_t)n * c->ops->act_bytes);
}

float *ops_case_empty_float(struct ops_case *c, int64_t n)
{
  return poisoned(c, (size_t)n * sizeof(float));
}

double *ops_case_read(struct ops_case *c, const void *values, int64_t n)
{
  const void *host = fetch(c, values, (size_t)n * c->ops->act_bytes);
  double *out = keep(c, (size_t)n * sizeof *out);
  for (int64_t i = 0; i < n; i++)
    out[i] = c->ops->act_bytes == 4 ? (double)((const float *)host)[i]
                                    : from_bf16(((const uint16_t *)host)[i]);
  return out;
}

void ops_case_check_same(struct ops_case *c, const void *a, const void *b, size_t bytes)
{
  assert_memory_equal(fetch(c, a, bytes), fetch(c, b, bytes), bytes);
}

/* `rounding` is the largest relative error of one rounding to the stored precision; twice as much
 * is allowed. */
static void compare(struct ops_case *c, const char *what, const double *got, const double *exact,
                    int64_t n, double rounding, double slack)
{
  double largest = 0;
  for (int64_t i = 0; i < n; i++)
    if (fabs(exact[i]) > largest) largest = fabs(exact[i]);
  for (int64_t i = 0; i < n; i++) {
    const double allowed = 2 * rounding * fabs(exact[i]) + slack * 0x1p-24 * largest;
    if (fabs(got[i] - exact[i]) <= allowed) continue;
    fail_msg("%s, %s, %zu bytes, %u threads: element %lld of %lld is %.9g, not %.9g (+-%.3g)", what,
             c->ops->isa, c->ops->act_bytes, c->ops->threads, (long long)i, (long long)n, got[i],
             exact[i], allowed);
  }
}

static void digest(struct ops_case *c, const void *device, size_t size)
{
  c->digest = c->digest * 31 + plm_hash64_bytes(fetch(c, device, size), size);
}

void ops_case_check_act(struct ops_case *c, const char *what, const void *got, const double *exact,
                        int64_t n, double slack)
{
  double *read = ops_case_read(c, got, n);
  compare(c, what, read, exact, n, c->ops->act_bytes == 4 ? 0x1p-24 : 0x1p-9, slack);
  digest(c, got, (size_t)n * c->ops->act_bytes);
}

void ops_case_check_loose(struct ops_case *c, const char *what, const float *got,
                          const double *exact, int64_t n, double slack)
{
  double *read = keep(c, (size_t)n * sizeof *read);
  const float *host = fetch(c, got, (size_t)n * sizeof *host);
  for (int64_t i = 0; i < n; i++) read[i] = (double)host[i];
  compare(c, what, read, exact, n, 0x1p-24, slack);
}

void ops_case_check_float(struct ops_case *c, const char *what, const float *got,
                          const double *exact, int64_t n, double slack)
{
  ops_case_check_loose(c, what, got, exact, n, slack);
  digest(c, got, (size_t)n * sizeof *got);
}
