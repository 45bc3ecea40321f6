/* Attention masks of a batch: built on the host in O(B L) before the forward pass, and uploaded as
 * a whole. Equal entries of the pattern share one mask. */
#include "common/model/masks.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/model/architecture.h"

enum { MAX_LEVELS = PLM_MASK_LEVELS, MAX_KINDS = PLM_MASK_KINDS };

struct plm_masks {
  struct plm_model_config config;
  struct plm_ops *ops;
  uint32_t max_chunks;
  int levels;
  int kind_count;                /* distinct entries of the pattern */
  uint8_t kinds[MAX_KINDS];      /* the plm_attention_kind bits of each */
  uint8_t slot[PLM_MAX_PATTERN]; /* pattern entry -> index into kinds */
  int32_t *host, *device;        /* the values of all masks, one mask after the other */
  struct plm_interval_mask mask[MAX_LEVELS][MAX_KINDS];
  struct plm_mask_pairs pairs;
};

/* The lengths of a mask's arrays, which follow each other in its values: four of `rows` values,
 * then six of `tiles`. */
struct mask_layout {
  size_t rows, tiles; /* B * L, B * ceil(L / PLM_MASK_TILE) */
};

static struct mask_layout layout_of(int32_t B, int32_t L)
{
  const size_t tiles = ((size_t)L + PLM_MASK_TILE - 1) / PLM_MASK_TILE;
  return (struct mask_layout){.rows = (size_t)B * (size_t)L, .tiles = (size_t)B * tiles};
}

size_t plm_mask_values(int32_t B, int32_t L)
{
  const struct mask_layout layout = layout_of(B, L);
  return 4 * layout.rows + 6 * layout.tiles;
}

static struct plm_interval_mask masks_view(const int32_t *values, int32_t B, int32_t L)
{
  const struct mask_layout layout = layout_of(B, L);
  const int32_t *tiles = values + 4 * layout.rows;
  return (struct plm_interval_mask){
      .B = B,
      .L = L,
      .key_begin = values,
      .key_end = values + layout.rows,
      .query_begin = values + 2 * layout.rows,
      .query_end = values + 3 * layout.rows,
      .tile_key_begin = tiles,
      .tile_key_end = tiles + layout.tiles,
      .tile_full_begin = tiles + 2 * layout.tiles,
      .tile_full_end = tiles + 3 * layout.tiles,
      .tile_query_begin = tiles + 4 * layout.tiles,
      .tile_query_end = tiles + 5 * layout.tiles,
  };
}

