/* The attention weights of single heads: for the query at token i of a sequence
 *
 *   map_ij = exp(s_ij) / sum over the keys j that it sees of exp(s_ij),   s_ij = q_i . k_j /
 * sqrt(K)
 *
 * and 0 for the keys that it does not see. They are computed in fp32 on the host from the queries
 * and keys that the device's attention reads, a tile of rows at a time, so no map needs to exist as
 * a whole. All threads share the tiles; each value depends only on its row, not on the number of
 * threads. */
#ifndef PLM_EVALUATOR_EMBED_ATTENTION_MAP_H
#define PLM_EVALUATOR_EMBED_ATTENTION_MAP_H

#include <stdint.h>

#include "common/base/status.h"

enum { PLM_MAP_TILE = 32 }; /* rows in a tile */

/* Where a sequence's queries and keys of one block lie, and which keys they see. */
struct plm_map_source {
  const float *queries, *keys; /* of its first token and head 0: (tokens) rows of `stride` floats */
  int64_t stride;
  int32_t H, K, tokens;
  const int32_t *key_begin, *key_end; /* (tokens) positions in the chunk; empty: sees no key */
  int32_t first;                      /* the position of its first token in the chunk */
};

struct plm_attention_map;
/* threads >= 1. */
plm_status plm_attention_map_open(uint32_t threads, struct plm_attention_map **map,
                                  struct plm_error *error);
void plm_attention_map_close(struct plm_attention_map *map); /* NULL is fine */

/* Receives rows [row, row + rows) of the map of a head: values has rows of `padded` floats, of
 * which the first `tokens` are the row. Called on any thread; those of one tile in the order of
 * heads. */
typedef void plm_attention_map_take(void *context, int32_t head, int32_t row, int32_t rows,
                                    const float *values, int64_t padded);
/* Computes the maps of heads [head, head + heads) in tiles of PLM_MAP_TILE rows, which begin at
 * multiples of it. PLM_NO_MEMORY. */
plm_status plm_attention_map_run(struct plm_attention_map *map, const struct plm_map_source *source,
                                 int32_t head, int32_t heads, plm_attention_map_take *take,
                                 void *context, struct plm_error *error);

/* left (rows, inner), whose rows have left_stride floats, and right (columns, inner). */
struct plm_map_product {
  const float *left, *right;
  int64_t left_stride, right_stride;
  int32_t rows, columns, inner;
};
/* The product of left and of the transpose of right in tiles of rows, by the same threads and
 * kernel. */
plm_status plm_attention_map_product(struct plm_attention_map *map,
                                     const struct plm_map_product *product,
                                     plm_attention_map_take *take, void *context,
                                     struct plm_error *error);

#endif
