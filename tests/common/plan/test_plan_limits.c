/* A plan whose reader leaves out the documents beyond token_limit has the windows of one that ends
 * there. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "common/plan/plan.h"
#include "common/plan/shuffle.h"
#include "tests/support/corpora/known_split.h"
#include "tests/support/harness/must.h"

static struct plm_plan_parameters ordinary(void)
{
  return (struct plm_plan_parameters){.seed = 11,
                                      .max_length = 64,
                                      .alignment = 2,
                                      .window_groups = 4,
                                      .packing = PLM_PACKING_BEST_FIT,
                                      .truncate = PLM_TRUNCATE_HEAD,
                                      .tokenizer = PLM_TOKENIZER_ESM,
                                      .shuffle = true};
}

/* Documents with up to 5 chunks of tokens. */
static struct known_split split_make(uint64_t documents)
{
  uint32_t *lengths = must(malloc(documents * sizeof *lengths));
  for (uint64_t d = 0; d < documents; d++) {
    struct plm_draws draws = plm_draws_begin(3, d, 100);
    lengths[d] = plm_draws_below(&draws, d % 4 == 0 ? 300 : 60);
  }
  return (struct known_split){.lengths = lengths, .documents = documents};
}

/* What the reader knows: the first `documents` of the split. */
struct told {
  struct known_reading reading;
  uint64_t documents;
  const uint64_t *groups; /* of the window */
};

static plm_status read_group(const void *context, uint64_t epoch, uint32_t index, uint64_t group,
                             struct plm_plan_group *out, struct plm_error *error)
{
  const struct told *told = context;
  assert_int_equal(group, told->groups[index]);
  PLM_TRY(known_reading_group(&told->reading, epoch, index, group, out, error));
  while (out->count > 0 && out->numbers[out->count - 1] >= told->documents) out->count--;
  return PLM_OK;
}

static void assert_same(const struct plm_window *a, const struct plm_window *b)
{
  assert_int_equal(a->epoch, b->epoch);
  assert_int_equal(a->window, b->window);
  assert_int_equal(a->chunks, b->chunks);
  assert_int_equal(a->document_count, b->document_count);
  assert_int_equal(a->real_tokens, b->real_tokens);
  assert_int_equal(a->group_count, b->group_count);
  assert_memory_equal(a->chunk_begin, b->chunk_begin, (a->chunks + 1) * sizeof *a->chunk_begin);
  assert_memory_equal(a->documents, b->documents, a->document_count * sizeof *a->documents);
  assert_memory_equal(a->places, b->places, a->document_count * sizeof *a->places);
  assert_memory_equal(a->groups, b->groups, a->group_count * sizeof *a->groups);
  assert_memory_equal(a->group_begin, b->group_begin,
                      (a->group_count + 1) * sizeof *a->group_begin);
}

/* Compares all windows of an epoch. The plan that is told lengths may have more of them, which are
 * empty then. */
static void compare(const struct plm_plan_parameters *p, const struct known_split *split)
{
  enum { EPOCH = 7 };
  struct plm_plan *ends = known_split_plan(split, p), *is_told;
  struct plm_window a = {0}, b = {0};
  uint64_t groups[4];
  assert_int_equal(plm_plan_open(p, split->documents, 0, &is_told, NULL), PLM_OK);
  const struct told told = {known_reading_open(split, is_told), plm_plan_documents(ends), groups};
  const uint64_t windows = plm_plan_windows(ends), all = plm_plan_windows(is_told);
  for (uint64_t w = 0; w < all; w++) {
    assert_int_equal(plm_plan_window_groups(is_told, EPOCH, w, groups),
                     plm_plan_group_count(is_told, w));
    if (w >= windows) plm_window_deinit(&b); /* an empty one may be the first */
    assert_int_equal(plm_plan_window(is_told, EPOCH, w, read_group, &told, &b, NULL), PLM_OK);
    if (w >= windows) {
      assert_int_equal(b.chunks, 0);
      assert_int_equal(b.document_count, 0);
      assert_int_equal(b.group_count, 0);
      assert_int_equal(b.real_tokens, 0);
      continue;
    }
    assert_int_equal(known_split_window(split, ends, EPOCH, w, &a, NULL), PLM_OK);
    assert_same(&a, &b);
  }
  plm_window_deinit(&a);
  plm_window_deinit(&b);
  plm_plan_close(ends);
  plm_plan_close(is_told);
}

