/* A plan that is told lengths group by group has the windows of one that knows them all. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "common/plan/plan.h"
#include "common/plan/shuffle.h"
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

/* Documents with up to 5 chunks of tokens, in clusters of 1 to 9. */
static struct plm_plan_split split_make(uint64_t clusters)
{
  uint32_t *sizes = must(malloc(clusters * sizeof *sizes));
  uint64_t documents = 0;
  for (uint64_t c = 0; c < clusters; c++) documents += sizes[c] = 1 + (uint32_t)(c * c % 9);
  uint32_t *lengths = must(malloc(documents * sizeof *lengths));
  for (uint64_t d = 0; d < documents; d++) {
    struct plm_draws draws = plm_draws_begin(3, d, 100);
    lengths[d] = plm_draws_below(&draws, d % 4 == 0 ? 300 : 60);
  }
  return (struct plm_plan_split){lengths, documents, sizes, clusters};
}

static void split_free(struct plm_plan_split *split)
{
  free((void *)split->lengths);
  free((void *)split->clusters);
}

/* What the reader knows: the first `documents` of the split. */
struct told {
  const struct plm_plan *plan;
  const struct plm_plan_split *split;
  uint64_t epoch, documents;
  const uint64_t *groups; /* of the window */
};

static plm_status read_group(const void *context, uint32_t index, uint64_t group,
                             struct plm_plan_group *out, struct plm_error *error)
{
  const struct told *told = context;
  const struct plm_plan_split *split = told->split;
  const uint64_t first = group * PLM_GROUP_DOCUMENTS;
  (void)error;
  assert_int_equal(group, told->groups[index]);
  out->count = 0;
  if (plm_plan_parameters(told->plan)->sampling == PLM_SAMPLING_CLUSTERS) {
    uint64_t begin = 0;
    for (uint64_t c = 0; c < first; c++) begin += split->clusters[c];
    const uint64_t left = split->cluster_count - first;
    out->count = left < PLM_GROUP_DOCUMENTS ? (uint32_t)left : PLM_GROUP_DOCUMENTS;
    plm_plan_draw_members(told->plan, told->epoch, group, split->clusters + first, out->count,
                          begin, out->numbers);
  } else {
    while (out->count < PLM_GROUP_DOCUMENTS && first + out->count < told->documents) {
      out->numbers[out->count] = first + out->count;
      out->count++;
    }
  }
  for (uint32_t i = 0; i < out->count; i++) out->lengths[i] = split->lengths[out->numbers[i]];
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
static void compare(const struct plm_plan_parameters *p, const struct plm_plan_split *split,
                    uint64_t epoch)
{
  struct plm_plan *knows, *is_told;
  struct plm_window a = {0}, b = {0};
  uint64_t groups[4];
  assert_int_equal(plm_plan_open_split(p, split, &knows, NULL), PLM_OK);
  assert_int_equal(plm_plan_open_unread(p, split->documents, split->cluster_count, &is_told, NULL),
                   PLM_OK);
  const struct told told = {is_told, split, epoch, plm_plan_documents(knows), groups};
  const uint64_t windows = plm_plan_windows(knows), all = plm_plan_windows(is_told);
  if (p->token_limit == 0) assert_int_equal(windows, all);
  for (uint64_t w = 0; w < all; w++) {
    assert_int_equal(plm_plan_window_groups(is_told, epoch, w, groups),
                     plm_plan_group_count(is_told, w));
    if (w >= windows) plm_window_deinit(&b); /* an empty one may be the first */
    assert_int_equal(plm_plan_window_of(is_told, epoch, w, read_group, &told, &b, NULL), PLM_OK);
    if (w >= windows) {
      assert_int_equal(b.chunks, 0);
      assert_int_equal(b.document_count, 0);
      assert_int_equal(b.group_count, 0);
      assert_int_equal(b.real_tokens, 0);
      continue;
    }
    assert_int_equal(plm_plan_window(knows, epoch, w, &a, NULL), PLM_OK);
    assert_same(&a, &b);
  }
  plm_window_deinit(&a);
  plm_window_deinit(&b);
  plm_plan_close(knows);
  plm_plan_close(is_told);
}

static void windows_are_the_same(void **state)
{
  (void)state;
  static const uint64_t clusters[] = {1, 256, 257, 1100};
  for (size_t s = 0; s < sizeof clusters / sizeof *clusters; s++) {
    struct plm_plan_split split = split_make(clusters[s]);
    for (int way = 0; way < 2 * 3 * 3; way++) {
      struct plm_plan_parameters p = ordinary();
      p.packing = (enum plm_packing)(way % 2);
      p.truncate = (enum plm_truncate)(way / 2 % 3);
      p.shuffle = way / 6 != 0;
      p.sampling = way / 6 == 2 ? PLM_SAMPLING_CLUSTERS : PLM_SAMPLING_DOCUMENTS;
      compare(&p, &split, 0);
      compare(&p, &split, 4000000000u);
    }
    split_free(&split);
  }
}

/* The tokens that the plan takes from the first `documents` of the split. */
static uint64_t tokens_of_first(const struct plm_plan_parameters *p,
                                const struct plm_plan_split *split, uint64_t documents)
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
                                 const struct plm_plan_split *split, uint64_t *tokens)
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
  struct plm_plan_split split = split_make(1100);
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
        if (expected != 0) compare(&p, &split, 7);
      }
    }
  split_free(&split);
}

static void what_cannot_be_opened(void **state)
{
  (void)state;
  const uint64_t most = (UINT64_C(0xffffffff) - 1) * PLM_GROUP_DOCUMENTS;
  struct plm_plan_parameters p = ordinary();
  struct plm_plan *plan;
  struct plm_error error;
  assert_int_equal(plm_plan_open_unread(&p, 0, 0, &plan, NULL), PLM_NOT_FOUND);
  assert_null(plan);
  p.sampling = PLM_SAMPLING_CLUSTERS;
  assert_int_equal(plm_plan_open_unread(&p, 5, 0, &plan, &error), PLM_CONFIG);
  assert_int_equal(plm_plan_open_unread(&p, 5, 2, &plan, NULL), PLM_OK);
  assert_int_equal(plm_plan_documents(plan), 2); /* one of each cluster */
  plm_plan_close(plan);
  p = ordinary();
  p.shuffle = false;
  assert_int_equal(plm_plan_open_unread(&p, most + 1, 0, &plan, NULL), PLM_LIMIT);
  assert_int_equal(plm_plan_open_unread(&p, most, 0, &plan, NULL), PLM_OK);
  assert_int_equal(plm_plan_windows(plan), (most / PLM_GROUP_DOCUMENTS - 1) / 4 + 1);
  plm_plan_close(plan);
}

static void a_window_has_so_many_groups(void **state)
{
  (void)state;
  const struct plm_plan_parameters p = ordinary();
  struct plm_plan *plan;
  assert_int_equal(plm_plan_open_unread(&p, 5 * PLM_GROUP_DOCUMENTS + 1, 0, &plan, NULL), PLM_OK);
  assert_int_equal(plm_plan_group_count(plan, 0), 4);
  assert_int_equal(plm_plan_group_count(plan, 1), 2);
  assert_int_equal(plm_plan_group_count(plan, 2), 0);
  plm_plan_close(plan);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_are_the_same),
      cmocka_unit_test(limits_are_the_same),
      cmocka_unit_test(what_cannot_be_opened),
      cmocka_unit_test(a_window_has_so_many_groups),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
