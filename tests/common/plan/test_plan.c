/* Properties that every window of every epoch must have, for many parameters of a plan. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/process/thread.h"
#include "common/config/config.h"
#include "common/corpus/corpus.h"
#include "common/plan/plan.h"
#include "common/plan/shuffle.h"
#include "tests/support/corpora/known_split.h"
#include "tests/support/harness/cmocka_all.h"

static struct plm_plan_parameters ordinary(void)
{
  return (struct plm_plan_parameters){.seed = 11,
                                      .max_length = 256,
                                      .alignment = 1,
                                      .window_groups = 4,
                                      .packing = PLM_PACKING_BEST_FIT,
                                      .truncate = PLM_TRUNCATE_HEAD,
                                      .tokenizer = PLM_TOKENIZER_ESM,
                                      .shuffle = true};
}

/* Lengths of all kinds: 0, 1, around max_length, multiples of it, and very long ones. */
static uint32_t *lengths_make(uint64_t documents, uint32_t max_length, uint64_t seed)
{
  uint32_t *lengths = malloc(documents * sizeof *lengths);
  assert_non_null(lengths);
  for (uint64_t d = 0; d < documents; d++) {
    struct plm_draws draws = plm_draws_begin(seed, d, 100);
    switch (plm_draws_below(&draws, 16)) {
    case 0: lengths[d] = plm_draws_below(&draws, 3); break;
    case 1: lengths[d] = max_length - 4 + plm_draws_below(&draws, 6); break;
    case 2: lengths[d] = max_length * (1 + plm_draws_below(&draws, 4)) - 2; break;
    case 3: lengths[d] = max_length + plm_draws_below(&draws, 8 * max_length); break;
    default: lengths[d] = 1 + plm_draws_below(&draws, max_length);
    }
  }
  return lengths;
}

