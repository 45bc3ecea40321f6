/* The scratch of a thread, the tiles of a segment, and the packing of Q, K, V and dO for the
 * products. Only isa/attention_tile.c includes this file.
 */
#ifndef PLM_KERNELS_CPU_ISA_ATTENTION_PACK_H
#define PLM_KERNELS_CPU_ISA_ATTENTION_PACK_H

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/isa/attention_pairs.h"

enum {
  TILE = PLM_ATTENTION_TILE_QUERIES,
  BLOCK = PLM_ATTENTION_TILE_KEYS,
  COLUMNS = TILE / LANES, /* vectors in a tile */
  LINE = 64,              /* bytes of a cache line */
};

/* Parts of a thread's scratch. `width` is padded_width(K); elements are floats.
 *
 * With pairs of bf16, k, v and the rows of Q and dO are rows of interleaved pairs
 * (attention_pairs.h), so there are half as many of them. P and dS are written over S and dP. The
 * products for O and dQ read P and dS as (BLOCK / 2, TILE) pairs of keys; those for dV and dK read
 * them as (BLOCK, TILE) rows of bf16 that are as far apart as rows of floats. */
struct workspace {
  float *k_pairs, *v_pairs;      /* (keys of the segment, K / 2): pairs of bf16, copied unchanged */
  float *k, *v, *dk, *dv;        /* (keys of the segment, width) */
  float *q_columns, *do_columns; /* (K, TILE) */
  float *q_rows, *do_rows;       /* (TILE, width) */
  float *result;                 /* (TILE, width): O or dQ */
  float *scores, *slopes;        /* (BLOCK, TILE): S, then P; dP, then dS */
  float *derivative;             /* (BLOCK, TILE): of the soft cap, then dS in pairs of keys */
  float *statistics;             /* (4, TILE) */
};

struct tile {
  int32_t first;                /* first query */
  int count;                    /* queries */
  int vectors;                  /* vectors in use */
  int32_t begin, end;           /* keys that any of the queries sees */
  int32_t full_begin, full_end; /* keys that all of them see */
  int32_t key_begin[TILE], key_end[TILE];
};

static int padded_width(int K)
{
  return (K + LANES - 1) / LANES * LANES;
}

static void lay_out(const struct plm_attention_task *task, struct workspace *w)
{
  const size_t keys = (size_t)(task->segment.key_end - task->segment.key_begin);
  const size_t width = (size_t)padded_width(task->K);
  float *at = task->scratch;
#define TAKE(field, count) (w->field = at, at += (count))
  TAKE(q_columns, (size_t)task->K * TILE);
  TAKE(do_columns, (size_t)task->K * TILE);
  TAKE(q_rows, TILE * width);
  TAKE(do_rows, TILE * width);
  TAKE(result, TILE * width);
  TAKE(scores, BLOCK * TILE);
  TAKE(slopes, BLOCK * TILE);
  TAKE(derivative, BLOCK * TILE);
  TAKE(statistics, 4 * TILE);
  TAKE(k_pairs, keys * (size_t)task->K / 2);
  TAKE(v_pairs, keys * (size_t)task->K / 2);
  at += (16 - (size_t)(at - task->scratch) % 16) % 16; /* rows of k start on a cache line */
  TAKE(k, keys * width);
  TAKE(v, keys * width);
  TAKE(dk, keys * width);
  TAKE(dv, keys * width);
#undef TAKE
}

/* Rows are far apart in memory, so reading one waits for it. The thread is likely to need the next
 * head of this row soon, which is next to this one. */
FORCE_INLINE void prefetch_next_head(const void *base, int64_t row, int K, bool is_bf16)
{
  const int64_t bytes = is_bf16 ? 2 : 4;
  const char *next = (const char *)base + (row + K) * bytes;
  for (int64_t at = 0; at < K * bytes + LINE / 2; at += LINE) __builtin_prefetch(next + at, 0, 2);
}

