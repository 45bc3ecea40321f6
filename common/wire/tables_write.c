/* PROOF's payload as a packer writes it, in the smaller of the ways that the format allows. */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/tables.h"
#include "common/wire/wire_bytes.h"

enum {
  LEAF_BYTES = 4 + PLM_PROOF_SHORT_BYTES,
  SPAN_BYTES = 12,
  ROOT_BYTES = 1 + PLM_PROOF_HASH_BYTES,
};

/* ---- paths ----------------------------------------------------------------------------------- */

static void put_path(struct wire_writer *out, enum plm_proof_kind kind,
                     const struct plm_proof_node *path, size_t nodes)
{
  for (size_t i = 0; i < nodes; i++) {
    wire_put_bytes(out, path[i].hash, sizeof path[i].hash);
    if (kind == PLM_PROOF_SUMS) wire_put(out, path[i].sum, 8);
  }
}

static void put_tree_path(struct wire_writer *out, enum plm_proof_kind kind,
                          const struct plm_proof_tree *tree, uint64_t begin, uint64_t end)
{
  struct plm_proof_node path[PLM_PROOF_PATH];
  put_path(out, kind, path, plm_proof_tree_path(tree, begin, end, path));
}

/* ---- documents ---------------------------------------------------------------------------- */

/* The leaves of a group. */
struct group_leaves {
  uint32_t count;
  uint32_t lengths[PLM_PROOF_GROUP];
  struct plm_proof_digest digests[PLM_PROOF_GROUP];
  struct plm_proof_digest labels[PLM_PROOF_GROUP];
  bool labelled;
};

static void put_leaf(struct wire_writer *out, const struct group_leaves *leaves, uint64_t at)
{
  wire_put(out, leaves->lengths[at], 4);
  wire_put_bytes(out, leaves->digests[at].bytes, PLM_PROOF_SHORT_BYTES);
  if (leaves->labelled) wire_put_bytes(out, leaves->labels[at].bytes, PLM_PROOF_SHORT_BYTES);
}

/* Writes the needed leaves of a group, each with its path. */
static plm_status put_leaves(const struct group_leaves *group, const uint64_t *numbers,
                             uint32_t needed, struct wire_writer *out, struct plm_error *error)
{
  struct plm_proof_node leaves[PLM_PROOF_GROUP];
  struct plm_proof_tree *tree;
  plm_proof_group_leaves(group->lengths, group->digests, group->labelled ? group->labels : NULL,
                         group->count, leaves);
  PLM_TRY(plm_proof_tree_open(PLM_PROOF_PLAIN, leaves, group->count, &tree, error));
  wire_put(out, group->labelled ? PLM_TABLES_LABELLED_LEAVES : PLM_TABLES_LEAVES, 1);
  for (uint32_t i = 0; i < needed; i++) {
    const uint64_t at = numbers[i] % PLM_GROUP_DOCUMENTS;
    put_leaf(out, group, at);
    put_tree_path(out, PLM_PROOF_PLAIN, tree, at, at + 1);
  }
  plm_proof_tree_close(tree);
  return PLM_OK;
}

/* Writes a group of documents of which `needed` are needed, their numbers ascending. */
static plm_status put_group(const struct plm_tables_input *input, uint64_t group,
                            const uint64_t *numbers, uint32_t needed, struct wire_writer *out,
                            struct plm_error *error)
{
  const uint32_t count = plm_corpus_group_documents(input->documents, group);
  struct group_leaves leaves = {.count = count, .labelled = input->labelled};
  const size_t leaf = LEAF_BYTES + (leaves.labelled ? PLM_PROOF_SHORT_BYTES : 0);
  size_t paths = 0; /* nodes */
  if (needed == 0) {
    wire_put(out, PLM_TABLES_ROOT, 1);
    wire_put_bytes(out, plm_proof_tree_nodes(input->groups)[group].hash, PLM_PROOF_HASH_BYTES);
    return PLM_OK;
  }
  PLM_TRY(input->read(input->context, group, leaves.lengths, leaves.digests,
                      leaves.labelled ? leaves.labels : NULL, error));
  for (uint32_t i = 0; i < needed; i++) {
    const uint64_t at = numbers[i] % PLM_GROUP_DOCUMENTS;
    paths += plm_proof_path_size(&(struct plm_proof_range){at, at + 1, count});
  }
  if (count * leaf > needed * leaf + paths * PLM_PROOF_HASH_BYTES)
    return put_leaves(&leaves, numbers, needed, out, error);
  wire_put(out, leaves.labelled ? PLM_TABLES_LABELLED_WHOLE : PLM_TABLES_WHOLE, 1);
  for (uint32_t i = 0; i < count; i++) put_leaf(out, &leaves, i);
  return PLM_OK;
}

