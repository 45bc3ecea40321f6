/* What a corpus says of its splits, and the trees that prove their groups. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"

/* Every group of documents is under the split's root. */
static void check_groups(struct plm_corpus *corpus, enum plm_split split)
{
  const struct plm_proof_split says = plm_corpus_proof_split(plm_corpus_info(corpus), split);
  const uint64_t groups = (says.documents + PLM_PROOF_GROUP - 1) / PLM_PROOF_GROUP;
  struct plm_corpus_cursor *cursor;
  const struct plm_proof_tree *tree = plm_corpus_group_tree(corpus, split);
  const bool labelled = plm_corpus_has_labels(plm_corpus_info(corpus));
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, NULL), PLM_OK);
  assert_int_equal(plm_proof_tree_count(tree), groups);
  assert_memory_equal(plm_proof_tree_root(tree)->hash, says.root, sizeof says.root);
  for (uint64_t g = 0; g < groups; g++) {
    const uint64_t first = g * PLM_PROOF_GROUP, left = says.documents - first;
    const uint32_t count = left < PLM_PROOF_GROUP ? (uint32_t)left : PLM_PROOF_GROUP;
    const struct plm_proof_range range = {g, g + 1, groups};
    struct plm_proof_digest digests[PLM_PROOF_GROUP], labels[PLM_PROOF_GROUP];
    struct plm_proof_node path[PLM_PROOF_PATH];
    assert_int_equal(plm_corpus_digests(cursor, split, g, digests, NULL), PLM_OK);
    if (labelled)
      assert_int_equal(plm_corpus_label_digests(cursor, split, g, labels, NULL), PLM_OK);
    assert_int_equal(plm_corpus_prove_group(cursor, split, g, NULL), PLM_OK);
    const uint32_t *lengths = NULL;
    assert_int_equal(plm_corpus_proven_lengths(cursor, split, g, &lengths, NULL), PLM_OK);
    const struct plm_proof_node node =
        plm_proof_group(lengths, digests, labelled ? labels : NULL, count);
    const size_t nodes = plm_proof_tree_path(tree, g, g + 1, path);
    assert_true(plm_proof_verify(PLM_PROOF_PLAIN, plm_proof_tree_root(tree), &range, &node, path,
                                 nodes, NULL));
  }
  plm_corpus_cursor_close(cursor);
}

/* Every group of clusters is, with the number of documents before it. */
static void check_clusters(struct plm_corpus *corpus, enum plm_split split)
{
  const struct plm_proof_split says = plm_corpus_proof_split(plm_corpus_info(corpus), split);
  const uint64_t groups = (says.clusters + PLM_PROOF_GROUP - 1) / PLM_PROOF_GROUP;
  uint32_t *sizes = corpus_clusters(corpus, split);
  const struct plm_proof_tree *tree = plm_corpus_cluster_tree(corpus, split);
  uint64_t begin = 0;
  assert_int_equal(says.clusters, plm_corpus_info(corpus)->splits[split].clusters);
  assert_int_equal(says.sum, says.documents);
  assert_int_equal(plm_proof_tree_count(tree), groups);
  assert_int_equal(plm_proof_tree_root(tree)->sum, says.documents);
  assert_memory_equal(plm_proof_tree_root(tree)->hash, says.cluster_root, sizeof says.cluster_root);
  for (uint64_t g = 0; g < groups; g++) {
    const uint64_t first = g * PLM_PROOF_GROUP, left = says.clusters - first;
    const uint32_t count = left < PLM_PROOF_GROUP ? (uint32_t)left : PLM_PROOF_GROUP;
    const struct plm_proof_range range = {g, g + 1, groups};
    const struct plm_proof_node node = plm_proof_clusters(sizes + first, count);
    struct plm_proof_node path[PLM_PROOF_PATH];
    uint64_t before;
    const size_t nodes = plm_proof_tree_path(tree, g, g + 1, path);
    assert_true(plm_proof_verify(PLM_PROOF_SUMS, plm_proof_tree_root(tree), &range, &node, path,
                                 nodes, &before));
    assert_int_equal(before, begin);
    for (uint32_t c = 0; c < count; c++) begin += sizes[first + c];
  }
  free(sizes);
}

static void trees_prove_what_the_fingerprint_says(void **state)
{
  static const struct written_corpus corpora[] = {
      {PLM_TOKENIZER_ESM, {1, 0, 0}, 5, 0, false},
      {PLM_TOKENIZER_ESM, {256, 257, 513}, 40, 0, false},
      {PLM_TOKENIZER_ESM, {1, 256, 0}, 40, 1, false},
      {PLM_TOKENIZER_ESM, {1500, 0, 400}, 30, 2, false},
      {PLM_TOKENIZER_BYTE, {700, 0, 2}, 1200, 0, false},
      {PLM_TOKENIZER_ESM, {300, 3, 0}, 40, 0, true},
      {PLM_TOKENIZER_BYTE, {0, 700, 0}, 40, 3, true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof corpora / sizeof *corpora; i++) {
    char name[16];
    struct plm_proof_split splits[PLM_SPLIT_COUNT];
    snprintf(name, sizeof name, "trees-%zu", i);
    struct plm_corpus *corpus = written_corpus_open(name, &corpora[i]);
    const struct plm_corpus_info *info = plm_corpus_info(corpus);
    for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
      static const struct plm_proof_split empty;
      const enum plm_split split = (enum plm_split)s;
      splits[s] = plm_corpus_proof_split(info, split);
      assert_int_equal(splits[s].documents, corpora[i].documents[s]);
      if (splits[s].documents == 0) {
        assert_memory_equal(&splits[s], &empty, sizeof empty);
        continue;
      }
      check_groups(corpus, split);
      if (corpora[i].cluster_documents != 0) {
        check_clusters(corpus, split);
        continue;
      }
      assert_int_equal(splits[s].clusters + splits[s].sum, 0);
      assert_null(plm_corpus_cluster_tree(corpus, split));
    }
    const struct plm_proof_digest schema = plm_label_schema_digest(plm_corpus_schema(corpus));
    assert_int_equal(info->format, corpora[i].labelled ? 4 : 3);
    const struct plm_hash fingerprint = plm_proof_corpus(
        corpora[i].tokenizer == PLM_TOKENIZER_BYTE, splits, corpora[i].labelled ? &schema : NULL);
    assert_true(plm_hash_equal(fingerprint, info->fingerprint));
    plm_corpus_close(corpus);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trees_prove_what_the_fingerprint_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
