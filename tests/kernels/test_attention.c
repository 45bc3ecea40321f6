/* Attention on the CPU against a dense masked reference in double precision: every mask kind, head
 * width, instruction set and precision; shapes that do not fit the tiles; padding; determinism. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/numbers/philox.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/processor.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/attention_case.h"
#include "tests/support/operators/ops_case.h"

/* ---- instruction sets ---- */
struct choice {
  const char *name;
  const struct plm_attention_kernels *kernels;
};

enum { MOST_SETS = 6 };

static size_t instruction_sets(struct choice sets[MOST_SETS])
{
  size_t n = 0;
  sets[n++] = (struct choice){"portable", &plm_attention_kernels_portable};
#if defined(__x86_64__)
  const enum plm_processor_level level = plm_processor_level();
  if (level >= PLM_PROCESSOR_AVX2) sets[n++] = (struct choice){"avx2", &plm_attention_kernels_avx2};
  if (level >= PLM_PROCESSOR_AVX512)
    sets[n++] = (struct choice){"avx512", &plm_attention_kernels_avx512};
  if (level >= PLM_PROCESSOR_AVX512_BF16) {
    sets[n++] = (struct choice){"narrow", &plm_attention_kernels_narrow};
    sets[n++] = (struct choice){"avx512_bf16", &plm_attention_kernels_avx512_bf16};
  }
  if (level >= PLM_PROCESSOR_AMX)
    sets[n++] = (struct choice){"avx512_amx", &plm_attention_kernels_avx512_amx};
#endif
  if (!ops_case_quick()) return n;
  sets[0] = sets[n - 1]; /* the kernels that this processor would use */
  return 1;
}

static struct plm_attention_area run_as(struct attention_case *p,
                                        const struct plm_attention_kernels *kernels,
                                        uint32_t threads, bool rounds)
{
  struct plm_pool *pool;
  assert_int_equal(plm_pool_open(threads, &pool, NULL), PLM_OK);
  struct plm_attention *attention = plm_attention_open(kernels, pool, p->bf16, rounds);
  const struct plm_attention_inputs in = {attention_case_part(p, Q), attention_case_part(p, K_),
                                          attention_case_part(p, V)};
  const struct plm_attention_gradients to = {attention_case_part_mutable(p, DQ),
                                             attention_case_part_mutable(p, DK),
                                             attention_case_part_mutable(p, DV)};
  plm_attention_forward(attention, p->data[OUT], p->lse, &in, &p->mask, &p->shape);
  plm_attention_backward(attention, &to, p->data[DOUT], p->data[OUT], p->lse, &in, &p->mask,
                         &p->shape);
  const struct plm_attention_area area = plm_attention_area(attention);
  plm_attention_close(attention);
  plm_pool_close(pool);
  return area;
}

static struct plm_attention_area run(struct attention_case *p,
                                     const struct plm_attention_kernels *kernels, uint32_t threads)
{
  return run_as(p, kernels, threads, false);
}

static void run_target(struct attention_case *p, const void *of, uint64_t order)
{
  (void)run(p, of, (uint32_t)order);
}

/* The shared cases run with each instruction set; the order is the number of threads. */
static int use_instruction_sets(void **state)
{
  (void)state;
  static struct attention_target targets[MOST_SETS];
  struct choice sets[MOST_SETS];
  const size_t count = instruction_sets(sets);
  for (size_t i = 0; i < count; i++)
    targets[i] = (struct attention_target){run_target, sets[i].kernels};
  attention_case_targets(targets, count);
  return 0;
}

/* ---- batches ---- */
static struct attention_batch sample;

/* Documents of several sizes, a gap between two of them, padding at both ends, and a chunk of only
 * padding. */
static void mixed_batch(void)
{
  attention_batch_of(&sample, 3, 217, {0, 0, 90}, {0, 90, 1}, {0, 91, 70}, {0, 166, 40},
                     {2, 3, 214});
}

/* ---- tests ---- */
static void every_mask_kind(void **state)
{
  (void)state;
  const int32_t heads = ops_case_quick() ? 1 : 2, K = ops_case_quick() ? 16 : 32;
  mixed_batch();
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
    attention_check_masks(&sample, 2, 23, 50, heads, K, is_bf16);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL, 1, 0, 1, 16, 0, false);
}

