/* Packing and shuffles against slow and simple references. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/plan/packing.h"
#include "common/plan/shuffle.h"
#include "tests/support/harness/cmocka_all.h"

enum { MAX_ITEMS = 400 };

/* Best fit that looks at every chunk; of several with equal room, it takes the one changed last. */
static uint32_t reference_best_fit(uint32_t capacity, const uint32_t *units, uint32_t count,
                                   uint32_t *chunk_of)
{
  uint32_t room[MAX_ITEMS], changed[MAX_ITEMS], chunks = 0, clock = 0;
  for (uint32_t size = capacity; size >= 1; size--)
    for (uint32_t i = 0; i < count; i++) {
      if (units[i] != size) continue;
      uint32_t best = UINT32_MAX;
      for (uint32_t c = 0; c < chunks; c++) {
        if (room[c] < size) continue;
        if (best == UINT32_MAX || room[c] < room[best] ||
            (room[c] == room[best] && changed[c] > changed[best]))
          best = c;
      }
      if (best == UINT32_MAX) {
        best = chunks++;
        room[best] = capacity;
      }
      room[best] -= size;
      changed[best] = ++clock;
      chunk_of[i] = best;
    }
  return chunks;
}

/* Next fit that adds up the sizes in the last chunk. */
static uint32_t reference_next_fit(uint32_t capacity, const uint32_t *units, uint32_t count,
                                   uint32_t *chunk_of)
{
  uint32_t chunks = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t used = capacity;
    if (chunks > 0) {
      used = 0;
      for (uint32_t j = 0; j < i; j++)
        if (chunk_of[j] == chunks - 1) used += units[j];
    }
    if (used + units[i] > capacity) chunks++;
    chunk_of[i] = chunks - 1;
  }
  return chunks;
}

static void packings_match_references(void **state)
{
  (void)state;
  static const uint32_t capacities[] = {1,   2,   7,    16,   32,   63,   64,  65,
                                        128, 512, 1000, 1024, 2048, 4096, 9000};
  uint32_t units[MAX_ITEMS], order[MAX_ITEMS], next[MAX_ITEMS];
  uint32_t got[MAX_ITEMS], expected[MAX_ITEMS], histogram[9001];
  for (size_t k = 0; k < sizeof capacities / sizeof *capacities; k++) {
    const uint32_t capacity = capacities[k];
    struct plm_rooms rooms;
    plm_rooms_open(capacity, &rooms);
    for (uint32_t trial = 0; trial < 60; trial++) {
      struct plm_draws draws = plm_draws_begin(trial, capacity, 100);
      const uint32_t count = 1 + plm_draws_below(&draws, trial % 3 == 0 ? 8 : MAX_ITEMS);
      const uint32_t largest = 1 + plm_draws_below(&draws, capacity);
      memset(histogram, 0, sizeof histogram);
      for (uint32_t i = 0; i < count; i++) {
        units[i] = 1 + plm_draws_below(&draws, largest);
        histogram[units[i]]++;
      }
      uint32_t chunks = reference_best_fit(capacity, units, count, expected);
      assert_int_equal(plm_pack_best_fit(&rooms, units, count, order, next, got), chunks);
      assert_memory_equal(got, expected, count * sizeof *got);
      assert_int_equal(plm_pack_best_fit_count(&rooms, histogram), chunks);
      chunks = reference_next_fit(capacity, units, count, expected);
      assert_int_equal(plm_pack_next_fit(capacity, units, count, got), chunks);
      assert_memory_equal(got, expected, count * sizeof *got);
    }
    plm_rooms_deinit(&rooms);
  }
}

/* Items that fill chunks exactly: equal parts, and pairs that add up to a chunk. One unit more
 * needs a chunk more. */
