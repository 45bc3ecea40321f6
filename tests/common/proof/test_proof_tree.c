/* Trees without the nodes of some range: they give the paths that do not need these. */
#include "common/proof/proof.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/proof_case.h"
#include "tests/support/harness/aborted.h"
#include "tests/support/harness/cmocka_all.h"

static void check_same_path(const struct plm_proof_tree *a, const struct plm_proof_tree *b,
                            uint64_t begin, uint64_t end)
{
  struct plm_proof_node path[PLM_PROOF_PATH], found[PLM_PROOF_PATH];
  const size_t size = plm_proof_tree_path(a, begin, end, path);
  assert_int_equal(plm_proof_tree_path(b, begin, end, found), size);
  for (size_t i = 0; i < size; i++)
    assert_memory_equal(found[i].hash, path[i].hash, sizeof path[i].hash);
}

/* A tree without some nodes has the paths of ranges that contain these. The missing nodes are not
 * read. */
static void a_tree_without_nodes_has_their_path(void **state)
{
  enum { MOST = 40 };
  struct plm_proof_node nodes[MOST], some[MOST];
  (void)state;
  for (uint32_t i = 0; i < MOST; i++) nodes[i] = proof_case_node(PLM_PROOF_PLAIN, i + 1);
  for (uint64_t count = 1; count <= MOST; count++)
    for (uint64_t begin = 0; begin < count; begin++)
      for (uint64_t end = begin + 1; end <= count; end++) {
        const struct plm_proof_range range = {begin, end, count};
        struct plm_proof_tree *whole, *tree;
        memcpy(some, nodes, sizeof some);
        memset(some + begin, 0xee, (end - begin) * sizeof *some);
        assert_int_equal(plm_proof_tree_open(PLM_PROOF_PLAIN, nodes, count, &whole, NULL), PLM_OK);
        assert_int_equal(plm_proof_tree_open_without(some, &range, &tree, NULL), PLM_OK);
        check_same_path(whole, tree, begin, end);
        check_same_path(whole, tree, begin / 2, end);
        check_same_path(whole, tree, begin, end + (count - end) / 2);
        plm_proof_tree_close(whole);
        plm_proof_tree_close(tree);
      }
}

/* No node is read if there is no room for the tree. */
static void a_tree_that_does_not_fit_is_refused(void **state)
{
  const struct plm_proof_node node = {0};
  (void)state;
  for (unsigned bits = 45; bits < 63; bits++) {
    struct plm_proof_tree *tree;
    struct plm_error error = {0};
    assert_int_equal(
        plm_proof_tree_open(PLM_PROOF_PLAIN, &node, UINT64_C(1) << bits, &tree, &error),
        PLM_NO_MEMORY);
    assert_null(tree);
    assert_memory_equal(error.what, "out of memory for a tree of ", 28);
  }
}

struct asked_path {
  const struct plm_proof_tree *tree;
  uint64_t begin, end;
};

static void ask_path(const void *context)
{
  const struct asked_path *asked = context;
  struct plm_proof_node path[PLM_PROOF_PATH];
  (void)plm_proof_tree_path(asked->tree, asked->begin, asked->end, path);
}

/* Other paths would have nodes that are not known. */
static void a_tree_without_nodes_gives_no_other_path(void **state)
{
  static const struct plm_proof_node nodes[8];
  static const struct plm_proof_range range = {2, 5, 8};
  static const uint64_t others[][2] = {{3, 5}, {2, 4}, {0, 2}, {5, 8}, {6, 7}, {0, 4}, {3, 8}};
  struct plm_proof_tree *tree;
  (void)state;
  assert_int_equal(plm_proof_tree_open_without(nodes, &range, &tree, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const struct asked_path asked = {tree, others[i][0], others[i][1]};
    assert_non_null(strstr(aborted(ask_path, &asked), "without_begin"));
  }
  plm_proof_tree_close(tree);
}

/* A node's place in the order of what its tree counts is the sum of all nodes before it. */
static void a_place_is_the_sum_before_it(void **state)
{
  enum { MOST = 21 };
  (void)state;
  for (uint64_t count = 1; count <= MOST; count++) {
    struct plm_proof_node *nodes = proof_case_nodes(PLM_PROOF_SUMS, count);
    struct plm_proof_tree *tree;
    uint64_t before = 0;
    assert_int_equal(plm_proof_tree_open(PLM_PROOF_SUMS, nodes, count, &tree, NULL), PLM_OK);
    assert_int_equal(plm_proof_tree_count(tree), count);
    for (uint64_t i = 0; i < count; i++) {
      assert_int_equal(plm_proof_tree_before(tree, i), before);
      before += nodes[i].sum;
    }
    plm_proof_tree_close(tree);
    free(nodes);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tree_that_does_not_fit_is_refused),
      cmocka_unit_test(a_tree_without_nodes_has_their_path),
      cmocka_unit_test(a_tree_without_nodes_gives_no_other_path),
      cmocka_unit_test(a_place_is_the_sum_before_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