/* Widens rows of K activations to rows of padded_width(K) floats. */
static void pack_rows(float *out, const void *in, int64_t first, int count, int64_t stride, int K,
                      bool is_bf16)
{
  const int width = padded_width(K), whole = K / LANES * LANES;
  for (int r = 0; r < count; r++, out += width) {
    const int64_t row = (first + r) * stride;
    prefetch_next_head(in, row, K, is_bf16);
    for (int d = 0; d < whole; d += LANES) store(out + d, load_act(in, row + d, LANES, is_bf16));
    if (whole < K) store(out + whole, load_act(in, row + whole, K - whole, is_bf16));
  }
}

FORCE_INLINE void transpose_square(vfloat x[LANES])
{
  vint lane;
  for (int i = 0; i < LANES; i++) lane[i] = i;
#pragma GCC unroll 4
  for (int s = 1; s < LANES; s *= 2) {
    const vint odd = (lane & s) != 0;
    const vint upper = lane + (odd & (LANES - s));
    const vint lower = lane + s + (odd & (LANES - s));
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
      if (i & s) continue;
      const vfloat a = x[i], b = x[i + s];
      x[i] = __builtin_shuffle(a, b, upper);
      x[i + s] = __builtin_shuffle(a, b, lower);
    }
  }
}

/* Transposes `count` rows of `columns` 32-bit words, `stride` apart, to (columns, TILE). The lanes
 * beyond `count` in the first `vectors` vectors become 0. Words are only moved, so they may be
 * floats or pairs of bf16. */
static void transpose_rows(float *out, const float *rows, int64_t stride, int count, int vectors,
                           int columns)
{
  for (int d = 0; d < columns; d += LANES)
    for (int v = 0; v < vectors; v++) {
      const int depth = columns - d < LANES ? columns - d : LANES;
      vfloat square[LANES];
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++) {
        const int r = v * LANES + i;
        square[i] = r < count ? load_act(rows, r * stride + d, depth, false) : (vfloat){0};
      }
      transpose_square(square);
      for (int i = 0; i < depth; i++) store(out + (d + i) * TILE + v * LANES, square[i]);
    }
}

/* Transposes the rows of Q or dO of a tile. It reads the packed `rows`, or if the activations are
 * pairs of bf16, these themselves (`came`). */
static void transpose_tile(const struct plm_attention_task *task, const struct tile *tile,
                           float *out, const float *rows, const void *came, int64_t stride)
{
  if (task->pairs && task->bf16)
    transpose_rows(out, (const float *)came + tile->first * stride / 2, stride / 2, tile->count,
                   tile->vectors, task->K / 2);
  else if (task->pairs)
    transpose_rows(out, rows, task->K / 2, tile->count, tile->vectors, task->K / 2);
  else
    transpose_rows(out, rows, padded_width(task->K), tile->count, tile->vectors, task->K);
}

#if defined(PLM_ISA_avx512)
static void pack_pairs(float *out, const void *in, int64_t first, int count, int64_t stride, int K,
                       bool is_bf16)
{
  for (int r = 0; r < count; r++) {
    const int64_t row = (first + r) * stride;
    uint16_t *to = (uint16_t *)(out + (int64_t)r * (K / 2));
    if (is_bf16) {
      memcpy(to, (const uint16_t *)in + row, (size_t)K * sizeof *to);
      continue;
    }
    prefetch_next_head(in, row, K, false);
    for (int d = 0; d < K; d += LANES) {
      const int elements = K - d < LANES ? K - d : LANES;
      const __m512i two = to_bf16_two(load_act(in, row + d, elements, false), (vfloat){0});
      _mm256_mask_storeu_epi16(to + d, first_lanes(elements), _mm512_castsi512_si256(two));
    }
  }
}
#endif

/* Packs the keys and values of the segment for the products. With pairs, the forward pass needs V
 * interleaved along the keys (O = P V), and the backward pass K (dQ = dS K). */