static void every_head_width(void **state)
{
  (void)state;
  attention_batch_of(&sample, 1, 150, {0, 0, 101}, {0, 104, 44});
  int32_t widths[15];
  size_t count = 0;
  for (int32_t K = 16; K <= 128; K += ops_case_quick() ? 56 : 8) widths[count++] = K;
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
    attention_check_widths(&sample, 2, widths, count, is_bf16);
}

static void every_length(void **state)
{
  (void)state;
  const uint32_t step = ops_case_quick() ? 29 : 13;
  uint32_t lengths[40];
  size_t count = 0;
  for (uint32_t length = 1; length <= 200; length += length < 20 ? 1 : step)
    lengths[count++] = length;
  attention_check_lengths(lengths, count, 24, false);
  if (ops_case_quick()) return;
  attention_batch_of(&sample, 1, 700, {0, 0, 700});
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 64, 0, false);
  attention_check(&sample, PLM_ATTENTION_LOCAL, 128, 0, 1, 64, 0, true);
}

/* The tiles of queries and keys have other sizes than the windows, and each edge of a window falls
 * at the end of a tile for some of these. */
static void windows_of_several_sizes(void **state)
{
  (void)state;
  static const uint32_t windows[] = {16, 24, 63, 64, 71, 72, 73, 96, 120, 128, 240};
  const size_t step = ops_case_quick() ? 5 : 1;
  attention_batch_of(&sample, 1, 400, {0, 0, 330}, {0, 330, 70});
  for (size_t i = 0; i < sizeof windows / sizeof *windows; i += step)
    attention_check(&sample, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL, windows[i], 0, 1, 16, 0,
                    false);
}

static void hundreds_of_documents(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 2, 400);
  for (uint32_t i = 0; i < 400; i++) attention_batch_add(&sample, 0, i, 1);
  for (uint32_t i = 0; i < 130; i++) attention_batch_add(&sample, 1, 3 * i, 2 + i % 2);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 2, 16, 0, false);
}

static void the_soft_cap_and_its_gradient(void **state)
{
  (void)state;
  const int32_t heads = ops_case_quick() ? 1 : 2, K = ops_case_quick() ? 24 : 64;
  mixed_batch();
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
    attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, heads, K, 0.7f, is_bf16);
    attention_check(&sample, PLM_ATTENTION_CAUSAL, 0, 0, heads, 40, 30.0f, is_bf16);
  }
}

/* Not even NaN in padding affects a result. */
static void padding_is_exactly_zero_and_never_read(void **state)
{
  (void)state;
  mixed_batch();
  assert_int_equal(attention_check_padding(&sample, 2, 40, NAN, false), 16 + 217 + 3);
}

static void large_scores_do_not_overflow(void **state)
{
  (void)state;
  struct choice sets[MOST_SETS];
  const size_t count = instruction_sets(sets);
  struct attention_case p;
  attention_batch_of(&sample, 1, 130, {0, 0, 130});
  attention_case_init(&p, &sample.batch, PLM_ATTENTION_CAUSAL, 0, 0, 1, 16, false);
  p.shape.scale = 40; /* scores of several hundred, of both signs, that grow along the keys */
  for (size_t r = 0; r < p.rows; r++)
    for (size_t c = 0; c < p.width; c++) {
      attention_case_set(&p, K_, r, c,
                         (float)(attention_case_get(&p, K_, r, c) * (0.1 + (double)r / 100)));
      p.exact[K_][r * p.width + c] = attention_case_get(&p, K_, r, c);
    }
  attention_case_reference(&p);
  for (size_t i = 0; i < count; i++) {
    run(&p, sets[i].kernels, 1);
    for (size_t r = 0; r < p.rows; r++)
      assert_true(fabs(p.lse[r] - p.exact_lse[r]) <= 1e-6 * fabs(p.exact_lse[r]) + 1e-3);
    assert_true(attention_case_worst(&p, OUT) <
                2e-3); /* the rounding of such large scores changes the output */
  }
  attention_case_deinit(&p);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
  (void)state;
  mixed_batch();
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
    attention_check_orders(&sample, 40, 3, 48, 5, is_bf16);
}

