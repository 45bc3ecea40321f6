/* Measures the CPU operators with all threads and prints the best of several runs: products in
 * GFLOP/s and as a share of the 2048^3 product in the same precision, passes over memory in GB/s
 * and as a share of memcpy in the same run. Forward products of int8 are compared with fp32.
 *
 *   build/tests/bench/bench_ops [ISA]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/ops/device.h"
#include "common/ops/ops.h"
#include "tests/support/bench/bench_scene.h"

enum { RUNS = 15 };

struct bench {
  struct plm_ops *ops;
  void *a, *b, *c, *d, *e; /* activations, at least as large as any operand */
  float *weights, *scalars;
  int64_t N, I, O; /* sizes of the current product; N and I are rows and width of a pass */
};

static void stop(const struct plm_error *error)
{
  plm_error_print("bench_ops", error);
  exit(plm_status_exit_code(error->status));
}

static void *bench_allocate(struct plm_ops *ops, size_t bytes)
{
  struct plm_error error = {0};
  void *buffer;
  if (ops->allocate(ops, bytes, &buffer, &error) != PLM_OK) stop(&error);
  memset(buffer, 0x3c, bytes); /* small normal numbers in either precision */
  return buffer;
}

static struct plm_ops *bench_open(int precision, const char *isa)
{
  struct plm_ops *ops = NULL;
  struct plm_error error = {0};
  const plm_status status = plm_ops_cpu_open(precision, 0, isa, &ops, &error);
  if (status == PLM_UNSUPPORTED)
    printf("\nskipped: %s\n", error.what);
  else if (status != PLM_OK)
    stop(&error);
  return ops;
}

static double best_seconds(struct bench *b, void (*run)(struct bench *b))
{
  double best = 1e30;
  for (int i = 0; i < RUNS; i++) {
    const uint64_t begin = plm_clock_ns();
    run(b);
    const double seconds = 1e-9 * (double)(plm_clock_ns() - begin);
    if (seconds < best) best = seconds;
  }
  return best;
}

/* ---- products ---- */
static void forward(struct bench *b)
{
  b->ops->linear_forward(b->ops, b->a, b->b, b->c, NULL, b->N, b->I, b->O);
}

static void backward_input(struct bench *b)
{
  b->ops->linear_backward_input(b->ops, b->b, b->a, b->c, b->N, b->I, b->O, false);
}

static void backward_weight(struct bench *b)
{
  b->ops->linear_backward_weight(b->ops, b->weights, b->a, b->b, b->N, b->I, b->O);
}

static double product_rate(struct bench *b, void (*run)(struct bench *b), int64_t N, int64_t I,
                           int64_t O)
{
  b->N = N;
  b->I = I;
  b->O = O;
  return 2e-9 * (double)N * (double)I * (double)O / best_seconds(b, run);
}

static void bench_products(struct bench *b)
{
  static const int64_t shapes[][2] = {{768, 2304}, {768, 2048}, {2048, 768}, {384, 1152},
                                      {384, 1024}, {1024, 384}, {128, 384},  {128, 256}};
  const double square = product_rate(b, forward, 2048, 2048, 2048);
  printf("\n2048^3: %.0f GFLOP/s\n%-22s %16s %16s %16s\n", square, "4096 rows, in x out", "forward",
         "by input", "by weight");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int64_t I = shapes[i][0], O = shapes[i][1];
    const double rates[3] = {product_rate(b, forward, 4096, I, O),
                             product_rate(b, backward_input, 4096, I, O),
                             product_rate(b, backward_weight, 4096, I, O)};
    printf("%8lld x %-11lld", (long long)I, (long long)O);
    for (int j = 0; j < 3; j++) printf(" %8.0f (%3.0f %%)", rates[j], 100 * rates[j] / square);
    printf("\n");
  }
}

/* ---- passes over memory ---- */
static void run_copy(struct bench *b)
{
  b->ops->copy(b->ops, b->a, b->b, (size_t)(b->N * b->I) * b->ops->act_bytes);
}

static void run_gelu(struct bench *b)
{
  b->ops->gelu_forward(b->ops, b->a, b->b, b->N * b->I);
}

static void run_norm(struct bench *b)
{
  b->ops->norm_forward(b->ops, b->a, b->b, b->N, b->I);
}

static void run_norm_backward(struct bench *b)
{
  b->ops->norm_backward(b->ops, b->a, b->c, b->b, b->N, b->I);
}

/* The first scalars are b0, b1, s and their gradients. */
static struct plm_mix mix_of(const struct bench *b, bool skip)
{
  return (struct plm_mix){
      .x = b->b, .p = b->c, .b = b->scalars, .skip = skip ? b->d : NULL, .s = b->scalars + 2};
}

static void run_mix(struct bench *b)
{
  const struct plm_mix mix = mix_of(b, false);
  b->ops->mix_norm_forward(b->ops, b->a, b->d, &mix, b->N, b->I);
}

static void mix_backward(struct bench *b, bool skip)
{
  const struct plm_mix mix = mix_of(b, skip);
  const struct plm_mix_gradients to = {
      .dx = b->a, .dp = b->e, .db = b->scalars + 3, .dskip = b->b, .ds = b->scalars + 5};
  b->ops->mix_norm_backward(b->ops, &to, b->a, b->d, &mix, b->N, b->I);
}

static void run_mix_backward(struct bench *b)
{
  mix_backward(b, false);
}

static void run_skip_mix_backward(struct bench *b)
{
  mix_backward(b, true);
}

