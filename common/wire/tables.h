/* PROOF's payload: the lengths and hashes of the documents that an epoch takes from groups of a
 * window, with paths that prove them (common/proof/proof.h). For each of the plan's groups, in the
 * order of plm_plan_window_groups:
 *
 *   if the plan samples clusters, first the group's clusters:
 *     u32 size in documents of each of them (256, fewer in the last group)
 *     the path of this group in the tree over the sizes: for each node 32 bytes and u64 its sum
 *   Which documents are needed follows (all of the group, or those drawn from the clusters). Spans
 *   of consecutive groups of documents, by ascending number, hold all that are needed:
 *     u64 first group, u32 number of groups
 *     for each of these groups, u8 kind and
 *       0  no document of it is needed: 32 bytes, its root
 *       1  for each of its documents: u32 residues, 16 bytes sequence
 *       2  for each document that is needed: u32 residues, 16 bytes sequence, and the path of its
 *          leaf in the group, nodes of 32 bytes
 *     the path of the span in the tree over all groups of the split, nodes of 32 bytes
 *
 * The number of nodes of each path follows from the numbers of groups and documents. In a corpus
 * with labels, the kinds are 3 and 4 instead of 1 and 2, and the hash of a document's label record,
 * 16 bytes, follows that of its sequence. The writer chooses between 1 and 2 (or 3 and 4), and
 * whether spans are joined, by what is smaller. Integers are little-endian.
 */
#ifndef PLM_COMMON_WIRE_TABLES_H
#define PLM_COMMON_WIRE_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/plan/plan.h"
#include "common/proof/proof.h"
#include "common/wire/known_groups.h"

/* A window of a plan, opened by plm_plan_open: one that was opened for a corpus ends at
 * token_limit.
 */
struct plm_tables_window {
  const struct plm_plan *plan;
  uint64_t epoch, window;
  bool labelled; /* the corpus has labels */
};

enum {
  PLM_TABLES_ROOT,
  PLM_TABLES_WHOLE,
  PLM_TABLES_LEAVES,
  PLM_TABLES_LABELLED_WHOLE,
  PLM_TABLES_LABELLED_LEAVES
}; /* kinds */

/* ---- the consumer's side ----------------------------------------------------------------------
 */

/* What was proven of the first groups of a window. The caller owns it and begins with {0};
 * every read adds to it. */
struct plm_tables {
  uint32_t groups;                  /* that were read */
  uint32_t *begin;                  /* (groups + 1) into the arrays below */
  uint64_t *numbers;                /* of the documents in the split */
  uint32_t *lengths;                /* residues */
  struct plm_proof_digest *digests; /* of their sequences */
  struct plm_proof_digest *labels;  /* of their label records; undefined without labels */
  size_t group_capacity, document_capacity;
  struct plm_known_groups *known; /* of the split, borrowed; NULL: nothing is kept */
};
/* Bytes of a leaf of a whole group. */
size_t plm_tables_leaf_bytes(bool labelled);
void plm_tables_deinit(struct plm_tables *tables);

/* Reads and proves the tables of the next `count` groups of the window, and adds them. On an error
 * nothing is added. PLM_CORRUPT names the first group or document that is not what the split's
 * roots say. PLM_PROTOCOL: malformed. split: proven by the fingerprint. */
plm_status plm_tables_read(const struct plm_tables_window *of, const struct plm_proof_split *split,
                           uint32_t count, const void *payload, size_t size,
                           struct plm_tables *tables, struct plm_error *error);
/* A plm_plan_read whose context is struct plm_tables. */
plm_status plm_tables_group(const void *tables, uint64_t epoch, uint32_t index, uint64_t group,
                            struct plm_plan_group *out, struct plm_error *error);

/* ---- the packer's side ------------------------------------------------------------------------
 */

/* A split that proves itself. All is borrowed. */
struct plm_tables_input {
  uint64_t documents;
  const struct plm_proof_tree *groups; /* over the roots of all groups */
  /* Only if the plan samples clusters: */
  uint64_t cluster_count;
  const struct plm_proof_tree *clusters_tree; /* over the groups of 256 sizes */
  /* Reads the sizes of a group's clusters, valid until the next call. */
  plm_status (*sizes)(void *context, uint64_t group, const uint32_t **sizes,
                      struct plm_error *error);
  bool labelled; /* the corpus has labels */
  /* Reads the lengths of a group's sequences and their hashes, and those of their label records
   * (`labels` is NULL if the corpus has no labels). */
  plm_status (*read)(void *context, uint64_t group, uint32_t lengths[PLM_PROOF_GROUP],
                     struct plm_proof_digest digests[PLM_PROOF_GROUP],
                     struct plm_proof_digest *labels, struct plm_error *error);
  void *context;
};

/* Writes the tables of groups [first, first + *count) of the window, or of as many of them, at
 * least one, as fit into `room` bytes (PLM_WIRE_PROOF_LIMIT always holds one). *count receives
 * their number, *size the bytes. PLM_NO_MEMORY. Other errors are those of input->read. */
plm_status plm_tables_write(const struct plm_tables_input *source,
                            const struct plm_tables_window *of, uint32_t first, uint32_t *count,
                            uint8_t *bytes, size_t room, size_t *size, struct plm_error *error);

#endif
