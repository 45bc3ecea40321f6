/* Hashes of sequences, and of pieces of long ones. */
#include <string.h>

#include "common/proof/proof_lanes.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are hashed as they are stored");

enum {
  BATCH = 64,    /* blocks of one sequence that are hashed at once */
  AT_ONCE = 256, /* the same of several sequences */
};

static struct plm_proof_node hash_block(const void *tokens, size_t bytes)
{
  struct plm_proof_node node = {.sum = 0};
  proof_hash(PROOF_TAG_BLOCK, tokens, bytes, node.hash, sizeof node.hash);
  return node;
}

static struct plm_proof_digest hash_sequence(const struct plm_proof_node *root)
{
  struct plm_proof_digest digest;
  proof_hash(PROOF_TAG_SEQUENCE, root->hash, sizeof root->hash, digest.bytes, sizeof digest.bytes);
  return digest;
}

uint64_t plm_proof_block_count(uint64_t tokens)
{
  return tokens == 0 ? 1 : (tokens - 1) / PLM_PROOF_BLOCK + 1;
}

/* Tokens that are cut into blocks. */
struct uncut {
  const uint8_t *at;
  size_t left, whole; /* bytes of the rest, and of a whole block */
};

static struct uncut uncut_of(uint32_t token_bytes, const void *tokens, size_t count)
{
  return (struct uncut){tokens, count * token_bytes, (size_t)PLM_PROOF_BLOCK * token_bytes};
}

/* Cuts off a block, whose hash will be written to `hash`. */
static struct proof_task next_block(struct uncut *uncut, uint8_t *hash)
{
  const size_t size = uncut->left < uncut->whole ? uncut->left : uncut->whole;
  const struct proof_task task = {uncut->at, size, hash};
  uncut->at += size;
  uncut->left -= size;
  return task;
}

void plm_proof_block_nodes(uint32_t token_bytes, const void *tokens, size_t count,
                           struct plm_proof_node *nodes)
{
  struct uncut uncut = uncut_of(token_bytes, tokens, count);
  uint64_t blocks = plm_proof_block_count(count);
  while (blocks != 0) {
    struct proof_task tasks[BATCH];
    const size_t batch = blocks < BATCH ? (size_t)blocks : BATCH;
    for (size_t i = 0; i < batch; i++) {
      nodes[i].sum = 0;
      tasks[i] = next_block(&uncut, nodes[i].hash);
    }
    proof_hash_many(PROOF_TAG_BLOCK, tasks, batch, PLM_PROOF_HASH_BYTES);
    nodes += batch;
    blocks -= batch;
  }
}

/* Adds blocks that lie one after another to a builder: `count` tokens, all blocks full except the
 * last, and one empty block if there are none. */
static void add_blocks(struct plm_proof_builder *builder, uint32_t token_bytes, const void *tokens,
                       uint64_t count)
{
  enum { TOKENS = BATCH * PLM_PROOF_BLOCK };
  const uint8_t *at = tokens;
  do {
    struct plm_proof_node nodes[BATCH];
    const size_t batch = count < TOKENS ? (size_t)count : TOKENS;
    plm_proof_block_nodes(token_bytes, at, batch, nodes);
    for (uint64_t i = 0; i < plm_proof_block_count(batch); i++) plm_proof_add(builder, &nodes[i]);
    at += batch * token_bytes;
    count -= batch;
  } while (count != 0);
}

static struct plm_proof_node sequence_root(uint32_t token_bytes, const void *tokens, size_t count)
{
  struct plm_proof_builder builder;
  struct plm_proof_node root;
  plm_proof_begin(&builder, PLM_PROOF_PLAIN);
  add_blocks(&builder, token_bytes, tokens, count);
  (void)plm_proof_end(&builder, &root); /* without sums it cannot fail */
  return root;
}

/* Trees over the blocks of several sequences, whose hashes lie one after another in `below`. */
struct side_by_side {
  size_t sequences;
  uint32_t widths[AT_ONCE]; /* nodes of each */
  uint8_t below[AT_ONCE][PLM_PROOF_HASH_BYTES], above[AT_ONCE][PLM_PROOF_HASH_BYTES];
};

/* Joins a level of each tree, as proof_join_level does. False: each is down to its root. */
static bool join_all(struct side_by_side *trees)
{
  struct proof_task tasks[AT_ONCE / 2];
  size_t pairs = 0, below = 0, above = 0;
  for (size_t i = 0; i < trees->sequences; i++) {
    const uint32_t width = trees->widths[i];
    for (uint32_t node = 0; node + 1 < width; node += 2, above++)
      tasks[pairs++] = (struct proof_task){trees->below[below + node], 2 * PLM_PROOF_HASH_BYTES,
                                           trees->above[above]};
    if (width % 2 != 0)
      memcpy(trees->above[above++], trees->below[below + width - 1], PLM_PROOF_HASH_BYTES);
    below += width;
    trees->widths[i] = (width + 1) / 2;
  }
  if (pairs == 0) return false;
  proof_hash_many(PROOF_TAG_NODE, tasks, pairs, PLM_PROOF_HASH_BYTES);
  memcpy(trees->below, trees->above, above * PLM_PROOF_HASH_BYTES);
  return true;
}

/* Adds the blocks of a sequence to a batch, if there is room. */
static bool add_sequence(struct side_by_side *trees, uint32_t token_bytes, const void *tokens,
                         uint32_t length, struct proof_task *tasks, size_t *blocks)
{
  struct uncut uncut = uncut_of(token_bytes, tokens, length);
  const uint64_t width = plm_proof_block_count(length);
  if (width > AT_ONCE - *blocks) return false;
  trees->widths[trees->sequences++] = (uint32_t)width;
  for (uint64_t i = 0; i < width; i++, ++*blocks)
    tasks[*blocks] = next_block(&uncut, trees->below[*blocks]);
  return true;
}

