/* The values of the hash tree are those of an independent implementation (test_proof_vectors.py).
 */
#include "tests/support/harness/cmocka_all.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "tests/support/cases/proof_case.h"
#include "tests/support/expected/expected_file.h"

static const uint64_t counts[] = {1, 2, 3, 5, 255, 256, 257, 513, 70000};
enum { COUNTS = sizeof counts / sizeof counts[0] };

static void put_hex(struct plm_text *text, const uint8_t *bytes, size_t size)
{
  plm_text_puts(text, " ");
  for (size_t i = 0; i < size; i++) plm_text_printf(text, "%02x", bytes[i]);
}

static void put_digest(struct plm_text *text, struct plm_proof_digest digest)
{
  put_hex(text, digest.bytes, sizeof digest.bytes);
}

static void put_sequences(struct plm_text *text)
{
  static const size_t sizes[] = {0,   1,   2,    255,  256,  257,  511,
                                 512, 513, 1024, 1025, 1537, 4096, 4608};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    plm_text_printf(text, "sequence %zu", sizes[i]);
    for (uint32_t token_bytes = 1; token_bytes <= 2; token_bytes++) {
      uint8_t *tokens = proof_case_tokens(token_bytes, sizes[i]);
      put_digest(text, plm_proof_sequence(token_bytes, tokens, sizes[i]));
      free(tokens);
    }
    plm_text_puts(text, "\n");
  }
}

static void put_groups(struct plm_text *text)
{
  const struct plm_proof_digest sequence = proof_case_digest(1),
                                label = plm_proof_label("kinase", 6);
  uint32_t lengths[PLM_PROOF_GROUP];
  struct plm_proof_digest sequences[PLM_PROOF_GROUP];
  plm_text_puts(text, "label");
  put_digest(text, plm_proof_label(NULL, 0));
  put_digest(text, label);
  plm_text_puts(text, "\nleaf");
  put_digest(text, plm_proof_leaf(350, &sequence, &label));
  plm_text_puts(text, "\n");
  for (uint32_t d = 0; d < PLM_PROOF_GROUP; d++) {
    lengths[d] = 37 * d % 600 + 1;
    sequences[d] = proof_case_digest(d);
  }
  for (uint32_t count = 1; count <= PLM_PROOF_GROUP; count += 51) {
    const struct plm_proof_node root = plm_proof_group(lengths, sequences, NULL, count);
    assert_int_equal(root.sum, 0);
    plm_text_printf(text, "group %u", count);
    put_hex(text, root.hash, sizeof root.hash);
    plm_text_puts(text, "\n");
  }
}

static void put_trees(struct plm_text *text)
{
  for (int i = 0; i < COUNTS; i++) {
    plm_text_printf(text, "tree %" PRIu64, counts[i]);
    for (int k = 0; k < 2; k++) {
      const enum plm_proof_kind kind = k == 0 ? PLM_PROOF_PLAIN : PLM_PROOF_SUMS;
      struct plm_proof_node *nodes = proof_case_nodes(kind, counts[i]);
      const struct plm_proof_node root = proof_case_root(kind, nodes, counts[i]);
      put_hex(text, root.hash, sizeof root.hash);
      if (kind == PLM_PROOF_SUMS) plm_text_printf(text, " %" PRIu64, root.sum);
      free(nodes);
    }
    plm_text_puts(text, "\n");
  }
}

static void put_clusters(struct plm_text *text)
{
  for (int i = 0; i < COUNTS; i++) {
    struct plm_proof_builder builder;
    struct plm_proof_node root;
    plm_proof_begin(&builder, PLM_PROOF_SUMS);
    for (uint64_t c = 0; c < counts[i]; c += PLM_PROOF_GROUP) {
      uint32_t sizes[PLM_PROOF_GROUP], count = 0;
      while (count < PLM_PROOF_GROUP && c + count < counts[i]) {
        sizes[count] = proof_case_size(c + count);
        count++;
      }
      const struct plm_proof_node node = plm_proof_clusters(sizes, count);
      plm_proof_add(&builder, &node);
    }
    assert_true(plm_proof_end(&builder, &root));
    plm_text_printf(text, "clusters %" PRIu64, counts[i]);
    put_hex(text, root.hash, sizeof root.hash);
    plm_text_printf(text, " %" PRIu64 "\n", root.sum);
  }
}

static void put_paths(struct plm_text *text)
{
  static const struct plm_proof_range ranges[] = {{0, 1, 1}, {1, 2, 2}, {2, 3, 3}, {2, 3, 7},
                                                  {2, 5, 7}, {6, 7, 7}, {0, 7, 7}, {5, 6, 13}};
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    const struct plm_proof_range *range = &ranges[i];
    struct plm_proof_node paths[2][PLM_PROOF_PATH];
    size_t size = 0;
    for (int k = 0; k < 2; k++) {
      const enum plm_proof_kind kind = k == 0 ? PLM_PROOF_PLAIN : PLM_PROOF_SUMS;
      struct plm_proof_node *nodes = proof_case_nodes(kind, range->count);
      size = proof_case_path(kind, nodes, range, paths[k]);
      assert_int_equal(size, plm_proof_path_size(range));
      free(nodes);
    }
    plm_text_printf(text, "path %" PRIu64 " %" PRIu64 " %" PRIu64, range->count, range->begin,
                    range->end);
    for (size_t p = 0; p < size; p++) {
      put_hex(text, paths[0][p].hash, PLM_PROOF_HASH_BYTES);
      put_hex(text, paths[1][p].hash, PLM_PROOF_HASH_BYTES);
      plm_text_printf(text, " %" PRIu64, paths[1][p].sum);
    }
    plm_text_puts(text, "\n");
  }
}

static void put_corpora(struct plm_text *text)
{
  struct plm_proof_split splits[PLM_PROOF_SPLITS] = {{.documents = 700, .clusters = 9, .sum = 700},
                                                     {.documents = 3, .clusters = 3, .sum = 3}};
  for (uint32_t s = 0; s < 2; s++) {
    const struct plm_proof_node documents = proof_case_node(PLM_PROOF_PLAIN, 1 + 2 * s);
    const struct plm_proof_node clusters = proof_case_node(PLM_PROOF_PLAIN, 2 + 2 * s);
    memcpy(splits[s].root, documents.hash, sizeof documents.hash);
    memcpy(splits[s].cluster_root, clusters.hash, sizeof clusters.hash);
  }
  for (uint32_t tokenizer = 0; tokenizer < 2; tokenizer++) {
    char hex[PLM_HASH_HEX_SIZE];
    plm_hash_to_hex(plm_proof_corpus(tokenizer, splits, NULL), hex);
    plm_text_printf(text, "corpus %s %s\n", tokenizer == 0 ? "esm" : "byte", hex);
  }
}

static void values_are_those_of_the_definition(void **state)
{
  struct plm_text text = {0};
  (void)state;
  put_sequences(&text);
  put_groups(&text);
  put_trees(&text);
  put_clusters(&text);
  put_paths(&text);
  put_corpora(&text);
  expected_file("common/proof/vectors/expected", text.data);
  plm_text_deinit(&text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_those_of_the_definition)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
