/* A corpus that proves itself: its fingerprint is the root of a hash tree, so whoever knows the
 * fingerprint can check any part of the corpus that somebody else hands out. doc/data.md#hash-tree
 *
 * All hashes are BLAKE2b (libsodium) without key and salt, of 32 or 16 bytes. Integers are
 * little-endian. The personalisation of BLAKE2b says what is hashed: its 16 bytes are "plm-proof",
 * six zeros and the tag. (A tag in the message would make a full block of proteins one byte longer
 * than four blocks of BLAKE2b, and a quarter slower.)
 *
 *   tag  hash of                bytes  message
 *     1  block                     32  up to 512 token ids of a document; esm u8, byte u16
 *     2  node                      32  left node (32 bytes), right node (32 bytes)
 *     3  sequence                  16  root of the tree over the document's blocks (32 bytes)
 *     4  label                     16  the document's label record; nothing without labels
 *     5  leaf                      16  u32 residues, sequence (16 bytes), label (16 bytes)
 *     6  sizes of clusters         32  up to 256 sizes in documents, u32
 *     7  node with sums            32  left node (32 bytes), u64 its sum, right node, u64 its sum
 *     8  corpus                    16  u32 tree format (1; with labels 2), u32 tokenizer (esm 0,
 * byte 1), u32 group size (256), u32 block size (512), and for train, valid and test: u64
 * documents, root of the documents (32 bytes), u64 clusters, u64 sum, root of the clusters (32
 * bytes); with labels, the schema (16 bytes)
 *     9  schema                    16  the schema of the labels (common/labels/label_schema.h)
 *
 * A tree over n nodes has the shape of those of RFC 6962: n = 1 is the node itself; otherwise the
 * left subtree has the largest power of two below n, and the root is the hash (tag 2 or 7) of the
 * two subtrees.
 *
 *   blocks    Token ids are those of the corpus's tokenizer, without <cls> and <eos>. All blocks of
 *             a document are full except the last; a sequence without tokens has one empty block.
 *   group     The leaves of 256 documents (the last group may have fewer), each followed by 16 zero
 *             bytes, are the nodes of a tree.
 *   documents The roots of all groups of a split are the nodes of a tree. Zeros without documents.
 *   clusters  The hashes of 256 sizes (the last may cover fewer), with the sums of these sizes, are
 *             the nodes of a tree with sums. Its sum is the number of documents. Zeros, with 0
 *             clusters and the sum 0, if the corpus keeps no clusters.
 *
 * The 16 bytes of the corpus's hash are its fingerprint: its 32 hex digits are these bytes in
 * order.
 *
 * A path proves that nodes [begin, end) of a tree of `count` nodes are what its root says. It has
 * the roots of the largest complete subtrees left of begin, from left to right, and then the roots
 * of those right of end, from left to right. The last one may be incomplete. Their number follows
 * from begin, end and count. In a tree with sums, the path also proves how many documents come
 * before node begin.
 *
 * Nothing here allocates, except plm_proof_tree_open. Every function may be called by several
 * threads at once; an object that is written belongs to one of them. */
#ifndef PLM_COMMON_PROOF_PROOF_H
#define PLM_COMMON_PROOF_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"

enum {
  PLM_PROOF_FORMAT = 1,
  PLM_PROOF_FORMAT_LABELS = 2,
  PLM_PROOF_BLOCK = 512,                 /* tokens of a block */
  PLM_PROOF_GROUP = 256,                 /* documents of a group, clusters of a group of clusters */
  PLM_PROOF_SPLITS = 3,                  /* train, valid, test */
  PLM_PROOF_HASH_BYTES = 32,             /* of a node */
  PLM_PROOF_SHORT_BYTES = 16,            /* of a sequence, label or leaf */
  PLM_PROOF_LEVELS = 64,                 /* more than any tree has */
  PLM_PROOF_PATH = 2 * PLM_PROOF_LEVELS, /* nodes; no path has more */
};

struct plm_proof_digest {
  uint8_t bytes[PLM_PROOF_SHORT_BYTES];
};

/* A node of a tree. The sum is 0 in a tree without sums. */
struct plm_proof_node {
  uint8_t hash[PLM_PROOF_HASH_BYTES];
  uint64_t sum;
};

enum plm_proof_kind { PLM_PROOF_PLAIN, PLM_PROOF_SUMS };