/* Hashes the first sequences, as many as fit into a batch, or one that is too long for it. Returns
 * their number. All blocks are hashed at once, and then all nodes of a level. */
static size_t hash_first(uint32_t token_bytes, size_t count, const void *const *tokens,
                         const uint32_t *lengths, struct plm_proof_digest *digests)
{
  struct side_by_side trees;
  struct proof_task tasks[AT_ONCE];
  size_t blocks = 0;
  trees.sequences = 0;
  while (trees.sequences < count && add_sequence(&trees, token_bytes, tokens[trees.sequences],
                                                 lengths[trees.sequences], tasks, &blocks))
    continue;
  if (trees.sequences == 0) {
    digests[0] = plm_proof_sequence(token_bytes, tokens[0], lengths[0]);
    return 1;
  }
  proof_hash_many(PROOF_TAG_BLOCK, tasks, blocks, PLM_PROOF_HASH_BYTES);
  while (join_all(&trees)) continue;
  for (size_t i = 0; i < trees.sequences; i++)
    tasks[i] = (struct proof_task){trees.below[i], PLM_PROOF_HASH_BYTES, digests[i].bytes};
  proof_hash_many(PROOF_TAG_SEQUENCE, tasks, trees.sequences, PLM_PROOF_SHORT_BYTES);
  return trees.sequences;
}

void plm_proof_sequences(uint32_t token_bytes, size_t count, const void *const *tokens,
                         const uint32_t *lengths, struct plm_proof_digest *digests)
{
  for (size_t done = 0; done < count;)
    done += hash_first(token_bytes, count - done, tokens + done, lengths + done, digests + done);
}

struct plm_proof_digest plm_proof_sequence(uint32_t token_bytes, const void *tokens, size_t count)
{
  const struct plm_proof_node root = count <= PLM_PROOF_BLOCK
                                         ? hash_block(tokens, count * token_bytes)
                                         : sequence_root(token_bytes, tokens, count);
  return hash_sequence(&root);
}

/* ---- in pieces ------------------------------------------------------------------------------- */

void plm_proof_stream_begin(struct plm_proof_stream *stream, uint32_t token_bytes)
{
  PLM_ASSERT(token_bytes == 1 || token_bytes == 2);
  plm_proof_begin(&stream->blocks, PLM_PROOF_PLAIN);
  stream->token_bytes = token_bytes;
  stream->held = 0;
}

void plm_proof_stream_add(struct plm_proof_stream *stream, const void *tokens, size_t count)
{
  const uint8_t *at = tokens;
  while (count != 0) {
    const size_t room = PLM_PROOF_BLOCK - stream->held, taken = count < room ? count : room;
    memcpy(stream->block + (size_t)stream->held * stream->token_bytes, at,
           taken * stream->token_bytes);
    stream->held += (uint32_t)taken;
    at += taken * stream->token_bytes;
    count -= taken;
    if (stream->held < PLM_PROOF_BLOCK) continue;
    add_blocks(&stream->blocks, stream->token_bytes, stream->block, stream->held);
    stream->held = 0;
  }
}

struct plm_proof_digest plm_proof_stream_end(struct plm_proof_stream *stream)
{
  struct plm_proof_node root;
  if (stream->held != 0 || stream->blocks.count == 0)
    add_blocks(&stream->blocks, stream->token_bytes, stream->block, stream->held);
  (void)plm_proof_end(&stream->blocks, &root); /* without sums it cannot fail */
  return hash_sequence(&root);
}

/* ---- pieces of a long sequence --------------------------------------------------------------- */

/* The number of tokens in blocks [begin, end) of a sequence of count tokens. */
static uint64_t tokens_in(uint64_t count, uint64_t begin, uint64_t end)
{
  const uint64_t first = begin * PLM_PROOF_BLOCK;
  return end == plm_proof_block_count(count) ? count - first : (end - begin) * PLM_PROOF_BLOCK;
}

bool plm_proof_blocks_verify(const struct plm_proof_digest *sequence,
                             const struct plm_proof_blocks *blocks, const void *tokens,
                             const struct plm_proof_node *path, size_t size)
{
  const struct plm_proof_range range = {blocks->begin, blocks->end,
                                        plm_proof_block_count(blocks->count)};
  struct proof_subtree left[PLM_PROOF_LEVELS], right[PLM_PROOF_LEVELS];
  struct plm_proof_builder builder;
  struct plm_proof_node root;
  if (!plm_proof_range_valid(&range)) return false;
  const size_t lefts = proof_subtrees_left(&range, left);
  const size_t rights = proof_subtrees_right(&range, right);
  if (size != lefts + rights) return false;
  plm_proof_begin(&builder, PLM_PROOF_PLAIN);
  for (size_t i = 0; i < lefts; i++) proof_add_subtree(&builder, left[i].level, &path[i]);
  add_blocks(&builder, blocks->token_bytes, tokens,
             tokens_in(blocks->count, blocks->begin, blocks->end));
  for (size_t i = 0; i < rights; i++) proof_add_subtree(&builder, right[i].level, &path[lefts + i]);
  (void)plm_proof_end(&builder, &root); /* without sums it cannot fail */
  const struct plm_proof_digest found = hash_sequence(&root);
  return memcmp(found.bytes, sequence->bytes, sizeof found.bytes) == 0;
}
