/* Attention of one head of one segment, forward and backward: online softmax over blocks of keys,
 * tile by tile of queries (Dao et al., FlashAttention, 2022; Rabe & Staats 2021), in fp32.
 *
 * Scores lie key-major, S^T[key][query]: queries are the lanes of the vectors, so maxima and sums
 * of the softmax run down columns and need no shuffle, and every product is a row-times-broadcast
 * one (attention_product.h). Only a tile of Q (and of dO) is transposed.
 *
 * Scores are the raw products (or log2 e times the capped ones); the factor that makes them powers
 * of two, exp(x) = 2^(x log2 e), is a fused multiplication of the exponent. K, V and the rows of Q
 * and dO are packed as float; bf16 is widened there, once. Where the processor multiplies bf16
 * pairs, S and dP are products of the activations as they are: exact, summed in fp32.
 */
#include "kernels/cpu/attention_tile.h"

#include <math.h>

#include "kernels/cpu/isa/attention_product.h"
#include "kernels/cpu/isa/attention_vector.h"

enum {
  TILE = PLM_ATTENTION_TILE_QUERIES,
  BLOCK = PLM_ATTENTION_TILE_KEYS,
  COLUMNS = TILE / LANES, /* vectors of a tile */
};

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
/* The running maximum starts here: finite, so that (-inf) - maximum is no NaN. */
#define LOWEST (-1e30f)

/* Pieces of a thread's scratch; rows of width floats unless said otherwise. */
struct workspace {
  float *k_pairs, *v_pairs;      /* (keys of the segment, K / 2) pairs of bf16, as they came */
  float *k, *v, *dk, *dv;        /* (keys of the segment, width) */
  float *q_columns, *do_columns; /* (K, TILE) */
  float *q_rows, *do_rows;       /* (TILE, width) */
  float *result;                 /* (TILE, width): O or dQ */
  float *scores, *slopes;        /* (BLOCK, TILE): S then P; dP then dS */
  float *derivative;             /* (BLOCK, TILE): of the soft cap */
  float *statistics;             /* (4, TILE) */
};

struct tile {
  int32_t first;                /* query */
  int count;                    /* queries */
  int vectors;                  /* columns in use */
  int32_t begin, end;           /* keys that any of them sees */
  int32_t full_begin, full_end; /* keys that all see */
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

/* rows of K activations -> rows of padded_width(K) floats */
static void pack_rows(float *out, const void *in, int64_t first, int count, int64_t stride, int K,
                      bool is_bf16)
{
  const int width = padded_width(K);
  for (int r = 0; r < count; r++)
    for (int d = 0; d < width; d += LANES)
      store(out + (int64_t)r * width + d,
            load_act(in, (first + r) * stride + d, K - d < LANES ? K - d : LANES, is_bf16));
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

/* count rows of `columns` 32-bit words, stride apart -> (columns, TILE); lanes from count on are 0
 * up to `vectors` vectors. Only moves: the words may be floats or pairs of bf16. */
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

/* A tile's rows of Q or dO, packed as `rows` or as they came, to columns. */
static void transpose_tile(const struct plm_attention_task *task, const struct tile *tile,
                           float *out, const float *rows, const void *came, int64_t stride)
{
  if (task->pairs)
    transpose_rows(out, (const float *)came + tile->first * stride / 2, stride / 2, tile->count,
                   tile->vectors, task->K / 2);
  else
    transpose_rows(out, rows, padded_width(task->K), tile->count, tile->vectors, task->K);
}

static void pack_pairs(float *out, const void *in, int64_t first, int count, int64_t stride, int K)
{
  for (int r = 0; r < count; r++)
    memcpy(out + (int64_t)r * (K / 2), (const uint16_t *)in + (first + r) * stride,
           (size_t)K * sizeof(uint16_t));
}

/* Keys of the segment as the products want them. */
static void pack_keys(const struct plm_attention_task *task, const struct workspace *w)
{
  const struct plm_attention_segment *s = &task->segment;
  const int K = task->K, keys = s->key_end - s->key_begin;
  pack_rows(w->k, task->k, s->key_begin, keys, task->row_stride, K, task->bf16);
  pack_rows(w->v, task->v, s->key_begin, keys, task->row_stride, K, task->bf16);
  if (!task->pairs) return;
  pack_pairs(w->k_pairs, task->k, s->key_begin, keys, task->row_stride, K);
  pack_pairs(w->v_pairs, task->v, s->key_begin, keys, task->row_stride, K);
}

/* What turns a stored score into a power of two. */
static float exponent_factor(const struct plm_attention_task *task)
{
  return task->soft_cap > 0 ? 1.0f : task->scale * LOG2_E;
}

/* C (count keys, TILE) = rows of K or V from key `first` on times columns of Q or dO. */
static void multiply_keys(const struct plm_attention_task *task, const struct tile *tile,
                          const float *rows, const float *pairs, const float *columns, float *out,
                          int32_t first, int count)
{
  const int64_t key = first - task->segment.key_begin;
  const int width = padded_width(task->K), depth = task->pairs ? task->K / 2 : task->K;
  const struct product product = {.a = task->pairs ? pairs + key * depth : rows + key * width,
                                  .a_row = task->pairs ? depth : width,
                                  .a_depth = 1,
                                  .b = columns,
                                  .b_stride = TILE,
                                  .c = out,
                                  .c_stride = TILE,
                                  .depth = depth,
                                  .mode = PRODUCT_SET,
                                  .factor = columns /* unused */};
#if defined(PLM_ISA_avx512)
  if (task->pairs) {
    product_run_pairs(&product, count, tile->vectors);
    return;
  }
#endif
  product_run(&product, count, tile->vectors);
}

/* Tiles of a segment: its queries in whole vectors, shared out evenly. */
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
    if (!real) continue; /* lanes beyond the tile are never stored: no need to mask them */
    if (begin > tile->full_begin) tile->full_begin = begin;
    if (end < tile->full_end) tile->full_end = end;
    if (begin == end) continue;
    if (begin < tile->begin) tile->begin = begin;
    if (end > tile->end) tile->end = end;
  }
  if (tile->begin > tile->end) tile->begin = tile->end;
}

