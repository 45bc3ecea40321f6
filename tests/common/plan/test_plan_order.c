/* The order of groups, documents and chunks against slow computations from their definition in
 * plan.h, and both sides of each bound of a plan's parameters. */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>

#include "common/plan/packing.h"
#include "common/plan/plan.h"
#include "common/plan/shuffle.h"
#include "tests/support/corpora/known_split.h"

enum { DOCUMENTS = 3000, GROUPS = (DOCUMENTS - 1) / PLM_GROUP_DOCUMENTS + 1, WINDOW_GROUPS = 5 };
static uint32_t lengths[DOCUMENTS];
static const struct known_split split = {.lengths = lengths, .documents = DOCUMENTS};

static struct plm_plan_parameters parameters_make(void)
{
  return (struct plm_plan_parameters){.seed = 11,
                                      .max_length = 64,
                                      .alignment = 1,
                                      .window_groups = WINDOW_GROUPS,
                                      .packing = PLM_PACKING_BEST_FIT,
                                      .truncate = PLM_TRUNCATE_HEAD,
                                      .tokenizer = PLM_TOKENIZER_ESM,
                                      .shuffle = true};
}

static struct plm_plan *plan_make(const struct plm_plan_parameters *parameters)
{
  for (uint32_t d = 0; d < DOCUMENTS; d++) lengths[d] = (d * 2654435761u >> 16) % 100;
  return known_split_plan(&split, parameters);
}

static void permuted_groups(uint64_t seed, uint64_t epoch, uint32_t groups[GROUPS])
{
  struct plm_draws draws = plm_draws_begin(seed, epoch, PLM_PURPOSE_GROUPS);
  for (uint32_t g = 0; g < GROUPS; g++) groups[g] = g;
  plm_shuffle(&draws, groups, GROUPS);
}

/* Each epoch has a permutation of its own, in whatever order the epochs are asked for. */
static void groups_follow_the_epoch(void **state)
{
  (void)state;
  static const uint64_t epochs[] = {0, 1, 2, 3, 0, 4000000000u, 3, 1, 0};
  const struct plm_plan_parameters parameters = parameters_make();
  struct plm_plan *plan = plan_make(&parameters);
  uint32_t want[GROUPS], first[GROUPS];
  uint64_t got[WINDOW_GROUPS];
  permuted_groups(parameters.seed, 0, first);
  for (size_t e = 0; e < sizeof epochs / sizeof *epochs; e++) {
    permuted_groups(parameters.seed, epochs[e], want);
    assert_true(epochs[e] == 0 || memcmp(want, first, sizeof want) != 0);
    for (uint32_t w = 0, at = 0; w < plm_plan_windows(plan); w++) {
      const uint32_t count = plm_plan_window_groups(plan, epochs[e], w, got);
      assert_int_equal(count, GROUPS - at < WINDOW_GROUPS ? GROUPS - at : WINDOW_GROUPS);
      for (uint32_t i = 0; i < count; i++) assert_int_equal(got[i], want[at++]);
    }
  }
  plm_plan_close(plan);
}

/* The chunks of a window: its documents packed in reading order, then shuffled within each chunk,
 * then the chunks. */
static void check_order(const struct plm_plan *plan, uint64_t epoch, uint64_t index)
{
  enum { MOST = WINDOW_GROUPS * PLM_GROUP_DOCUMENTS };
  static uint32_t numbers[MOST], units[MOST], order[MOST], next[MOST], chunk_of[MOST];
  static uint32_t sorted[MOST], begin[MOST + 1], chunk_order[MOST];
  const struct plm_plan_parameters *p = plm_plan_parameters(plan);
  struct plm_window window = {0};
  struct plm_rooms rooms;
  uint64_t groups[WINDOW_GROUPS];
  uint32_t count = 0, at = 0;
  const uint32_t group_count = plm_plan_window_groups(plan, epoch, index, groups);
  for (uint32_t g = 0; g < group_count; g++)
    for (uint32_t d = 0; d < PLM_GROUP_DOCUMENTS; d++) {
      const uint32_t number = (uint32_t)groups[g] * PLM_GROUP_DOCUMENTS + d;
      if (number >= DOCUMENTS) break;
      numbers[count] = number;
      units[count] = lengths[number] + 2 < p->max_length ? lengths[number] + 2 : p->max_length;
      count++;
    }
  plm_rooms_open(p->max_length, &rooms);
  const uint32_t chunks = plm_pack_best_fit(&rooms, units, count, order, next, chunk_of);
  plm_rooms_deinit(&rooms);
  for (uint32_t c = 0; c < chunks; c++) {
    begin[c] = at;
    for (uint32_t i = 0; i < count; i++)
      if (chunk_of[i] == c) sorted[at++] = i;
    chunk_order[c] = c;
  }
  begin[chunks] = at;
  struct plm_draws draws = plm_draws_begin(p->seed, epoch << 32 | index, PLM_PURPOSE_DOCUMENTS);
  for (uint32_t c = 0; c < chunks; c++)
    plm_shuffle(&draws, sorted + begin[c], begin[c + 1] - begin[c]);
  draws = plm_draws_begin(p->seed, epoch << 32 | index, PLM_PURPOSE_CHUNKS);
  plm_shuffle(&draws, chunk_order, chunks);

  assert_int_equal(known_split_window(&split, plan, epoch, index, &window, NULL), PLM_OK);
  assert_int_equal(window.chunks, chunks);
  at = 0;
  for (uint32_t c = 0; c < chunks; c++) {
    uint32_t start = 0;
    assert_int_equal(window.chunk_begin[c], at);
    for (uint32_t k = begin[chunk_order[c]]; k < begin[chunk_order[c] + 1]; k++, at++) {
      assert_int_equal(window.documents[at].number, numbers[sorted[k]]);
      assert_int_equal(window.documents[at].tokens, units[sorted[k]]);
      assert_int_equal(window.documents[at].start, start);
      start += units[sorted[k]];
    }
  }
  assert_int_equal(window.chunk_begin[chunks], at);
  plm_window_deinit(&window);
}

