/* The hashes of a corpus: sequences one by one and together, groups of clusters, and the
 * fingerprint. */
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/corpus/corpus_format.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

enum { BATCH = 16 * 1024, PART = 4096, DOCUMENTS = 13, CLUSTERS = 600 };

/* Short ones, those that just fill what is hashed at once, and longer ones, between which others
 * have to be found. The last one is not of the group. */
static const uint32_t lengths[DOCUMENTS + 1] = {5,     BATCH - 5,    7, BATCH - 6, 1,
                                                BATCH, BATCH + 1,    3, 5 * PART,  5 * PART + 1,
                                                2,     9 * PART - 1, 4, 3};

static void sequences_have_the_same_hashes_together(void **state)
{
  size_t total = 0, at = 0;
  (void)state;
  for (int d = 0; d <= DOCUMENTS; d++) total += lengths[d];
  uint8_t *residues = must(malloc(total)), *tokens = must(malloc(2 * total));
  for (size_t i = 0; i < total; i++)
    residues[i] = (uint8_t)('A' + plm_philox(3, (uint32_t)i, 0, 940).w[0] % 26);
  for (int kind = 0; kind < 2; kind++) {
    struct plm_translator translator;
    struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS], untouched;
    memset(digests, 1, sizeof digests);
    untouched = digests[DOCUMENTS];
    plm_translator_init(&translator, kind ? PLM_TOKENIZER_BYTE : PLM_TOKENIZER_ESM);
    plm_corpus_hash_sequences(&translator, lengths, DOCUMENTS, residues, digests);
    at = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
      struct plm_proof_stream stream;
      plm_proof_stream_begin(&stream, translator.tokenizer->token_bytes);
      translator.residues(&translator, residues + at, lengths[d], tokens);
      plm_proof_stream_add(&stream, tokens, lengths[d]);
      const struct plm_proof_digest expected = plm_proof_stream_end(&stream);
      assert_memory_equal(&digests[d], &expected, sizeof expected);
      at += lengths[d];
    }
    assert_memory_equal(&digests[DOCUMENTS], &untouched, sizeof untouched);
  }
  free(residues);
  free(tokens);
}

static void clusters_are_hashed_in_groups(void **state)
{
  uint32_t sizes[CLUSTERS];
  (void)state;
  for (uint32_t c = 0; c < CLUSTERS; c++) sizes[c] = 1 + c % 7;
  for (uint32_t count = 1; count <= CLUSTERS; count += count == 255 || count == 256 ? 1 : 127) {
    struct plm_proof_builder together, alone;
    struct plm_proof_node node;
    uint8_t root[PLM_PROOF_HASH_BYTES];
    plm_proof_begin(&together, PLM_PROOF_SUMS);
    plm_proof_begin(&alone, PLM_PROOF_SUMS);
    plm_corpus_add_clusters(&together, sizes, count);
    for (uint32_t begin = 0; begin < count; begin += 256) {
      node = plm_proof_clusters(sizes + begin, count - begin < 256 ? count - begin : 256);
      plm_proof_add(&alone, &node);
    }
    assert_true(plm_proof_end(&alone, &node));
    assert_true(plm_corpus_root(&together, root));
    assert_memory_equal(root, node.hash, sizeof root);
  }
}

static void a_tree_of_nothing_has_no_root(void **state)
{
  static const uint8_t zeros[PLM_PROOF_HASH_BYTES];
  struct plm_proof_builder builder;
  struct plm_proof_node node = {.sum = UINT64_MAX};
  uint8_t root[PLM_PROOF_HASH_BYTES];
  (void)state;
  memset(root, 1, sizeof root);
  plm_proof_begin(&builder, PLM_PROOF_SUMS);
  assert_true(plm_corpus_root(&builder, root));
  assert_memory_equal(root, zeros, sizeof root);
  for (int i = 0; i < 2; i++) plm_proof_add(&builder, &node); /* the sum is too large */
  assert_false(plm_corpus_root(&builder, root));
}

static struct plm_corpus_info example(void)
{
  struct plm_corpus_info info = {.format = PLM_CORPUS_FORMAT, .tokenizer = PLM_TOKENIZER_ESM};
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    info.splits[s].documents = 10 + (uint64_t)s;
    info.splits[s].root[0] = (uint8_t)(20 + s);
  }
  return info;
}