/* S^T of a block of keys: product, soft cap with its derivative, -inf where not allowed. */
static void score_block(const struct plm_attention_task *task, const struct workspace *w,
                        const struct tile *tile, int32_t first, int count, bool with_derivative)
{
  multiply_keys(task, tile, w->k, w->k_pairs, w->q_columns, w->scores, first, count);
  if (task->soft_cap > 0) {
    const float cap = task->soft_cap * LOG2_E, inner = task->scale / task->soft_cap;
    for (int r = 0; r < count; r++)
      for (int v = 0; v < tile->vectors; v++) {
        float *at = w->scores + r * TILE + v * LANES;
        const vfloat t = tanh_of(load(at) * inner);
        store(at, t * cap);
        if (with_derivative) store(w->derivative + r * TILE + v * LANES, 1.0f - t * t);
      }
  }
  if (first >= tile->full_begin && first + count <= tile->full_end) return;
  for (int v = 0; v < tile->vectors; v++) {
    const vint begin = load_int(tile->key_begin + v * LANES);
    const vint end = load_int(tile->key_end + v * LANES);
    for (int r = 0; r < count; r++) {
      float *at = w->scores + r * TILE + v * LANES;
      const vint key = splat_int(first + r);
      store(at, choose((key >= begin) & (key < end), load(at), splat(-INFINITY)));
    }
  }
}

/* Scores become probabilities against the running maximum; the old sums' factor goes to `factor`.
 */
static void softmax_block(const struct workspace *w, int vectors, int count, float exponent,
                          float *factor)
{
  float *maxima = w->statistics, *sums = w->statistics + TILE;
  for (int v = 0; v < vectors; v++) {
    float *column = w->scores + v * LANES;
    const vfloat before = load(maxima + v * LANES);
    vfloat m[4] = {before, before, before, before};
    int r = 0;
    for (; r + 4 <= count; r += 4)
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) m[i] = maximum(m[i], load(column + (r + i) * TILE));
    for (; r < count; r++) m[0] = maximum(m[0], load(column + r * TILE));
    const vfloat now = maximum(maximum(m[0], m[1]), maximum(m[2], m[3]));
    const vfloat shrink = exp2_of((before - now) * exponent), shift = now * exponent;
    vfloat sum = {0};
#pragma GCC unroll 2
    for (r = 0; r < count; r++) {
      const vfloat p = exp2_of(load(column + r * TILE) * exponent - shift);
      sum += p;
      store(column + r * TILE, p);
    }
    store(maxima + v * LANES, now);
    store(sums + v * LANES, load(sums + v * LANES) * shrink + sum);
    store(factor + v * LANES, shrink);
  }
}