static void windows_follow_their_definition(void **state)
{
  (void)state;
  const struct plm_plan_parameters parameters = parameters_make();
  struct plm_plan *plan = plan_make(&parameters);
  for (uint64_t epoch = 0; epoch < 3; epoch++)
    for (uint64_t w = 0; w < plm_plan_windows(plan); w++) check_order(plan, epoch, w);
  plm_plan_close(plan);
}

/* Without a shuffle every epoch is epoch 0, also those that draws could not number. */
static void unshuffled_epochs_are_the_first(void **state)
{
  (void)state;
  struct plm_plan_parameters parameters = parameters_make();
  struct plm_window first = {0}, later = {0};
  uint32_t counts[2];
  parameters.shuffle = false;
  struct plm_plan *plan = plan_make(&parameters);
  assert_int_equal(known_split_window(&split, plan, 0, 1, &first, NULL), PLM_OK);
  assert_int_equal(known_split_window(&split, plan, UINT64_C(1) << 32, 1, &later, NULL), PLM_OK);
  assert_int_equal(later.epoch, 0);
  assert_int_equal(later.document_count, first.document_count);
  assert_memory_equal(later.documents, first.documents,
                      first.document_count * sizeof *first.documents);
  assert_int_equal(known_split_chunks(&split, plan, UINT64_C(1) << 32, 1, 1, &counts[0], NULL),
                   PLM_OK);
  assert_int_equal(counts[0], first.chunks);
  plm_window_deinit(&first);
  plm_window_deinit(&later);
  plm_plan_close(plan);
}

static void the_greatest_parameters_are_accepted(void **state)
{
  (void)state;
  struct plm_plan_parameters p = parameters_make();
  p.max_length = PLM_PLAN_MAX_LENGTH;
  p.alignment = PLM_PLAN_MAX_LENGTH;
  p.window_groups = PLM_PLAN_MAX_WINDOW_GROUPS;
  assert_int_equal(plm_plan_parameters_check(&p, NULL), PLM_OK);
  p.max_length = 2;
  p.alignment = 1;
  p.window_groups = 1;
  assert_int_equal(plm_plan_parameters_check(&p, NULL), PLM_OK);
}

/* A plan of a mixture has the corpus' fingerprint in its hash, each half of it, and the sampling.
 */
static void hash_covers_the_source(void **state)
{
  (void)state;
  struct plm_hash hashes[6];
  for (int i = 0; i < 6; i++) {
    struct plm_plan_parameters p = parameters_make();
    p.source = i < 2   ? (struct plm_hash){0}
               : i < 4 ? (struct plm_hash){.low = 1}
                       : (struct plm_hash){.high = 1};
    p.sampling = i % 2 ? PLM_SAMPLING_CLUSTERS : PLM_SAMPLING_DOCUMENTS;
    hashes[i] = plm_plan_hash(&p);
    for (int j = 0; j < i; j++) assert_false(plm_hash_equal(hashes[i], hashes[j]));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(groups_follow_the_epoch),
      cmocka_unit_test(windows_follow_their_definition),
      cmocka_unit_test(unshuffled_epochs_are_the_first),
      cmocka_unit_test(the_greatest_parameters_are_accepted),
      cmocka_unit_test(hash_covers_the_source),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