static void exact_fits_waste_nothing(void **state)
{
  (void)state;
  static const uint32_t capacities[] = {32, 512, 1024, 2048, 65536};
  uint32_t units[MAX_ITEMS + 1], order[MAX_ITEMS + 1], next[MAX_ITEMS + 1], got[MAX_ITEMS + 1];
  static uint32_t histogram[65537];
  for (size_t k = 0; k < sizeof capacities / sizeof *capacities; k++) {
    const uint32_t capacity = capacities[k];
    struct plm_rooms rooms;
    plm_rooms_open(capacity, &rooms);
    for (uint32_t parts = 0; parts <= 16; parts = parts == 0 ? 1 : 2 * parts) {
      const uint32_t chunks = parts == 0 ? MAX_ITEMS / 2 : 16,
                     count = parts == 0 ? 400 : 16 * parts;
      memset(histogram, 0, sizeof histogram);
      for (uint32_t i = 0; i <= count; i++) {
        const uint32_t small = 1 + i / 2 * 37 % (capacity / 2);
        units[i] = parts > 0 ? capacity / parts : i % 2 ? capacity - small : small;
        if (i == count) units[i] = 1;
        if (i < count) histogram[units[i]]++;
      }
      assert_int_equal(plm_pack_best_fit(&rooms, units, count, order, next, got), chunks);
      assert_int_equal(plm_pack_next_fit(capacity, units, count, got), chunks);
      assert_int_equal(plm_pack_best_fit_count(&rooms, histogram), chunks);
      histogram[1]++;
      assert_int_equal(plm_pack_best_fit(&rooms, units, count + 1, order, next, got), chunks + 1);
      assert_int_equal(plm_pack_next_fit(capacity, units, count + 1, got), chunks + 1);
      assert_int_equal(plm_pack_best_fit_count(&rooms, histogram), chunks + 1);
    }
    plm_rooms_deinit(&rooms);
  }
}

/* Every order of four items occurs about equally often. */
static void shuffle_is_uniform(void **state)
{
  (void)state;
  enum { ROUNDS = 24000 };
  uint32_t seen[256] = {0}, orders = 0;
  struct plm_draws draws = plm_draws_begin(7, 0, 100);
  for (int round = 0; round < ROUNDS; round++) {
    uint32_t items[4] = {0, 1, 2, 3};
    plm_shuffle(&draws, items, 4);
    seen[items[0] | items[1] << 2 | items[2] << 4 | items[3] << 6]++;
  }
  for (int i = 0; i < 256; i++) {
    if (seen[i] == 0) continue;
    orders++;
    assert_in_range(seen[i], 850, 1150); /* 1000 expected, deviation 31 */
  }
  assert_int_equal(orders, 24);
}

/* A shuffle takes one draw fewer than it has items. */
static void a_shuffle_leaves_the_other_draws(void **state)
{
  (void)state;
  for (uint32_t count = 0; count <= 5; count++) {
    uint32_t items[5] = {0, 1, 2, 3, 4};
    struct plm_draws shuffled = plm_draws_begin(7, 1, 100), draws = shuffled;
    plm_shuffle(&shuffled, items, count);
    for (uint32_t i = 1; i < count; i++) (void)plm_draws_below(&draws, 1);
    assert_int_equal(plm_draws_below(&shuffled, UINT32_MAX), plm_draws_below(&draws, UINT32_MAX));
    for (uint32_t i = count; i < 5; i++) assert_int_equal(items[i], i);
  }
}

/* The draws as plan.h describes them: two for each counter, low word first, high half of the
 * product. */
static void draws_follow_their_counters(void **state)
{
  (void)state;
  const uint64_t seed = 0x123456789abcdef0u, y = 0xfedcba9876543210u;
  struct plm_draws draws = plm_draws_begin(seed, y, PLM_PURPOSE_CHUNKS);
  for (uint32_t d = 0; d < 64; d++) {
    const struct plm_philox_words block = plm_philox(seed, d / 2, y, PLM_PURPOSE_CHUNKS);
    const uint64_t draw = (uint64_t)block.w[d % 2 * 2 + 1] << 32 | block.w[d % 2 * 2];
    const uint32_t bound = 1 + d * 77777777;
    /* draw * bound / 2^64 in two halves of 32 bits */
    const uint64_t high = (draw >> 32) * bound + (((draw & 0xffffffffu) * bound) >> 32);
    assert_int_equal(plm_draws_below(&draws, bound), high >> 32);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(packings_match_references),
      cmocka_unit_test(exact_fits_waste_nothing),
      cmocka_unit_test(shuffle_is_uniform),
      cmocka_unit_test(a_shuffle_leaves_the_other_draws),
      cmocka_unit_test(draws_follow_their_counters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
