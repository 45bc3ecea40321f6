/* The hash tree: streams and labels give the hashes that they should, and a path proves exactly
 * what it should, whatever of it is changed. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/proof_case.h"
#include "tests/support/harness/must.h"

static void a_stream_gives_the_hash_of_the_whole(void **state)
{
  enum { MOST = 1600 };
  static const size_t parts[] = {1, 7, 511, 512, 513, MOST};
  (void)state;
  for (uint32_t token_bytes = 1; token_bytes <= 2; token_bytes++) {
    uint8_t *tokens = proof_case_tokens(token_bytes, MOST);
    for (size_t count = 0; count <= MOST; count += count % 512 < 2 || count % 512 == 511 ? 1 : 51)
      for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        struct plm_proof_stream stream;
        plm_proof_stream_begin(&stream, token_bytes);
        for (size_t at = 0; at < count; at += parts[p])
          plm_proof_stream_add(&stream, tokens + at * token_bytes,
                               count - at < parts[p] ? count - at : parts[p]);
        const struct plm_proof_digest whole = plm_proof_sequence(token_bytes, tokens, count);
        const struct plm_proof_digest streamed = plm_proof_stream_end(&stream);
        assert_memory_equal(streamed.bytes, whole.bytes, sizeof whole.bytes);
      }
    free(tokens);
  }
}

static void labels_are_part_of_a_group(void **state)
{
  const uint32_t lengths[2] = {10, 20};
  const struct plm_proof_digest sequences[2] = {proof_case_digest(1), proof_case_digest(2)};
  struct plm_proof_digest labels[2] = {plm_proof_label(NULL, 0), plm_proof_label(NULL, 0)};
  (void)state;
  const struct plm_proof_node without = plm_proof_group(lengths, sequences, NULL, 2);
  const struct plm_proof_node empty = plm_proof_group(lengths, sequences, labels, 2);
  labels[1] = plm_proof_label("x", 1);
  const struct plm_proof_node labelled = plm_proof_group(lengths, sequences, labels, 2);
  assert_memory_equal(without.hash, empty.hash, sizeof empty.hash);
  assert_memory_not_equal(labelled.hash, empty.hash, sizeof empty.hash);
}

/* More than are hashed at once, of many lengths. */
static void many_labels_have_their_own_hashes(void **state)
{
  (void)state;
  enum { MOST = 2 * PLM_PROOF_GROUP + 1, LONGEST = 40 };
  static const size_t counts[] = {0, 1, PLM_PROOF_GROUP, PLM_PROOF_GROUP + 1, MOST};
  static uint8_t records[MOST * LONGEST];
  static size_t sizes[MOST];
  static struct plm_proof_digest digests[MOST + 1], untouched;
  for (size_t i = 0; i < sizeof records; i++) records[i] = (uint8_t)(i * 7 + i / 256);
  for (size_t i = 0; i < MOST; i++) sizes[i] = i * 13 % LONGEST;
  for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
    const uint8_t *record = records;
    memset(digests, 1, sizeof digests);
    memset(&untouched, 1, sizeof untouched);
    plm_proof_labels(counts[n], records, sizes, digests);
    for (size_t i = 0; i < counts[n]; record += sizes[i++]) {
      const struct plm_proof_digest alone = plm_proof_label(record, sizes[i]);
      assert_memory_equal(digests[i].bytes, alone.bytes, sizeof alone.bytes);
    }
    assert_memory_equal(&digests[counts[n]], &untouched, sizeof untouched);
  }
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* A range of a tree with its path, all of which can be changed. */
struct claim {
  enum plm_proof_kind kind;
  struct plm_proof_node root;
  struct plm_proof_range range;
  struct plm_proof_node *nodes; /* those of the range */
  struct plm_proof_node path[PLM_PROOF_PATH];
  size_t size;
};

static bool holds(const struct claim *claim)
{
  return plm_proof_verify(claim->kind, &claim->root, &claim->range, claim->nodes, claim->path,
                          claim->size, NULL);
}