/* out = O / sum, lse = (max + log2 sum) ln 2; nothing allowed: 0 and +inf. */
static void finish_tile(struct plm_attention_task *task, const struct workspace *w,
                        const struct tile *tile)
{
  const int width = padded_width(task->K);
  const float *maxima = w->statistics, *sums = w->statistics + TILE;
  const float exponent = exponent_factor(task);
  for (int i = 0; i < tile->count; i++) {
    const int64_t at = (int64_t)(tile->first + i) * task->out_stride;
    const bool empty = sums[i] == 0;
    const float inverse = empty ? 0 : 1 / sums[i];
    task->lse[tile->first + i] = empty ? INFINITY : (maxima[i] * exponent + log2f(sums[i])) * LN_2;
    for (int d = 0; d < task->K; d += LANES)
      store_act(task->out, at + d, task->K - d < LANES ? task->K - d : LANES, task->bf16,
                empty ? (vfloat){0} : load(w->result + i * width + d) * inverse);
  }
}

static void forward(struct plm_attention_task *task)
{
  const struct plm_attention_segment *s = &task->segment;
  const int K = task->K, width = padded_width(K), tiles = tiles_of(s);
  struct workspace w;
  lay_out(task, &w);
  pack_keys(task, &w);
  for (int t = 0; t < tiles; t++) {
    struct tile tile;
    describe_tile(task, t, tiles, &tile);
    if (!task->pairs)
      pack_rows(w.q_rows, task->q, tile.first, tile.count, task->row_stride, K, task->bf16);
    transpose_tile(task, &tile, w.q_columns, w.q_rows, task->q, task->row_stride);
    for (int i = 0; i < TILE; i++) {
      w.statistics[i] = LOWEST;
      w.statistics[TILE + i] = 0;
    }
    memset(w.result, 0, TILE * (size_t)width * sizeof(float));
    for (int32_t first = tile.begin; first < tile.end; first += BLOCK) {
      const int count = tile.end - first < BLOCK ? tile.end - first : BLOCK;
      score_block(task, &w, &tile, first, count, false);
      softmax_block(&w, tile.vectors, count, exponent_factor(task), w.statistics + 2 * TILE);
      const struct product product = {.a = w.scores,
                                      .a_row = 1,
                                      .a_depth = TILE,
                                      .b = w.v + (int64_t)(first - s->key_begin) * width,
                                      .b_stride = width,
                                      .c = w.result,
                                      .c_stride = width,
                                      .depth = count,
                                      .mode = first == tile.begin ? PRODUCT_SET : PRODUCT_SCALE,
                                      .factor = w.statistics + 2 * TILE};
      product_run(&product, tile.count, width / LANES);
    }
    task->executed += (uint64_t)(tile.end - tile.begin) * (uint64_t)(tile.vectors * LANES);
    finish_tile(task, &w, &tile);
  }
}

/* Rows of Q, dO as they are and transposed; log2-sum-exp and sum(dO out) of each query. */
static void load_tile(const struct plm_attention_task *task, const struct workspace *w,
                      const struct tile *tile)
{
  const int K = task->K, width = padded_width(K);
  float *lse = w->statistics, *delta = w->statistics + TILE;
  pack_rows(w->q_rows, task->q, tile->first, tile->count, task->row_stride, K, task->bf16);
  pack_rows(w->do_rows, task->dout, tile->first, tile->count, task->out_stride, K, task->bf16);
  transpose_tile(task, tile, w->q_columns, w->q_rows, task->q, task->row_stride);
  transpose_tile(task, tile, w->do_columns, w->do_rows, task->dout, task->out_stride);
  for (int i = 0; i < tile->vectors * LANES; i++) {
    const bool real = i < tile->count;
    lse[i] = real ? task->lse[tile->first + i] * LOG2_E : INFINITY;
    delta[i] = 0;
    if (!real) continue;
    vfloat sum = {0};
    for (int d = 0; d < K; d += LANES)
      sum += load(w->do_rows + i * width + d) *
             load_act(task->out, (int64_t)(tile->first + i) * task->out_stride + d,
                      K - d < LANES ? K - d : LANES, task->bf16);
    for (int l = 0; l < LANES; l++) delta[i] += sum[l];
  }
}

