/* The hash of a message of one kind: private to common/proof. */
#ifndef PLM_COMMON_PROOF_PROOF_HASH_H
#define PLM_COMMON_PROOF_PROOF_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "common/proof/proof.h"

enum proof_tag {
  PROOF_TAG_BLOCK = 1,
  PROOF_TAG_NODE = 2,
  PROOF_TAG_SEQUENCE = 3,
  PROOF_TAG_LABEL = 4,
  PROOF_TAG_LEAF = 5,
  PROOF_TAG_SIZES = 6,
  PROOF_TAG_SUMS = 7,
  PROOF_TAG_CORPUS = 8,
  PROOF_TAG_SCHEMA = 9,
};

/* BLAKE2b of `size` bytes of a message, which may be NULL if size is 0, personalised by the tag. */
void proof_hash(enum proof_tag tag, const void *message, size_t size, uint8_t *out,
                size_t out_bytes);

/* Writes an integer of 4 or 8 bytes, little-endian, and returns the place after it. */
uint8_t *proof_put_u32(uint8_t *at, uint32_t value);
uint8_t *proof_put_u64(uint8_t *at, uint64_t value);
uint8_t *proof_put(uint8_t *at, const void *bytes, size_t size);

/* The tree's inner node. Returns false if the sum does not fit into 64 bits. */
bool proof_join(enum plm_proof_kind kind, const struct plm_proof_node *left,
                const struct plm_proof_node *right, struct plm_proof_node *out);

/* Joins the nodes of a level of a tree in pairs; the last one of an odd number is taken over as it
 * is. above has (width + 1) / 2 nodes, and may be below. False: a sum does not fit into 64 bits. */
bool proof_join_level(enum plm_proof_kind kind, const struct plm_proof_node *below, uint64_t width,
                      struct plm_proof_node *above);

/* Adds the root of the subtree of 2^level nodes at builder->count, a multiple of 2^level. The last
 * subtree of a tree may have fewer: then plm_proof_end must follow. */
void proof_add_subtree(struct plm_proof_builder *builder, unsigned level,
                       const struct plm_proof_node *node);

/* Goes through the subtrees of a path. */
struct proof_subtree {
  uint64_t begin; /* its first node */
  unsigned level; /* it has 2^level nodes, or fewer if it is the last of the tree */
};
/* The subtrees left of range->begin: fills `out` and returns their number. */
size_t proof_subtrees_left(const struct plm_proof_range *range,
                           struct proof_subtree out[PLM_PROOF_LEVELS]);
/* The subtrees right of range->end. */
size_t proof_subtrees_right(const struct plm_proof_range *range,
                            struct proof_subtree out[PLM_PROOF_LEVELS]);

#endif
