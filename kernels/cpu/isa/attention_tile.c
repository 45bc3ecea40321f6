/* Attention of one head of one segment, forward and backward, in fp32. For each tile of queries, an
 * online softmax runs over blocks of keys (Dao et al., FlashAttention, 2022; Rabe & Staats 2021).
 *
 * Scores are stored key-major, S^T[key][query], so the lanes of a vector are queries. The maxima
 * and sums of the softmax then run down columns without shuffles, and every product multiplies rows
 * by broadcast elements (attention_product.h). Only a tile of Q (and of dO) has to be transposed.
 *
 * Scores are the raw products, or log2 e times the capped scores. Because exp(x) = 2^(x log2 e),
 * the remaining factor is applied together with the subtraction of the maximum, as one fused
 * multiply-add (exponent_factor). K, V and the rows of Q and dO are packed as floats; bf16 is
 * widened once, during packing.
 *
 * If the processor multiplies pairs of bf16 ("pairs" below), activations are multiplied without
 * widening, and the products in S and dP are exact. The softmax, its sums, lse and delta stay fp32;
 * P and dS are rounded to bf16 for the products that follow. The root mean square error against
 * float64 is then 0.6 to 1.0 times that of PyTorch's bf16 attention on the CPU (2.15, L 300 to 512,
 * K 32 to 128). If the processor has AMX ("amx"), the same products run in its tiles.
 */
#include "kernels/cpu/attention_tile.h"

#include <math.h>

#include "kernels/cpu/isa/attention_amx.h"
#include "kernels/cpu/isa/attention_pack.h"
#include "kernels/cpu/isa/attention_pairs.h"
#include "kernels/cpu/isa/attention_product.h"
#include "kernels/cpu/isa/attention_vector.h"

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
/* Start of the running maximum. It is finite so that (-inf) - maximum is not NaN. */
#define LOWEST (-1e30f)

/* The factor that turns a stored score into an exponent of two. */
static float exponent_factor(const struct plm_attention_task *task)
{
  return task->soft_cap > 0 ? 1.0f : task->scale * LOG2_E;
}

static void run_product(const struct plm_attention_task *task, const struct product *product,
                        int rows, int vectors)
{
#if defined(PLM_ISA_avx512)
  if (task->amx) {
    product_run_amx(product, rows, vectors);
    return;
  }
  if (task->pairs) {
    product_run_pairs(product, rows, vectors);
    return;
  }
#endif
  (void)task;
  product_run(product, rows, vectors);
}

/* Whether rows of K floats need only the lower half of their last vector, and halves are cheaper.
 */
static bool ends_in_half(const struct plm_attention_task *task)
{
#if defined(PLM_ISA_avx512)
  return !task->pairs && task->K % LANES == LANES / 2;
#else
  (void)task;
  return false;
#endif
}

/* The depth of a product along `count` keys or queries. */
static int depth_of(const struct plm_attention_task *task, int count)
{
  return task->pairs ? (count + 1) / 2 : count;
}

/* The row of w->k or w->v that holds key `first`. */
static int64_t key_row(const struct plm_attention_task *task, int32_t first)
{
  const int64_t key = first - task->segment.key_begin;
  return task->pairs ? key / 2 : key;
}

/* out (count, TILE) = rows of K or V, from key `first` on, times columns of Q or dO. */
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
  run_product(task, &product, count, tile->vectors);
}

/* Computes S^T of a block of keys: the product, the soft cap with its derivative if it is asked
 * for, and -inf for keys that a query does not see. */
