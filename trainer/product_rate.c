/* Measuring the rate of products. */
#include "trainer/product_rate.h"

#include "common/base/clock.h"

enum { SMALLEST = 256, LARGEST = 8192, BUFFERS = 3, REPETITIONS_MAX = 32, BUDGET_MS = 120 };
static const double long_enough_s = 0.02;

/* Seconds of the fastest product of three matrices of this side, the first call apart; 0: no
 * memory. repetitions: at least two. */
static double product_s(struct plm_ops *ops, int64_t side, int repetitions)
{
  const size_t bytes = ops->act_bytes * (size_t)(side * side);
  void *buffers[BUFFERS] = {0};
  plm_status status = PLM_OK;
  double best_s = 0;
  for (int i = 0; i < BUFFERS && status == PLM_OK; i++) {
    status = ops->allocate(ops, bytes, &buffers[i], NULL);
    if (status == PLM_OK) ops->zero(ops, buffers[i], bytes);
  }
  const int64_t started_ms = plm_clock_ms();
  for (int i = 0; status == PLM_OK && i < repetitions; i++) {
    const uint64_t started = plm_clock_ns();
    ops->linear_forward(ops, buffers[0], buffers[1], buffers[2], NULL, side, side, side);
    status = ops->synchronize(ops, NULL);
    const double took_s = 1e-9 * (double)(plm_clock_ns() - started);
    if (i > 0 && (best_s == 0 || took_s < best_s)) best_s = took_s; /* the first one warms up */
    if (i > 0 && plm_clock_ms() - started_ms > BUDGET_MS) break;
  }
  for (int i = 0; i < BUFFERS; i++)
    if (buffers[i] != NULL) ops->release(ops, buffers[i]);
  return status == PLM_OK ? best_s : 0;
}

/* The product must be large for the device at hand: its side doubles until it takes a while. */
double plm_product_rate(struct plm_ops *ops)
{
  int64_t side = SMALLEST;
  double took_s = product_s(ops, side, 2);
  while (took_s > 0 && took_s < long_enough_s && side < LARGEST) {
    const double larger_s = product_s(ops, 2 * side, 2);
    if (larger_s == 0) break; /* no memory for it */
    took_s = larger_s;
    side *= 2;
  }
  took_s = took_s > 0 ? product_s(ops, side, REPETITIONS_MAX) : 0;
  return took_s > 0 ? 2.0 * (double)(side * side * side) / took_s : 0;
}
