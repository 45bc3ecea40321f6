/* A group whose leaves were compared with its root is not compared again, unless a leaf differs. */
#include "packer/proven_groups.h"

#include <string.h>

#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"

enum { DOCUMENTS = 600, LAST = DOCUMENTS % PLM_GROUP_DOCUMENTS };

/* The leaves of a group, as a packer reads them. */
struct leaves {
  uint32_t lengths[PLM_GROUP_DOCUMENTS];
  struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS], labels[PLM_GROUP_DOCUMENTS];
};

struct scene {
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  struct proven_groups *proven;
  bool labelled;
};

static void begin(struct scene *s, const char *name, bool labelled)
{
  const struct written_corpus of = {.tokenizer = PLM_TOKENIZER_ESM,
                                    .documents = {DOCUMENTS, DOCUMENTS, 0},
                                    .longest = 50,
                                    .labelled = labelled};
  s->labelled = labelled;
  s->corpus = written_corpus_open(name, &of);
  assert_int_equal(plm_corpus_cursor_open(s->corpus, &s->cursor, NULL), PLM_OK);
  assert_int_equal(proven_groups_open(s->corpus, &s->proven, NULL), PLM_OK);
}

static void end(struct scene *s)
{
  proven_groups_close(s->proven);
  plm_corpus_cursor_close(s->cursor);
  plm_corpus_close(s->corpus);
}

static void read_leaves(const struct scene *s, enum plm_split split, uint64_t group,
                        struct leaves *leaves)
{
  const uint32_t *lengths = NULL;
  memset(leaves, 0, sizeof *leaves);
  assert_int_equal(plm_corpus_group_lengths(s->cursor, split, group, &lengths, NULL), PLM_OK);
  memcpy(leaves->lengths, lengths,
         plm_corpus_group_documents(DOCUMENTS, group) * sizeof *leaves->lengths);
  assert_int_equal(plm_corpus_digests(s->cursor, split, group, leaves->digests, NULL), PLM_OK);
  if (s->labelled)
    assert_int_equal(plm_corpus_label_digests(s->cursor, split, group, leaves->labels, NULL),
                     PLM_OK);
}

static plm_status check(const struct scene *s, enum plm_split split, uint64_t group,
                        const struct leaves *leaves)
{
  struct plm_error error;
  return proven_groups_check(s->proven, split, group, leaves->lengths, leaves->digests,
                             s->labelled ? leaves->labels : NULL, &error);
}

/* Changes the root of a group in memory, so that comparing with it fails; or changes it back. */
static void change_root(const struct scene *s, enum plm_split split, uint64_t group)
{
  const struct plm_proof_tree *tree = plm_corpus_group_tree(s->corpus, split);
  ((struct plm_proof_node *)(uintptr_t)plm_proof_tree_nodes(tree))[group].hash[0] ^= 1;
}

static void a_group_is_compared_once(void **state)
{
  (void)state;
  for (int labelled = 0; labelled < 2; labelled++) {
    struct scene s;
    begin(&s, labelled ? "labelled" : "plain", labelled != 0);
    for (int split = 0; split < 2; split++)
      for (uint64_t group = 0; group < 3; group++) {
        struct leaves leaves;
        read_leaves(&s, (enum plm_split)split, group, &leaves);
        change_root(&s, (enum plm_split)split, group);
        assert_int_equal(check(&s, (enum plm_split)split, group, &leaves), PLM_CORRUPT);
        change_root(&s, (enum plm_split)split, group);
        assert_int_equal(check(&s, (enum plm_split)split, group, &leaves), PLM_OK);
        change_root(&s, (enum plm_split)split, group);
        assert_int_equal(check(&s, (enum plm_split)split, group, &leaves), PLM_OK); /* remembered */
        change_root(&s, (enum plm_split)split, group);
      }
    end(&s);
  }
}

/* Damage after the first time is found, in the first and the last leaf, and so is another group. */
static void a_changed_leaf_is_found(void **state)
{
  (void)state;
  struct scene s;
  begin(&s, "changed", true);
  for (uint64_t group = 1; group < 3; group++) {
    const uint32_t places[] = {0, group == 2 ? LAST - 1 : PLM_GROUP_DOCUMENTS - 1};
    struct leaves whole, other;
    read_leaves(&s, PLM_SPLIT_TRAIN, group, &whole);
    read_leaves(&s, PLM_SPLIT_TRAIN, 0, &other);
    assert_int_equal(check(&s, PLM_SPLIT_TRAIN, group, &whole), PLM_OK);
    assert_int_equal(check(&s, PLM_SPLIT_TRAIN, group, &other), PLM_CORRUPT);
    for (int i = 0; i < 2; i++)
      for (int field = 0; field < 3; field++) {
        struct leaves damaged = whole;
        if (field == 0) damaged.lengths[places[i]] ^= 1;
        if (field == 1) damaged.digests[places[i]].bytes[15] ^= 0x80;
        if (field == 2) damaged.labels[places[i]].bytes[0] ^= 1;
        assert_int_equal(check(&s, PLM_SPLIT_TRAIN, group, &damaged), PLM_CORRUPT);
        assert_int_equal(check(&s, PLM_SPLIT_TRAIN, group, &whole), PLM_OK);
      }
  }
  end(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_group_is_compared_once),
      cmocka_unit_test(a_changed_leaf_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
