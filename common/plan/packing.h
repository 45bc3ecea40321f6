/* Bin packing of one window. Private to common/plan.
 *
 * Sizes are in units (tokens / alignment, rounded up), 1..capacity. Chunks are numbered in the
 * order in which they are opened.
 *   best fit decreasing: items by descending size, equal ones in window order; each goes where
 *     least room is left over; of chunks with equal room, to the one that came to it last
 *   next fit: items in window order; one that does not fit closes the chunk
 */
#ifndef PLM_COMMON_PLAN_PACKING_H
#define PLM_COMMON_PLAN_PACKING_H

#include <stdint.h>

#include "common/base/status.h"

/* Chunks by the room left in them, with "least room of at least n" in a few word operations.
 * Caller-owned memory; {0} is not valid: _open. */
struct plm_rooms {
  uint32_t capacity;
  uint32_t word_count, summary_count;
  uint32_t *first;   /* (capacity + 1) by room: a chunk (best fit) or how many (counting) */
  uint64_t *words;   /* bit r: some chunk has room r */
  uint64_t *summary; /* bit w: words[w] is not 0 */
  uint32_t *buckets; /* (capacity + 2) for the counting sort */
};
plm_status plm_rooms_open(uint32_t capacity, struct plm_rooms *rooms, struct plm_error *error);
void plm_rooms_deinit(struct plm_rooms *rooms);

/* Assigns chunk_of[i] to each of count items; order and next are scratch of count entries. Returns
 * the number of chunks. */
uint32_t plm_pack_best_fit(struct plm_rooms *rooms, const uint32_t *units, uint32_t count,
                           uint32_t *order, uint32_t *next, uint32_t *chunk_of);
uint32_t plm_pack_next_fit(uint32_t capacity, const uint32_t *units, uint32_t count,
                           uint32_t *chunk_of);

/* How many chunks plm_pack_best_fit would open for histogram[u] items of each size u in
 * 1..capacity: chunks of equal room are interchangeable, so whole runs are placed at once. */
uint64_t plm_pack_best_fit_count(struct plm_rooms *rooms, const uint32_t *histogram);

#endif
