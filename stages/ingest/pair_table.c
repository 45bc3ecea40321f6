/* Open addressing in 256 pieces, which the top byte of the first number chooses. */
#include "stages/ingest/pair_table.h"

#include <stdlib.h>

enum { PIECES = 256, START_CAPACITY = 64 };

struct pair {
  uint64_t first, second; /* a slot is free if first is 0 */
};

struct piece {
  struct pair *pairs;
  uint64_t capacity, count;
};

struct plm_pair_table {
  struct piece pieces[PIECES];
};

struct plm_pair_table *plm_pair_table_open(void)
{
  return calloc(1, sizeof(struct plm_pair_table));
}

void plm_pair_table_close(struct plm_pair_table *table)
{
  if (table == NULL) return;
  for (int i = 0; i < PIECES; i++) free(table->pieces[i].pairs);
  free(table);
}

/* The slot of the pair, or the free slot for it. A piece is never full. */
static struct pair *locate(const struct piece *piece, uint64_t first, uint64_t second)
{
  uint64_t at = (uint64_t)(((unsigned __int128)(first << 8) * piece->capacity) >> 64);
  for (;;) {
    struct pair *pair = &piece->pairs[at];
    if (pair->first == 0) return pair;
    if (pair->first == first && pair->second == second) return pair;
    if (++at == piece->capacity) at = 0;
  }
}

static bool grow(struct piece *piece)
{
  const struct piece old = *piece;
  /* Grows by a quarter. A piece is at most 86 % full, and at least 66 % after growing, so a pair
   * takes up to 25 bytes. */
  piece->capacity = old.capacity == 0 ? START_CAPACITY : old.capacity + old.capacity / 4 + 1;
  piece->pairs = calloc(piece->capacity, sizeof *piece->pairs);
  if (piece->pairs == NULL) {
    *piece = old;
    return false;
  }
  for (uint64_t i = 0; i < old.capacity; i++)
    if (old.pairs[i].first != 0)
      *locate(piece, old.pairs[i].first, old.pairs[i].second) = old.pairs[i];
  free(old.pairs);
  return true;
}

plm_status plm_pair_table_add(struct plm_pair_table *table, uint64_t first, uint64_t second,
                              bool *found, struct plm_error *error)
{
  if (first == 0) first = 1; /* 0 marks free slots; merging the hashes 0 and 1 does not matter */
  struct piece *piece = &table->pieces[first >> 56];
  if (piece->count >= piece->capacity - piece->capacity / 7 - (piece->capacity == 0 ? 0 : 1) &&
      !grow(piece))
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %llu hashes",
                         (unsigned long long)plm_pair_table_count(table));
  struct pair *pair = locate(piece, first, second);
  *found = pair->first != 0;
  if (!*found) {
    *pair = (struct pair){first, second};
    piece->count++;
  }
  return PLM_OK;
}

uint64_t plm_pair_table_count(const struct plm_pair_table *table)
{
  uint64_t count = 0;
  for (int i = 0; i < PIECES; i++) count += table->pieces[i].count;
  return count;
}
