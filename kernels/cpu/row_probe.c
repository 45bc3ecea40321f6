/* The row of A is antisymmetric and the rows of B are symmetric: a[K-1-k] = -a[k], B[K-1-k] = B[k].
 * Without rounding, a row of C would be zero. Only the rounding errors of its sums remain, so a
 * different order of summation shows even in bf16. (The halves mirror each other. If they repeated
 * each other, a library that sums each half of K separately would give exact zeros.) */
#include "kernels/cpu/row_probe.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { RING = 65521 }; /* a prime, so that no stride of B repeats within it */

static void put(char *to, int64_t at, int64_t bytes, float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t upper = (uint16_t)(bits >> 16);
  if (bytes == 2)
    memcpy(to + at * 2, &upper, sizeof upper);
  else
    memcpy(to + at * 4, &value, sizeof value);
}

/* A pseudorandom value of either sign. The magnitudes vary widely, so that sums are rounded. */
static float next_value(uint64_t *state)
{
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  const float magnitude = 1 + (float)(*state >> 41) * 0x1p-23f;
  const float scale = 1.0f / (float)(1 << (*state % 12));
  return (*state >> 12 & 1) != 0 ? magnitude * scale : -magnitude * scale;
}

static void fill_row(char *row, int64_t K, int64_t bytes, uint64_t *state)
{
  for (int64_t k = 0; k < K / 2; k++) {
    const float value = next_value(state);
    put(row, k, bytes, value);
    put(row, K - 1 - k, bytes, -value);
  }
  if (K % 2 != 0) put(row, K / 2, bytes, next_value(state) * 0x1p-20f);
}

/* Fills the ring, unless it is full. */
static bool fill_ring(struct plm_probe_ring *ring, int64_t bytes)
{
  if (ring->bytes == bytes) return true;
  plm_probe_ring_free(ring);
  ring->elements = malloc((size_t)(RING * bytes));
  if (ring->elements == NULL) return false;
  ring->state = 88172645463325252u;
  for (int64_t i = 0; i < RING; i++) put(ring->elements, i, bytes, next_value(&ring->state));
  ring->bytes = bytes;
  return true;
}

void plm_probe_ring_free(struct plm_probe_ring *ring)
{
  free(ring->elements);
  *ring = (struct plm_probe_ring){0};
}

/* Copies `count` elements of the ring from element `at` on. */
static void copy_ring(char *to, const struct plm_probe_ring *ring, int64_t at, int64_t count)
{
  const int64_t bytes = ring->bytes;
  for (at %= RING; count > 0; at = 0) {
    const int64_t part = count < RING - at ? count : RING - at;
    memcpy(to, ring->elements + at * bytes, (size_t)(part * bytes));
    to += part * bytes;
    count -= part;
  }
}

/* Fills B as it is stored: K rows of N elements, or N rows of K if it is transposed. */
static void fill_B(char *B, const struct plm_product_shape *s, const struct plm_probe_ring *ring)
{
  const int64_t bytes = plm_product_in_bytes(s), K = s->K, stride = s->ldb * bytes;
  for (int64_t k = 0; !s->transpose_b && k < K; k++)
    copy_ring(B + k * stride, ring, (k < K - 1 - k ? k : K - 1 - k) * s->N, s->N);
  for (int64_t n = 0; s->transpose_b && n < s->N; n++) {
    char *row = B + n * stride;
    copy_ring(row, ring, n * K, (K + 1) / 2);
    for (int64_t k = (K + 1) / 2; k < K; k++)
      memcpy(row + k * bytes, row + (K - 1 - k) * bytes, (size_t)bytes);
  }
}

void plm_probe_free(struct plm_probe *probe)
{
  free(probe->A);
  free(probe->B);
  free(probe->C);
  free(probe->start);
  malloc_trim(0); /* B is as large as weights, and what the library keeps lies behind it */
}

static void *get_lines(int64_t bytes)
{
  enum { LINE = 64 };
  return aligned_alloc(LINE, (size_t)(bytes / LINE + 1) * LINE);
}

bool plm_probe_make(struct plm_probe *probe, struct plm_probe_ring *ring,
                    const struct plm_product_shape *s, int64_t rows)
{
  const int64_t in = plm_product_in_bytes(s), out = plm_product_out_bytes(s);
  *probe = (struct plm_probe){.A = get_lines(rows * s->K * in),
                              .B = get_lines((s->transpose_b ? s->N : s->K) * s->ldb * in),
                              .C = get_lines(rows * s->N * out),
                              .start = get_lines(s->N * out)};
  if (probe->A == NULL || probe->B == NULL || probe->C == NULL || probe->start == NULL ||
      !fill_ring(ring, in)) {
    plm_probe_free(probe);
    return false;
  }
  uint64_t state = ring->state;
  fill_row(probe->A, s->K, in, &state);
  fill_B(probe->B, s, ring);
  for (int64_t i = 0; i < s->N; i++) put(probe->start, i, out, next_value(&state) * 0x1p-20f);
  for (int64_t i = 1; i < rows; i++)
    memcpy(probe->A + i * s->K * in, probe->A, (size_t)(s->K * in));
  return true;
}

bool plm_probe_turn(struct plm_probe *probe, const struct plm_product_shape *s)
{
  PLM_ASSERT(s->transpose_b && !s->is_bf16);
  enum { BLOCK = 64 }; /* columns of B; their lines stay in the cache */
  const float *B = (const float *)(const void *)probe->B;
  float *turned = get_lines(s->K * s->N * (int64_t)sizeof *turned);
  if (turned == NULL) return false;
  for (int64_t begin = 0; begin < s->K; begin += BLOCK)
    for (int64_t n = 0; n < s->N; n++)
      for (int64_t k = begin; k < s->K && k < begin + BLOCK; k++)
        turned[k * s->N + n] = B[n * s->ldb + k];
  free(probe->B);
  probe->B = (char *)turned;
  return true;
}

void plm_probe_slice(struct plm_probe *probe, const struct plm_product_shape *s, int64_t first,
                     int64_t columns, bool dense)
{
  char *B = probe->B;
  const int64_t bytes = plm_product_in_bytes(s), rows = s->transpose_b ? columns : s->K;
  const int64_t from = first * (s->transpose_b ? s->ldb : 1) * bytes;
  if (columns == s->N) return;
  if (!dense) {
    memmove(B, B + from,
            (size_t)((rows - 1) * s->ldb + (s->transpose_b ? s->K : columns)) * (size_t)bytes);
    return;
  }
  for (int64_t k = 0; k < s->K; k++)
    memmove(B + k * columns * bytes, B + from + k * s->ldb * bytes, (size_t)(columns * bytes));
}