static inline int64_t masks_smaller(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static inline int64_t masks_larger(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

/* What a pattern entry restricts besides the document. */
struct kind_rule {
  bool causal;
  int64_t window, block; /* positions of the level; 0: no such restriction */
};

/* The intervals of one chunk, an element for each of its L positions. */
struct chunk_intervals {
  int32_t *key_begin, *key_end, *query_begin, *query_end;
};

/* The intervals of one document whose real groups are [begin, end). Returns its allowed pairs. */
static uint64_t document_intervals(const struct kind_rule *rule, int64_t begin, int64_t end,
                                   const struct chunk_intervals *to)
{
  uint64_t pairs = 0;
  for (int64_t i = begin; i < end; i++) {
    int64_t first = begin, last = end; /* of the symmetric kinds: the same for keys and queries */
    if (rule->window > 0) {
      first = masks_larger(first, i - rule->window + 1);
      last = masks_smaller(last, i + rule->window);
    }
    if (rule->block > 0) {
      const int64_t block_begin = i - i % rule->block;
      first = masks_larger(first, block_begin);
      last = masks_smaller(last, block_begin + rule->block);
    }
    to->key_begin[i] = (int32_t)first;
    to->key_end[i] = (int32_t)(rule->causal ? i + 1 : last);
    to->query_begin[i] = (int32_t)(rule->causal ? i : first);
    to->query_end[i] = (int32_t)last;
    pairs += (uint64_t)(to->key_end[i] - to->key_begin[i]);
  }
  return pairs;
}

/* The intervals of one chunk of `length` groups. The groups of a document begin with the group of
 * its first token, and end before the group of the next document's first token, which belongs to
 * that later document. */
static uint64_t chunk_intervals(const struct plm_chunk_document *documents, size_t count,
                                int32_t length, int level, const struct kind_rule *rule,
                                const struct chunk_intervals *to)
{
  const int64_t group = (int64_t)1 << level;
  uint64_t pairs = 0;
  for (size_t d = 0; d < count; d++) {
    const int64_t start = documents[d].start;
    const int64_t next = d + 1 < count ? (int64_t)(documents[d + 1].start >> level) : length;
    const int64_t end = (start + documents[d].tokens + group - 1) >> level;
    if (documents[d].tokens == 0) continue;
    pairs += document_intervals(rule, start >> level,
                                masks_smaller(masks_smaller(end, next), length), to);
  }
  return pairs;
}

/* Computes, for the intervals of one tile, the range [least begin, largest end) of the non-empty
 * ones, and the intersection of all, which is empty if any interval is. */
static void tile_range(const int32_t *begin, const int32_t *end, int32_t count, int32_t touched[2],
                       int32_t common[2])
{
  int32_t least = INT32_MAX, largest = 0, latest = 0, earliest = INT32_MAX;
  bool hole = false;
  for (int32_t i = 0; i < count; i++) {
    if (begin[i] == end[i]) {
      hole = true;
      continue;
    }
    if (begin[i] < least) least = begin[i];
    if (begin[i] > latest) latest = begin[i];
    if (end[i] > largest) largest = end[i];
    if (end[i] < earliest) earliest = end[i];
  }
  const bool none = largest == 0, shared = !none && !hole && latest < earliest;
  touched[0] = none ? 0 : least;
  touched[1] = largest;
  common[0] = shared ? latest : 0;
  common[1] = shared ? earliest : 0;
}

static void chunk_tiles(const struct plm_interval_mask *mask, int32_t *values, int32_t chunk)
{
  const struct mask_layout layout = layout_of(mask->B, mask->L);
  int32_t *out = values + 4 * layout.rows;
  const int32_t tiles = (int32_t)(layout.tiles / (size_t)mask->B);
  for (int32_t t = 0; t < tiles; t++) {
    const size_t row = (size_t)chunk * (size_t)mask->L + (size_t)t * PLM_MASK_TILE;
    const int32_t count =
        (int32_t)masks_smaller(mask->L - (int64_t)t * PLM_MASK_TILE, PLM_MASK_TILE);
    const size_t tile = (size_t)chunk * (size_t)tiles + (size_t)t;
    int32_t touched[2], common[2], queries[2], unused[2];
    tile_range(values + row, values + layout.rows + row, count, touched, common);
    tile_range(values + 2 * layout.rows + row, values + 3 * layout.rows + row, count, queries,
               unused);
    for (int side = 0; side < 2; side++) {
      out[(size_t)side * layout.tiles + tile] = touched[side];
      out[(size_t)(2 + side) * layout.tiles + tile] = common[side];
      out[(size_t)(4 + side) * layout.tiles + tile] = queries[side];
    }
  }
}

uint64_t plm_mask_build(const struct plm_batch *batch, int level, unsigned kinds, uint32_t window,
                        uint32_t block, int32_t *values, const int32_t *views,
                        struct plm_interval_mask *mask)
{
  PLM_ASSERT(kinds < MAX_KINDS);
  PLM_ASSERT((kinds & PLM_ATTENTION_LOCAL) == 0 || window > 0);
  PLM_ASSERT((kinds & PLM_ATTENTION_BLOCK) == 0 || block > 0);
  const struct kind_rule rule = {
      .causal = (kinds & PLM_ATTENTION_CAUSAL) != 0,
      .window = (kinds & PLM_ATTENTION_LOCAL) != 0 ? window : 0,
      .block = (kinds & PLM_ATTENTION_BLOCK) != 0 ? block : 0,
  };
  const int32_t B = (int32_t)batch->chunks, L = (int32_t)(batch->max_length >> level);
  const struct mask_layout layout = layout_of(B, L);
  const struct plm_interval_mask host = masks_view(values, B, L);
  uint64_t pairs = 0;
  memset(values, 0, 4 * layout.rows * sizeof *values); /* padding has empty intervals */
  for (int32_t c = 0; c < B; c++) {
    const uint32_t first = batch->document_begin[c];
    int32_t *at = values + (size_t)c * (size_t)L;
    const struct chunk_intervals to = {at, at + layout.rows, at + 2 * layout.rows,
                                       at + 3 * layout.rows};
    pairs += chunk_intervals(batch->documents + first, batch->document_begin[c + 1] - first, L,
                             level, &rule, &to);
    chunk_tiles(&host, values, c);
  }
  if (mask != NULL) *mask = masks_view(views, B, L);
  return pairs;
}

/* Collects the distinct entries of the pattern in kinds, and for each entry its index there in
 * slots. Returns how many are distinct. Every entry includes `document`. */
static int find_kinds(const struct plm_model_config *config, uint8_t kinds[MAX_KINDS],
                      uint8_t slots[PLM_MAX_PATTERN])
{
  int count = 0;
  for (uint32_t e = 0; e < config->pattern_count; e++) {
    const uint8_t kind = config->pattern[e] | PLM_ATTENTION_DOCUMENT;
    int slot = 0;
    while (slot < count && kinds[slot] != kind) slot++;
    if (slot == count) kinds[count++] = kind;
    slots[e] = (uint8_t)slot;
  }
  return count;
}

size_t plm_masks_values(const struct plm_model_config *config, uint32_t chunks, uint32_t length)
{
  uint8_t kinds[MAX_KINDS], slots[PLM_MAX_PATTERN];
  size_t values = 0;
  for (int k = 0; k < plm_architecture_attention_levels(config); k++)
    values += plm_mask_values((int32_t)chunks, (int32_t)(length >> k));
  return values * (size_t)find_kinds(config, kinds, slots);
}

plm_status plm_masks_open(const struct plm_model_config *config, struct plm_ops *ops,
                          uint32_t max_chunks, struct plm_masks **masks, struct plm_error *error)
{
  *masks = NULL;
  if (config->pattern_count == 0 || config->pattern_count > PLM_MAX_PATTERN)
    return plm_error_set(error, PLM_CONFIG,
                         "attention.pattern has %u entries; it must have 1 to %d",
                         config->pattern_count, PLM_MAX_PATTERN);
  const uint64_t positions = (uint64_t)max_chunks * config->max_length;
  if (positions == 0 || positions > INT32_MAX)
    return plm_error_set(
        error, PLM_LIMIT,
        "%u chunks of %u positions are outside the limit for masks, 1 to %d positions", max_chunks,
        config->max_length, INT32_MAX);
  struct plm_masks *m = plm_alloc_zeroed(1, sizeof *m);
  m->config = *config;
  m->ops = ops;
  m->max_chunks = max_chunks;
  m->levels = plm_architecture_attention_levels(config);
  PLM_ASSERT(m->levels <= MAX_LEVELS);
  m->kind_count = find_kinds(config, m->kinds, m->slot);
  const size_t values = plm_masks_values(config, max_chunks, config->max_length);
  plm_status status = PLM_OK;
  m->host = malloc(values * sizeof *m->host);
  if (m->host == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu mask values", values);
  if (status == PLM_OK)
    status = ops->allocate(ops, values * sizeof *m->device, (void **)&m->device, error);
  if (status != PLM_OK) {
    plm_masks_close(m);
    return status;
  }
  *masks = m;
  return PLM_OK;
}

void plm_masks_close(struct plm_masks *masks)
{
  if (masks == NULL) return;
  if (masks->device != NULL) masks->ops->release(masks->ops, masks->device);
  free(masks->host);
  free(masks);
}

bool plm_masks_fit(const struct plm_masks *masks, const struct plm_model_config *config)
{
  return config->max_length == masks->config.max_length &&
         config->pattern_count == masks->config.pattern_count;
}

void plm_masks_build(const struct plm_masks *masks, const struct plm_batch *batch, uint32_t window,
                     int32_t *values, struct plm_mask_pairs *pairs)
{
  PLM_ASSERT(batch->chunks > 0 && batch->chunks <= masks->max_chunks);
  PLM_ASSERT(batch->max_length <= masks->config.max_length);
  PLM_ASSERT(batch->max_length % (1u << (masks->levels - 1)) == 0);
  for (int k = 0; k < masks->levels; k++)
    for (int i = 0; i < masks->kind_count; i++) {
      pairs->of[k][i] = plm_mask_build(batch, k, masks->kinds[i], window, masks->config.block,
                                       values, NULL, NULL);
      values += plm_mask_values((int32_t)batch->chunks, (int32_t)(batch->max_length >> k));
    }
}

void plm_masks_place(struct plm_masks *masks, uint32_t chunks, uint32_t length,
                     const struct plm_mask_pairs *pairs)
{
  const int32_t *values = masks->device;
  masks->pairs = *pairs;
  for (int k = 0; k < masks->levels; k++)
    for (int i = 0; i < masks->kind_count; i++) {
      masks->mask[k][i] = masks_view(values, (int32_t)chunks, (int32_t)(length >> k));
      values += plm_mask_values((int32_t)chunks, (int32_t)(length >> k));
    }
}

int32_t *plm_masks_device(struct plm_masks *masks)
{
  return masks->device;
}

void plm_masks_fill(struct plm_masks *masks, const struct plm_batch *batch, uint32_t window)
{
  struct plm_mask_pairs pairs;
  plm_masks_build(masks, batch, window, masks->host, &pairs);
  plm_masks_place(masks, batch->chunks, batch->max_length, &pairs);
  masks->ops->upload(masks->ops, masks->device, masks->host,
                     plm_masks_values(&masks->config, batch->chunks, batch->max_length) *
                         sizeof *masks->host);
}

uint64_t plm_masks_pairs(const struct plm_masks *masks, int level, int entry)
{
  PLM_ASSERT(level >= 0 && level < masks->levels);
  PLM_ASSERT(entry >= 0 && (uint32_t)entry < masks->config.pattern_count);
  return masks->pairs.of[level][masks->slot[entry]];
}

uint64_t plm_masks_pairs_of(const struct plm_masks *masks, const struct plm_interval_mask *mask)
{
  for (int k = 0; k < masks->levels; k++)
    for (int i = 0; i < masks->kind_count; i++)
      if (&masks->mask[k][i] == mask) return masks->pairs.of[k][i];
  return 0;
}

const struct plm_interval_mask *plm_masks_at(const struct plm_masks *masks, int level, int entry)
{
  PLM_ASSERT(level >= 0 && level < masks->levels);
  PLM_ASSERT(entry >= 0 && (uint32_t)entry < masks->config.pattern_count);
  return &masks->mask[level][masks->slot[entry]];
}
