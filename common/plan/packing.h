/* Bin packing of one window. Private to common/plan.
 *
 * Sizes are in units of `alignment` tokens, rounded up, from 1 to capacity. Chunks are numbered in
 * the order in which they are opened.
 *
 * Best fit takes items by descending size, and items of equal size in window order. Each goes to
 * the chunk with the least room that is sufficient; if there are several, to the one that reached
 * this room last.
 *
 * Next fit takes items in window order. An item that does not fit closes the chunk.
 */
#ifndef PLM_COMMON_PLAN_PACKING_H
#define PLM_COMMON_PLAN_PACKING_H

#include <stdint.h>

#include "common/base/status.h"

/* Chunks by the room that is left in them. A few word operations find the least room >= n. */
struct plm_rooms {
  uint32_t capacity;
  uint32_t word_count, summary_count;
  /* (capacity + 1): for each room, a chunk that has it; when only counting, how many chunks do. */
  uint32_t *first;
  uint64_t *words;   /* bit r: a chunk has room r */
  uint64_t *summary; /* bit w: words[w] is not 0 */
  uint32_t *buckets; /* (capacity + 2) for the counting sort */
};
void plm_rooms_open(uint32_t capacity, struct plm_rooms *rooms);
void plm_rooms_deinit(struct plm_rooms *rooms);

/* Sets chunk_of[i] for each of `count` items of units[i]; order and next are scratch of count
 * entries each. Returns the number of chunks. */
uint32_t plm_pack_best_fit(struct plm_rooms *rooms, const uint32_t *units, uint32_t count,
                           uint32_t *order, uint32_t *next, uint32_t *chunk_of);
uint32_t plm_pack_next_fit(uint32_t capacity, const uint32_t *units, uint32_t count,
                           uint32_t *chunk_of);

/* The number of chunks that plm_pack_best_fit opens for histogram[u] items of each size u from 1 to
 * capacity. Chunks with equal room are interchangeable, so many items are placed at once. */
uint64_t plm_pack_best_fit_count(struct plm_rooms *rooms, const uint32_t *histogram);

#endif