/* The end of the span that begins with the group of numbers[0]: gaps are joined if their roots are
 * smaller than another span's path. */
static uint64_t span_end(const struct plm_tables_input *input, const uint64_t *numbers,
                         uint32_t count)
{
  const uint64_t groups = plm_proof_tree_count(input->groups);
  uint64_t end = numbers[0] / PLM_GROUP_DOCUMENTS + 1;
  for (uint32_t i = 1; i < count; i++) {
    const uint64_t group = numbers[i] / PLM_GROUP_DOCUMENTS;
    if (group < end) continue;
    const struct plm_proof_range single = {group, group + 1, groups};
    const size_t another = SPAN_BYTES + plm_proof_path_size(&single) * PLM_PROOF_HASH_BYTES;
    if ((group - end) * ROOT_BYTES > another) break;
    end = group + 1;
  }
  return end;
}

static plm_status put_spans(const struct plm_tables_input *input, const uint64_t *numbers,
                            uint32_t count, struct wire_writer *out, struct plm_error *error)
{
  uint32_t at = 0;
  while (at < count) {
    const uint64_t begin = numbers[at] / PLM_GROUP_DOCUMENTS;
    const uint64_t end = span_end(input, numbers + at, count - at);
    wire_put(out, begin, 8);
    wire_put(out, (uint32_t)(end - begin), 4);
    for (uint64_t group = begin; group < end; group++) {
      uint32_t needed = 0;
      while (at + needed < count && numbers[at + needed] / PLM_GROUP_DOCUMENTS == group) needed++;
      PLM_TRY(put_group(input, group, numbers + at, needed, out, error));
      at += needed;
    }
    put_tree_path(out, PLM_PROOF_PLAIN, input->groups, begin, end);
  }
  return PLM_OK;
}

/* ---- groups of the plan ------------------------------------------------------------------- */

/* Writes the sizes of a group of clusters, and draws its documents: *drawn of them. */
static plm_status put_clusters(const struct plm_tables_input *input,
                               const struct plm_tables_window *of, uint64_t group,
                               struct wire_writer *out, uint64_t *numbers, uint32_t *drawn,
                               struct plm_error *error)
{
  const uint32_t count = plm_corpus_group_documents(input->cluster_count, group);
  const uint32_t *sizes = NULL;
  PLM_TRY(input->sizes(input->context, group, &sizes, error));
  for (uint32_t i = 0; i < count; i++) wire_put(out, sizes[i], 4);
  put_tree_path(out, PLM_PROOF_SUMS, input->clusters_tree, group, group + 1);
  plm_plan_draw_members(of->plan, of->epoch, group, sizes, count,
                        plm_proof_tree_before(input->clusters_tree, group), numbers);
  *drawn = count;
  return PLM_OK;
}

static plm_status put_plan_group(const struct plm_tables_input *input,
                                 const struct plm_tables_window *of, uint64_t group,
                                 struct wire_writer *out, struct plm_error *error)
{
  uint64_t numbers[PLM_GROUP_DOCUMENTS];
  uint32_t count;
  if (plm_plan_parameters(of->plan)->sampling == PLM_SAMPLING_CLUSTERS) {
    PLM_TRY(put_clusters(input, of, group, out, numbers, &count, error));
  } else {
    count = plm_corpus_group_documents(input->documents, group);
    for (uint32_t i = 0; i < count; i++) numbers[i] = group * PLM_GROUP_DOCUMENTS + i;
  }
  return put_spans(input, numbers, count, out, error);
}

plm_status plm_tables_write(const struct plm_tables_input *input,
                            const struct plm_tables_window *of, uint32_t first, uint32_t *count,
                            uint8_t *bytes, size_t room, size_t *size, struct plm_error *error)
{
  struct wire_writer out = {bytes, room, 0};
  const uint32_t asked = *count;
  plm_status status = PLM_OK;
  uint64_t *groups = plm_alloc(plm_plan_parameters(of->plan)->window_groups * sizeof *groups);
  *size = *count = 0;
  const uint32_t all = plm_plan_window_groups(of->plan, of->epoch, of->window, groups);
  PLM_ASSERT(first < all && asked > 0 && asked <= all - first);
  while (*count < asked && status == PLM_OK) {
    status = put_plan_group(input, of, groups[first + *count], &out, error);
    if (status != PLM_OK || out.size > room) break;
    *size = out.size;
    ++*count;
  }
  free(groups);
  PLM_ASSERT(status != PLM_OK || *count > 0);
  return status;
}
