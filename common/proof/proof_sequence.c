/* Hashes of sequences, and of pieces of long ones. */
#include <string.h>

#include "common/proof/proof_lanes.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are hashed as they are stored");

enum {
  BATCH = 64,    /* blocks that are hashed at once for a tree */
  AT_ONCE = 256, /* the same of several sequences */
};

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

void plm_proof_block_nodes(uint32_t token_bytes, const struct plm_proof_run *runs, size_t count)
{
  struct proof_task tasks[BATCH];
  size_t waiting = 0;
  for (size_t r = 0; r < count; r++) {
    struct uncut uncut = uncut_of(token_bytes, runs[r].tokens, runs[r].count);
    const uint64_t blocks = plm_proof_block_count(runs[r].count);
    for (uint64_t i = 0; i < blocks; i++) {
      runs[r].nodes[i].sum = 0;
      tasks[waiting++] = next_block(&uncut, runs[r].nodes[i].hash);
      if (waiting < BATCH) continue;
      proof_hash_many(PROOF_TAG_BLOCK, tasks, waiting, PLM_PROOF_HASH_BYTES);
      waiting = 0;
    }
  }
  proof_hash_many(PROOF_TAG_BLOCK, tasks, waiting, PLM_PROOF_HASH_BYTES);
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
    plm_proof_block_nodes(token_bytes, &(struct plm_proof_run){at, batch, nodes}, 1);
    for (uint64_t i = 0; i < plm_proof_block_count(batch); i++) plm_proof_add(builder, &nodes[i]);
    at += batch * token_bytes;
    count -= batch;
  } while (count != 0);
}

/* The number of tokens in blocks [begin, end) of a sequence of count tokens. */
static size_t tokens_in(uint64_t count, uint64_t begin, uint64_t end)
{
  const uint64_t first = begin * PLM_PROOF_BLOCK;
  return end == plm_proof_block_count(count) ? count - first : (end - begin) * PLM_PROOF_BLOCK;
}

static void add_path(struct plm_proof_builder *builder, const struct proof_subtree *subtrees,
                     size_t count, const uint8_t *hashes)
{
  PLM_ASSERT(count == 0 || hashes != NULL);
  for (size_t i = 0; i < count; i++) {
    struct plm_proof_node node = {.sum = 0};
    memcpy(node.hash, hashes + i * PLM_PROOF_HASH_BYTES, PLM_PROOF_HASH_BYTES);
    proof_add_subtree(builder, subtrees[i].level, &node);
  }
}

static struct plm_proof_digest hash_part(uint32_t token_bytes, const struct plm_proof_part *part)
{
  const struct plm_proof_range range = {part->begin, part->end, plm_proof_block_count(part->count)};
  struct proof_subtree left[PLM_PROOF_LEVELS], right[PLM_PROOF_LEVELS];
  const size_t lefts = proof_subtrees_left(&range, left);
  const size_t rights = proof_subtrees_right(&range, right);
  struct plm_proof_builder builder;
  struct plm_proof_node root;
  plm_proof_begin(&builder, PLM_PROOF_PLAIN);
  add_path(&builder, left, lefts, part->path);
  add_blocks(&builder, token_bytes, part->tokens, tokens_in(part->count, part->begin, part->end));
  if (rights != 0) add_path(&builder, right, rights, part->path + lefts * PLM_PROOF_HASH_BYTES);
  (void)plm_proof_end(&builder, &root); /* without sums it cannot fail */
  return hash_sequence(&root);
}

/* The nodes of a level that are at hand, [begin, end) of `width`, and the rest of the path. */
struct span {
  size_t part;
  uint64_t begin, end, width;
  const uint8_t *left, *right; /* after the next hash on the left, and at the next on the right */
};

static bool joins_left(const struct span *span)
{
  return span->begin % 2 != 0;
}

static bool joins_right(const struct span *span)
{
  return span->end % 2 != 0 && span->end < span->width;
}

/* Nodes of a level with their siblings from the path. */
static size_t span_nodes(const struct span *span)
{
  return span->end - span->begin + joins_left(span) + joins_right(span);
}

/* Trees over the blocks of several parts. Most have one block, which is the root. The nodes of the
 * others, each of which has a span, lie one after another in `below`. */
struct side_by_side {
  size_t parts, span_count;
  uint8_t roots[AT_ONCE][PLM_PROOF_HASH_BYTES];
  struct span spans[AT_ONCE];
  uint8_t below[AT_ONCE][PLM_PROOF_HASH_BYTES], above[AT_ONCE][PLM_PROOF_HASH_BYTES];
};

/* Copies the siblings of a span's nodes, which begin at nodes[joins_left(span)]. */
static void put_siblings(struct span *span, uint8_t nodes[][PLM_PROOF_HASH_BYTES])
{
  PLM_ASSERT(span->left != NULL || (!joins_left(span) && !joins_right(span)));
  if (joins_left(span)) memcpy(nodes[0], span->left -= PLM_PROOF_HASH_BYTES, PLM_PROOF_HASH_BYTES);
  if (!joins_right(span)) return;
  memcpy(nodes[span_nodes(span) - 1], span->right, PLM_PROOF_HASH_BYTES);
  span->right += PLM_PROOF_HASH_BYTES;
}