static uint64_t minimum(uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

/* Checks a piece of a document of `length` residues. covered counts the tokens of the document that
 * were seen. */
static void check_piece(const struct plm_plan_parameters *p, const struct plm_chunk_document *piece,
                        uint64_t length, uint64_t *covered)
{
  const uint64_t tokens = length + 2, begin = plm_piece_begin(piece);
  assert_int_equal(piece->residues, length);
  assert_in_range(piece->tokens, 1, p->max_length);
  assert_true(begin + piece->tokens <= tokens);
  if (tokens <= p->max_length) {
    assert_int_equal(begin, 0);
    assert_int_equal(piece->tokens, tokens);
  } else if (p->truncate == PLM_TRUNCATE_SPLIT) {
    assert_int_equal(begin % p->max_length, 0);
    assert_int_equal(piece->tokens, minimum(p->max_length, tokens - begin));
  } else {
    assert_int_equal(piece->tokens, p->max_length);
    if (p->truncate == PLM_TRUNCATE_HEAD) assert_int_equal(begin, 0);
  }
  *covered += piece->tokens;
}

/* Checks the chunks of one window: starts, alignment, no overlap. */
static void check_window(const struct plm_plan_parameters *p, const struct plm_window *window)
{
  uint64_t real = 0;
  assert_int_equal(window->chunk_begin[0], 0);
  assert_int_equal(window->chunk_begin[window->chunks], window->document_count);
  for (uint32_t c = 0; c < window->chunks; c++) {
    uint64_t free_from = 0;
    assert_true(window->chunk_begin[c] < window->chunk_begin[c + 1]);
    for (uint32_t k = window->chunk_begin[c]; k < window->chunk_begin[c + 1]; k++) {
      const struct plm_chunk_document *piece = &window->documents[k];
      assert_int_equal(piece->start % p->alignment, 0);
      assert_true(piece->start >= free_from);
      assert_true(piece->start < free_from + p->alignment); /* no needless gap */
      free_from = (uint64_t)piece->start + piece->tokens;
      assert_true(free_from <= p->max_length);
      real += piece->tokens;
      if (piece->tokens == p->max_length)
        assert_int_equal(window->chunk_begin[c + 1] - window->chunk_begin[c], 1);
    }
  }
  assert_int_equal(real, window->real_tokens);
}

/* Checks that places lists the documents in reading order, group by group. */
static void check_places(const struct plm_plan *plan, const struct plm_window *window)
{
  uint64_t groups[PLM_PLAN_MAX_WINDOW_GROUPS / 64];
  assert_int_equal(plm_plan_window_groups(plan, window->epoch, window->window, groups),
                   window->group_count);
  assert_memory_equal(groups, window->groups, window->group_count * sizeof *groups);
  assert_int_equal(window->group_begin[0], 0);
  assert_int_equal(window->group_begin[window->group_count], window->document_count);
  for (uint32_t g = 0; g < window->group_count; g++) {
    uint64_t last = 0;
    for (uint32_t i = window->group_begin[g]; i < window->group_begin[g + 1]; i++) {
      const struct plm_window_place place = window->places[i];
      assert_true(place.document >= window->chunk_begin[place.chunk]);
      assert_true(place.document < window->chunk_begin[place.chunk + 1]);
      const uint64_t number = window->documents[place.document].number;
      assert_int_equal(number / PLM_GROUP_DOCUMENTS, window->groups[g]);
      assert_true(number >= last);
      last = number;
    }
  }
}

/* Checks a whole epoch: each document occurs once (its pieces cover it once), and the numbers of
 * chunks are those of plm_plan_window_chunks. */
static void check_epoch(const struct known_split *split, const struct plm_plan *plan,
                        uint64_t epoch, struct plm_window *window)
{
  const struct plm_plan_parameters *p = plm_plan_parameters(plan);
  const uint32_t *lengths = split->lengths;
  const uint64_t documents = plm_plan_documents(plan), windows = plm_plan_windows(plan);
  uint64_t *covered = calloc(documents, sizeof *covered);
  uint32_t *counts = malloc(windows * sizeof *counts);
  assert_int_equal(known_split_chunks(split, plan, epoch, 0, windows, counts, NULL), PLM_OK);
  for (uint64_t w = 0; w < windows; w++) {
    assert_int_equal(known_split_window(split, plan, epoch, w, window, NULL), PLM_OK);
    assert_int_equal(window->chunks, counts[w]);
    check_window(p, window);
    check_places(plan, window);
    for (uint32_t k = 0; k < window->document_count; k++) {
      const struct plm_chunk_document *piece = &window->documents[k];
      assert_true(piece->number < documents);
      check_piece(p, piece, lengths[piece->number], &covered[piece->number]);
    }
  }
  for (uint64_t d = 0; d < documents; d++) {
    const uint64_t tokens = (uint64_t)lengths[d] + 2;
    const uint64_t expected =
        p->truncate == PLM_TRUNCATE_SPLIT ? tokens : minimum(tokens, p->max_length);
    assert_int_equal(covered[d], expected);
  }
  free(counts);
  free(covered);
}

static void every_document_once(void **state)
{
  (void)state;
  static const uint64_t sizes[] = {1, 2, 255, 256, 257, 1024, 1025, 3000};
  static const uint32_t alignments[] = {1, 2, 8, 64, 256};
  struct plm_window window = {0};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (size_t a = 0; a < sizeof alignments / sizeof *alignments; a++)
      for (int packing = 0; packing < 2; packing++)
        for (int truncate = 0; truncate < 3; truncate++)
          for (int shuffle = 0; shuffle < 2; shuffle++) {
            struct plm_plan_parameters p = ordinary();
            p.alignment = alignments[a];
            p.packing = (enum plm_packing)packing;
            p.truncate = (enum plm_truncate)truncate;
            p.shuffle = shuffle;
            uint32_t *lengths = lengths_make(sizes[s], p.max_length, s);
            const struct known_split split = {.lengths = lengths, .documents = sizes[s]};
            struct plm_plan *plan = known_split_plan(&split, &p);
            check_epoch(&split, plan, 0, &window);
            if (shuffle) check_epoch(&split, plan, 4000000000u, &window);
            plm_plan_close(plan);
            free(lengths);
          }
  plm_window_deinit(&window);
}

/* The memory that a window keeps from larger plans must not matter. */
static void small_and_large_chunks(void **state)
{
  (void)state;
  static const uint32_t max_lengths[] = {2, 4096, 16, 65536, 8};
  struct plm_window window = {0};
  for (size_t i = 0; i < sizeof max_lengths / sizeof *max_lengths; i++)
    for (int truncate = 0; truncate < 3; truncate++) {
      struct plm_plan_parameters p = ordinary();
      p.max_length = max_lengths[i];
      p.truncate = (enum plm_truncate)truncate;
      uint32_t *lengths = lengths_make(600, max_lengths[i] < 64 ? 64 : max_lengths[i], i);
      const struct known_split split = {.lengths = lengths, .documents = 600};
      struct plm_plan *plan = known_split_plan(&split, &p);
      check_epoch(&split, plan, 3, &window);
      plm_plan_close(plan);
      free(lengths);
    }
  plm_window_deinit(&window);
}

static void assert_same_window(const struct plm_window *a, const struct plm_window *b)
{
  assert_int_equal(a->chunks, b->chunks);
  assert_int_equal(a->document_count, b->document_count);
  assert_int_equal(a->real_tokens, b->real_tokens);
  assert_memory_equal(a->chunk_begin, b->chunk_begin, (a->chunks + 1) * sizeof *a->chunk_begin);
  assert_memory_equal(a->documents, b->documents, a->document_count * sizeof *a->documents);
  assert_memory_equal(a->places, b->places, a->document_count * sizeof *a->places);
}

static void any_window_alone(void **state)
{
  (void)state;
  enum { DOCUMENTS = 9000, EPOCHS = 4 };
  struct plm_plan_parameters p = ordinary();
  p.truncate = PLM_TRUNCATE_RANDOM_CROP;
  uint32_t *lengths = lengths_make(DOCUMENTS, p.max_length, 5);
  const struct known_split split = {.lengths = lengths, .documents = DOCUMENTS};
  struct plm_plan *plan = known_split_plan(&split, &p);
  const uint64_t windows = plm_plan_windows(plan);
  struct plm_window *forward = calloc(windows * EPOCHS, sizeof *forward);
  for (uint64_t i = 0; i < windows * EPOCHS; i++)
    assert_int_equal(known_split_window(&split, plan, i / windows, i % windows, &forward[i], NULL),
                     PLM_OK);
  for (uint64_t i = windows * EPOCHS; i-- > 0;) {
    struct plm_plan *fresh = known_split_plan(&split, &p);
    struct plm_window alone = {0};
    assert_int_equal(known_split_window(&split, plan, i / windows, i % windows, &alone, NULL),
                     PLM_OK);
    assert_same_window(&alone, &forward[i]);
    assert_int_equal(known_split_window(&split, fresh, i / windows, i % windows, &alone, NULL),
                     PLM_OK);
    assert_same_window(&alone, &forward[i]);
    plm_window_deinit(&alone);
    plm_plan_close(fresh);
  }
  for (uint64_t i = 0; i < windows * EPOCHS; i++) plm_window_deinit(&forward[i]);
  free(forward);
  plm_plan_close(plan);
  free(lengths);
}

enum { THREADS = 4, ROUNDS = 40 };
struct share {
  const struct known_split *split;
  const struct plm_plan *plan;
  uint64_t thread;
  uint64_t sums[ROUNDS];
};

static void *sum_windows(void *argument)
{
  struct share *share = argument;
  struct plm_window window = {0};
  const uint64_t windows = plm_plan_windows(share->plan);
  for (uint64_t i = 0; i < ROUNDS; i++) { /* each thread takes the epochs in another order */
    const uint64_t round = (i * 7 + share->thread * 11) % ROUNDS;
    if (known_split_window(share->split, share->plan, round / 4, round % windows, &window, NULL) !=
        PLM_OK)
      break;
    share->sums[round] =
        plm_hash64_bytes(window.documents, window.document_count * sizeof *window.documents);
  }
  plm_window_deinit(&window);
  return NULL;
}

static void threads_share_a_plan(void **state)
{
  (void)state;
  enum { DOCUMENTS = 4000 };
  const struct plm_plan_parameters p = ordinary();
  uint32_t *lengths = lengths_make(DOCUMENTS, p.max_length, 5);
  const struct known_split split = {.lengths = lengths, .documents = DOCUMENTS};
  struct plm_plan *plan = known_split_plan(&split, &p);
  struct share shares[THREADS] = {0}, alone = {.split = &split, .plan = plan};
  pthread_t threads[THREADS];
  for (uint64_t t = 0; t < THREADS; t++) {
    shares[t] = (struct share){.split = &split, .plan = plan, .thread = t};
    assert_int_equal(plm_thread_start(&threads[t], "sum", sum_windows, &shares[t], NULL), PLM_OK);
  }
  for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
  sum_windows(&alone);
  for (int t = 0; t < THREADS; t++)
    assert_memory_equal(shares[t].sums, alone.sums, sizeof alone.sums);
  plm_plan_close(plan);
  free(lengths);
}

/* The share of chunks of window 0 of epoch 0 that begin with the same document in another plan. */
static double sameness(const struct plm_plan_parameters *p, const struct plm_plan_parameters *q,
                       uint64_t other_epoch)
{
  enum { DOCUMENTS = 1024 };
  uint32_t *lengths = lengths_make(DOCUMENTS, p->max_length, 5);
  const struct known_split split = {.lengths = lengths, .documents = DOCUMENTS};
  struct plm_plan *one = known_split_plan(&split, p), *two = known_split_plan(&split, q);
  struct plm_window a = {0}, b = {0};
  assert_int_equal(known_split_window(&split, one, 0, 0, &a, NULL), PLM_OK);
  assert_int_equal(known_split_window(&split, two, other_epoch, 0, &b, NULL), PLM_OK);
  uint32_t same = 0;
  for (uint32_t c = 0; c < a.chunks && c < b.chunks; c++)
    same += a.documents[a.chunk_begin[c]].number == b.documents[b.chunk_begin[c]].number;
  const double share = (double)same / a.chunks;
  plm_window_deinit(&a);
  plm_window_deinit(&b);
  plm_plan_close(one);
  plm_plan_close(two);
  free(lengths);
  return share;
}

static void epochs_and_seeds_differ(void **state)
{
  (void)state;
  struct plm_plan_parameters p = ordinary(), q = ordinary();
  assert_true(sameness(&p, &q, 0) == 1.0);
  assert_true(sameness(&p, &q, 1) < 0.05);
  q.seed = p.seed + (UINT64_C(1) << 32);
  assert_true(sameness(&p, &q, 0) < 0.05);
  p.shuffle = q.shuffle = false; /* all epochs are the same, whatever the seed */
  assert_true(sameness(&p, &q, 9) == 1.0);
}

/* If chunks were not shuffled, the first ones would hold the longest documents. */
static void lengths_do_not_follow_order(void **state)
{
  (void)state;
  enum { DOCUMENTS = 1024 * 16 };
  struct plm_plan_parameters p = ordinary();
  p.window_groups = 64;
  uint32_t *lengths = lengths_make(DOCUMENTS, p.max_length, 5);
  const struct known_split split = {.lengths = lengths, .documents = DOCUMENTS};
  struct plm_plan *plan = known_split_plan(&split, &p);
  struct plm_window window = {0};
  assert_int_equal(known_split_window(&split, plan, 0, 0, &window, NULL), PLM_OK);
  double half[2] = {0}, first = 0, last = 0;
  uint32_t documents[2] = {0}, shared = 0;
  for (uint32_t c = 0; c < window.chunks; c++) {
    const uint32_t begin = window.chunk_begin[c], end = window.chunk_begin[c + 1];
    half[c >= window.chunks / 2] += window.documents[begin].tokens;
    documents[c >= window.chunks / 2]++;
    if (end - begin < 2) continue;
    first += window.documents[begin].tokens;
    last += window.documents[end - 1].tokens;
    shared++;
  }
  const double halves = half[0] / documents[0] / (half[1] / documents[1]), ends = first / last;
  assert_true(halves > 0.95 && halves < 1.05);
  assert_true(ends > 0.95 && ends < 1.05);
  assert_true(shared > 1000);
  plm_window_deinit(&window);
  plm_plan_close(plan);
  free(lengths);
}

static void crops_move_and_reach_both_ends(void **state)
{
  (void)state;
  struct plm_plan_parameters p = ordinary();
  struct plm_window window = {0};
  const uint32_t lengths[1] = {p.max_length + 6}; /* tokens: 8 more than fit */
  const struct known_split split = {.lengths = lengths, .documents = 1};
  uint32_t seen[9] = {0};
  p.truncate = PLM_TRUNCATE_RANDOM_CROP;
  struct plm_plan *plan = known_split_plan(&split, &p);
  for (uint64_t epoch = 0; epoch < 800; epoch++) {
    assert_int_equal(known_split_window(&split, plan, epoch, 0, &window, NULL), PLM_OK);
    const uint64_t begin = plm_piece_begin(&window.documents[0]);
    assert_true(begin <= 8);
    seen[begin]++;
  }
  for (uint32_t begin = 0; begin <= 8; begin++)
    if (begin == 1)
      assert_int_equal(seen[begin], 0);
    else
      assert_in_range(seen[begin], 60, 140);
  plm_window_deinit(&window);
  plm_plan_close(plan);
}

static void token_limit_takes_a_prefix(void **state)
{
  (void)state;
  struct plm_plan_parameters p = ordinary();
  const uint32_t lengths[] = {98, 1000, 48, 10}; /* tokens 100, 256 (head), 50, 12 */
  static const struct {
    uint64_t limit, documents;
  } cases[] = {{99, 0},  {100, 1}, {355, 1}, {356, 2}, {405, 2},
               {406, 3}, {417, 3}, {418, 4}, {500, 4}};
  p.shuffle = false;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t tokens = 0;
    p.token_limit = cases[i].limit;
    assert_int_equal(plm_plan_within(&p, lengths, 4, &tokens), cases[i].documents);
    assert_in_range(tokens, cases[i].documents * 12, cases[i].limit);
  }
}

