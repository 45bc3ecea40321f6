/* Makes the tensors of attention for one batch, and computes the results in double precision. */
#include "tests/support/operators/attention_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/model/model_config.h"
#include "common/ops/device.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/device_case.h"

void attention_batch_begin(struct attention_batch *sample, uint32_t chunks, uint32_t length)
{
  assert_true(chunks <= ATTENTION_MAX_CHUNKS);
  memset(sample, 0, sizeof *sample);
  sample->batch = (struct plm_batch){.chunks = chunks,
                                     .max_length = length,
                                     .document_begin = sample->begin,
                                     .documents = sample->documents};
}

void attention_batch_add(struct attention_batch *sample, uint32_t chunk, uint32_t start,
                         uint32_t tokens)
{
  const uint32_t d = sample->begin[chunk + 1]++;
  assert_true(d < ATTENTION_MAX_DOCUMENTS);
  for (uint32_t c = chunk + 2; c <= sample->batch.chunks; c++) sample->begin[c]++;
  sample->documents[d] = (struct plm_chunk_document){.start = start, .tokens = tokens};
}

void attention_batch_fill(struct attention_batch *sample, uint32_t chunks, uint32_t length,
                          const struct attention_document *documents, size_t count)
{
  attention_batch_begin(sample, chunks, length);
  for (size_t i = 0; i < count; i++)
    attention_batch_add(sample, documents[i].chunk, documents[i].start, documents[i].tokens);
}

void attention_batch_mixed(struct attention_batch *sample)
{
  attention_batch_of(sample, 3, 150, {0, 0, 70}, {0, 70, 1}, {0, 71, 50}, {0, 124, 20},
                     {2, 3, 147});
}

