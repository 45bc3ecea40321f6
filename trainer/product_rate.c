/* Measures the rate of square products of random values (a GPU is faster on zeros), doubling their
 * width until one takes more than a millisecond. */
#include "trainer/product_rate.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"

enum { SMALLEST = 256, LARGEST = 8192, BUFFERS = 3, REPETITIONS_MAX = 32, BUDGET_MS = 120 };
static const double LONG_ENOUGH_S = 1e-3;

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
static bool fill(struct product *p, char *buffer, uint32_t seed)
{
  const size_t row = (size_t)p->side * p->ops->act_bytes, drawn = SMALLEST * row;
  char *host = malloc(drawn);
  if (host == NULL) return false;
  for (size_t i = 0; i < SMALLEST * (size_t)p->side; i++) {
    seed = seed * 1664525u + 1013904223u;
    const float value = (float)(seed >> 8) * 0x1p-23f - 1;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t half = (uint16_t)(bits >> 16);
    if (p->ops->act_bytes == 2)
      memcpy(host + 2 * i, &half, sizeof half);
    else
      memcpy(host + 4 * i, &value, sizeof value);
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
        (i == 0 || fill(p, p->buffers[i], (uint32_t)i)))
      continue;
    product_close(p);
    return false;
  }
  return true;
}

/* Seconds of one product; negative if the device reports an error. */
static double run(const struct product *p)
{
  const uint64_t started = plm_clock_ns();
  p->ops->linear_forward(p->ops, p->buffers[0], p->buffers[1], p->buffers[2], NULL, p->side,
                         p->side, p->side);
  if (p->ops->synchronize(p->ops, NULL) != PLM_OK) return -1;
  return plm_clock_seconds_since(started);
}

double plm_product_rate(struct plm_ops *ops)
{
  struct product p;
  double best_s = 0;
  int64_t side = SMALLEST;
  if (ops->synchronize(ops, NULL) != PLM_OK || !product_open(&p, ops, side)) return 0;
  const int64_t started_ms = plm_clock_ms();
  for (int i = 0; i < REPETITIONS_MAX; i++) {
    const double took_s = run(&p);
    if (took_s < 0) break;
    if (i > 0 && (best_s == 0 || took_s < best_s)) best_s = took_s; /* the first one warms up */
    if (i > 0 && plm_clock_ms() - started_ms > BUDGET_MS) break;
    if (i == 0 || best_s > LONG_ENOUGH_S || side == LARGEST) continue;
    struct product larger;
    if (!product_open(&larger, ops, 2 * side)) continue; /* no memory: keep this size */
    product_close(&p);
    p = larger;
    side *= 2;
    best_s = 0;
    i = -1;
  }
  product_close(&p);
  return best_s > 0 ? 2.0 * (double)side * (double)side * (double)side / best_s : 0;
}