/* ---- trees -------------------------------------------------------------------------------------
 */

/* Computes a root from nodes that come one after another. */
struct plm_proof_builder {
  enum plm_proof_kind kind;
  bool failed;    /* a sum does not fit into 64 bits */
  uint32_t depth; /* used of nodes: the complete subtrees so far, largest first */
  uint64_t count; /* of nodes so far */
  struct plm_proof_node nodes[PLM_PROOF_LEVELS];
};
void plm_proof_begin(struct plm_proof_builder *builder, enum plm_proof_kind kind);
void plm_proof_add(struct plm_proof_builder *builder, const struct plm_proof_node *node);
/* The root of at least one node. False: a sum does not fit into 64 bits. */
bool plm_proof_end(struct plm_proof_builder *builder, struct plm_proof_node *root);

/* All nodes of a tree, for paths: about twice as many as it is over. */
struct plm_proof_tree;
/* Copies `count` nodes, at least 1. The caller closes. PLM_NO_MEMORY. PLM_CORRUPT: a sum does not
 * fit into 64 bits. */
plm_status plm_proof_tree_open(enum plm_proof_kind kind, const struct plm_proof_node *nodes,
                               uint64_t count, struct plm_proof_tree **tree,
                               struct plm_error *error);
void plm_proof_tree_close(struct plm_proof_tree *tree); /* NULL is fine */
/* Both are owned by the tree: its root, and the `count` nodes that it is over. */
const struct plm_proof_node *plm_proof_tree_root(const struct plm_proof_tree *tree);
const struct plm_proof_node *plm_proof_tree_nodes(const struct plm_proof_tree *tree);
uint64_t plm_proof_tree_count(const struct plm_proof_tree *tree);
/* The sum of the nodes before the one at `index`. */
uint64_t plm_proof_tree_before(const struct plm_proof_tree *tree, uint64_t index);

/* ---- paths -------------------------------------------------------------------------------------
 */

/* Nodes [begin, end) of a tree of count nodes. */
struct plm_proof_range {
  uint64_t begin, end, count;
};
/* Whether begin < end <= count, and count is below 2^63. The functions that make a path need such a
 * range, and so does plm_proof_parts; plm_proof_root and plm_proof_verify return false for any
 * other.
 */
bool plm_proof_range_valid(const struct plm_proof_range *range);
/* The number of nodes of the path of a valid range: at most PLM_PROOF_PATH. */
size_t plm_proof_path_size(const struct plm_proof_range *range);

/* A tree without nodes [begin, end), which are not read: only for paths of ranges that contain
 * them. PLM_NO_MEMORY. */
plm_status plm_proof_tree_open_without(const struct plm_proof_node *nodes,
                                       const struct plm_proof_range *without,
                                       struct plm_proof_tree **tree, struct plm_error *error);

/* The path of nodes [begin, end) of a tree. Returns its number of nodes. */
size_t plm_proof_tree_path(const struct plm_proof_tree *tree, uint64_t begin, uint64_t end,
                           struct plm_proof_node path[PLM_PROOF_PATH]);

/* The root of the tree of which `nodes`, range->end - range->begin of them, are these nodes, by a
 * path of `size` nodes; whether it is the right one, the caller knows. With sums, *before receives
 * the sum of all nodes before range->begin; it may be NULL. False: the range is not valid, it needs
 * a path of another size, or a sum does not fit into 64 bits. */
bool plm_proof_root(enum plm_proof_kind kind, const struct plm_proof_range *range,
                    const struct plm_proof_node *nodes, const struct plm_proof_node *path,
                    size_t size, struct plm_proof_node *root, uint64_t *before);
/* Whether `nodes`, range->end - range->begin of them, are these nodes of the tree with this root,
 * by a path of `size` nodes. before: as above. */
bool plm_proof_verify(enum plm_proof_kind kind, const struct plm_proof_node *root,
                      const struct plm_proof_range *range, const struct plm_proof_node *nodes,
                      const struct plm_proof_node *path, size_t size, uint64_t *before);

/* ---- sequences ---------------------------------------------------------------------------------
 */

/* token_bytes is 1 (esm) or 2 (byte); tokens are count of them, u8 or u16. */

/* The number of blocks of a sequence of `tokens` tokens: at least 1. */
uint64_t plm_proof_block_count(uint64_t tokens);
/* The hash of a whole sequence. */
struct plm_proof_digest plm_proof_sequence(uint32_t token_bytes, const void *tokens, size_t count);

