/* Trees whose nodes are kept for paths. */
#include <stdlib.h>
#include <string.h>

#include "common/proof/proof_hash.h"

/* Level 0 is what the tree is over. A node of the next level joins two; the last one of an odd
 * number is taken over as it is. */
struct plm_proof_tree {
  uint64_t count;
  uint64_t without_begin, without_end; /* of level 0: not known; equal if all are */
  unsigned levels;
  uint64_t first[PLM_PROOF_LEVELS + 1]; /* of a level in nodes */
  struct plm_proof_node nodes[];
};

/* Joins all pairs of a level except those with a node of [begin, end). */
static bool join_outside(enum plm_proof_kind kind, const struct plm_proof_node *below,
                         uint64_t width, uint64_t begin, uint64_t end, struct plm_proof_node *above)
{
  const uint64_t left = begin / 2, right = (end + 1) / 2;
  return (left == 0 || proof_join_level(kind, below, 2 * left, above)) &&
         (2 * right >= width ||
          proof_join_level(kind, below + 2 * right, width - 2 * right, above + right));
}

/* without: nodes of level 0 that are not known, and so none above them. */
static plm_status join_levels(struct plm_proof_tree *tree, enum plm_proof_kind kind,
                              const struct plm_proof_range *without, struct plm_error *error)
{
  uint64_t width = tree->count, begin = without->begin, end = without->end;
  for (unsigned k = 0; k + 1 < tree->levels; k++, width = (width + 1) / 2) {
    if (!join_outside(kind, tree->nodes + tree->first[k], width, begin, end,
                      tree->nodes + tree->first[k + 1]))
      return plm_error_set(error, PLM_CORRUPT, "the sums of a tree do not fit into 64 bits");
    begin /= 2;
    end = (end + 1) / 2;
  }
  return PLM_OK;
}

static plm_status tree_open(enum plm_proof_kind kind, const struct plm_proof_node *nodes,
                            const struct plm_proof_range *without, struct plm_proof_tree **tree,
                            struct plm_error *error)
{
  const uint64_t count = without->count;
  uint64_t first[PLM_PROOF_LEVELS + 1] = {0}, width = count;
  unsigned levels = 1;
  PLM_ASSERT(count != 0);
  *tree = NULL;
  for (; width > 1; width = (width + 1) / 2, levels++) first[levels] = first[levels - 1] + width;
  const uint64_t total = first[levels - 1] + 1;
  struct plm_proof_tree *opened = NULL;
  if (total < (SIZE_MAX - sizeof *opened) / sizeof *nodes)
    opened = malloc(sizeof *opened + (size_t)total * sizeof *nodes);
  if (opened == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a tree of %llu nodes",
                         (unsigned long long)count);
  opened->count = count;
  opened->levels = levels;
  opened->without_begin = without->begin;
  opened->without_end = without->end;
  memcpy(opened->first, first, sizeof first);
  memcpy(opened->nodes, nodes, (size_t)without->begin * sizeof *nodes);
  memcpy(opened->nodes + without->end, nodes + without->end,
         (size_t)(count - without->end) * sizeof *nodes);
  const plm_status status = join_levels(opened, kind, without, error);
  if (status != PLM_OK)
    free(opened);
  else
    *tree = opened;
  return status;
}

plm_status plm_proof_tree_open(enum plm_proof_kind kind, const struct plm_proof_node *nodes,
                               uint64_t count, struct plm_proof_tree **tree,
                               struct plm_error *error)
{
  return tree_open(kind, nodes, &(struct plm_proof_range){.count = count}, tree, error);
}

plm_status plm_proof_tree_open_without(const struct plm_proof_node *nodes,
                                       const struct plm_proof_range *without,
                                       struct plm_proof_tree **tree, struct plm_error *error)
{
  PLM_ASSERT(plm_proof_range_valid(without));
  return tree_open(PLM_PROOF_PLAIN, nodes, without, tree, error);
}

void plm_proof_tree_close(struct plm_proof_tree *tree)
{
  free(tree);
}

const struct plm_proof_node *plm_proof_tree_root(const struct plm_proof_tree *tree)
{
  return &tree->nodes[tree->first[tree->levels - 1]];
}

const struct plm_proof_node *plm_proof_tree_nodes(const struct plm_proof_tree *tree)
{
  return tree->nodes;
}

uint64_t plm_proof_tree_count(const struct plm_proof_tree *tree)
{
  return tree->count;
}

uint64_t plm_proof_tree_before(const struct plm_proof_tree *tree, uint64_t index)
{
  uint64_t before = 0;
  PLM_ASSERT(index < tree->count);
  for (unsigned k = 0; k < tree->levels;
       k++) /* where the index is a right node, add the left one */
    if ((index >> k & 1) != 0) before += tree->nodes[tree->first[k] + (index >> k) - 1].sum;
  return before;
}

size_t plm_proof_tree_path(const struct plm_proof_tree *tree, uint64_t begin, uint64_t end,
                           struct plm_proof_node path[PLM_PROOF_PATH])
{
  const struct plm_proof_range range = {begin, end, tree->count};
  struct proof_subtree subtrees[PLM_PROOF_PATH];
  PLM_ASSERT(plm_proof_range_valid(&range));
  PLM_ASSERT(tree->without_begin == tree->without_end ||
             (begin <= tree->without_begin && tree->without_end <= end));
  size_t size = proof_subtrees_left(&range, subtrees);
  size += proof_subtrees_right(&range, subtrees + size);
  for (size_t i = 0; i < size; i++)
    path[i] =
        tree->nodes[tree->first[subtrees[i].level] + (subtrees[i].begin >> subtrees[i].level)];
  return size;
}