/* Bits of each byte of a node in turn. */
static void flip_each_bit(const struct claim *claim, struct plm_proof_node *node)
{
  const int bytes = claim->kind == PLM_PROOF_SUMS ? PLM_PROOF_HASH_BYTES + 8 : PLM_PROOF_HASH_BYTES;
  _Static_assert(sizeof *node == PLM_PROOF_HASH_BYTES + 8, "the sum follows the hash");
  for (int bit = 0; bit < 8 * bytes; bit += 7) {
    ((uint8_t *)node)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    if (holds(claim))
      fail_msg("bit %d, [%llu, %llu) of %llu", bit, (unsigned long long)claim->range.begin,
               (unsigned long long)claim->range.end, (unsigned long long)claim->range.count);
    ((uint8_t *)node)[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
}

static void refuse_every_change(struct claim *claim)
{
  const struct plm_proof_range right = claim->range;
  const uint64_t width = right.end - right.begin;
  assert_true(holds(claim));
  flip_each_bit(claim, &claim->root);
  for (uint64_t i = 0; i < width; i++) flip_each_bit(claim, &claim->nodes[i]);
  for (size_t i = 0; i < claim->size; i++) flip_each_bit(claim, &claim->path[i]);
  if (claim->size != 0) {
    claim->size--;
    assert_false(holds(claim));
    claim->size++;
  }
  claim->path[claim->size] = claim->path[0];
  claim->size++;
  assert_false(holds(claim));
  claim->size--;
  for (uint64_t begin = 0; begin + width <= right.count; begin++) { /* another place */
    if (begin == right.begin) continue;
    claim->range = (struct plm_proof_range){begin, begin + width, right.count};
    assert_false(holds(claim));
  }
  claim->range = right;
}

/* Another number of nodes is refused if it gives the range another path. Otherwise the
 * fingerprint, which covers the tree's number, does not match. */
static void refuse_another_count(struct claim *claim)
{
  const struct plm_proof_range right = claim->range;
  for (uint64_t count = right.end; count <= 2 * right.count + 2; count++) {
    claim->range.count = count;
    if (plm_proof_path_size(&claim->range) != claim->size) assert_false(holds(claim));
  }
  claim->range = right;
}

static void a_path_proves_its_range_and_nothing_else(void **state)
{
  enum { MOST = 20 };
  (void)state;
  for (int k = 0; k < 2; k++) {
    const enum plm_proof_kind kind = k == 0 ? PLM_PROOF_PLAIN : PLM_PROOF_SUMS;
    for (uint64_t count = 1; count <= MOST; count++) {
      struct plm_proof_node *nodes = proof_case_nodes(kind, count);
      struct plm_proof_tree *tree;
      assert_int_equal(plm_proof_tree_open(kind, nodes, count, &tree, NULL), PLM_OK);
      for (uint64_t begin = 0; begin < count; begin++)
        for (uint64_t end = begin + 1; end <= count; end++) {
          struct claim claim = {.kind = kind,
                                .root = proof_case_root(kind, nodes, count),
                                .range = {begin, end, count},
                                .nodes = nodes + begin};
          struct plm_proof_node other[PLM_PROOF_PATH];
          uint64_t before = 99, sum = 0;
          for (uint64_t i = 0; i < begin; i++) sum += nodes[i].sum;
          claim.size = plm_proof_tree_path(tree, begin, end, claim.path);
          assert_int_equal(proof_case_path(kind, nodes, &claim.range, other), claim.size);
          assert_memory_equal(other, claim.path, claim.size * sizeof other[0]);
          assert_memory_equal(plm_proof_tree_root(tree), &claim.root, sizeof claim.root);
          assert_true(plm_proof_verify(kind, &claim.root, &claim.range, claim.nodes, claim.path,
                                       claim.size, &before));
          assert_int_equal(before, sum);
          if (count > 9 && (begin + end) % 3 != 0) continue; /* all of the small ones */
          refuse_every_change(&claim);
          refuse_another_count(&claim);
        }
      plm_proof_tree_close(tree);
      free(nodes);
    }
  }
}

static void a_tree_gives_paths_of_large_counts(void **state)
{
  static const uint64_t sizes[] = {255, 256, 257, 513, 4097};
  (void)state;
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    struct plm_proof_node *nodes = proof_case_nodes(PLM_PROOF_SUMS, sizes[s]), path[PLM_PROOF_PATH];
    struct plm_proof_tree *tree;
    uint64_t sum = 0, before;
    assert_int_equal(plm_proof_tree_open(PLM_PROOF_SUMS, nodes, sizes[s], &tree, NULL), PLM_OK);
    assert_int_equal(plm_proof_tree_count(tree), sizes[s]);
    assert_memory_equal(plm_proof_tree_nodes(tree), nodes, sizes[s] * sizeof *nodes);
    for (uint64_t i = 0; i < sizes[s]; i++) {
      const struct plm_proof_range range = {i, i + 1, sizes[s]};
      const size_t size = plm_proof_tree_path(tree, i, i + 1, path);
      assert_true(plm_proof_verify(PLM_PROOF_SUMS, plm_proof_tree_root(tree), &range, &nodes[i],
                                   path, size, &before));
      assert_int_equal(before, sum);
      sum += nodes[i].sum;
    }
    assert_int_equal(plm_proof_tree_root(tree)->sum, sum);
    plm_proof_tree_close(tree);
    free(nodes);
  }
}

static void ranges_that_are_none_are_refused(void **state)
{
  static const struct plm_proof_range ranges[] = {
      {0, 0, 1}, {1, 1, 2}, {2, 1, 3}, {0, 2, 1}, {0, 1, UINT64_C(1) << 63}, {5, UINT64_MAX, 9}};
  struct plm_proof_node node = proof_case_node(PLM_PROOF_PLAIN, 1);
  struct plm_proof_range largest = {0, 1, (UINT64_C(1) << 63) - 1};
  (void)state;
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    assert_false(plm_proof_range_valid(&ranges[i]));
    assert_false(plm_proof_verify(PLM_PROOF_PLAIN, &node, &ranges[i], &node, &node, 0, NULL));
  }
  assert_true(plm_proof_range_valid(&largest));
  assert_int_equal(plm_proof_path_size(&largest), 63);
}