/* Counts the chunks of an epoch, and compares windows in its middle with their counts. */
static void plan_large(const struct plm_plan_parameters *p, const struct known_split *split,
                       const char *what)
{
  struct plm_plan *plan = known_split_plan(split, p);
  struct known_reading reading = known_reading_open(split, plan);
  struct plm_window window = {0};
  const uint64_t windows = plm_plan_windows(plan);
  uint32_t *counts = malloc(windows * sizeof *counts);
  const uint64_t began = plm_clock_ns();
  assert_int_equal(
      plm_plan_window_chunks(plan, 3, 0, windows, known_reading_group, &reading, counts, NULL),
      PLM_OK);
  printf("%s: the chunks of an epoch counted in %.3f s\n", what,
         1e-9 * (double)(plm_clock_ns() - began)); /* only shown: the machine may be busy */
  for (uint64_t w = windows / 2; w < windows / 2 + 20; w++) {
    assert_int_equal(plm_plan_window(plan, 3, w, known_reading_group, &reading, &window, NULL),
                     PLM_OK);
    assert_int_equal(window.chunks, counts[w]);
  }
  plm_window_deinit(&window);
  free(counts);
  known_reading_close(&reading);
  plm_plan_close(plan);
}

/* 60 million documents: the chunks of an epoch are counted from lengths only, and a window in its
 * middle is planned without those before it. */