static uint16_t to_bf16(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static float from_bf16(uint16_t x)
{
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* As in the model, a row of the buffers has three parts: q, k and v, or their gradients. */
static size_t element(const struct attention_case *p, enum attention_tensor t, size_t row,
                      size_t column)
{
  if (t == DOUT || t == OUT) return row * p->width + column;
  const size_t part = t == Q || t == DQ ? 0 : t == K_ || t == DK ? 1 : 2;
  return row * (size_t)p->shape.row_stride + part * p->width + column;
}

double attention_case_get(const struct attention_case *p, enum attention_tensor t, size_t row,
                          size_t column)
{
  const size_t at = element(p, t, row, column);
  if (p->bf16) return from_bf16(((const uint16_t *)(const void *)p->data[t])[at]);
  return ((const float *)(const void *)p->data[t])[at];
}

void attention_case_set(struct attention_case *p, enum attention_tensor t, size_t row,
                        size_t column, float x)
{
  const size_t at = element(p, t, row, column);
  if (p->bf16)
    ((uint16_t *)(void *)p->data[t])[at] = to_bf16(x);
  else
    ((float *)(void *)p->data[t])[at] = x;
}

const void *attention_case_part(const struct attention_case *p, enum attention_tensor t)
{
  return p->data[t] + element(p, t, 0, 0) * (p->bf16 ? 2 : 4);
}

void *attention_case_part_mutable(struct attention_case *p, enum attention_tensor t)
{
  return p->data[t] + element(p, t, 0, 0) * (p->bf16 ? 2 : 4);
}

double attention_case_normal(uint64_t seed, uint64_t i)
{
  const struct plm_philox_words draw = plm_philox(seed, (uint32_t)i, i >> 32, 91);
  const double u = plm_philox_unit(draw.w[0]) + 0x1p-25, v = plm_philox_unit(draw.w[1]);
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

void attention_case_init(struct attention_case *p, const struct plm_batch *batch, unsigned kinds,
                         uint32_t window, uint32_t block, int32_t heads, int32_t K, bool is_bf16)
{
  memset(p, 0, sizeof *p);
  p->shape = (struct plm_attention_shape){.B = (int32_t)batch->chunks,
                                          .L = (int32_t)batch->max_length,
                                          .H = heads,
                                          .K = K,
                                          .row_stride = 3 * heads * K,
                                          .scale = 1 / sqrtf((float)K)};
  p->bf16 = is_bf16;
  p->rows = (size_t)p->shape.B * (size_t)p->shape.L;
  p->width = (size_t)heads * (size_t)K;
  p->mask_values = malloc(plm_mask_values(p->shape.B, p->shape.L) * sizeof(int32_t));
  plm_mask_build(batch, 0, kinds, window, block, p->mask_values, p->mask_values, &p->mask);
  const size_t count = p->rows * p->width, bytes = count * (is_bf16 ? 2 : 4);
  p->data[Q] = p->data[K_] = p->data[V] = malloc(3 * bytes);
  p->data[DQ] = p->data[DK] = p->data[DV] = malloc(3 * bytes);
  p->data[OUT] = malloc(bytes);
  p->data[DOUT] = malloc(bytes);
  memset(p->data[DQ], 0xff, 3 * bytes); /* NaN, so that a missing write is noticed */
  memset(p->data[OUT], 0xff, bytes);
  p->lse = malloc(p->rows * (size_t)heads * sizeof(float));
  memset(p->lse, 0xff, p->rows * (size_t)heads * sizeof(float));
  p->exact_lse = calloc(p->rows * (size_t)heads, sizeof(double));
  for (int t = 0; t < ATTENTION_TENSORS; t++) p->exact[t] = calloc(count, sizeof(double));
  for (int t = 0; t <= DOUT; t++)
    for (size_t r = 0; r < p->rows; r++)
      for (size_t c = 0; c < p->width; c++) {
        const double spread = t == Q || t == K_ ? 1.5 : 1;
        attention_case_set(
            p, (enum attention_tensor)t, r, c,
            (float)(spread * attention_case_normal((uint64_t)t + 1, r * p->width + c)));
        p->exact[t][r * p->width + c] = attention_case_get(p, (enum attention_tensor)t, r, c);
      }
}

void attention_case_deinit(struct attention_case *p)
{
  free(p->mask_values);
  free(p->data[Q]);
  free(p->data[DQ]);
  free(p->data[OUT]);
  free(p->data[DOUT]);
  free(p->lse);
  free(p->exact_lse);
  for (int t = 0; t < ATTENTION_TENSORS; t++) free(p->exact[t]);
}

/* ---- on a device ---- */
struct attention_buffers {
  char *qkv, *dqkv, *out, *dout;
  float *lse;
  int32_t *mask;
};

static const int32_t *moved(const struct attention_case *p, const int32_t *buffer,
                            const int32_t *values)
{
  return buffer + (values - p->mask_values);
}

static struct plm_interval_mask mask_on(const struct attention_case *p, const int32_t *buffer)
{
  struct plm_interval_mask mask = p->mask;
  const int32_t **parts[] = {&mask.key_begin,       &mask.key_end,        &mask.query_begin,
                             &mask.query_end,       &mask.tile_key_begin, &mask.tile_key_end,
                             &mask.tile_full_begin, &mask.tile_full_end,  &mask.tile_query_begin,
                             &mask.tile_query_end};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) *parts[i] = moved(p, buffer, *parts[i]);
  return mask;
}

void attention_case_run_on(struct attention_case *p, struct plm_ops *ops)
{
  const size_t part = p->width * (p->bf16 ? 2 : 4), bytes = p->rows * part;
  const size_t lse_bytes = p->rows * (size_t)p->shape.H * sizeof *p->lse;
  struct attention_buffers b = {
      .qkv = device_case_upload(ops, p->data[Q], 3 * bytes),
      .dqkv = device_case_upload(ops, p->data[DQ], 3 * bytes),
      .out = device_case_upload(ops, p->data[OUT], bytes),
      .dout = device_case_upload(ops, p->data[DOUT], bytes),
      .lse = device_case_upload(ops, p->lse, lse_bytes),
      .mask = device_case_upload(ops, p->mask_values,
                                 plm_mask_values(p->shape.B, p->shape.L) * sizeof(int32_t))};
  const struct plm_interval_mask mask = mask_on(p, b.mask);
  const struct plm_attention_inputs in = plm_attention_inputs_of(b.qkv, part);
  const struct plm_attention_gradients to = plm_attention_gradients_of(b.dqkv, part);
  ops->attention_forward(ops, b.out, b.lse, &in, &mask, &p->shape);
  ops->attention_backward(ops, &to, b.dout, b.out, b.lse, &in, &mask, &p->shape);
  device_case_download(ops, p->data[OUT], b.out, bytes);
  device_case_download(ops, p->data[DQ], b.dqkv, 3 * bytes);
  device_case_download(ops, p->lse, b.lse, lse_bytes);
  void *const buffers[] = {b.qkv, b.dqkv, b.out, b.dout, b.lse, b.mask};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) ops->release(ops, buffers[i]);
}

/* ---- the reference: one query and head at a time, straight from the formulas ---- */
/* Several sums, which the compiler adds up at once. */
static double dot(const double *a, const double *b, size_t n)
{
  double part[4] = {0}, sum = 0;
  const size_t whole = n / 4 * 4;
  for (size_t i = 0; i < whole; i += 4)
    for (size_t j = 0; j < 4; j++) part[j] += a[i + j] * b[i + j];
  for (size_t i = whole; i < n; i++) sum += a[i] * b[i];
  return sum + part[0] + part[1] + part[2] + part[3];
}

static void add(double *restrict to, double factor, const double *restrict x, size_t n)
{
  for (size_t i = 0; i < n; i++) to[i] += factor * x[i];
}

static void reference_query(struct attention_case *p, size_t chunk, size_t query, size_t head,
                            double *score, double *slope)
{
  const size_t L = (size_t)p->shape.L, K = (size_t)p->shape.K, H = (size_t)p->shape.H;
  const size_t row = chunk * L + query, column = head * K;
  const size_t begin = (size_t)p->mask.key_begin[row], end = (size_t)p->mask.key_end[row];
  const double cap = p->shape.soft_cap, scale = p->shape.scale;
  double *lse = &p->exact_lse[(chunk * H + head) * L + query];
  *lse = INFINITY;
  if (begin == end) return;
#define AT(tensor, r) (p->exact[tensor] + (r)*p->width + column)
  double largest = -INFINITY, sum = 0;
  for (size_t k = begin; k < end; k++) {
    const double product = dot(AT(Q, row), AT(K_, chunk * L + k), K);
    score[k] = cap > 0 ? cap * tanh(product * scale / cap) : product * scale;
    slope[k] = cap > 0 ? 1 - score[k] * score[k] / (cap * cap) : 1;
    if (score[k] > largest) largest = score[k];
  }
  for (size_t k = begin; k < end; k++) sum += exp(score[k] - largest);
  *lse = largest + log(sum);
  for (size_t k = begin; k < end; k++) score[k] = exp(score[k] - *lse);
  for (size_t k = begin; k < end; k++) add(AT(OUT, row), score[k], AT(V, chunk * L + k), K);
  const double delta = dot(AT(DOUT, row), AT(OUT, row), K);
  for (size_t k = begin; k < end; k++) {
    const size_t key = chunk * L + k;
    const double dp = dot(AT(DOUT, row), AT(V, key), K);
    const double ds = score[k] * (dp - delta) * slope[k] * scale;
    add(AT(DV, key), score[k], AT(DOUT, row), K);
    add(AT(DQ, row), ds, AT(K_, key), K);
    add(AT(DK, key), ds, AT(Q, row), K);
  }
#undef AT
}

void attention_case_reference(struct attention_case *p)
{
  double *score = malloc((size_t)p->shape.L * sizeof *score);
  double *slope = malloc((size_t)p->shape.L * sizeof *slope);
  for (size_t b = 0; b < (size_t)p->shape.B; b++)
    for (size_t h = 0; h < (size_t)p->shape.H; h++)
      for (size_t q = 0; q < (size_t)p->shape.L; q++) reference_query(p, b, q, h, score, slope);
  free(score);
  free(slope);
}

double attention_case_worst(const struct attention_case *p, enum attention_tensor t)
{
  double error = 0,
         size = 1; /* at least 1, as large as the inputs, since some gradients are exactly 0 */
  for (size_t r = 0; r < p->rows; r++)
    for (size_t c = 0; c < p->width; c++) {
      const double exact = p->exact[t][r * p->width + c],
                   e = fabs(attention_case_get(p, t, r, c) - exact);
      if (!(e <= error)) error = e; /* also if e is NaN */
      if (fabs(exact) > size) size = fabs(exact);
    }
  return error / size;
}

/* Whether the result of a query and head (by their place in lse) is 0, and not -0. */
static bool is_zero(const struct attention_case *p, size_t place)
{
  const size_t L = (size_t)p->shape.L, K = (size_t)p->shape.K, H = (size_t)p->shape.H;
  const size_t row = place / (H * L) * L + place % L, column = place / L % H * K;
  for (size_t c = column; c < column + K; c++) {
    const double x = attention_case_get(p, OUT, row, c);
    if (x != 0 || signbit(x)) return false;
  }
  return true;
}

void attention_case_compare(const struct attention_case *p)
{
  static const char *const names[] = {[OUT] = "out", [DQ] = "dq", [DK] = "dk", [DV] = "dv"};
  for (int t = OUT; t < ATTENTION_TENSORS; t++) {
    const double limit = p->bf16 ? (t == OUT ? 0.004 : 0.012) : 3e-6,
                 e = attention_case_worst(p, (enum attention_tensor)t);
    if (!(e <= limit)) fail_msg("%s: error %g over %g", names[t], e, limit);
  }
  for (size_t i = 0; i < p->rows * (size_t)p->shape.H; i++) {
    if (isinf(p->exact_lse[i]))
      assert_true(isinf(p->lse[i]) && p->lse[i] > 0 && is_zero(p, i));
    else if (!(fabs(p->lse[i] - p->exact_lse[i]) <= 3e-6 * (1 + fabs(p->exact_lse[i]))))
      fail_msg("lse %zu: %g is not %g", i, (double)p->lse[i], p->exact_lse[i]);
  }
}

void attention_case_run_on_cuda(struct attention_case *p, uint64_t order)
{
  struct plm_ops *ops = device_case_open(p->bf16 ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32, order);
  attention_case_run_on(p, ops);
  ops->close(ops);
}

/* ---- cases ---- */
static void run_on_cuda(struct attention_case *p, const void *of, uint64_t order)
{
  (void)of;
  attention_case_run_on_cuda(p, order);
}

static const struct attention_target cuda = {run_on_cuda, NULL};
static const struct attention_target *targets = &cuda;
static size_t target_count = 1;

void attention_case_targets(const struct attention_target *of, size_t count)
{
  targets = of;
  target_count = count;
}

/* Every target finds the reference's results. */
static void compare_all(struct attention_case *p, uint64_t order)
{
  attention_case_reference(p);
  for (size_t i = 0; i < target_count; i++) {
    targets[i].run(p, targets[i].of, order);
    attention_case_compare(p);
  }
}

void attention_check(const struct attention_batch *sample, unsigned kinds, uint32_t window,
                     uint32_t block, int32_t heads, int32_t K, float cap, bool is_bf16)
{
  struct attention_case p;
  attention_case_init(&p, &sample->batch, kinds, window, block, heads, K, is_bf16);
  p.shape.soft_cap = cap;
  compare_all(&p, 2);
  attention_case_deinit(&p);
}

void attention_check_masks(const struct attention_batch *sample, unsigned step, uint32_t window,
                           uint32_t block, int32_t heads, int32_t K, bool is_bf16)
{
  for (unsigned kinds = 1; kinds < 16; kinds += step)
    attention_check(sample, kinds, window, block, heads, K, 0, is_bf16);
}

void attention_check_widths(const struct attention_batch *sample, int32_t heads,
                            const int32_t *widths, size_t count, bool is_bf16)
{
  for (size_t i = 0; i < count; i++)
    attention_check(sample, PLM_ATTENTION_DOCUMENT, 0, 0, heads, widths[i], 0, is_bf16);
}

void attention_check_lengths(const uint32_t *lengths, size_t count, int32_t K, bool is_bf16)
{
  static struct attention_batch sample;
  for (size_t i = 0; i < count; i++) {
    const unsigned kind = i % 2 ? PLM_ATTENTION_CAUSAL : PLM_ATTENTION_DOCUMENT;
    attention_batch_of(&sample, 2, lengths[i], {0, 0, lengths[i]}, {1, 0, (lengths[i] + 1) / 2});
    attention_check(&sample, kind, 0, 0, 1, K, 0, is_bf16);
  }
}

static bool is_padding(const struct attention_case *p, size_t row)
{
  return p->mask.key_begin[row] == p->mask.key_end[row];
}

size_t attention_check_padding(const struct attention_batch *sample, int32_t heads, int32_t K,
                               float value, bool is_bf16)
{
  struct attention_case p;
  size_t empty = 0;
  attention_case_init(&p, &sample->batch, PLM_ATTENTION_DOCUMENT, 0, 0, heads, K, is_bf16);
  for (size_t r = 0; r < p.rows; r++) {
    if (!is_padding(&p, r)) continue;
    empty++;
    for (size_t c = 0; c < p.width; c++)
      for (int t = Q; t <= DOUT; t++) attention_case_set(&p, (enum attention_tensor)t, r, c, value);
  }
  compare_all(&p, 2);
  for (size_t r = 0; r < p.rows; r++)
    for (size_t c = 0; c < p.width && is_padding(&p, r); c++)
      for (int t = OUT; t < ATTENTION_TENSORS; t++)
        assert_true(attention_case_get(&p, (enum attention_tensor)t, r, c) == 0);
  attention_case_deinit(&p);
  return empty;
}

void attention_check_orders(const struct attention_batch *sample, uint32_t window, int32_t heads,
                            int32_t K, uint64_t orders, bool is_bf16)
{
  struct attention_case one, other;
  struct attention_case *const both[] = {&one, &other};
  for (int i = 0; i < 2; i++)
    attention_case_init(both[i], &sample->batch, PLM_ATTENTION_LOCAL, window, 0, heads, K, is_bf16);
  const size_t bytes = one.rows * one.width * (is_bf16 ? 2 : 4);
  for (size_t i = 0; i < target_count; i++) {
    targets[i].run(&one, targets[i].of, 1);
    for (uint64_t order = 2; order <= orders; order++) {
      targets[i].run(&other, targets[i].of, order);
      assert_memory_equal(one.data[OUT], other.data[OUT], bytes);
      assert_memory_equal(one.data[DQ], other.data[DQ], 3 * bytes);
      assert_memory_equal(one.lse, other.lse, one.rows * (size_t)heads * sizeof(float));
    }
  }
  attention_case_deinit(&one);
  attention_case_deinit(&other);
}
