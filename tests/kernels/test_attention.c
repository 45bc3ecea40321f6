/* Attention on the CPU against a dense masked reference in double precision: every mask kind, head
 * width, instruction set and precision; shapes that do not fit the tiles; padding; determinism. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/philox.h"
#include "common/model/masks.h"
#include "kernels/cpu/attention.h"

/* ---- instruction sets ---- */
struct choice {
  const char *name;
  const struct plm_attention_kernels *kernels;
};

static size_t instruction_sets(struct choice sets[4])
{
  size_t n = 0;
  sets[n++] = (struct choice){"portable", &plm_attention_kernels_portable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    sets[n++] = (struct choice){"avx2", &plm_attention_kernels_avx2};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    sets[n++] = (struct choice){"avx512", &plm_attention_kernels_avx512};
  if (__builtin_cpu_supports("avx512bf16"))
    sets[n++] = (struct choice){"avx512_bf16", &plm_attention_kernels_avx512_bf16};
#endif
  return n;
}

/* ---- a problem: tensors in the precision under test, and as doubles ---- */
enum tensor { Q, K_, V, DOUT, OUT, DQ, DK, DV, TENSORS };

struct problem {
  struct plm_attention_shape shape;
  struct plm_interval_mask mask;
  int32_t *mask_values;
  bool bf16;
  size_t rows, width; /* B * L, H * K */
  char *data[TENSORS];
  float *lse;
  double *exact[TENSORS]; /* inputs as read, results of the reference; (rows, width) */
  double *exact_lse;
};

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

/* q, k, v and their gradients lie in one buffer of three parts a row, as the model has them. */
static size_t element(const struct problem *p, enum tensor t, size_t row, size_t column)
{
  if (t == DOUT || t == OUT) return row * p->width + column;
  const size_t part = t == Q || t == DQ ? 0 : t == K_ || t == DK ? 1 : 2;
  return row * (size_t)p->shape.row_stride + part * p->width + column;
}

static double get(const struct problem *p, enum tensor t, size_t row, size_t column)
{
  const size_t at = element(p, t, row, column);
  if (p->bf16) return from_bf16(((const uint16_t *)(const void *)p->data[t])[at]);
  return ((const float *)(const void *)p->data[t])[at];
}

static void set(struct problem *p, enum tensor t, size_t row, size_t column, float x)
{
  const size_t at = element(p, t, row, column);
  if (p->bf16)
    ((uint16_t *)(void *)p->data[t])[at] = to_bf16(x);
  else
    ((float *)(void *)p->data[t])[at] = x;
}

static const void *part(const struct problem *p, enum tensor t)
{
  return p->data[t] + element(p, t, 0, 0) * (p->bf16 ? 2 : 4);
}

static void *part_mutable(struct problem *p, enum tensor t)
{
  return p->data[t] + element(p, t, 0, 0) * (p->bf16 ? 2 : 4);
}

static double normal(uint64_t seed, uint64_t i)
{
  const struct plm_philox_words draw = plm_philox(seed, (uint32_t)i, i >> 32, 91);
  const double u = plm_philox_unit(draw.w[0]) + 0x1p-25, v = plm_philox_unit(draw.w[1]);
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* The batch's mask of `kinds`, random tensors, results filled with NaN. */
static void problem_init(struct problem *p, const struct plm_batch *batch, unsigned kinds,
                         uint32_t window, uint32_t block, int32_t heads, int32_t K, float cap,
                         bool is_bf16)
{
  memset(p, 0, sizeof *p);
  p->shape = (struct plm_attention_shape){.B = (int32_t)batch->chunks,
                                          .L = (int32_t)batch->max_length,
                                          .H = heads,
                                          .K = K,
                                          .row_stride = 3 * heads * K,
                                          .scale = 1 / sqrtf((float)K),
                                          .soft_cap = cap};
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
  memset(p->data[DQ], 0xff, 3 * bytes); /* NaN: what is not written shows */
  memset(p->data[OUT], 0xff, bytes);
  p->lse = malloc(p->rows * (size_t)heads * sizeof(float));
  memset(p->lse, 0xff, p->rows * (size_t)heads * sizeof(float));
  p->exact_lse = calloc(p->rows * (size_t)heads, sizeof(double));
  for (int t = 0; t < TENSORS; t++) p->exact[t] = calloc(count, sizeof(double));
  for (int t = 0; t <= DOUT; t++)
    for (size_t r = 0; r < p->rows; r++)
      for (size_t c = 0; c < p->width; c++) {
        const double spread = t == Q || t == K_ ? 1.5 : 1;
        set(p, (enum tensor)t, r, c, (float)(spread * normal((uint64_t)t + 1, r * p->width + c)));
        p->exact[t][r * p->width + c] = get(p, (enum tensor)t, r, c);
      }
}

static void problem_deinit(struct problem *p)
{
  free(p->mask_values);
  free(p->data[Q]);
  free(p->data[DQ]);
  free(p->data[OUT]);
  free(p->data[DOUT]);
  free(p->lse);
  free(p->exact_lse);
  for (int t = 0; t < TENSORS; t++) free(p->exact[t]);
}

/* ---- the reference: one query and head at a time, straight from the formulas ---- */
static void reference_query(struct problem *p, size_t chunk, size_t query, size_t head,
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
  double largest = -INFINITY, sum = 0, delta = 0;
  for (size_t k = begin; k < end; k++) {
    double dot = 0;
    for (size_t d = 0; d < K; d++) dot += AT(Q, row)[d] * AT(K_, chunk * L + k)[d];
    score[k] = cap > 0 ? cap * tanh(dot * scale / cap) : dot * scale;
    slope[k] = cap > 0 ? 1 - score[k] * score[k] / (cap * cap) : 1;
    if (score[k] > largest) largest = score[k];
  }
  for (size_t k = begin; k < end; k++) sum += exp(score[k] - largest);
  *lse = largest + log(sum);
  for (size_t k = begin; k < end; k++) score[k] = exp(score[k] - *lse);
  for (size_t k = begin; k < end; k++)
    for (size_t d = 0; d < K; d++) AT(OUT, row)[d] += score[k] * AT(V, chunk * L + k)[d];
  for (size_t d = 0; d < K; d++) delta += AT(DOUT, row)[d] * AT(OUT, row)[d];
  for (size_t k = begin; k < end; k++) {
    const size_t key = chunk * L + k;
    double dp = 0;
    for (size_t d = 0; d < K; d++) dp += AT(DOUT, row)[d] * AT(V, key)[d];
    const double ds = score[k] * (dp - delta) * slope[k] * scale;
    for (size_t d = 0; d < K; d++) {
      AT(DV, key)[d] += score[k] * AT(DOUT, row)[d];
      AT(DQ, row)[d] += ds * AT(K_, key)[d];
      AT(DK, key)[d] += ds * AT(Q, row)[d];
    }
  }
#undef AT
}

static void reference(struct problem *p)
{
  double *score = malloc((size_t)p->shape.L * sizeof *score);
  double *slope = malloc((size_t)p->shape.L * sizeof *slope);
  for (size_t b = 0; b < (size_t)p->shape.B; b++)
    for (size_t h = 0; h < (size_t)p->shape.H; h++)
      for (size_t q = 0; q < (size_t)p->shape.L; q++) reference_query(p, b, q, h, score, slope);
  free(score);
  free(slope);
}

static void run(struct problem *p, const struct plm_attention_kernels *kernels, uint32_t threads)
{
  struct plm_pool *pool;
  struct plm_attention *attention;
  assert_int_equal(plm_pool_open(threads, &pool, NULL), PLM_OK);
  assert_int_equal(plm_attention_open(kernels, pool, p->bf16, &attention, NULL), PLM_OK);
  plm_attention_forward(attention, p->data[OUT], p->lse, part(p, Q), part(p, K_), part(p, V),
                        &p->mask, &p->shape);
  plm_attention_backward(attention, part_mutable(p, DQ), part_mutable(p, DK), part_mutable(p, DV),
                         p->data[DOUT], p->data[OUT], p->lse, part(p, Q), part(p, K_), part(p, V),
                         &p->mask, &p->shape);
  plm_attention_close(attention);
  plm_pool_close(pool);
}

/* Largest error of a tensor over its largest value. */
static double worst(const struct problem *p, enum tensor t)
{
  double error = 0, size = 1; /* inputs are of size 1; some gradients are exactly 0 */
  for (size_t r = 0; r < p->rows; r++)
    for (size_t c = 0; c < p->width; c++) {
      const double exact = p->exact[t][r * p->width + c], e = fabs(get(p, t, r, c) - exact);
      if (!(e <= error)) error = e; /* NaN, too */
      if (fabs(exact) > size) size = fabs(exact);
    }
  return error / size;
}

static void compare(const struct problem *p)
{
  static const char *const names[] = {[OUT] = "out", [DQ] = "dq", [DK] = "dk", [DV] = "dv"};
  for (int t = OUT; t < TENSORS; t++) {
    const double limit = p->bf16 ? (t == OUT ? 0.004 : 0.012) : 3e-6, e = worst(p, (enum tensor)t);
    if (!(e <= limit)) fail_msg("%s: error %g over %g", names[t], e, limit);
  }
  for (size_t i = 0; i < p->rows * (size_t)p->shape.H; i++) {
    if (isinf(p->exact_lse[i]))
      assert_true(isinf(p->lse[i]) && p->lse[i] > 0);
    else if (!(fabs(p->lse[i] - p->exact_lse[i]) <= 3e-6 * (1 + fabs(p->exact_lse[i]))))
      fail_msg("lse %zu: %g is not %g", i, (double)p->lse[i], p->exact_lse[i]);
  }
}

static void check(const struct plm_batch *batch, unsigned kinds, uint32_t window, uint32_t block,
                  int32_t heads, int32_t K, float cap, bool is_bf16)
{
  struct choice sets[4];
  const size_t count = instruction_sets(sets);
  struct problem p;
  problem_init(&p, batch, kinds, window, block, heads, K, cap, is_bf16);
  reference(&p);
  for (size_t i = 0; i < count; i++) {
    run(&p, sets[i].kernels, 2);
    compare(&p);
  }
  problem_deinit(&p);
}

/* ---- batches ---- */
enum { MAX_DOCUMENTS = 1024 };
static struct {
  struct plm_batch batch;
  uint32_t begin[9];
  struct plm_chunk_document documents[MAX_DOCUMENTS];
} sample;

static void begin_batch(uint32_t chunks, uint32_t length)
{
  memset(&sample, 0, sizeof sample);
  sample.batch = (struct plm_batch){.chunks = chunks,
                                    .max_length = length,
                                    .document_begin = sample.begin,
                                    .documents = sample.documents};
}

static void add_document(uint32_t chunk, uint32_t start, uint32_t tokens)
{
  const uint32_t d = sample.begin[chunk + 1]++;
  for (uint32_t c = chunk + 2; c <= sample.batch.chunks; c++) sample.begin[c]++;
  sample.documents[d] = (struct plm_chunk_document){.start = start, .tokens = tokens};
}

/* Documents of several sizes, a hole, padding at the end, a chunk of padding alone. */
static void mixed_batch(void)
{
  begin_batch(3, 217);
  add_document(0, 0, 90);
  add_document(0, 90, 1);
  add_document(0, 91, 70);
  add_document(0, 166, 40);
  add_document(2, 3, 214);
}

/* ---- tests ---- */
static void every_mask_kind(void **state)
{
  (void)state;
  mixed_batch();
  for (unsigned kinds = 1; kinds < 16; kinds += 2)
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
      check(&sample.batch, kinds, 23, 50, 2, 32, 0, is_bf16);
  check(&sample.batch, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL, 1, 0, 1, 16, 0, false);
}

static void every_head_width(void **state)
{
  (void)state;
  begin_batch(1, 150);
  add_document(0, 0, 101);
  add_document(0, 104, 44);
  for (int32_t K = 16; K <= 128; K += 8)
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
      check(&sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 2, K, 0, is_bf16);
}

static void every_length(void **state)
{
  (void)state;
  for (uint32_t length = 1; length <= 200; length += length < 20 ? 1 : 13) {
    begin_batch(1, length);
    add_document(0, 0, length);
    check(&sample.batch, length % 2 ? PLM_ATTENTION_CAUSAL : PLM_ATTENTION_DOCUMENT, 0, 0, 1, 24, 0,
          false);
  }
  begin_batch(1, 700);
  add_document(0, 0, 700);
  check(&sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 64, 0, false);
  check(&sample.batch, PLM_ATTENTION_LOCAL, 128, 0, 1, 64, 0, true);
}

static void hundreds_of_documents(void **state)
{
  (void)state;
  begin_batch(2, 400);
  for (uint32_t i = 0; i < 400; i++) add_document(0, i, 1);
  for (uint32_t i = 0; i < 130; i++) add_document(1, 3 * i, 2 + i % 2);
  check(&sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 2, 16, 0, false);
}

static void the_soft_cap_and_its_gradient(void **state)
{
  (void)state;
  mixed_batch();
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
    check(&sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 2, 64, 0.7f, is_bf16);
    check(&sample.batch, PLM_ATTENTION_CAUSAL, 0, 0, 2, 40, 30.0f, is_bf16);
  }
}

static void padding_is_exactly_zero(void **state)
{
  (void)state;
  struct choice sets[4];
  const size_t count = instruction_sets(sets);
  struct problem p;
  mixed_batch();
  problem_init(&p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 2, 40, 0, false);
  for (size_t i = 0; i < count; i++) {
    run(&p, sets[i].kernels, 1);
    size_t empty = 0;
    for (size_t r = 0; r < p.rows; r++) {
      if (p.mask.key_begin[r] != p.mask.key_end[r]) continue;
      empty++;
      for (size_t c = 0; c < p.width; c++)
        for (int t = OUT; t < TENSORS; t++) assert_true(get(&p, (enum tensor)t, r, c) == 0);
    }
    assert_int_equal(empty, 16 + 217 + 3);
  }
  problem_deinit(&p);
}

/* What lies in padding, NaN included, reaches nobody. */
static void padding_is_never_read(void **state)
{
  (void)state;
  struct choice sets[4];
  const size_t count = instruction_sets(sets);
  struct problem p;
  mixed_batch();
  problem_init(&p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 24, 0, false);
  reference(&p);
  for (size_t r = 0; r < p.rows; r++)
    for (size_t c = 0; c < p.width; c++)
      for (int t = 0; t <= DOUT; t++)
        if (p.mask.key_begin[r] == p.mask.key_end[r]) set(&p, (enum tensor)t, r, c, NAN);
  for (size_t i = 0; i < count; i++) {
    run(&p, sets[i].kernels, 2);
    compare(&p);
  }
  problem_deinit(&p);
}

static void large_scores_do_not_overflow(void **state)
{
  (void)state;
  struct choice sets[4];
  const size_t count = instruction_sets(sets);
  struct problem p;
  begin_batch(1, 130);
  add_document(0, 0, 130);
  problem_init(&p, &sample.batch, PLM_ATTENTION_CAUSAL, 0, 0, 1, 16, 0, false);
  p.shape.scale = 40; /* scores of some hundreds, both signs, growing along the keys */
  for (size_t r = 0; r < p.rows; r++)
    for (size_t c = 0; c < p.width; c++) {
      set(&p, K_, r, c, (float)(get(&p, K_, r, c) * (0.1 + (double)r / 100)));
      p.exact[K_][r * p.width + c] = get(&p, K_, r, c);
    }
  reference(&p);
  for (size_t i = 0; i < count; i++) {
    run(&p, sets[i].kernels, 1);
    for (size_t r = 0; r < p.rows; r++)
      assert_true(fabs(p.lse[r] - p.exact_lse[r]) <= 1e-6 * fabs(p.exact_lse[r]) + 1e-3);
    assert_true(worst(&p, OUT) < 2e-3); /* rounding of such scores alone moves them */
  }
  problem_deinit(&p);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
  (void)state;
  struct choice sets[4];
  const size_t count = instruction_sets(sets);
  mixed_batch();
  for (size_t i = 0; i < count; i++)
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
      struct problem one, other;
      problem_init(&one, &sample.batch, PLM_ATTENTION_LOCAL, 40, 0, 3, 48, 0, is_bf16);
      problem_init(&other, &sample.batch, PLM_ATTENTION_LOCAL, 40, 0, 3, 48, 0, is_bf16);
      run(&one, sets[i].kernels, 1);
      for (uint32_t threads = 2; threads <= 5; threads++) {
        const size_t bytes = one.rows * one.width * (is_bf16 ? 2 : 4);
        run(&other, sets[i].kernels, threads);
        assert_memory_equal(one.data[OUT], other.data[OUT], bytes);
        assert_memory_equal(one.data[DQ], other.data[DQ], 3 * bytes);
        assert_memory_equal(one.lse, other.lse, one.rows * 3 * sizeof(float));
      }
      problem_deinit(&one);
      problem_deinit(&other);
    }
}