static struct plm_qkv raw_qkv(const struct bench *b)
{
  return (struct plm_qkv){.qkv = b->b,
                          .cosine = b->weights,
                          .sine = b->weights,
                          .B = b->N / 1024,
                          .L = 1024,
                          .H = b->I / 3 / 64,
                          .K = 64};
}

static void run_qkv(struct bench *b)
{
  const struct plm_qkv in = raw_qkv(b);
  b->ops->qkv_prepare_forward(b->ops, b->a, &in);
}

static void run_qkv_backward(struct bench *b)
{
  const struct plm_qkv in = raw_qkv(b);
  b->ops->qkv_prepare_backward(b->ops, b->a, NULL, NULL, b->a, &in);
}

static const struct {
  const char *name;
  void (*run)(struct bench *b);
  int operands; /* activations read and written for each element */
} passes[] = {
    {"copy (memcpy)", run_copy, 2},
    {"gelu forward", run_gelu, 2},
    {"norm forward", run_norm, 2},
    {"norm backward", run_norm_backward, 4},
    {"mix + norm forward", run_mix, 4},
    {"mix + norm backward", run_mix_backward, 8},
    {"skip mix backward", run_skip_mix_backward, 10},
    {"qkv prepare forward", run_qkv, 2},
    {"qkv prepare backward", run_qkv_backward, 3},
};

static void bench_passes(struct bench *b)
{
  static const int64_t widths[] = {192, 768};
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
    b->N = 4096;
    b->I = widths[w] * 3;
    printf("\n4096 x %-17lld %10s %12s\n", (long long)b->I, "GB/s", "of memcpy");
    double copy = 0;
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
      const double bytes = (double)(b->N * b->I) * (double)b->ops->act_bytes * passes[i].operands;
      const double rate = 1e-9 * bytes / best_seconds(b, passes[i].run);
      if (i == 0) copy = rate;
      printf("%-24s %10.1f %10.0f %%\n", passes[i].name, rate, 100 * rate / copy);
    }
  }
}

static void bench_precision(int precision, const char *isa)
{
  struct bench b = {.ops = bench_open(precision, isa)};
  if (b.ops == NULL) return;
  printf("\n== %s, %s, %u threads\n", precision == PLM_PRECISION_BF16 ? "bf16" : "fp32", b.ops->isa,
         b.ops->threads);
  const size_t bytes = (size_t)4096 * 2304 * b.ops->act_bytes;
  void **buffers[] = {&b.a, &b.b, &b.c, &b.d, &b.e};
  for (int i = 0; i < 5; i++) *buffers[i] = bench_allocate(b.ops, bytes);
  b.weights = bench_allocate(b.ops, (size_t)2304 * 2304 * sizeof(float));
  b.scalars = bench_allocate(b.ops, 64);
  memset(b.scalars, 0, 64);
  bench_products(&b);
  bench_passes(&b);
  for (int i = 0; i < 5; i++) b.ops->release(b.ops, *buffers[i]);
  b.ops->release(b.ops, b.weights);
  b.ops->release(b.ops, b.scalars);
  b.ops->close(b.ops);
}

/* ---- int8 ---- */
static void forward_int8(struct bench *b)
{
  const struct plm_int8_linear layer = {.w = b->d};
  b->ops->linear_int8_forward(b->ops, b->a, b->b, &layer, NULL, b->N, b->I, b->O);
}

static void bench_int8(const char *isa)
{
  static const int64_t shapes[][2] = {{320, 960},  {320, 1280}, {1280, 320},  {480, 1920},
                                      {1920, 480}, {640, 2560}, {1280, 5120}, {5120, 1280}};
  enum { MOST = 5120, ROWS = 4096 };
  struct bench fp32 = {.ops = bench_open(PLM_PRECISION_FP32, isa)};
  struct bench int8 = {.ops = bench_open(PLM_PRECISION_INT8, isa)};
  if (fp32.ops == NULL || int8.ops == NULL) return;
  fp32.a = bench_allocate(fp32.ops, (size_t)ROWS * MOST * sizeof(float));
  fp32.b = bench_allocate(fp32.ops, (size_t)ROWS * MOST * sizeof(float));
  fp32.c = bench_allocate(fp32.ops, (size_t)MOST * 1280 * sizeof(float));
  int8.a = fp32.a;
  int8.b = fp32.b;
  int8.d = bench_allocate(int8.ops, plm_int8_matrix_bytes(MOST, 1280));
  printf("\n== int8 and fp32, forward, GFLOP/s, %s, %u threads\n%-22s %8s %8s %8s\n", int8.ops->isa,
         int8.ops->threads, "4096 rows, in x out", "fp32", "int8", "ratio");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int64_t I = shapes[i][0], O = shapes[i][1];
    int8.ops->quantise_rows(int8.ops, int8.d, fp32.c, 0, O, I, O);
    const double of_fp32 = product_rate(&fp32, forward, ROWS, I, O);
    const double of_int8 = product_rate(&int8, forward_int8, ROWS, I, O);
    printf("%8lld x %-11lld %8.0f %8.0f %8.2f\n", (long long)I, (long long)O, of_fp32, of_int8,
           of_int8 / of_fp32);
  }
  int8.ops->release(int8.ops, int8.d);
  fp32.ops->release(fp32.ops, fp32.a);
  fp32.ops->release(fp32.ops, fp32.b);
  fp32.ops->release(fp32.ops, fp32.c);
  int8.ops->close(int8.ops);
  fp32.ops->close(fp32.ops);
}

int main(int count, char **arguments)
{
  const char *isa = count > 1 ? arguments[1] : NULL;
  bench_machine();
  bench_precision(PLM_PRECISION_FP32, isa);
  bench_precision(PLM_PRECISION_BF16, isa);
  bench_int8(isa);
  return 0;
}