/* The tokens that the plan takes from the first `documents` of the split. */
static uint64_t tokens_of_first(const struct plm_plan_parameters *p,
                                const struct known_split *split, uint64_t documents)
{
  uint64_t tokens = 0;
  for (uint64_t d = 0; d < documents; d++) {
    const uint64_t own = (uint64_t)split->lengths[d] + 2;
    tokens += own > p->max_length && p->truncate != PLM_TRUNCATE_SPLIT ? p->max_length : own;
  }
  return tokens;
}

/* The documents within the limit, as a consumer finds them: group by group. */
static uint64_t within_by_groups(const struct plm_plan_parameters *p,
                                 const struct known_split *split, uint64_t *tokens)
{
  uint64_t within = 0;
  *tokens = 0;
  while (within < split->documents) {
    const uint64_t left = split->documents - within;
    const uint32_t count = left < PLM_GROUP_DOCUMENTS ? (uint32_t)left : PLM_GROUP_DOCUMENTS;
    const uint32_t more = plm_plan_within(p, split->lengths + within, count, tokens);
    within += more;
    if (more < count) break;
  }
  return within;
}

/* Limits within a group, at the end of a group, of a window and of the split, and beyond it. */
static void limits_are_the_same(void **state)
{
  (void)state;
  struct known_split split = split_make(5497);
  const uint64_t ends[] = {1, 2, 100, 255, 256, 257, 1023, 1024, 1025, 2048, split.documents};
  for (int way = 0; way < 4; way++)
    for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
      struct plm_plan_parameters p = ordinary();
      uint64_t tokens;
      p.shuffle = false;
      p.packing = (enum plm_packing)(way % 2);
      p.truncate = way / 2 == 0 ? PLM_TRUNCATE_HEAD : PLM_TRUNCATE_SPLIT;
      const uint64_t exactly = tokens_of_first(&p, &split, ends[e]);
      for (uint64_t limit = exactly + 1; limit + 1 >= exactly; limit--) {
        p.token_limit = limit;
        const uint64_t expected = limit < exactly ? ends[e] - 1 : ends[e];
        assert_int_equal(within_by_groups(&p, &split, &tokens), expected);
        assert_int_equal(tokens, tokens_of_first(&p, &split, expected));
        if (expected != 0) compare(&p, &split);
      }
    }
  free((void *)split.lengths);
}

static void what_cannot_be_opened(void **state)
{
  (void)state;
  const uint64_t most = (UINT64_C(0xffffffff) - 1) * PLM_GROUP_DOCUMENTS;
  struct plm_plan_parameters p = ordinary();
  struct plm_plan *plan;
  struct plm_error error;
  assert_int_equal(plm_plan_open(&p, 0, 0, &plan, NULL), PLM_NOT_FOUND);
  assert_null(plan);
  p.sampling = PLM_SAMPLING_CLUSTERS;
  assert_int_equal(plm_plan_open(&p, 5, 0, &plan, &error), PLM_CONFIG);
  assert_int_equal(plm_plan_open(&p, 5, 2, &plan, NULL), PLM_OK);
  assert_int_equal(plm_plan_documents(plan), 2); /* one of each cluster */
  plm_plan_close(plan);
  p = ordinary();
  p.shuffle = false;
  assert_int_equal(plm_plan_open(&p, most + 1, 0, &plan, NULL), PLM_LIMIT);
  assert_int_equal(plm_plan_open(&p, most, 0, &plan, NULL), PLM_OK);
  assert_int_equal(plm_plan_windows(plan), (most / PLM_GROUP_DOCUMENTS - 1) / 4 + 1);
  plm_plan_close(plan);
}

static void a_window_has_so_many_groups(void **state)
{
  (void)state;
  const struct plm_plan_parameters p = ordinary();
  struct plm_plan *plan;
  assert_int_equal(plm_plan_open(&p, 5 * PLM_GROUP_DOCUMENTS + 1, 0, &plan, NULL), PLM_OK);
  assert_int_equal(plm_plan_group_count(plan, 0), 4);
  assert_int_equal(plm_plan_group_count(plan, 1), 2);
  assert_int_equal(plm_plan_group_count(plan, 2), 0);
  plm_plan_close(plan);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(limits_are_the_same),
      cmocka_unit_test(what_cannot_be_opened),
      cmocka_unit_test(a_window_has_so_many_groups),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