/* N documents in one chunk and each in a chunk of its own: the same bits, not only nearly. */
static void packed_equals_separate(void **state)
{
  (void)state;
  static const uint32_t lengths[] = {70, 3, 101, 41};
  struct choice sets[4];
  const size_t count = instruction_sets(sets);
  const unsigned kinds[] = {PLM_ATTENTION_DOCUMENT, PLM_ATTENTION_CAUSAL, PLM_ATTENTION_LOCAL};
  for (size_t i = 0; i < count; i++)
    for (size_t m = 0; m < 3; m++) {
      struct problem packed;
      begin_batch(1, 220);
      for (uint32_t d = 0, at = 0; d < 4; at += lengths[d++]) add_document(0, at, lengths[d]);
      problem_init(&packed, &sample.batch, kinds[m] | PLM_ATTENTION_DOCUMENT, 16, 0, 2, 32, 0,
                   false);
      run(&packed, sets[i].kernels, 2);
      for (uint32_t d = 0, at = 0; d < 4; at += lengths[d++]) {
        struct problem alone;
        begin_batch(1, 128);
        add_document(0, 0, lengths[d]);
        problem_init(&alone, &sample.batch, kinds[m] | PLM_ATTENTION_DOCUMENT, 16, 0, 2, 32, 0,
                     false);
        for (size_t r = 0; r < lengths[d]; r++)
          for (size_t c = 0; c < alone.width; c++)
            for (int t = 0; t <= DOUT; t++)
              set(&alone, (enum tensor)t, r, c, (float)get(&packed, (enum tensor)t, at + r, c));
        run(&alone, sets[i].kernels, 1);
        for (size_t r = 0; r < lengths[d]; r++)
          for (size_t c = 0; c < alone.width; c++)
            for (int t = OUT; t < TENSORS; t++)
              assert_true(get(&alone, (enum tensor)t, r, c) ==
                          get(&packed, (enum tensor)t, at + r, c));
        problem_deinit(&alone);
      }
      problem_deinit(&packed);
    }
}

