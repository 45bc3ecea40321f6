/* Measuring the rate of products. */
#include "trainer/product_rate.h"

#include "common/base/clock.h"

enum { SIDE = 1024, BUFFERS = 3, REPETITIONS_MAX = 32, BUDGET_MS = 120 };

double plm_product_rate(struct plm_ops *ops)
{
  const size_t bytes = ops->act_bytes * SIDE * SIDE;
  void *buffers[BUFFERS] = {0};
  plm_status status = PLM_OK;
  double best_s = 0;
  for (int i = 0; i < BUFFERS && status == PLM_OK; i++) {
    status = ops->allocate(ops, bytes, &buffers[i], NULL);
    if (status == PLM_OK) ops->zero(ops, buffers[i], bytes);
  }
  const int64_t started_ms = plm_clock_ms();
  for (int i = 0; status == PLM_OK && i < REPETITIONS_MAX; i++) {
    const uint64_t started = plm_clock_ns();
    ops->linear_forward(ops, buffers[0], buffers[1], buffers[2], NULL, SIDE, SIDE, SIDE);
    status = ops->synchronize(ops, NULL);
    const double took_s = 1e-9 * (double)(plm_clock_ns() - started);
    if (i > 0 && (best_s == 0 || took_s < best_s)) best_s = took_s; /* the first one warms up */
    if (i > 0 && plm_clock_ms() - started_ms > BUDGET_MS) break;
  }
  for (int i = 0; i < BUFFERS; i++)
    if (buffers[i] != NULL) ops->release(ops, buffers[i]);
  return status == PLM_OK && best_s > 0 ? 2.0 * SIDE * SIDE * SIDE / best_s : 0;
}
