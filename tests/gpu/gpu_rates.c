/* The ceilings of a GPU as this project's backend reaches them, on random data: bytes a second of a
 * copy and FLOP/s of products. Prints a line of JSON for each.
 *
 *   gpu_rates [SIDE [MIB]]
 *
 * SIDE is that of the products, a multiple of 256, by default 8192; MIB is the size of the copy, by
 * default 4096. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ops/device.h"
#include "tests/emulation/controls.h"
#include "tests/support/bench/device_bench.h"
#include "tests/support/operators/device_case.h"

enum { MOST_BUFFERS = 4 };
struct work {
  struct plm_ops *ops;
  void *buffers[MOST_BUFFERS];
  size_t bytes;
  int64_t N, I, O;
};

static void copy(void *context)
{
  const struct work *w = context;
  w->ops->copy(w->ops, w->buffers[1], w->buffers[0], w->bytes);
}

static void product(void *context)
{
  const struct work *w = context;
  w->ops->linear_forward(w->ops, w->buffers[2], w->buffers[0], w->buffers[1], NULL, w->N, w->I,
                         w->O);
}

static void relu2_product(void *context)
{
  const struct work *w = context;
  w->ops->linear_relu2_forward(w->ops, w->buffers[2], w->buffers[0], w->buffers[1], w->N, w->I,
                               w->O);
}

static void product_through_relu2(void *context)
{
  const struct work *w = context;
  w->ops->linear_relu2_backward_input(w->ops, w->buffers[2], w->buffers[0], w->buffers[1],
                                      w->buffers[3], w->N, w->I, w->O);
}

static void print(const char *what, const char *unit, double amount, struct device_bench_time time)
{
  printf("{\"what\": \"%s\", \"unit\": \"%s\", \"rate\": %.6g, \"least\": %.6g, \"most\": %.6g, "
         "\"seconds\": %.6g, \"rounds\": %u, \"calls\": %u}\n",
         what, unit, amount / time.median_s, amount / time.most_s, amount / time.least_s,
         time.median_s, time.rounds, time.calls);
  (void)fflush(stdout);
}

static void release(struct work *w, int count)
{
  for (int i = 0; i < count; i++) w->ops->release(w->ops, w->buffers[i]);
}

static void measure_copy(struct plm_ops *ops, size_t bytes)
{
  struct work w = {.ops = ops, .bytes = bytes};
  w.buffers[0] = device_bench_random(ops, bytes / 4, 4, 1);
  w.buffers[1] = device_bench_buffer(ops, bytes);
  print("copy on the device, read and written", "B/s", 2 * (double)bytes,
        device_bench_measure(ops, copy, &w, 1));
  release(&w, 2);
}

static void measure_product(struct plm_ops *ops, const char *what, int64_t N, int64_t I, int64_t O)
{
  struct work w = {.ops = ops, .N = N, .I = I, .O = O};
  char name[128];
  w.buffers[0] = device_bench_random(ops, (size_t)(N * I), ops->act_bytes, 2);
  w.buffers[1] = device_bench_random(ops, (size_t)(O * I), ops->act_bytes, 3);
  w.buffers[2] = device_bench_buffer(ops, (size_t)(N * O) * ops->act_bytes);
  (void)snprintf(name, sizeof name, "%s product %lld x %lld x %lld%s",
                 ops->act_bytes == 2 ? "bf16" : "fp32", (long long)N, (long long)I, (long long)O,
                 what);
  print(name, "FLOP/s", 2.0 * (double)N * (double)I * (double)O,
        device_bench_measure(ops, product, &w, 1));
  release(&w, 3);
}

/* Measures the MLP's products with relu2 for widths D and F, in one way of PLM_CUDA_RELU2. */
static void measure_relu2(const char *way, int64_t N, int64_t D, int64_t F)
{
  char name[128];
  setenv("PLM_CUDA_RELU2", way, 1);
  struct plm_ops *ops = device_case_open(PLM_PRECISION_BF16, 1);
  ops->tune(ops, true, NULL);
  struct work w = {.ops = ops, .N = N, .I = D, .O = F};
  w.buffers[0] = device_bench_random(ops, (size_t)(N * D), 2, 2);
  w.buffers[1] = device_bench_random(ops, (size_t)(F * D), 2, 3);
  w.buffers[2] = device_bench_buffer(ops, (size_t)(N * F) * 2);
  w.buffers[3] = device_bench_buffer(ops, (size_t)(N * F) * 2);
  const double flops = 2.0 * (double)N * (double)D * (double)F;
  (void)snprintf(name, sizeof name, "bf16 product %lld x %lld x %lld, MLP up and relu2, %s",
                 (long long)N, (long long)D, (long long)F, way);
  print(name, "FLOP/s", flops, device_bench_measure(ops, relu2_product, &w, 1));
  ops->copy(ops, w.buffers[3], w.buffers[2], (size_t)(N * F) * 2);
  w.I = F, w.O = D; /* backward through the second product of the MLP: (N, D) by (D, F) */
  (void)snprintf(name, sizeof name, "bf16 product %lld x %lld x %lld, back through relu2, %s",
                 (long long)N, (long long)D, (long long)F, way);
  print(name, "FLOP/s", flops, device_bench_measure(ops, product_through_relu2, &w, 1));
  release(&w, MOST_BUFFERS);
  ops->close(ops);
  unsetenv("PLM_CUDA_RELU2");
}

int main(int argc, char **argv)
{
  const int64_t side = argc > 1 ? atoll(argv[1]) : 8192;
  const size_t mib = argc > 2 ? (size_t)atoll(argv[2]) : 4096;
  struct plm_ops *ops = device_case_open(PLM_PRECISION_BF16, 1);
  ops->tune(ops, true, NULL); /* as training does */
  printf("{\"what\": \"backend\", \"name\": \"%s\", \"isa\": \"%s\"}\n", ops->name, ops->isa);
  measure_copy(ops, mib << 20);
  measure_product(ops, "", side, side, side);
  /* the products of the 24x768 U-Net, 65,536 tokens: q k v, MLP up and down */
  const int64_t D = 3 * side / 32, F = side / 4;
  measure_product(ops, ", q k v", 8 * side, D, 3 * D);
  measure_product(ops, ", MLP up", 8 * side, D, F);
  measure_product(ops, ", MLP down", 8 * side, F, D);
  const bool fused = strcmp(ops->isa, "sm_90a") == 0 || !device_case_is_real();
  ops->close(ops);
  measure_relu2("library", 8 * side, D, F);
  if (!device_case_is_real()) { /* a rehearsal: these kernels need a device of 9.0 */
    plm_emulation_capability(90, false);
    setenv("PLM_CUDA_ATTENTION", "mma", 1);
  }
  if (fused) measure_relu2("fused", 8 * side, D, F);
  ops = device_case_open(PLM_PRECISION_FP32, 1);
  ops->tune(ops, true, NULL);
  measure_product(ops, "", side / 4, side / 4, side / 4);
  ops->close(ops);
  return 0;
}