static void pack_keys(const struct plm_attention_task *task, const struct workspace *w,
                      bool backward)
{
  const struct plm_attention_segment *s = &task->segment;
  const int K = task->K, keys = s->key_end - s->key_begin;
#if defined(PLM_ISA_avx512)
  if (task->pairs) {
    pack_pairs(w->k_pairs, task->k, s->key_begin, keys, task->row_stride, K, task->bf16);
    if (backward)
      pack_pairs(w->v_pairs, task->v, s->key_begin, keys, task->row_stride, K, task->bf16);
    interleave_rows(backward ? w->k : w->v, backward ? task->k : task->v, s->key_begin, keys,
                    task->row_stride, K, padded_width(K), task->bf16);
    return;
  }
#endif
  (void)backward;
  pack_rows(w->k, task->k, s->key_begin, keys, task->row_stride, K, task->bf16);
  pack_rows(w->v, task->v, s->key_begin, keys, task->row_stride, K, task->bf16);
}

/* Packs the rows of Q of a tile for the forward pass, unless they are pairs of bf16 already. */
static void pack_queries(const struct plm_attention_task *task, const struct workspace *w,
                         const struct tile *tile)
{
#if defined(PLM_ISA_avx512)
  if (task->pairs) {
    if (!task->bf16)
      pack_pairs(w->q_rows, task->q, tile->first, tile->count, task->row_stride, task->K, false);
    return;
  }
#endif
  pack_rows(w->q_rows, task->q, tile->first, tile->count, task->row_stride, task->K, task->bf16);
}

/* Packs the rows of Q and dO of a tile for the products along queries (dV, dK). */
static void pack_tile(const struct plm_attention_task *task, const struct workspace *w,
                      const struct tile *tile)
{
  const int K = task->K;
#if defined(PLM_ISA_avx512)
  if (task->pairs) {
    interleave_rows(w->q_rows, task->q, tile->first, tile->count, task->row_stride, K,
                    padded_width(K), true);
    interleave_rows(w->do_rows, task->dout, tile->first, tile->count, task->out_stride, K,
                    padded_width(K), true);
    return;
  }
#endif
  pack_rows(w->q_rows, task->q, tile->first, tile->count, task->row_stride, K, task->bf16);
  pack_rows(w->do_rows, task->dout, tile->first, tile->count, task->out_stride, K, task->bf16);
}

/* The number of tiles of a segment. Its queries are divided evenly among them, in whole vectors. */
static int tiles_of(const struct plm_attention_segment *segment)
{
  const int vectors = (segment->query_end - segment->query_begin + LANES - 1) / LANES;
  return (vectors + COLUMNS - 1) / COLUMNS;
}

static void describe_tile(const struct plm_attention_task *task, int number, int tiles,
                          struct tile *tile)
{
  const struct plm_attention_segment *s = &task->segment;
  const int vectors = (s->query_end - s->query_begin + LANES - 1) / LANES;
  const int from = vectors * number / tiles, to = vectors * (number + 1) / tiles;
  tile->first = s->query_begin + from * LANES;
  tile->vectors = to - from;
  tile->count = tile->vectors * LANES;
  if (tile->first + tile->count > s->query_end) tile->count = s->query_end - tile->first;
  tile->begin = INT32_MAX;
  tile->end = 0;
  tile->full_begin = 0;
  tile->full_end = INT32_MAX;
  for (int i = 0; i < tile->vectors * LANES; i++) {
    const bool real = i < tile->count;
    const int32_t begin = real ? task->key_begin[tile->first + i] : 0;
    const int32_t end = real ? task->key_end[tile->first + i] : 0;
    tile->key_begin[i] = begin;
    tile->key_end[i] = end;
    if (!real) continue; /* lanes beyond the tile are never stored, so they need no mask */
    if (begin > tile->full_begin) tile->full_begin = begin;
    if (end < tile->full_end) tile->full_end = end;
    if (begin == end) continue;
    if (begin < tile->begin) tile->begin = begin;
    if (end > tile->end) tile->end = end;
  }
  if (tile->begin > tile->end) tile->begin = tile->end;
  /* Pairs of keys are counted from the segment's first key. If this adds a key, it is masked. */
  if (task->pairs && tile->begin < tile->end) tile->begin -= (tile->begin - s->key_begin) & 1;
}

#endif