/* Documents packed into one chunk must give exactly the same bits as each in a separate chunk. */
static void packed_equals_separate(void **state)
{
  (void)state;
  static const uint32_t lengths[] = {70, 3, 101, 41};
  struct choice sets[MOST_SETS];
  const size_t count = instruction_sets(sets);
  const unsigned kinds[] = {PLM_ATTENTION_DOCUMENT, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL,
                            PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL};
  for (size_t i = 0; i < count; i++)
    for (size_t m = 0; m < 3; m++) {
      struct attention_case packed;
      attention_batch_begin(&sample, 1, 220);
      for (uint32_t d = 0, at = 0; d < 4; at += lengths[d++])
        attention_batch_add(&sample, 0, at, lengths[d]);
      attention_case_init(&packed, &sample.batch, kinds[m], 16, 0, 2, 32, false);
      run(&packed, sets[i].kernels, 2);
      for (uint32_t d = 0, at = 0; d < 4; at += lengths[d++]) {
        struct attention_case alone;
        attention_batch_of(&sample, 1, 128, {0, 0, lengths[d]});
        attention_case_init(&alone, &sample.batch, kinds[m], 16, 0, 2, 32, false);
        for (size_t r = 0; r < lengths[d]; r++)
          for (size_t c = 0; c < alone.width; c++)
            for (enum attention_tensor t = Q; t <= DOUT; t++)
              attention_case_set(&alone, t, r, c, (float)attention_case_get(&packed, t, at + r, c));
        run(&alone, sets[i].kernels, 1);
        for (size_t r = 0; r < lengths[d]; r++)
          for (size_t c = 0; c < alone.width; c++)
            for (enum attention_tensor t = OUT; t < ATTENTION_TENSORS; t++)
              assert_true(attention_case_get(&alone, t, r, c) ==
                          attention_case_get(&packed, t, at + r, c));
        attention_case_deinit(&alone);
      }
      attention_case_deinit(&packed);
    }
}

/* The loss whose central differences check the reference's gradients. */
static double reference_loss(struct attention_case *p)
{
  double loss = 0;
  for (int t = OUT; t < ATTENTION_TENSORS; t++)
    memset(p->exact[t], 0, p->rows * p->width * sizeof(double));
  attention_case_reference(p);
  for (size_t i = 0; i < p->rows * p->width; i++) loss += p->exact[OUT][i] * p->exact[DOUT][i];
  return loss;
}

static void the_reference_agrees_with_finite_differences(void **state)
{
  (void)state;
  static const enum attention_tensor inputs[] = {Q, K_, V}, gradients[] = {DQ, DK, DV};
  struct attention_case p;
  attention_batch_of(&sample, 1, 12, {0, 0, 5}, {0, 5, 6});
  attention_case_init(&p, &sample.batch, PLM_ATTENTION_CAUSAL, 0, 0, 1, 16, false);
  p.shape.soft_cap = 2;
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
  attention_case_deinit(&p);
}

/* Key intervals that no document produces: queries that see only later keys, and queries without
 * keys between others. */
static void any_intervals_will_do(void **state)
{
  (void)state;
  struct choice sets[MOST_SETS];
  const size_t count = instruction_sets(sets);
  struct attention_case p;
  attention_batch_begin(&sample, 1, 90);
  attention_case_init(&p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 2, 16, false);
  for (int32_t q = 0; q < 90; q++) {
    const struct plm_philox_words draw = plm_philox(5, (uint32_t)q, 0, 92);
    if (q % 16 == 0 ? q > 0 : draw.w[0] % 5 == 0) continue; /* 16: the first one of a tile */
    const int32_t end = 1 + (int32_t)(draw.w[1] % 90);
    p.mask_values[q] = (int32_t)(draw.w[2] % (uint32_t)end);
    p.mask_values[90 + q] = end;
  }
  attention_case_reference(&p);
  for (size_t i = 0; i < count; i++) {
    run(&p, sets[i].kernels, 2);
    attention_case_compare(&p);
  }
  attention_case_deinit(&p);
}

/* The query-key pairs that the kernels compute, divided by those that the mask allows. */
static double executed_of_allowed(unsigned kinds, const struct plm_attention_kernels *kernels)
{
  struct attention_case p;
  attention_case_init(&p, &sample.batch, kinds, 100, 0, 1, 16, false);
  const struct plm_attention_area area = run(&p, kernels, 3);
  attention_case_deinit(&p);
  assert_true(area.allowed > 0 && area.executed >= area.allowed);
  return (double)area.executed / (double)area.allowed;
}