/* The reference's own gradients, by central differences of its own forward pass. */
static double reference_loss(struct problem *p)
{
  double loss = 0;
  for (int t = OUT; t < TENSORS; t++) memset(p->exact[t], 0, p->rows * p->width * sizeof(double));
  reference(p);
  for (size_t i = 0; i < p->rows * p->width; i++) loss += p->exact[OUT][i] * p->exact[DOUT][i];
  return loss;
}

static void the_reference_agrees_with_finite_differences(void **state)
{
  (void)state;
  static const enum tensor inputs[] = {Q, K_, V}, gradients[] = {DQ, DK, DV};
  struct problem p;
  begin_batch(1, 12);
  add_document(0, 0, 5);
  add_document(0, 5, 6);
  problem_init(&p, &sample.batch, PLM_ATTENTION_CAUSAL, 0, 0, 1, 16, 2.0f, false);
  const size_t count = p.rows * p.width;
  double *gradient[3];
  reference_loss(&p);
  for (int i = 0; i < 3; i++) {
    gradient[i] = malloc(count * sizeof(double));
    memcpy(gradient[i], p.exact[gradients[i]], count * sizeof(double));
  }
  for (int i = 0; i < 3; i++)
    for (size_t e = 0; e < count; e++) {
      double *x = &p.exact[inputs[i]][e];
      const double before = *x;
      *x = before + 1e-5;
      const double above = reference_loss(&p);
      *x = before - 1e-5;
      const double below = reference_loss(&p);
      *x = before;
      assert_true(fabs((above - below) / 2e-5 - gradient[i][e]) < 1e-7);
    }
  for (int i = 0; i < 3; i++) free(gradient[i]);
  problem_deinit(&p);
}

