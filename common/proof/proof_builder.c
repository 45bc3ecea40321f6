/* Trees of RFC 6962: inner nodes, and roots of nodes that come one after another. */
#include "common/proof/proof_lanes.h"

enum { PAIR_MESSAGE = 2 * (PLM_PROOF_HASH_BYTES + 8) };

/* The message of an inner node. Returns its size. *sum receives the node's sum, and *fits becomes
 * false if that does not fit into 64 bits. */
static size_t pair_message(enum plm_proof_kind kind, const struct plm_proof_node *left,
                           const struct plm_proof_node *right, uint8_t message[PAIR_MESSAGE],
                           uint64_t *sum, bool *fits)
{
  const bool sums = kind == PLM_PROOF_SUMS;
  uint8_t *end = proof_put(message, left->hash, sizeof left->hash);
  if (sums) end = proof_put_u64(end, left->sum);
  end = proof_put(end, right->hash, sizeof right->hash);
  if (sums) end = proof_put_u64(end, right->sum);
  *sum = 0;
  if (sums && __builtin_add_overflow(left->sum, right->sum, sum)) *fits = false;
  return (size_t)(end - message);
}

static enum proof_tag pair_tag(enum plm_proof_kind kind)
{
  return kind == PLM_PROOF_SUMS ? PROOF_TAG_SUMS : PROOF_TAG_NODE;
}

bool proof_join(enum plm_proof_kind kind, const struct plm_proof_node *left,
                const struct plm_proof_node *right, struct plm_proof_node *out)
{
  uint8_t message[PAIR_MESSAGE];
  uint64_t sum;
  bool fits = true;
  const size_t size = pair_message(kind, left, right, message, &sum, &fits);
  proof_hash(pair_tag(kind), message, size, out->hash, sizeof out->hash);
  out->sum = sum;
  return fits;
}

bool proof_join_level(enum plm_proof_kind kind, const struct plm_proof_node *below, uint64_t width,
                      struct plm_proof_node *above)
{
  enum { BATCH = 64 };
  const struct plm_proof_node odd = below[width - 1];
  bool fits = true;
  for (uint64_t begin = 0; begin < width / 2; begin += BATCH) {
    const uint64_t left = width / 2 - begin;
    const size_t count = left < BATCH ? (size_t)left : BATCH;
    uint8_t messages[BATCH][PAIR_MESSAGE];
    struct proof_task tasks[BATCH];
    uint64_t sums[BATCH];
    for (size_t i = 0; i < count; i++) {
      const struct plm_proof_node *pair = &below[2 * (begin + i)];
      const size_t size = pair_message(kind, &pair[0], &pair[1], messages[i], &sums[i], &fits);
      tasks[i] = (struct proof_task){messages[i], size, above[begin + i].hash};
    }
    proof_hash_many(pair_tag(kind), tasks, count, PLM_PROOF_HASH_BYTES);
    for (size_t i = 0; i < count; i++) above[begin + i].sum = sums[i];
  }
  if (width % 2 != 0) above[width / 2] = odd;
  return fits;
}

void plm_proof_begin(struct plm_proof_builder *builder, enum plm_proof_kind kind)
{
  builder->kind = kind;
  builder->failed = false;
  builder->depth = 0;
  builder->count = 0;
}

/* builder->nodes has one complete subtree for each bit of count, as a binary counter: adding a
 * subtree joins it with those of its own size. */
void proof_add_subtree(struct plm_proof_builder *builder, unsigned level,
                       const struct plm_proof_node *node)
{
  struct plm_proof_node sum = *node;
  PLM_ASSERT(level < PLM_PROOF_LEVELS && builder->count % (UINT64_C(1) << level) == 0);
  for (unsigned k = level; (builder->count >> k & 1) != 0; k++)
    if (!proof_join(builder->kind, &builder->nodes[--builder->depth], &sum, &sum))
      builder->failed = true;
  PLM_ASSERT(builder->depth < PLM_PROOF_LEVELS);
  builder->nodes[builder->depth++] = sum;
  builder->count += UINT64_C(1) << level;
}

void plm_proof_add(struct plm_proof_builder *builder, const struct plm_proof_node *node)
{
  proof_add_subtree(builder, 0, node);
}

bool plm_proof_end(struct plm_proof_builder *builder, struct plm_proof_node *root)
{
  PLM_ASSERT(builder->depth != 0);
  *root = builder->nodes[--builder->depth];
  while (builder->depth != 0)
    if (!proof_join(builder->kind, &builder->nodes[--builder->depth], root, root))
      builder->failed = true;
  return !builder->failed;
}