/* With documents of protein lengths (median 270) in chunks of 1024, the kernels compute hardly more
 * pairs than the mask allows. */
static void the_executed_area_is_near_the_allowed(void **state)
{
  (void)state;
  struct choice sets[MOST_SETS];
  const size_t count = instruction_sets(sets);
  const uint32_t chunks = ops_case_quick() ? 2 : 8;
  attention_batch_begin(&sample, chunks, 1024);
  for (uint32_t c = 0; c < chunks; c++)
    for (uint32_t d = 0, at = 0; at < 1024; d++) {
      uint32_t tokens = (uint32_t)exp(5.6 + 0.6 * attention_case_normal(17 + c, d));
      if (tokens > 1024 - at) tokens = 1024 - at;
      attention_batch_add(&sample, c, at, tokens);
      at += tokens;
    }
  for (size_t i = 0; i < count; i++)
    assert_true(executed_of_allowed(PLM_ATTENTION_DOCUMENT, sets[i].kernels) <= 1.1);
}

/* In a long document, a kernel computes only the keys that a tile of queries may see. */
static void keys_that_no_query_sees_are_not_computed(void **state)
{
  (void)state;
  struct choice sets[MOST_SETS];
  const size_t count = instruction_sets(sets);
  attention_batch_of(&sample, 1, 1024, {0, 0, 1024});
  for (size_t i = 0; i < count; i++) {
    /* the causal mask allows half of all pairs, and the window a fifth */
    assert_true(executed_of_allowed(PLM_ATTENTION_CAUSAL, sets[i].kernels) <= 1.1);
    assert_true(executed_of_allowed(PLM_ATTENTION_LOCAL, sets[i].kernels) <= 1.5);
  }
}

static bool multiplies_bf16(const struct plm_attention_kernels *kernels)
{
#if defined(__x86_64__)
  return kernels == &plm_attention_kernels_narrow ||
         kernels == &plm_attention_kernels_avx512_bf16 ||
         kernels == &plm_attention_kernels_avx512_amx;
#else
  (void)kernels;
  return false;
#endif
}

static void copy_scaled(struct attention_case *to, const struct attention_case *from,
                        enum attention_tensor tensor, float factor)
{
  for (size_t row = 0; row < from->rows; row++)
    for (size_t column = 0; column < from->width; column++)
      attention_case_set(to, tensor, row, column,
                         factor * (float)attention_case_get(from, tensor, row, column));
}

/* Floats that may be rounded to bf16 give what the same values in bf16 give, before the output is
 * rounded. Kernels that do not multiply bf16 do not round. */
static void check_rounding(const struct plm_attention_kernels *kernels, unsigned kinds, int32_t K)
{
  struct attention_case source, floats, other;
  attention_case_init(&source, &sample.batch, kinds, 23, 0, 2, K, true);
  attention_case_init(&floats, &sample.batch, kinds, 23, 0, 2, K, false);
  const bool rounds = multiplies_bf16(kernels);
  attention_case_init(&other, &sample.batch, kinds, 23, 0, 2, K, rounds);
  for (int t = Q; t <= DOUT; t++) {
    copy_scaled(&floats, &source, (enum attention_tensor)t, 1 + 0x1p-11f);
    copy_scaled(&other, &floats, (enum attention_tensor)t, 1);
  }
  (void)run_as(&floats, kernels, 1, true);
  (void)run_as(&other, kernels, 1, false);
  const size_t bytes = other.rows * other.width * (rounds ? 2 : 4);
  if (rounds) copy_scaled(&source, &floats, OUT, 1); /* rounds */
  assert_memory_equal(rounds ? source.data[OUT] : floats.data[OUT], other.data[OUT], bytes);
  assert_memory_equal(floats.lse, other.lse, other.rows * 2 * sizeof(float));
  attention_case_deinit(&source);
  attention_case_deinit(&floats);
  attention_case_deinit(&other);
}