/* A sequence, or a piece of it that is to be proven. */
struct plm_proof_part {
  const void *tokens;  /* all of blocks [begin, end) */
  uint64_t count;      /* tokens of the whole sequence */
  uint64_t begin, end; /* a valid range of its blocks */
  const uint8_t *path; /* its hashes in the tree of the blocks; not read if there are none */
};
/* All blocks of a sequence of count tokens. */
static inline struct plm_proof_part plm_proof_whole(const void *tokens, size_t count)
{
  return (struct plm_proof_part){tokens, count, 0, plm_proof_block_count(count), NULL};
}
/* The hashes of the sequences that have these parts, if tokens and paths are the right ones. Many
 * at once are several times as fast as one after another. */
void plm_proof_parts(uint32_t token_bytes, size_t count, const struct plm_proof_part *parts,
                     struct plm_proof_digest *digests);

/* The hash of a whole sequence whose tokens come in pieces of any size. */
struct plm_proof_stream {
  struct plm_proof_builder blocks;
  uint32_t token_bytes, held; /* tokens in block */
  uint8_t block[2 * PLM_PROOF_BLOCK];
};
void plm_proof_stream_begin(struct plm_proof_stream *stream, uint32_t token_bytes);
void plm_proof_stream_add(struct plm_proof_stream *stream, const void *tokens, size_t count);
struct plm_proof_digest plm_proof_stream_end(struct plm_proof_stream *stream);

/* Tokens that are hashed in blocks, and room for plm_proof_block_count(count) nodes. */
struct plm_proof_run {
  const void *tokens;
  size_t count;
  struct plm_proof_node *nodes;
};
/* The blocks of each run as nodes, for trees that give the paths of pieces. */
void plm_proof_block_nodes(uint32_t token_bytes, const struct plm_proof_run *runs, size_t count);

/* ---- documents, clusters, corpora --------------------------------------------------------------
 */

/* The hash of a label record, which is empty in a corpus without labels. */
struct plm_proof_digest plm_proof_label(const void *record, size_t size);
/* The same for many records, which lie one after another, at once. */
void plm_proof_labels(size_t count, const uint8_t *records, const size_t *sizes,
                      struct plm_proof_digest *digests);
/* The hash of a schema of labels. */
struct plm_proof_digest plm_proof_schema(const void *schema, size_t size);
struct plm_proof_digest plm_proof_leaf(uint32_t residues, const struct plm_proof_digest *sequence,
                                       const struct plm_proof_digest *label);
/* A leaf as a node of its group. */
struct plm_proof_node plm_proof_leaf_node(const struct plm_proof_digest *leaf);
/* The leaves of a group of 1 to 256 documents as nodes, from the lengths in residues and the hashes
 * of sequences and labels. labels may be NULL: all are empty. */
void plm_proof_group_leaves(const uint32_t *lengths, const struct plm_proof_digest *sequences,
                            const struct plm_proof_digest *labels, uint32_t count,
                            struct plm_proof_node leaves[PLM_PROOF_GROUP]);
/* The root of the group. */
struct plm_proof_node plm_proof_group(const uint32_t *lengths,
                                      const struct plm_proof_digest *sequences,
                                      const struct plm_proof_digest *labels, uint32_t count);
/* The node of a group of 1 to 256 clusters. */
struct plm_proof_node plm_proof_clusters(const uint32_t *sizes, uint32_t count);
/* The nodes of all groups of `count` clusters, which is several times as fast. */
void plm_proof_cluster_nodes(const uint32_t *sizes, uint64_t count, struct plm_proof_node *nodes);

/* What the fingerprint says of a split. */
struct plm_proof_split {
  uint64_t documents;
  uint8_t root[PLM_PROOF_HASH_BYTES]; /* zeros without documents */
  uint64_t clusters, sum;             /* 0 if the corpus keeps no clusters */
  uint8_t cluster_root[PLM_PROOF_HASH_BYTES];
};
/* The fingerprint. tokenizer: 0 esm, 1 byte. schema: NULL: the corpus has no labels. */
struct plm_hash plm_proof_corpus(uint32_t tokenizer,
                                 const struct plm_proof_split splits[PLM_PROOF_SPLITS],
                                 const struct plm_proof_digest *schema);

#endif