static void score_block(struct plm_attention_task *task, const struct workspace *w,
                        const struct tile *tile, int32_t first, int count, bool with_derivative)
{
  task->executed += (uint64_t)count * (uint64_t)(tile->vectors * LANES);
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

/* Replaces a column of scores by powers of two and returns their sums. */
FORCE_INLINE vfloat powers(const struct plm_attention_task *task, float *column, int count,
                           float exponent, vfloat shift)
{
  vfloat sum = {0};
#if defined(PLM_ISA_avx512)
  if (task->pairs) {
#pragma GCC unroll 2
    for (int r = 0; r < count; r += 2) {
      const vfloat even = exp2_of(load(column + r * TILE) * exponent - shift);
      vfloat odd = {0};
      if (r + 1 < count) odd = exp2_of(load(column + (r + 1) * TILE) * exponent - shift);
      sum += even + odd;
      store(column + r / 2 * TILE, interleave(to_bf16_two(even, odd)));
    }
    return sum;
  }
#endif
  (void)task;
#pragma GCC unroll 2
  for (int r = 0; r < count; r++) {
    const vfloat p = exp2_of(load(column + r * TILE) * exponent - shift);
    sum += p;
    store(column + r * TILE, p);
  }
  return sum;
}

/* Replaces the scores by probabilities relative to the running maximum, before division by the sum.
 * Writes to `factor` the values by which earlier sums and results must be multiplied. */
static void softmax_block(const struct plm_attention_task *task, const struct workspace *w,
                          int vectors, int count, float *factor)
{
  const float exponent = exponent_factor(task);
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
    const vfloat sum = powers(task, column, count, exponent, shift);
    store(maxima + v * LANES, now);
    store(sums + v * LANES, load(sums + v * LANES) * shrink + sum);
    store(factor + v * LANES, shrink);
  }
}

/* out = O / sum and lse = (max exponent + log2 sum) ln 2, or 0 and +inf for a query that sees no
 * key. */
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
  const int width = padded_width(task->K), tiles = tiles_of(&task->segment);
  struct workspace w;
  lay_out(task, &w);
  pack_keys(task, &w, false);
  for (int t = 0; t < tiles; t++) {
    struct tile tile;
    describe_tile(task, t, tiles, &tile);
    pack_queries(task, &w, &tile);
    transpose_tile(task, &tile, w.q_columns, w.q_rows, task->q, task->row_stride);
    for (int i = 0; i < TILE; i++) {
      w.statistics[i] = LOWEST;
      w.statistics[TILE + i] = 0;
    }
    memset(w.result, 0, TILE * (size_t)width * sizeof(float));
    for (int32_t first = tile.begin; first < tile.end; first += BLOCK) {
      const int count = tile.end - first < BLOCK ? tile.end - first : BLOCK;
      score_block(task, &w, &tile, first, count, false);
      softmax_block(task, &w, tile.vectors, count, w.statistics + 2 * TILE);
      const struct product product = {.a = w.scores,
                                      .a_row = 1,
                                      .a_depth = TILE,
                                      .b = w.v + key_row(task, first) * width,
                                      .b_stride = width,
                                      .c = w.result,
                                      .c_stride = width,
                                      .depth = depth_of(task, count),
                                      .mode = first == tile.begin ? PRODUCT_SET : PRODUCT_SCALE,
                                      .factor = w.statistics + 2 * TILE,
                                      .half = ends_in_half(task),
                                      .narrow = task->narrow};
      run_product(task, &product, tile.count, width / LANES);
    }
    finish_tile(task, &w, &tile);
  }
}

/* Packs the rows of Q and dO and transposes them, and computes lse log2 e and delta = sum(dO out)
 * of each query. */
static void load_tile(const struct plm_attention_task *task, const struct workspace *w,
                      const struct tile *tile)
{
  const int K = task->K;
  float *lse = w->statistics, *delta = w->statistics + TILE;
  pack_tile(task, w, tile);
  transpose_tile(task, tile, w->q_columns, w->q_rows, task->q, task->row_stride);
  transpose_tile(task, tile, w->do_columns, w->do_rows, task->dout, task->out_stride);
  for (int i = 0; i < tile->vectors * LANES; i++) {
    const bool real = i < tile->count;
    lse[i] = real ? task->lse[tile->first + i] * LOG2_E : INFINITY;
    delta[i] = 0;
    if (!real) continue;
    vfloat sum = {0};
    const int64_t row = (int64_t)(tile->first + i) * task->out_stride;
    prefetch_next_head(task->out, row, K, task->bf16);
    for (int d = 0; d < K; d += LANES) {
      const int64_t at = row + d;
      const int elements = K - d < LANES ? K - d : LANES;
      sum += load_act(task->dout, at, elements, task->bf16) *
             load_act(task->out, at, elements, task->bf16);
    }
    for (int l = 0; l < LANES; l++) delta[i] += sum[l];
  }
}

