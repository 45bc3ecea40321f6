/* Open addressing in 256 segments, which the top byte of the first number chooses. */
#include "stages/ingest/pair_table.h"

#include <stdlib.h>

enum { SEGMENTS = 256, START_CAPACITY = 64 };

struct pair {
  uint64_t first, second; /* a slot is free if first is 0 */
};

struct segment {
  struct pair *pairs;
  uint64_t capacity, count;
};

struct plm_pair_table {
  struct segment segments[SEGMENTS];
};

struct plm_pair_table *plm_pair_table_open(void)
{
  return calloc(1, sizeof(struct plm_pair_table));
}

void plm_pair_table_close(struct plm_pair_table *table)
{
  if (table == NULL) return;
  for (int i = 0; i < SEGMENTS; i++) free(table->segments[i].pairs);
  free(table);
}

/* The slot of the pair, or the free slot for it. A segment is never full. */
static struct pair *locate(const struct segment *segment, uint64_t first, uint64_t second)
{
  uint64_t at = (uint64_t)(((unsigned __int128)(first << 8) * segment->capacity) >> 64);
  for (;;) {
    struct pair *pair = &segment->pairs[at];
    if (pair->first == 0) return pair;
    if (pair->first == first && pair->second == second) return pair;
    if (++at == segment->capacity) at = 0;
  }
}

static bool pair_table_grow(struct segment *segment)
{
  const struct segment old = *segment;
  /* Grows by a quarter. A segment is at most 86 % full, and at least 66 % after growing, so a pair
   * takes up to 25 bytes. */
  segment->capacity = old.capacity == 0 ? START_CAPACITY : old.capacity + old.capacity / 4 + 1;
  segment->pairs = calloc(segment->capacity, sizeof *segment->pairs);
  if (segment->pairs == NULL) {
    *segment = old;
    return false;
  }
  for (uint64_t i = 0; i < old.capacity; i++)
    if (old.pairs[i].first != 0)
      *locate(segment, old.pairs[i].first, old.pairs[i].second) = old.pairs[i];
  free(old.pairs);
  return true;
}

plm_status plm_pair_table_add(struct plm_pair_table *table, uint64_t first, uint64_t second,
                              bool *found, struct plm_error *error)
{
  if (first == 0) first = 1; /* 0 marks free slots; merging the hashes 0 and 1 does not matter */
  struct segment *segment = &table->segments[first >> 56];
  if (segment->count >=
          segment->capacity - segment->capacity / 7 - (segment->capacity == 0 ? 0 : 1) &&
      !pair_table_grow(segment))
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %llu hashes",
                         (unsigned long long)plm_pair_table_count(table));
  struct pair *pair = locate(segment, first, second);
  *found = pair->first != 0;
  if (!*found) {
    *pair = (struct pair){first, second};
    segment->count++;
  }
  return PLM_OK;
}

uint64_t plm_pair_table_count(const struct plm_pair_table *table)
{
  uint64_t count = 0;
  for (int i = 0; i < SEGMENTS; i++) count += table->segments[i].count;
  return count;
}