/* P = 2^(S - lse), dS = P (dP - delta), times the soft cap's derivative. */
static void slope_block(const struct plm_attention_task *task, const struct workspace *w,
                        int vectors, int count)
{
  const float exponent = exponent_factor(task);
  for (int v = 0; v < vectors; v++) {
    const vfloat lse = load(w->statistics + v * LANES);
    const vfloat delta = load(w->statistics + TILE + v * LANES);
#pragma GCC unroll 2
    for (int r = 0; r < count; r++) {
      const int at = r * TILE + v * LANES;
      const vfloat p = exp2_of(load(w->scores + at) * exponent - lse);
      vfloat slope = p * (load(w->slopes + at) - delta);
      if (task->soft_cap > 0) slope *= load(w->derivative + at);
      store(w->scores + at, p);
      store(w->slopes + at, slope);
    }
  }
}

/* The five products of one block of keys. */
static void backward_block(const struct plm_attention_task *task, const struct workspace *w,
                           const struct tile *tile, int32_t first, int count)
{
  const int width = padded_width(task->K), columns = width / LANES;
  const int64_t at = (int64_t)(first - task->segment.key_begin) * width;
  score_block(task, w, tile, first, count, true);
  multiply_keys(task, tile, w->v, w->v_pairs, w->do_columns, w->slopes, first, count); /* dP */
  slope_block(task, w, tile->vectors, count);
  struct product product = {.a = w->scores,
                            .a_row = TILE,
                            .a_depth = 1,
                            .b = w->do_rows,
                            .b_stride = width,
                            .c = w->dv + at,
                            .c_stride = width,
                            .depth = tile->count,
                            .mode = PRODUCT_ADD,
                            .factor = w->statistics /* unused */};
  product_run(&product, count, columns); /* dV += P^T dO */
  product.a = w->slopes, product.b = w->q_rows, product.c = w->dk + at;
  product_run(&product, count, columns); /* dK += dS^T Q */
  product.a_row = 1, product.a_depth = TILE;
  product.b = w->k + at, product.c = w->result;
  product.depth = count;
  product.mode = first == tile->begin ? PRODUCT_SET : PRODUCT_ADD;
  product_run(&product, tile->count, columns); /* dQ += dS K */
}

static void store_rows(void *out, const float *rows, int64_t first, int count, int64_t stride,
                       int K, float factor, bool is_bf16)
{
  const int width = padded_width(K);
  for (int r = 0; r < count; r++)
    for (int d = 0; d < K; d += LANES)
      store_act(out, (first + r) * stride + d, K - d < LANES ? K - d : LANES, is_bf16,
                load(rows + (int64_t)r * width + d) * factor);
}

static void backward(struct plm_attention_task *task)
{
  const struct plm_attention_segment *s = &task->segment;
  const int K = task->K, width = padded_width(K), tiles = tiles_of(s);
  const int keys = s->key_end - s->key_begin;
  struct workspace w;
  lay_out(task, &w);
  pack_keys(task, &w);
  memset(w.dk, 0, (size_t)keys * (size_t)width * sizeof(float));
  memset(w.dv, 0, (size_t)keys * (size_t)width * sizeof(float));
  for (int t = 0; t < tiles; t++) {
    struct tile tile;
    describe_tile(task, t, tiles, &tile);
    load_tile(task, &w, &tile);
    if (tile.begin == tile.end) memset(w.result, 0, TILE * (size_t)width * sizeof(float));
    for (int32_t first = tile.begin; first < tile.end; first += BLOCK)
      backward_block(task, &w, &tile, first, tile.end - first < BLOCK ? tile.end - first : BLOCK);
    task->executed += (uint64_t)(tile.end - tile.begin) * (uint64_t)(tile.vectors * LANES);
    store_rows(task->dq, w.result, tile.first, tile.count, task->row_stride, K, task->scale,
               task->bf16);
  }
  store_rows(task->dk, w.dk, s->key_begin, keys, task->row_stride, K, task->scale, task->bf16);
  store_rows(task->dv, w.dv, s->key_begin, keys, task->row_stride, K, 1.0f, task->bf16);
}

#if defined(PLM_ISA_avx512)
const struct plm_attention_kernels plm_attention_kernels_avx512 = {forward, backward};

static void forward_pairs(struct plm_attention_task *task)
{
  task->pairs = task->bf16;
  forward(task);
}

static void backward_pairs(struct plm_attention_task *task)
{
  task->pairs = task->bf16;
  backward(task);
}

const struct plm_attention_kernels plm_attention_kernels_avx512_bf16 = {forward_pairs,
                                                                        backward_pairs};
#elif defined(PLM_ISA_avx2)
const struct plm_attention_kernels plm_attention_kernels_avx2 = {forward, backward};
#else
const struct plm_attention_kernels plm_attention_kernels_portable = {forward, backward};
#endif
