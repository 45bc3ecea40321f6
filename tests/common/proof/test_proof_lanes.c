/* Hashes in lanes are those of libsodium, in every form that the processor has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/proof/proof_lanes.h"
#include "tests/support/harness/cmocka_all.h"

enum { MOST = 40, LONGEST = 1100 };

static uint8_t messages[MOST][LONGEST];

static uint32_t draw(uint32_t a, uint32_t b)
{
  return plm_philox(3, a, b, 100).w[0];
}

static int fill(void **state)
{
  (void)state;
  for (uint32_t i = 0; i < MOST; i++)
    for (uint32_t j = 0; j < LONGEST; j++) messages[i][j] = (uint8_t)draw(i, j);
  return 0;
}

/* Hashes `count` messages of these sizes at once, and compares with each alone. False: the
 * processor does not have the form. */
static bool compare(enum proof_lanes form, enum proof_tag tag, const size_t *sizes, size_t count,
                    size_t out_bytes)
{
  struct proof_task tasks[MOST] = {{0}};
  uint8_t expected[MOST][32], found[MOST][33];
  memset(found, 0xa5, sizeof found);
  for (size_t i = 0; i < count; i++) {
    tasks[i] = (struct proof_task){sizes[i] == 0 ? NULL : messages[i], sizes[i], found[i]};
    proof_hash(tag, messages[i], sizes[i], expected[i], out_bytes);
  }
  if (!proof_hash_many_form(form, tag, tasks, count, out_bytes)) return false;
  for (size_t i = 0; i < count; i++) {
    if (memcmp(found[i], expected[i], out_bytes) != 0)
      fail_msg("form %d, tag %d: message %zu of %zu, with %zu bytes", (int)form, (int)tag, i, count,
               sizes[i]);
    assert_int_equal(found[i][out_bytes], 0xa5); /* nothing is written behind it */
  }
  return true;
}

/* Every size, so that the last block is full, empty or anything between. */
static void every_size(void **state)
{
  (void)state;
  for (int form = 0; form < PROOF_LANES_FORMS; form++)
    for (size_t size = 0; size <= LONGEST; size++) {
      const size_t sizes[] = {size, size, size, size, size, size, size, size, size};
      const enum proof_tag tag = (enum proof_tag)(1 + size % PROOF_TAG_CORPUS);
      if (!compare((enum proof_lanes)form, tag, sizes, 1 + size % 9, size % 2 == 0 ? 32 : 16))
        break;
    }
}

/* Any number of messages, of which some end long before others. */
static void mixed_sizes(void **state)
{
  (void)state;
  bool has[PROOF_LANES_FORMS] = {false};
  for (int form = 0; form < PROOF_LANES_FORMS; form++)
    for (uint32_t round = 0; round < 400; round++) {
      size_t sizes[MOST];
      for (uint32_t i = 0; i < MOST; i++)
        sizes[i] = round % 3 == 0 ? 128 * (draw(round, i) % 8) : draw(round, i) % (LONGEST + 1);
      has[form] = compare((enum proof_lanes)form, (enum proof_tag)(1 + round % PROOF_TAG_CORPUS),
                          sizes, round % (MOST + 1), 32);
      if (!has[form]) break;
    }
  bool expected[PROOF_LANES_FORMS] = {[PROOF_ONE] = true};
#if defined(__x86_64__)
  expected[PROOF_AVX2] = __builtin_cpu_supports("avx2");
  expected[PROOF_AVX512] = __builtin_cpu_supports("avx512f");
#endif
  for (int form = 0; form < PROOF_LANES_FORMS; form++) assert_int_equal(has[form], expected[form]);
  printf("forms: one%s%s\n", has[PROOF_AVX2] ? ", AVX2" : "", has[PROOF_AVX512] ? ", AVX-512" : "");
}

/* Whatever the number of messages, the fastest form is the same as one by one. */
static void the_form_does_not_matter(void **state)
{
  (void)state;
  for (size_t count = 0; count <= 20; count++) {
    struct proof_task tasks[MOST] = {{0}};
    uint8_t found[MOST][32], expected[MOST][32];
    for (size_t i = 0; i < count; i++)
      tasks[i] = (struct proof_task){messages[i], 300 + i, found[i]};
    proof_hash_many(PROOF_TAG_BLOCK, tasks, count, 32);
    for (size_t i = 0; i < count; i++) {
      proof_hash(PROOF_TAG_BLOCK, messages[i], 300 + i, expected[i], 32);
      assert_memory_equal(found[i], expected[i], 32);
    }
  }
}

/* A level of a tree, with and without a last node that has no partner, into itself. */
static void levels_are_joined(void **state)
{
  (void)state;
  for (int kind = PLM_PROOF_PLAIN; kind <= PLM_PROOF_SUMS; kind++)
    for (uint64_t width = 1; width <= 200; width++) {
      struct plm_proof_node nodes[200], expected[100];
      for (uint64_t i = 0; i < width; i++) {
        memcpy(nodes[i].hash, messages[i % MOST] + i, sizeof nodes[i].hash);
        nodes[i].sum = kind == PLM_PROOF_SUMS ? 1000 + i : 0;
      }
      for (uint64_t i = 0; i + 1 < width; i += 2)
        assert_true(
            proof_join((enum plm_proof_kind)kind, &nodes[i], &nodes[i + 1], &expected[i / 2]));
      if (width % 2 != 0) expected[width / 2] = nodes[width - 1];
      assert_true(proof_join_level((enum plm_proof_kind)kind, nodes, width, nodes));
      assert_memory_equal(nodes, expected, (width + 1) / 2 * sizeof *nodes);
    }
  struct plm_proof_node too_much[4] = {{.sum = 1}, {.sum = 2}, {.sum = UINT64_MAX}, {.sum = 1}};
  assert_false(proof_join_level(PLM_PROOF_SUMS, too_much, 4, too_much));
}

/* Sequences of none, one and several blocks among each other. */
static void sequences_are_those_alone(void **state)
{
  (void)state;
  enum { COUNT = 150 };
  static uint8_t tokens[2 * 141000];
  struct plm_proof_part parts[COUNT];
  struct plm_proof_digest found[COUNT];
  for (uint32_t i = 0; i < sizeof tokens; i++) tokens[i] = (uint8_t)draw(7, i);
  for (uint32_t token_bytes = 1; token_bytes <= 2; token_bytes++) {
    for (uint32_t i = 0; i < COUNT; i++) {
      static const uint32_t bounds[] = {0, 1, 511, 512, 513, 1024, 1025, 131072, 131073, 140000};
      parts[i] = plm_proof_whole(tokens + 2 * (i % 400), i < 10 ? bounds[i] : draw(8, i) % 1300);
    }
    plm_proof_parts(token_bytes, COUNT, parts, found);
    for (uint32_t i = 0; i < COUNT; i++) {
      const struct plm_proof_digest alone =
          plm_proof_sequence(token_bytes, parts[i].tokens, parts[i].count);
      assert_memory_equal(&found[i], &alone, sizeof alone);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size),
      cmocka_unit_test(mixed_sizes),
      cmocka_unit_test(the_form_does_not_matter),
      cmocka_unit_test(levels_are_joined),
      cmocka_unit_test(sequences_are_those_alone),
  };
  return cmocka_run_group_tests(tests, fill, NULL);
}