static void sums_that_do_not_fit_are_refused(void **state)
{
  struct plm_proof_node nodes[3] = {proof_case_node(PLM_PROOF_SUMS, 0),
                                    proof_case_node(PLM_PROOF_SUMS, 1),
                                    proof_case_node(PLM_PROOF_SUMS, 2)};
  struct plm_proof_node root, path[PLM_PROOF_PATH];
  const struct plm_proof_range range = {2, 3, 3};
  struct plm_proof_builder builder;
  struct plm_proof_tree *tree = NULL;
  struct plm_error error = {0};
  (void)state;
  nodes[0].sum = UINT64_MAX - 7;
  nodes[1].sum = 5;
  nodes[2].sum = 2;
  root = proof_case_root(PLM_PROOF_SUMS, nodes, 3); /* exactly fits */
  assert_true(root.sum == UINT64_MAX);
  nodes[2].sum = 3;
  plm_proof_begin(&builder, PLM_PROOF_SUMS);
  for (int i = 0; i < 3; i++) plm_proof_add(&builder, &nodes[i]);
  assert_false(plm_proof_end(&builder, &root));
  assert_int_equal(plm_proof_tree_open(PLM_PROOF_SUMS, nodes, 3, &tree, &error), PLM_CORRUPT);
  assert_null(tree);
  path[0] = proof_case_root(PLM_PROOF_SUMS, nodes, 2);
  assert_false(plm_proof_verify(PLM_PROOF_SUMS, &root, &range, &nodes[2], path, 1, NULL));
  nodes[1].sum = 8; /* in the first pair */
  plm_proof_begin(&builder, PLM_PROOF_SUMS);
  for (int i = 0; i < 3; i++) plm_proof_add(&builder, &nodes[i]);
  assert_false(plm_proof_end(&builder, &root));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Whether a part proves the sequence: by itself, and between whole sequences. */
static bool proves(const struct plm_proof_digest *sequence, uint32_t token_bytes,
                   const struct plm_proof_part *part)
{
  static const uint8_t other[2 * 1300];
  const struct plm_proof_part parts[] = {plm_proof_whole(other, 1300), *part,
                                         plm_proof_whole(other, 3), *part};
  struct plm_proof_digest single, among[4];
  plm_proof_parts(token_bytes, 1, part, &single);
  plm_proof_parts(token_bytes, 4, parts, among);
  assert_memory_equal(&single, &among[1], sizeof single);
  assert_memory_equal(&single, &among[3], sizeof single);
  return memcmp(&single, sequence, sizeof single) == 0;
}

/* Bits of the tokens and the path in turn. */
static void refuse_other_blocks(const struct plm_proof_digest *sequence, uint32_t token_bytes,
                                const struct plm_proof_part *part, uint8_t *tokens, size_t bytes,
                                uint8_t *path, size_t path_bytes)
{
  for (size_t bit = 0; bit < 8 * bytes; bit += 101) {
    tokens[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_false(proves(sequence, token_bytes, part));
    tokens[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  for (size_t bit = 0; bit < 8 * path_bytes; bit += 3) {
    path[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_false(proves(sequence, token_bytes, part));
    path[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
}

/* Compares all blocks [begin, end), of which `tokens` and `nodes` are the whole sequence's. */
static void check_blocks(uint32_t token_bytes, size_t count, const uint8_t *tokens,
                         const struct plm_proof_node *nodes, uint64_t begin, uint64_t end)
{
  const struct plm_proof_range range = {begin, end, plm_proof_block_count(count)};
  const struct plm_proof_digest sequence = plm_proof_sequence(token_bytes, tokens, count);
  const size_t first = begin * PLM_PROOF_BLOCK;
  const size_t after = end == range.count ? count : end * PLM_PROOF_BLOCK;
  const size_t bytes = (after - first) * token_bytes;
  struct plm_proof_node path[PLM_PROOF_PATH];
  const size_t size = proof_case_path(PLM_PROOF_PLAIN, nodes, &range, path);
  /* exactly the tokens of these blocks and the path, so that a read beyond them is found */
  uint8_t *given = must(malloc(bytes + (bytes == 0)));
  uint8_t *hashes = must(malloc(size * PLM_PROOF_HASH_BYTES + (size == 0)));
  memcpy(given, tokens + first * token_bytes, bytes);
  for (size_t i = 0; i < size; i++)
    memcpy(hashes + i * PLM_PROOF_HASH_BYTES, path[i].hash, PLM_PROOF_HASH_BYTES);
  const struct plm_proof_part part = {given, count, begin, end, size == 0 ? NULL : hashes};
  assert_int_equal(size, plm_proof_path_size(&range));
  assert_true(proves(&sequence, token_bytes, &part));
  if (range.count < 10)
    refuse_other_blocks(&sequence, token_bytes, &part, given, bytes, hashes,
                        size * PLM_PROOF_HASH_BYTES);
  free(given);
  free(hashes);
}

static void blocks_of_a_long_sequence_are_proved(void **state)
{
  static const size_t sizes[] = {0, 1, 511, 512, 513, 1024, 1025, 2900, 3584, 3585};
  (void)state;
  for (size_t i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
    const uint32_t token_bytes = 1 + (uint32_t)(i % 2);
    const size_t count = sizes[i / 2];
    const uint64_t most = plm_proof_block_count(count);
    uint8_t *tokens = proof_case_tokens(token_bytes, count);
    struct plm_proof_node nodes[8];
    assert_int_equal(most, count <= 512 ? 1 : (count + 511) / 512);
    assert_in_range(most, 1, sizeof nodes / sizeof *nodes);
    plm_proof_block_nodes(token_bytes, &(struct plm_proof_run){tokens, count, nodes}, 1);
    for (uint64_t begin = 0; begin < most; begin++)
      for (uint64_t end = begin + 1; end <= most; end++)
        check_blocks(token_bytes, count, tokens, nodes, begin, end);
    free(tokens);
  }
}

/* Up to 256 blocks are hashed beside others, pieces with two siblings on each level; more are
 * hashed alone. */
static void many_blocks_are_proved(void **state)
{
  enum { BLOCKS = 261 };
  static const uint64_t ends[] = {2, 127, 128, 253, 254, 255, 256, 257, 258, 260, BLOCKS};
  static struct plm_proof_node nodes[BLOCKS];
  const size_t count = (size_t)BLOCKS * PLM_PROOF_BLOCK - 5;
  uint8_t *tokens = proof_case_tokens(1, count);
  (void)state;
  plm_proof_block_nodes(1, &(struct plm_proof_run){tokens, count, nodes}, 1);
  for (uint64_t begin = 0; begin < 5; begin++)
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
      if (begin < ends[i]) check_blocks(1, count, tokens, nodes, begin, ends[i]);
  for (uint64_t begin = 0; begin + 1 < BLOCKS; begin += 17)
    check_blocks(1, count, tokens, nodes, begin, begin + 1);
  free(tokens);
}

/* The sequence's number of tokens belongs to the leaf; a wrong number changes the last block. */
static void a_leaf_in_a_group_is_proved(void **state)
{
  uint32_t lengths[PLM_PROOF_GROUP];
  struct plm_proof_digest sequences[PLM_PROOF_GROUP];
  struct plm_proof_node leaves[PLM_PROOF_GROUP], path[PLM_PROOF_PATH];
  (void)state;
  for (uint32_t d = 0; d < PLM_PROOF_GROUP; d++) {
    lengths[d] = d + 1;
    sequences[d] = proof_case_digest(d);
  }
  for (uint32_t count = 1; count <= PLM_PROOF_GROUP; count += 85) {
    const struct plm_proof_node root = plm_proof_group(lengths, sequences, NULL, count);
    plm_proof_group_leaves(lengths, sequences, NULL, count, leaves);
    for (uint32_t d = 0; d < count; d++) {
      const struct plm_proof_range range = {d, d + 1, count};
      const struct plm_proof_digest label = plm_proof_label(NULL, 0);
      const struct plm_proof_digest right = plm_proof_leaf(lengths[d], &sequences[d], &label);
      const struct plm_proof_digest wrong = plm_proof_leaf(lengths[d] + 1, &sequences[d], &label);
      const size_t size = proof_case_path(PLM_PROOF_PLAIN, leaves, &range, path);
      struct plm_proof_node node = plm_proof_leaf_node(&right);
      assert_true(plm_proof_verify(PLM_PROOF_PLAIN, &root, &range, &node, path, size, NULL));
      node = plm_proof_leaf_node(&wrong);
      assert_false(plm_proof_verify(PLM_PROOF_PLAIN, &root, &range, &node, path, size, NULL));
    }
  }
}

/* Every field of the fingerprint changes it. */
static void every_field_is_in_the_fingerprint(void **state)
{
  struct plm_proof_split splits[PLM_PROOF_SPLITS];
  (void)state;
  memset(splits, 0x11, sizeof splits);
  const struct plm_hash right = plm_proof_corpus(0, splits, NULL);
  assert_false(plm_hash_equal(plm_proof_corpus(1, splits, NULL), right));
  for (size_t byte = 0; byte < sizeof splits; byte++) {
    ((uint8_t *)splits)[byte] ^= 1;
    assert_false(plm_hash_equal(plm_proof_corpus(0, splits, NULL), right));
    ((uint8_t *)splits)[byte] ^= 1;
  }
}

/* The blocks of a long sequence are hashed in batches; each is that of its tokens alone. */
static void blocks_of_a_long_sequence_are_its_own(void **state)
{
  enum { BATCH = 64 * PLM_PROOF_BLOCK };
  static const size_t counts[] = {BATCH - 1, BATCH, BATCH + 1, 2 * BATCH + PLM_PROOF_BLOCK + 3};
  (void)state;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    for (uint32_t token_bytes = 1; token_bytes <= 2; token_bytes++) {
      const uint64_t blocks = plm_proof_block_count(counts[i]);
      uint8_t *tokens = proof_case_tokens(token_bytes, counts[i]);
      struct plm_proof_node *nodes = malloc(blocks * sizeof *nodes), alone;
      struct plm_proof_stream stream;
      assert_non_null(nodes);
      plm_proof_block_nodes(token_bytes, &(struct plm_proof_run){tokens, counts[i], nodes}, 1);
      for (uint64_t b = 0; b < blocks; b++) {
        const size_t begin = b * PLM_PROOF_BLOCK, left = counts[i] - begin;
        const struct plm_proof_run one = {tokens + begin * token_bytes,
                                          left < PLM_PROOF_BLOCK ? left : PLM_PROOF_BLOCK, &alone};
        plm_proof_block_nodes(token_bytes, &one, 1);
        assert_memory_equal(nodes[b].hash, alone.hash, sizeof alone.hash);
        assert_int_equal(nodes[b].sum, 0);
      }
      const struct plm_proof_digest whole = plm_proof_sequence(token_bytes, tokens, counts[i]);
      plm_proof_stream_begin(&stream, token_bytes);
      for (size_t at = 0; at < counts[i]; at += 1000)
        plm_proof_stream_add(&stream, tokens + at * token_bytes,
                             counts[i] - at < 1000 ? counts[i] - at : 1000);
      const struct plm_proof_digest parts = plm_proof_stream_end(&stream);
      assert_memory_equal(&whole, &parts, sizeof whole);
      free(nodes);
      free(tokens);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_stream_gives_the_hash_of_the_whole),
      cmocka_unit_test(labels_are_part_of_a_group),
      cmocka_unit_test(many_labels_have_their_own_hashes),
      cmocka_unit_test(a_path_proves_its_range_and_nothing_else),
      cmocka_unit_test(a_tree_gives_paths_of_large_counts),
      cmocka_unit_test(ranges_that_are_none_are_refused),
      cmocka_unit_test(sums_that_do_not_fit_are_refused),
      cmocka_unit_test(blocks_of_a_long_sequence_are_proved),
      cmocka_unit_test(many_blocks_are_proved),
      cmocka_unit_test(a_leaf_in_a_group_is_proved),
      cmocka_unit_test(every_field_is_in_the_fingerprint),
      cmocka_unit_test(blocks_of_a_long_sequence_are_its_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