static void large_corpora_are_planned(void **state)
{
  (void)state;
  enum { DOCUMENTS = 60000000, CLUSTERS = DOCUMENTS / 3 };
  struct plm_plan_parameters p = ordinary();
  uint32_t *lengths = malloc(DOCUMENTS * sizeof *lengths);
  uint32_t *clusters = malloc(CLUSTERS * sizeof *clusters);
  assert_non_null(lengths);
  assert_non_null(clusters);
  for (uint32_t c = 0; c < CLUSTERS; c++) clusters[c] = 1 + 2 * (c % 3);
  clusters[CLUSTERS - 1] += DOCUMENTS - (CLUSTERS / 3 * 9 + (CLUSTERS % 3) * (CLUSTERS % 3));
  uint64_t random = 1;
  for (uint32_t d = 0; d < DOCUMENTS; d++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    lengths[d] = 30 + (uint32_t)(random >> 33) % 500 + (uint32_t)(random >> 45) % 400;
  }
  p.max_length = 1024;
  p.window_groups = 64;
  const struct known_split split = {
      .lengths = lengths, .documents = DOCUMENTS, .clusters = clusters, .cluster_count = CLUSTERS};
  plan_large(&p, &split, "60 million documents");
  p.sampling = PLM_SAMPLING_CLUSTERS;
  plan_large(&p, &split, "60 million documents in 20 million clusters");
  free(clusters);
  free(lengths);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_document_once),
      cmocka_unit_test(small_and_large_chunks),
      cmocka_unit_test(any_window_alone),
      cmocka_unit_test(threads_share_a_plan),
      cmocka_unit_test(epochs_and_seeds_differ),
      cmocka_unit_test(lengths_do_not_follow_order),
      cmocka_unit_test(crops_move_and_reach_both_ends),
      cmocka_unit_test(token_limit_takes_a_prefix),
      cmocka_unit_test(large_corpora_are_planned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