/* Everything that the fingerprint covers changes it, and nothing else does. */
static void the_fingerprint_covers_trees_and_schema(void **state)
{
  const struct plm_corpus_info info = example();
  const struct plm_hash plain = plm_corpus_fingerprint(&info);
  struct plm_proof_split splits[PLM_SPLIT_COUNT];
  (void)state;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++)
    splits[s] = plm_corpus_proof_split(&info, (enum plm_split)s);
  assert_true(plm_hash_equal(plain, plm_proof_corpus(0, splits, NULL)));
  for (int change = 0; change < 8; change++) {
    struct plm_corpus_info other = info;
    const int s = change % PLM_SPLIT_COUNT;
    if (change < 3) other.splits[s].documents++;
    if (change >= 3 && change < 6) other.splits[s].root[31]++;
    if (change == 6) other.tokenizer = PLM_TOKENIZER_BYTE;
    if (change == 7) other.format = PLM_CORPUS_FORMAT_LABELS;
    assert_false(plm_hash_equal(plm_corpus_fingerprint(&other), plain));
  }
  struct plm_corpus_info same = info;
  same.schema.bytes[0] = 1; /* without labels, it does not matter */
  same.entropy = 3;
  same.splits[1].residues = 5;
  same.splits[1].cluster_root[0] = 0;
  assert_true(plm_hash_equal(plm_corpus_fingerprint(&same), plain));
  struct plm_corpus_info labelled = info, others = info;
  labelled.format = others.format = PLM_CORPUS_FORMAT_LABELS;
  others.schema.bytes[0] = 1;
  assert_false(plm_hash_equal(plm_corpus_fingerprint(&labelled), plm_corpus_fingerprint(&others)));
}

static void a_split_states_its_trees(void **state)
{
  struct plm_corpus_info info = example();
  (void)state;
  info.splits[2].clusters = 4;
  info.splits[2].cluster_root[5] = 6;
  const struct plm_proof_split without = plm_corpus_proof_split(&info, PLM_SPLIT_VALID),
                               with = plm_corpus_proof_split(&info, PLM_SPLIT_TEST);
  assert_int_equal(without.documents, 11);
  assert_int_equal(without.clusters, 0);
  assert_int_equal(without.sum, 0);
  assert_memory_equal(without.root, info.splits[1].root, sizeof without.root);
  assert_int_equal(with.documents, 12);
  assert_int_equal(with.clusters, 4);
  assert_int_equal(with.sum, 12);
  assert_memory_equal(with.root, info.splits[2].root, sizeof with.root);
  assert_memory_equal(with.cluster_root, info.splits[2].cluster_root, sizeof with.cluster_root);
}

static void what_a_format_has(void **state)
{
  static const struct {
    uint32_t format;
    bool proof, labels;
    int kinds;
  } rows[] = {{PLM_CORPUS_FORMAT_PLAIN, false, false, 4},
              {PLM_CORPUS_FORMAT_CLUSTERS, false, false, 5},
              {PLM_CORPUS_FORMAT, true, false, 7},
              {PLM_CORPUS_FORMAT_LABELS, true, true, 8}};
  struct plm_corpus_info info = example();
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    info.format = rows[i].format;
    assert_int_equal(plm_corpus_has_proof(&info), rows[i].proof);
    assert_int_equal(plm_corpus_has_labels(&info), rows[i].labels);
    assert_int_equal(plm_corpus_record_kinds(info.format), rows[i].kinds);
  }
  assert_false(plm_corpus_keeps_clusters(&info));
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    info = example();
    info.splits[s].clusters = 1;
    assert_true(plm_corpus_keeps_clusters(&info));
  }
}

/* A corpus is found by its fingerprint, and by that from before an upgrade if there was one. */
static void a_corpus_has_two_fingerprints(void **state)
{
  const struct plm_hash one = {0, 1}, two = {2, 0}, zero = {0, 0};
  struct plm_corpus_info info = {.fingerprint = one};
  (void)state;
  assert_true(plm_corpus_is(&info, one));
  assert_false(plm_corpus_is(&info, two));
  assert_false(plm_corpus_is(&info, zero)); /* "not upgraded" is not a fingerprint */
  info.upgraded_from = two;
  assert_true(plm_corpus_is(&info, one));
  assert_true(plm_corpus_is(&info, two));
  assert_false(plm_corpus_is(&info, zero));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sequences_have_the_same_hashes_together),
      cmocka_unit_test(clusters_are_hashed_in_groups),
      cmocka_unit_test(a_tree_of_nothing_has_no_root),
      cmocka_unit_test(the_fingerprint_covers_trees_and_schema),
      cmocka_unit_test(a_split_states_its_trees),
      cmocka_unit_test(what_a_format_has),
      cmocka_unit_test(a_corpus_has_two_fingerprints),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