/* Runs that are no document's: a query that sees only later keys, an empty one inside a segment. */
static void any_intervals_will_do(void **state)
{
  (void)state;
  struct choice sets[4];
  const size_t count = instruction_sets(sets);
  struct problem p;
  begin_batch(1, 90);
  problem_init(&p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 2, 16, 0, false);
  for (int32_t q = 0; q < 90; q++) {
    const struct plm_philox_words draw = plm_philox(5, (uint32_t)q, 0, 92);
    if (draw.w[0] % 5 == 0) continue;
    const int32_t end = 1 + (int32_t)(draw.w[1] % 90);
    p.mask_values[q] = (int32_t)(draw.w[2] % (uint32_t)end);
    p.mask_values[90 + q] = end;
  }
  reference(&p);
  for (size_t i = 0; i < count; i++) {
    run(&p, sets[i].kernels, 2);
    compare(&p);
  }
  problem_deinit(&p);
}

/* Work follows the allowed area: documents of protein lengths in chunks of 1024. */
static void the_executed_area_is_near_the_allowed(void **state)
{
  (void)state;
  struct choice sets[4];
  const size_t count = instruction_sets(sets);
  begin_batch(8, 1024);
  for (uint32_t c = 0; c < 8; c++)
    for (uint32_t d = 0, at = 0; at < 1024; d++) {
      uint32_t tokens = (uint32_t)exp(5.6 + 0.6 * normal(17 + c, d)); /* median 270 */
      if (tokens > 1024 - at) tokens = 1024 - at;
      add_document(c, at, tokens);
      at += tokens;
    }
  struct problem p;
  problem_init(&p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 16, 0, false);
  for (size_t i = 0; i < count; i++) {
    struct plm_pool *pool;
    struct plm_attention *attention;
    assert_int_equal(plm_pool_open(1, &pool, NULL), PLM_OK);
    assert_int_equal(plm_attention_open(sets[i].kernels, pool, false, &attention, NULL), PLM_OK);
    plm_attention_forward(attention, p.data[OUT], p.lse, part(&p, Q), part(&p, K_), part(&p, V),
                          &p.mask, &p.shape);
    const struct plm_attention_area area = plm_attention_area(attention);
    assert_true(area.allowed > 0 && area.executed >= area.allowed);
    assert_true((double)area.executed <= 1.1 * (double)area.allowed);
    plm_attention_close(attention);
    plm_pool_close(pool);
  }
  problem_deinit(&p);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_mask_kind),
      cmocka_unit_test(every_head_width),
      cmocka_unit_test(every_length),
      cmocka_unit_test(hundreds_of_documents),
      cmocka_unit_test(the_soft_cap_and_its_gradient),
      cmocka_unit_test(padding_is_exactly_zero),
      cmocka_unit_test(padding_is_never_read),
      cmocka_unit_test(large_scores_do_not_overflow),
      cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
      cmocka_unit_test(packed_equals_separate),
      cmocka_unit_test(the_reference_agrees_with_finite_differences),
      cmocka_unit_test(any_intervals_will_do),
      cmocka_unit_test(the_executed_area_is_near_the_allowed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