FORCE_INLINE void slope_columns(const struct workspace *w, int vectors, int count, float exponent,
                                const bool capped)
{
  for (int v = 0; v < vectors; v++) {
    const vfloat lse = load(w->statistics + v * LANES);
    const vfloat delta = load(w->statistics + TILE + v * LANES);
#pragma GCC unroll 2
    for (int r = 0; r < count; r++) {
      const int at = r * TILE + v * LANES;
      const vfloat p = exp2_of(load(w->scores + at) * exponent - lse);
      vfloat slope = p * (load(w->slopes + at) - delta);
      if (capped) slope *= load(w->derivative + at);
      store(w->scores + at, p);
      store(w->slopes + at, slope);
    }
  }
}

/* P = 2^(S - lse) and dS = P (dP - delta), times the derivative of the soft cap if there is one. */
static void slope_block(const struct plm_attention_task *task, const struct workspace *w,
                        int vectors, int count)
{
  if (task->soft_cap > 0)
    slope_columns(w, vectors, count, exponent_factor(task), true);
  else
    slope_columns(w, vectors, count, exponent_factor(task), false);
}

#if defined(PLM_ISA_avx512)
/* The same with P and dS rounded to bf16. Both are stored as rows of bf16, and dS also in pairs of
 * keys. This works in place because results are written at or before elements already read. */
static void slope_block_pairs(const struct plm_attention_task *task, const struct workspace *w,
                              int vectors, int count)
{
  const float exponent = exponent_factor(task);
  for (int v = 0; v < vectors; v++) {
    const vfloat lse = load(w->statistics + v * LANES);
    const vfloat delta = load(w->statistics + TILE + v * LANES);
    for (int r = 0; r < count; r += 2) {
      const int at = r * TILE + v * LANES, row = r * TILE + v * LANES / 2;
      vfloat p[2] = {{0}}, slope[2] = {{0}};
      for (int i = 0; i < 2 && r + i < count; i++) {
        p[i] = exp2_of(load(w->scores + at + i * TILE) * exponent - lse);
        slope[i] = p[i] * (load(w->slopes + at + i * TILE) - delta);
        if (task->soft_cap > 0) slope[i] *= load(w->derivative + at + i * TILE);
      }
      const __m512i slopes = to_bf16_two(slope[0], slope[1]);
      store_two(w->scores + row, w->scores + row + TILE, to_bf16_two(p[0], p[1]));
      store_two(w->slopes + row, w->slopes + row + TILE, slopes);
      store(w->derivative + r / 2 * TILE + v * LANES, interleave(slopes));
    }
  }
}
#endif

static void make_slopes(const struct plm_attention_task *task, const struct workspace *w,
                        int vectors, int count)
{
#if defined(PLM_ISA_avx512)
  if (task->pairs) {
    slope_block_pairs(task, w, vectors, count);
    return;
  }
#endif
  slope_block(task, w, vectors, count);
}