static void floats_are_rounded_only_where_asked(void **state)
{
  (void)state;
  struct choice sets[MOST_SETS];
  const size_t count = instruction_sets(sets);
  mixed_batch();
  for (size_t i = 0; i < count; i++)
    for (int32_t K = 16; K <= 40; K += 8) {
      check_rounding(sets[i].kernels, PLM_ATTENTION_DOCUMENT, K);
      check_rounding(sets[i].kernels, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL, K);
    }
}

/* Which kernels a processor gets may depend on what is fast there only if their bits are equal. */
static void narrow_vectors_give_the_same_bits(void **state)
{
  (void)state;
#if defined(__x86_64__)
  if (plm_processor_level() < PLM_PROCESSOR_AVX512_BF16) return; /* it has no such kernels */
  mixed_batch();
  for (int32_t K = 16; K <= 128; K += 8) { /* 24, 72 and 88 are where they differ */
    struct attention_case whole, narrow;
    attention_case_init(&whole, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 2, K, false);
    attention_case_init(&narrow, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 2, K, false);
    (void)run(&whole, &plm_attention_kernels_avx512_bf16, 1);
    (void)run(&narrow, &plm_attention_kernels_narrow, 1);
    const size_t bytes = whole.rows * whole.width * sizeof(float);
    assert_memory_equal(whole.data[OUT], narrow.data[OUT], bytes);
    assert_memory_equal(whole.data[DQ], narrow.data[DQ], 3 * bytes); /* with DK and DV */
    assert_memory_equal(whole.lse, narrow.lse, whole.rows * 2 * sizeof(float));
    attention_case_deinit(&whole);
    attention_case_deinit(&narrow);
  }
#endif
}

/* Limits the address space, so that the first call cannot allocate its scratch. */
static void missing_memory_is_an_error(void **state)
{
  (void)state;
#ifdef PLM_SANITIZED
  skip("sanitizers themselves need more address space");
#endif
  if (ops_case_quick()) skip("qemu does not limit the address space of its guest");
  struct plm_pool *pool;
  struct plm_attention *attention;
  struct attention_case p;
  struct plm_error error = {0};
  struct rlimit limit;
  attention_batch_of(&sample, 1, 4096, {0, 0, 4096});
  attention_case_init(&p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 128, false);
  assert_int_equal(plm_pool_open(2, &pool, NULL), PLM_OK);
  attention = plm_attention_open(&plm_attention_kernels_portable, pool, false, false);
  assert_int_equal(plm_attention_error(attention, &error), PLM_OK);
  assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
  const struct rlimit none = {.rlim_cur = 1 << 20, .rlim_max = limit.rlim_max};
  const struct plm_attention_inputs in = {attention_case_part(&p, Q), attention_case_part(&p, K_),
                                          attention_case_part(&p, V)};
  checked_memory_guard(false); /* which takes no new addresses */
  assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
  plm_attention_forward(attention, p.data[OUT], p.lse, &in, &p.mask, &p.shape);
  assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
  assert_int_equal(plm_attention_error(attention, &error), PLM_NO_MEMORY);
  assert_non_null(strstr(error.what, "no memory for the scratch of attention"));
  plm_attention_close(attention);
  plm_pool_close(pool);
  attention_case_deinit(&p);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(missing_memory_is_an_error), /* first: the heap has no large free block */
      cmocka_unit_test(every_mask_kind),
      cmocka_unit_test(every_head_width),
      cmocka_unit_test(every_length),
      cmocka_unit_test(windows_of_several_sizes),
      cmocka_unit_test(hundreds_of_documents),
      cmocka_unit_test(the_soft_cap_and_its_gradient),
      cmocka_unit_test(padding_is_exactly_zero_and_never_read),
      cmocka_unit_test(large_scores_do_not_overflow),
      cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
      cmocka_unit_test(packed_equals_separate),
      cmocka_unit_test(the_reference_agrees_with_finite_differences),
      cmocka_unit_test(any_intervals_will_do),
      cmocka_unit_test(the_executed_area_is_near_the_allowed),
      cmocka_unit_test(keys_that_no_query_sees_are_not_computed),
      cmocka_unit_test(floats_are_rounded_only_where_asked),
      cmocka_unit_test(narrow_vectors_give_the_same_bits),
  };
  return cmocka_run_group_tests(tests, use_instruction_sets, NULL);
}
