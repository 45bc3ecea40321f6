/* Paths: which subtrees one has, and computing a root from it. */
#include <string.h>

#include "common/proof/proof_hash.h"

bool plm_proof_range_valid(const struct plm_proof_range *range)
{
  return range->begin < range->end && range->end <= range->count &&
         range->count < UINT64_C(1) << 63;
}

/* One for each bit of begin. */
size_t proof_subtrees_left(const struct plm_proof_range *range,
                           struct proof_subtree out[PLM_PROOF_LEVELS])
{
  size_t count = 0;
  uint64_t at = 0;
  for (int level = PLM_PROOF_LEVELS - 1; level >= 0; level--) {
    if ((range->begin >> level & 1) == 0) continue;
    out[count++] = (struct proof_subtree){at, (unsigned)level};
    at += UINT64_C(1) << level;
  }
  return count;
}

/* Each is as large as its place allows, so that those of the left make pairs with them. */
size_t proof_subtrees_right(const struct plm_proof_range *range,
                            struct proof_subtree out[PLM_PROOF_LEVELS])
{
  size_t count = 0;
  for (uint64_t at = range->end; at < range->count;) {
    const unsigned level = (unsigned)__builtin_ctzll(at);
    out[count++] = (struct proof_subtree){at, level};
    at += UINT64_C(1) << level;
  }
  return count;
}

size_t plm_proof_path_size(const struct plm_proof_range *range)
{
  struct proof_subtree subtrees[PLM_PROOF_LEVELS];
  PLM_ASSERT(plm_proof_range_valid(range));
  return (size_t)__builtin_popcountll(range->begin) + proof_subtrees_right(range, subtrees);
}

bool plm_proof_root(enum plm_proof_kind kind, const struct plm_proof_range *range,
                    const struct plm_proof_node *nodes, const struct plm_proof_node *path,
                    size_t size, struct plm_proof_node *root, uint64_t *before)
{
  struct proof_subtree left[PLM_PROOF_LEVELS], right[PLM_PROOF_LEVELS];
  struct plm_proof_builder builder;
  uint64_t sum = 0;
  if (!plm_proof_range_valid(range)) return false;
  const size_t lefts = proof_subtrees_left(range, left);
  const size_t rights = proof_subtrees_right(range, right);
  if (size != lefts + rights) return false;
  plm_proof_begin(&builder, kind);
  for (size_t i = 0; i < lefts; i++) {
    proof_add_subtree(&builder, left[i].level, &path[i]);
    sum += path[i].sum; /* if it does not fit, neither does the root's */
  }
  for (uint64_t i = 0; i < range->end - range->begin; i++) plm_proof_add(&builder, &nodes[i]);
  for (size_t i = 0; i < rights; i++) proof_add_subtree(&builder, right[i].level, &path[lefts + i]);
  if (before != NULL) *before = sum;
  return plm_proof_end(&builder, root);
}

bool plm_proof_verify(enum plm_proof_kind kind, const struct plm_proof_node *root,
                      const struct plm_proof_range *range, const struct plm_proof_node *nodes,
                      const struct plm_proof_node *path, size_t size, uint64_t *before)
{
  struct plm_proof_node found;
  return plm_proof_root(kind, range, nodes, path, size, &found, before) &&
         memcmp(found.hash, root->hash, sizeof found.hash) == 0 && found.sum == root->sum;
}
