/* Leaves, groups, and the fingerprint of a corpus. */
#include <endian.h>
#include <string.h>

#include "common/proof/proof_lanes.h"

struct plm_proof_digest plm_proof_label(const void *record, size_t size)
{
  struct plm_proof_digest digest;
  proof_hash(PROOF_TAG_LABEL, record, size, digest.bytes, sizeof digest.bytes);
  return digest;
}

void plm_proof_labels(size_t count, const uint8_t *records, const size_t *sizes,
                      struct plm_proof_digest *digests)
{
  enum { AT_ONCE = PLM_PROOF_GROUP };
  struct proof_task tasks[AT_ONCE];
  for (size_t done = 0; done < count;) {
    const size_t some = count - done < AT_ONCE ? count - done : AT_ONCE;
    for (size_t i = 0; i < some; i++) {
      tasks[i] = (struct proof_task){records, sizes[done + i], digests[done + i].bytes};
      records += sizes[done + i];
    }
    proof_hash_many(PROOF_TAG_LABEL, tasks, some, PLM_PROOF_SHORT_BYTES);
    done += some;
  }
}

struct plm_proof_digest plm_proof_schema(const void *schema, size_t size)
{
  struct plm_proof_digest digest;
  proof_hash(PROOF_TAG_SCHEMA, schema, size, digest.bytes, sizeof digest.bytes);
  return digest;
}

enum { LEAF_MESSAGE = 4 + 2 * PLM_PROOF_SHORT_BYTES };

static void write_leaf(uint8_t message[LEAF_MESSAGE], uint32_t residues,
                       const struct plm_proof_digest *sequence,
                       const struct plm_proof_digest *label)
{
  uint8_t *end = proof_put_u32(message, residues);
  end = proof_put(end, sequence->bytes, sizeof sequence->bytes);
  (void)proof_put(end, label->bytes, sizeof label->bytes);
}

struct plm_proof_digest plm_proof_leaf(uint32_t residues, const struct plm_proof_digest *sequence,
                                       const struct plm_proof_digest *label)
{
  uint8_t message[LEAF_MESSAGE];
  struct plm_proof_digest digest;
  write_leaf(message, residues, sequence, label);
  proof_hash(PROOF_TAG_LEAF, message, sizeof message, digest.bytes, sizeof digest.bytes);
  return digest;
}

struct plm_proof_node plm_proof_leaf_node(const struct plm_proof_digest *leaf)
{
  struct plm_proof_node node = {.sum = 0};
  memcpy(node.hash, leaf->bytes, sizeof leaf->bytes); /* zeros follow */
  return node;
}

void plm_proof_group_leaves(const uint32_t *lengths, const struct plm_proof_digest *sequences,
                            const struct plm_proof_digest *labels, uint32_t count,
                            struct plm_proof_node leaves[PLM_PROOF_GROUP])
{
  const struct plm_proof_digest empty = plm_proof_label(NULL, 0);
  uint8_t messages[PLM_PROOF_GROUP][LEAF_MESSAGE];
  struct proof_task tasks[PLM_PROOF_GROUP];
  PLM_ASSERT(count != 0 && count <= PLM_PROOF_GROUP);
  memset(leaves, 0, count * sizeof *leaves); /* zeros follow the hashes */
  for (uint32_t d = 0; d < count; d++) {
    write_leaf(messages[d], lengths[d], &sequences[d], labels == NULL ? &empty : &labels[d]);
    tasks[d] = (struct proof_task){messages[d], sizeof messages[d], leaves[d].hash};
  }
  proof_hash_many(PROOF_TAG_LEAF, tasks, count, PLM_PROOF_SHORT_BYTES);
}

struct plm_proof_node plm_proof_group(const uint32_t *lengths,
                                      const struct plm_proof_digest *sequences,
                                      const struct plm_proof_digest *labels, uint32_t count)
{
  struct plm_proof_node nodes[PLM_PROOF_GROUP];
  plm_proof_group_leaves(lengths, sequences, labels, count, nodes);
  for (uint64_t width = count; width > 1; width = (width + 1) / 2)
    (void)proof_join_level(PLM_PROOF_PLAIN, nodes, width, nodes); /* no sums: it cannot fail */
  return nodes[0];
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "sizes are hashed as they are stored");

void plm_proof_cluster_nodes(const uint32_t *sizes, uint64_t count, struct plm_proof_node *nodes)
{
  enum { BATCH = 64 };
  while (count != 0) {
    struct proof_task tasks[BATCH];
    size_t batch = 0;
    for (; batch < BATCH && count != 0; batch++) {
      const uint32_t some = count < PLM_PROOF_GROUP ? (uint32_t)count : PLM_PROOF_GROUP;
      tasks[batch] = (struct proof_task){sizes, some * sizeof *sizes, nodes[batch].hash};
      nodes[batch].sum = 0;
      for (uint32_t c = 0; c < some; c++) nodes[batch].sum += sizes[c];
      sizes += some;
      count -= some;
    }
    proof_hash_many(PROOF_TAG_SIZES, tasks, batch, PLM_PROOF_HASH_BYTES);
    nodes += batch;
  }
}

struct plm_proof_node plm_proof_clusters(const uint32_t *sizes, uint32_t count)
{
  struct plm_proof_node node;
  PLM_ASSERT(count != 0 && count <= PLM_PROOF_GROUP);
  plm_proof_cluster_nodes(sizes, count, &node);
  return node;
}

struct plm_hash plm_proof_corpus(uint32_t tokenizer,
                                 const struct plm_proof_split splits[PLM_PROOF_SPLITS],
                                 const struct plm_proof_digest *schema)
{
  uint8_t message[16 + PLM_PROOF_SPLITS * (24 + 2 * PLM_PROOF_HASH_BYTES) + PLM_PROOF_SHORT_BYTES];
  uint8_t digest[PLM_PROOF_SHORT_BYTES], *end = message;
  uint64_t halves[2];
  end = proof_put_u32(end, schema == NULL ? PLM_PROOF_FORMAT : PLM_PROOF_FORMAT_LABELS);
  end = proof_put_u32(end, tokenizer);
  end = proof_put_u32(end, PLM_PROOF_GROUP);
  end = proof_put_u32(end, PLM_PROOF_BLOCK);
  for (int s = 0; s < PLM_PROOF_SPLITS; s++) {
    end = proof_put_u64(end, splits[s].documents);
    end = proof_put(end, splits[s].root, sizeof splits[s].root);
    end = proof_put_u64(end, splits[s].clusters);
    end = proof_put_u64(end, splits[s].sum);
    end = proof_put(end, splits[s].cluster_root, sizeof splits[s].cluster_root);
  }
  if (schema != NULL) end = proof_put(end, schema->bytes, sizeof schema->bytes);
  proof_hash(PROOF_TAG_CORPUS, message, (size_t)(end - message), digest, sizeof digest);
  memcpy(halves, digest, sizeof halves);
  return (struct plm_hash){.high = be64toh(halves[0]), .low = be64toh(halves[1])};
}
