/* The ceilings of a GPU as this project's own backend reaches them: bytes a second of a copy,
 * FLOP/s of products, on random data. A line of JSON each.
 *
 *   gpu_rates [SIDE [MIB]]     of the products, a multiple of 256, 8192; of the copy, 4096 */
#include <stdio.h>
#include <stdlib.h>

#include "common/config/config.h"
#include "tests/support/device_bench.h"
#include "tests/support/device_case.h"

struct work {
  struct plm_ops *ops;
  void *buffers[3];
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
  ops->close(ops);
  ops = device_case_open(PLM_PRECISION_FP32, 1);
  ops->tune(ops, true, NULL);
  measure_product(ops, "", side / 4, side / 4, side / 4);
  ops->close(ops);
  return 0;
}