/* Adds the gradients from one block of keys, by five products. */
static void backward_block(struct plm_attention_task *task, const struct workspace *w,
                           const struct tile *tile, int32_t first, int count)
{
  const int width = padded_width(task->K), columns = width / LANES;
  const int64_t at = (int64_t)(first - task->segment.key_begin) * width;
  score_block(task, w, tile, first, count, true);
  multiply_keys(task, tile, w->v, w->v_pairs, w->do_columns, w->slopes, first, count); /* dP */
  make_slopes(task, w, tile->vectors, count);
  struct product product = {.a = w->scores,
                            .a_row = TILE,
                            .a_depth = 1,
                            .b = w->do_rows,
                            .b_stride = width,
                            .c = w->dv + at,
                            .c_stride = width,
                            .depth = depth_of(task, tile->count),
                            .mode = PRODUCT_ADD,
                            .factor = w->statistics /* unused */,
                            .half = ends_in_half(task),
                            .narrow = task->narrow};
  run_product(task, &product, count, columns); /* dV += P^T dO */
  product.a = w->slopes, product.b = w->q_rows, product.c = w->dk + at;
  run_product(task, &product, count, columns); /* dK += dS^T Q */
  product.a = task->pairs ? w->derivative : w->slopes, product.a_row = 1, product.a_depth = TILE;
  product.b = w->k + key_row(task, first) * width, product.c = w->result;
  product.depth = depth_of(task, count);
  product.mode = first == tile->begin ? PRODUCT_SET : PRODUCT_ADD;
  run_product(task, &product, tile->count, columns); /* dQ += dS K */
}

static void store_rows(void *out, const float *rows, int64_t first, int count, int64_t stride,
                       int K, float factor, bool is_bf16)
{
  const int width = padded_width(K);
  for (int r = 0; r < count; r++) {
    const int64_t row = (first + r) * stride;
    prefetch_next_head(out, row, K, is_bf16);
    for (int d = 0; d < K; d += LANES)
      store_act(out, row + d, K - d < LANES ? K - d : LANES, is_bf16,
                load(rows + (int64_t)r * width + d) * factor);
  }
}

static void backward(struct plm_attention_task *task)
{
  const struct plm_attention_segment *s = &task->segment;
  const int K = task->K, width = padded_width(K), tiles = tiles_of(s);
  const int keys = s->key_end - s->key_begin;
  struct workspace w;
  lay_out(task, &w);
  pack_keys(task, &w, true);
  memset(w.dk, 0, (size_t)keys * (size_t)width * sizeof(float));
  memset(w.dv, 0, (size_t)keys * (size_t)width * sizeof(float));
  for (int t = 0; t < tiles; t++) {
    struct tile tile;
    describe_tile(task, t, tiles, &tile);
    load_tile(task, &w, &tile);
    if (tile.begin == tile.end) memset(w.result, 0, TILE * (size_t)width * sizeof(float));
    for (int32_t first = tile.begin; first < tile.end; first += BLOCK)
      backward_block(task, &w, &tile, first, tile.end - first < BLOCK ? tile.end - first : BLOCK);
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
  task->pairs = task->bf16 || task->rounds;
  forward(task);
}

static void backward_pairs(struct plm_attention_task *task)
{
  task->pairs = task->bf16;
  backward(task);
}

const struct plm_attention_kernels plm_attention_kernels_avx512_bf16 = {forward_pairs,
                                                                        backward_pairs};

static void forward_narrow(struct plm_attention_task *task)
{
  task->narrow = true;
  forward_pairs(task);
}

static void backward_narrow(struct plm_attention_task *task)
{
  task->narrow = true;
  backward_pairs(task);
}

const struct plm_attention_kernels plm_attention_kernels_narrow = {forward_narrow, backward_narrow};

static void forward_amx(struct plm_attention_task *task)
{
  task->amx = task->bf16 || task->rounds;
  forward_pairs(task);
  if (task->amx) amx_release();
}

static void backward_amx(struct plm_attention_task *task)
{
  task->amx = task->bf16;
  backward_pairs(task);
  if (task->amx) amx_release();
}

const struct plm_attention_kernels plm_attention_kernels_avx512_amx = {forward_amx, backward_amx};
#elif defined(PLM_ISA_avx2)
const struct plm_attention_kernels plm_attention_kernels_avx2 = {forward, backward};
#else
const struct plm_attention_kernels plm_attention_kernels_portable = {forward, backward};
#endif
