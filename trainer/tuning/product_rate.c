/* Measures the rate of square products of random values (a GPU is faster on zeros), of widths that
 * grow until one takes more than a millisecond. */
#include "trainer/tuning/product_rate.h"

#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 256, LARGEST = 8192, BUFFERS = 3, REPETITIONS_MAX = 32 };
static const double LONG_ENOUGH_S = 1e-3;
static const uint64_t BUDGET_NS = 120000000;

struct product {
  struct plm_ops *ops;
  void *buffers[BUFFERS];
  int64_t side;
};

static void product_close(struct product *p)
{
  for (int i = 0; i < BUFFERS; i++)
    if (p->buffers[i] != NULL) p->ops->release(p->ops, p->buffers[i]);
}

/* Draws the first rows in (-1, 1) and copies them to the others. */
static bool product_rate_fill(struct product *p, char *buffer, uint32_t seed)
{
  const size_t row = (size_t)p->side * p->ops->act_bytes, drawn = SMALLEST * row;
  void *host = malloc(drawn);
  if (host == NULL) return false;
  for (size_t i = 0; i < SMALLEST * (size_t)p->side; i++) {
    seed = seed * 1664525u + 1013904223u;
    const union {
      float value;
      uint32_t bits;
    } number = {(float)(seed >> 8) * 0x1p-23f - 1};
    if (p->ops->act_bytes == 2)
      ((uint16_t *)host)[i] = (uint16_t)(number.bits >> 16);
    else
      ((float *)host)[i] = number.value;
  }
  p->ops->upload(p->ops, buffer, host, drawn);
  for (size_t done = drawn; done < (size_t)p->side * row; done *= 2)
    p->ops->copy(p->ops, buffer + done, buffer, done);
  free(host);
  return true;
}

static bool product_open(struct product *p, struct plm_ops *ops, int64_t side)
{
  *p = (struct product){.ops = ops, .side = side};
  for (int i = 0; i < BUFFERS; i++) {
    const size_t bytes = (size_t)side * (size_t)side * ops->act_bytes;
    if (ops->allocate(ops, bytes, &p->buffers[i], NULL) == PLM_OK &&
        (i == 0 || product_rate_fill(p, p->buffers[i], (uint32_t)i)))
      continue;
    product_close(p);
    return false;
  }
  return true;
}

/* Seconds of one product; negative if the device reports an error. */
static double product_rate_run(const struct product *p, uint64_t (*clock_ns)(void))
{
  const uint64_t started = clock_ns();
  p->ops->linear_forward(p->ops, p->buffers[0], p->buffers[1], p->buffers[2], NULL, p->side,
                         p->side, p->side);
  if (p->ops->synchronize(p->ops, NULL) != PLM_OK) return -1;
  return 1e-9 * (double)(clock_ns() - started);
}

/* Replaces the product by one that takes longer than LONG_ENOUGH_S if time grows with the number of
 * multiply-adds. A device's small products mostly take the time of a launch, which grows less, so
 * it needs few sizes. If memory is short, the next product is smaller. Returns false if there is no
 * larger product. */
static bool product_rate_grow(struct product *p, double took_s)
{
  struct product larger;
  int64_t side = p->side;
  for (; side < LARGEST && took_s <= LONG_ENOUGH_S; took_s *= 8) side *= 2;
  for (; side > p->side; side /= 2) {
    if (!product_open(&larger, p->ops, side)) continue;
    product_close(p);
    *p = larger;
    return true;
  }
  return false;
}

/* The first product of a size only warms up: it may load kernels and prepare the library, which can
 * take longer than the budget. */
double plm_product_rate(struct plm_ops *ops, uint64_t (*clock_ns)(void))
{
  struct product p;
  double best_s = 0;
  uint64_t started = 0;
  if (ops->synchronize(ops, NULL) != PLM_OK || !product_open(&p, ops, SMALLEST)) return 0;
  for (int i = 0; i < REPETITIONS_MAX; i++) {
    const double took_s = product_rate_run(&p, clock_ns);
    if (took_s < 0) break;
    if (i == 0) {
      started = clock_ns();
      continue;
    }
    if (best_s == 0 || took_s < best_s) best_s = took_s;
    if (product_rate_grow(&p, best_s)) {
      i = -1;
      best_s = 0;
    } else if (clock_ns() - started > BUDGET_NS) {
      break;
    }
  }
  product_close(&p);
  if (ops->release_workspace != NULL) ops->release_workspace(ops); /* of products this large */
  const double side = (double)p.side;
  return best_s > 0 ? 2 * side * side * side / best_s : 0;
}
