/* Compares attention_cached with the reference in double precision: rows of several sequences at
 * several positions, windows, prompts of many rows, and head widths that do not fit the vectors. */
#include <math.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_case.h"
#include "tests/support/reference/reference_ops.h"

enum { SLOTS = 3, CAPACITY = 75 };

/* A row of the call. begin is the first key that it sees; the caches hold the earlier positions. */
struct row {
  int32_t slot, position, begin;
};

/* Copies row n's part of qkv (rows, 3HK) into a cache as the operator should. */
static void place(double *cache, const double *qkv, int part, const struct row *row, int64_t n,
                  int64_t H, int64_t K)
{
  for (int64_t h = 0; h < H; h++)
    memcpy(cache + ((row->slot * H + h) * CAPACITY + row->position) * K,
           qkv + (n * 3 + part) * H * K + h * K, (size_t)K * sizeof *cache);
}

static const int32_t *integers(struct ops_case *c, const int32_t *values, int64_t n)
{
  return ops_case_device(c, values, (size_t)n * sizeof *values);
}

static void call(struct ops_case *c, const struct row *table, int64_t rows, int64_t H, int64_t K)
{
  const int64_t size = SLOTS * H * CAPACITY * K;
  double *caches[2] = {ops_case_values(c, size, 1), ops_case_values(c, size, 1)};
  double *qkv = ops_case_values(c, rows * 3 * H * K, 1.3);
  double *exact = ops_case_zeros(c, rows * H * K), *q = ops_case_zeros(c, rows * H * K);
  void *key_cache = ops_case_act(c, caches[0], size),
       *value_cache = ops_case_act(c, caches[1], size);
  const char *qkv_act = ops_case_act(c, qkv, rows * 3 * H * K);
  void *out = ops_case_empty_act(c, rows * H * K);
  int32_t slots[64], positions[64], begins[64], ends[64];
  for (int64_t n = 0; n < rows; n++) {
    slots[n] = table[n].slot, positions[n] = table[n].position;
    begins[n] = table[n].begin, ends[n] = table[n].position + 1;
    memcpy(q + n * H * K, qkv + n * 3 * H * K, (size_t)(H * K) * sizeof *q);
    for (int part = 1; part < 3; part++) place(caches[part - 1], qkv, part, &table[n], n, H, K);
  }
  reference_attention_cached(exact, &(struct reference_cached){.q = q,
                                                               .key_cache = caches[0],
                                                               .value_cache = caches[1],
                                                               .slots = slots,
                                                               .begin = begins,
                                                               .end = ends,
                                                               .rows = rows,
                                                               .H = H,
                                                               .K = K,
                                                               .capacity = CAPACITY});
  const struct plm_cached_rows cached = {.rows = rows,
                                         .H = H,
                                         .K = K,
                                         .row_stride = 3 * H * K,
                                         .capacity = CAPACITY,
                                         .scale = (float)(1 / sqrt((double)K)),
                                         .slots = integers(c, slots, rows),
                                         .positions = integers(c, positions, rows),
                                         .key_begin = integers(c, begins, rows)};
  const size_t part = (size_t)(H * K) * c->ops->act_bytes;
  c->ops->attention_cached(c->ops, out, key_cache, value_cache, qkv_act, qkv_act + part,
                           qkv_act + 2 * part, &cached);
  ops_case_check_act(c, "cached attention", out, exact, rows * H * K, 12);
  /* only the places of these rows may have changed */
  ops_case_check_act(c, "key cache", key_cache, caches[0], size, 0);
  ops_case_check_act(c, "value cache", value_cache, caches[1], size, 0);
}

static void single_rows_case(struct ops_case *c)
{
  static const struct row table[] = {{0, 0, 0}, {2, 74, 0}, {1, 30, 17}};
  static const int64_t widths[] = {16, 24, 40, 64, 72, 128};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) call(c, table, 3, 2, widths[i]);
}

static void rows_of_several_sequences(void **state)
{
  (void)state;
  ops_case_each(single_rows_case);
}

/* 33 rows of one sequence and one of another; the last key of each row is its own. */
static void prompt_case(struct ops_case *c)
{
  struct row table[34];
  for (int32_t n = 0; n < 33; n++) table[n] = (struct row){1, 5 + n, n % 4 == 0 ? 0 : 5 + n / 2};
  table[33] = (struct row){0, 9, 9};
  call(c, table, 34, 3, 32);
}

static void a_prompt_of_many_rows(void **state)
{
  (void)state;
  ops_case_each(prompt_case);
}

/* Two large scores must not overflow, and the small difference between them must count. */
static void large_scores_case(struct ops_case *c)
{
  enum { K = 16 };
  double keys[2 * K] = {0}, values[2 * K] = {0}, qkv[3 * K] = {0}, exact[K] = {0};
  for (int d = 0; d < K; d++) {
    keys[d] = 40, qkv[d] = 40, qkv[K + d] = 40 - 0.03125 * (d == 0);
    values[d] = 1, qkv[2 * K + d] = 3;
  }
  const double weight = exp(-0.03125 * 40 / 4); /* of the own key, relative to the first */
  void *key_cache = ops_case_act(c, keys, 2 * K), *value_cache = ops_case_act(c, values, 2 * K);
  const char *qkv_act = ops_case_act(c, qkv, 3 * K);
  void *out = ops_case_empty_act(c, K);
  const int32_t slot = 0, position = 1, begin = 0;
  const struct plm_cached_rows cached = {.rows = 1,
                                         .H = 1,
                                         .K = K,
                                         .row_stride = 3 * K,
                                         .capacity = 2,
                                         .scale = 0.25f,
                                         .slots = integers(c, &slot, 1),
                                         .positions = integers(c, &position, 1),
                                         .key_begin = integers(c, &begin, 1)};
  const size_t part = K * c->ops->act_bytes;
  c->ops->attention_cached(c->ops, out, key_cache, value_cache, qkv_act, qkv_act + part,
                           qkv_act + 2 * part, &cached);
  const double own = qkv[K] < 40 ? weight : 1; /* bf16 rounds the difference away */
  for (int d = 0; d < K; d++) exact[d] = (1 + 3 * own) / (1 + own);
  ops_case_check_act(c, "large scores", out, exact, K,
                     8000); /* floats near the scores, 6400, are 2^-11 apart */
}

static void large_scores(void **state)
{
  (void)state;
  ops_case_each(large_scores_case);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_of_several_sequences),
      cmocka_unit_test(a_prompt_of_many_rows),
      cmocka_unit_test(large_scores),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