/* Joins a level of each tree, as proof_join_level does. False: each is down to its root. */
static bool join_all(struct side_by_side *trees)
{
  struct proof_task tasks[AT_ONCE / 2];
  size_t pairs = 0, below = 0, above = 0;
  bool joined = false;
  for (size_t i = 0; i < trees->span_count; i++) {
    struct span *span = &trees->spans[i];
    const size_t nodes = span_nodes(span);
    joined |= span->width > 1;
    span->begin /= 2;
    span->end = (span->end + 1) / 2;
    span->width = (span->width + 1) / 2;
    uint8_t(*out)[PLM_PROOF_HASH_BYTES] = trees->above + above;
    put_siblings(span, out);
    out += joins_left(span);
    for (size_t node = 0; node + 1 < nodes; node += 2)
      tasks[pairs++] =
          (struct proof_task){trees->below[below + node], 2 * PLM_PROOF_HASH_BYTES, out[node / 2]};
    if (nodes % 2 != 0)
      memcpy(out[nodes / 2], trees->below[below + nodes - 1], PLM_PROOF_HASH_BYTES);
    below += nodes;
    above += span_nodes(span);
  }
  proof_hash_many(PROOF_TAG_NODE, tasks, pairs, PLM_PROOF_HASH_BYTES);
  memcpy(trees->below, trees->above, above * PLM_PROOF_HASH_BYTES);
  return joined;
}

/* Blocks to hash, and room in the trees that is taken or may be on a higher level. */
struct first_level {
  struct proof_task tasks[AT_ONCE];
  size_t blocks, nodes, room;
};

/* Adds the blocks of a part to a batch, if there is room. */
static bool add_part(struct side_by_side *trees, uint32_t token_bytes,
                     const struct plm_proof_part *part, struct first_level *level)
{
  const struct plm_proof_range range = {part->begin, part->end, plm_proof_block_count(part->count)};
  const uint64_t blocks = part->end - part->begin;
  const size_t siblings = blocks < range.count ? 2 : 0; /* at most, on each level */
  PLM_ASSERT(plm_proof_range_valid(&range));
  if (blocks + siblings > AT_ONCE - level->room) return false;
  level->room += blocks + siblings;
  struct uncut uncut =
      uncut_of(token_bytes, part->tokens, tokens_in(part->count, part->begin, part->end));
  const size_t number = trees->parts++;
  if (range.count == 1) {
    level->tasks[level->blocks++] = next_block(&uncut, trees->roots[number]);
    return true;
  }
  struct span *span = &trees->spans[trees->span_count++];
  *span = (struct span){number, part->begin, part->end, range.count, NULL, NULL};
  if (siblings != 0)
    span->left = span->right =
        part->path + PLM_PROOF_HASH_BYTES * (size_t)__builtin_popcountll(part->begin);
  uint8_t(*nodes)[PLM_PROOF_HASH_BYTES] = trees->below + level->nodes;
  put_siblings(span, nodes);
  nodes += joins_left(span);
  for (uint64_t i = 0; i < blocks; i++)
    level->tasks[level->blocks++] = next_block(&uncut, nodes[i]);
  level->nodes += span_nodes(span);
  return true;
}

/* Hashes the first parts, as many as fit into a batch, or one that is too long for it. Returns
 * their number. All blocks are hashed at once, and then all nodes of a level. */
static size_t hash_first(uint32_t token_bytes, size_t count, const struct plm_proof_part *parts,
                         struct plm_proof_digest *digests)
{
  struct side_by_side trees;
  struct first_level level;
  trees.parts = trees.span_count = level.blocks = level.nodes = level.room = 0;
  while (trees.parts < count && add_part(&trees, token_bytes, &parts[trees.parts], &level))
    continue;
  if (trees.parts == 0) {
    digests[0] = hash_part(token_bytes, &parts[0]);
    return 1;
  }
  proof_hash_many(PROOF_TAG_BLOCK, level.tasks, level.blocks, PLM_PROOF_HASH_BYTES);
  while (join_all(&trees)) continue;
  for (size_t i = 0; i < trees.span_count; i++)
    memcpy(trees.roots[trees.spans[i].part], trees.below[i], PLM_PROOF_HASH_BYTES);
  for (size_t i = 0; i < trees.parts; i++)
    level.tasks[i] = (struct proof_task){trees.roots[i], PLM_PROOF_HASH_BYTES, digests[i].bytes};
  proof_hash_many(PROOF_TAG_SEQUENCE, level.tasks, trees.parts, PLM_PROOF_SHORT_BYTES);
  return trees.parts;
}

void plm_proof_parts(uint32_t token_bytes, size_t count, const struct plm_proof_part *parts,
                     struct plm_proof_digest *digests)
{
  for (size_t done = 0; done < count;)
    done += hash_first(token_bytes, count - done, parts + done, digests + done);
}

struct plm_proof_digest plm_proof_sequence(uint32_t token_bytes, const void *tokens, size_t count)
{
  const struct plm_proof_part whole = plm_proof_whole(tokens, count);
  return hash_part(token_bytes, &whole);
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
