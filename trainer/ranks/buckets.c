/* Cuts the list of parameters into buckets. */
#include "trainer/ranks/buckets.h"

#include <stdlib.h>

#include "common/base/size.h"
#include "trainer/ranks/owners.h"

static const double balance = 1.25;

enum {
  ENTRY_ELEMENTS = 16, /* entries begin at multiples */
  PIECE_ELEMENTS = 32, /* PLM_PIECE_UNIT bytes in bf16 */
};

static bool is_balanced(const size_t *filled, uint32_t ranks)
{
  size_t total = 0, largest = 0;
  for (uint32_t r = 0; r < ranks; r++) {
    total += filled[r];
    if (filled[r] > largest) largest = filled[r];
  }
  return (double)largest * ranks <= balance * (double)total;
}

static void end_bucket(struct plm_buckets *buckets, const struct plm_parameter *table, size_t first,
                       size_t count, size_t *filled, uint32_t ranks)
{
  struct plm_bucket *bucket = &buckets->buckets[buckets->count++];
  *bucket = (struct plm_bucket){.first = first, .count = count};
  for (uint32_t r = 0; r < ranks; r++) {
    if (filled[r] > bucket->piece) bucket->piece = filled[r];
    filled[r] = 0;
  }
  bucket->piece = plm_size_round_up(bucket->piece, PIECE_ELEMENTS);
  bucket->final_at = UINT32_MAX;
  for (size_t i = first; i < first + count; i++) {
    const uint32_t final_at = table[buckets->entries[i].parameter].final_at;
    if (final_at < bucket->final_at) bucket->final_at = final_at;
  }
  if (bucket->piece > buckets->largest_piece) buckets->largest_piece = bucket->piece;
}

static size_t divide(struct plm_buckets *buckets, const struct plm_parameter *table, size_t count,
                     const uint32_t *owners, uint32_t ranks, size_t *filled)
{
  size_t entries = 0, first = 0;
  for (size_t i = count; i-- > 0;) { /* backward */
    if (owners[i] == PLM_OWNED_BY_ALL) continue;
    buckets->entries[entries++] = (struct plm_bucket_entry){i, owners[i], filled[owners[i]]};
    filled[owners[i]] += plm_size_round_up(table[i].count, ENTRY_ELEMENTS);
    if (!is_balanced(filled, ranks)) continue;
    end_bucket(buckets, table, first, entries - first, filled, ranks);
    first = entries;
  }
  if (entries > first) end_bucket(buckets, table, first, entries - first, filled, ranks);
  return entries;
}

static void list_small(struct plm_buckets *buckets, const struct plm_parameter *table, size_t count,
                       const uint32_t *owners, size_t entries)
{
  buckets->small = (struct plm_bucket){.first = entries};
  for (size_t i = 0; i < count; i++) {
    if (owners[i] != PLM_OWNED_BY_ALL) continue;
    buckets->entries[entries++] =
        (struct plm_bucket_entry){i, PLM_OWNED_BY_ALL, buckets->small.piece};
    buckets->small.piece += plm_size_round_up(table[i].count, ENTRY_ELEMENTS);
    buckets->small.count++;
  }
  buckets->small.piece = plm_size_round_up(buckets->small.piece, PIECE_ELEMENTS);
}

plm_status plm_buckets_init(struct plm_buckets *buckets, const struct plm_parameter *table,
                            size_t count, const uint32_t *owners, uint32_t ranks,
                            struct plm_error *error)
{
  *buckets = (struct plm_buckets){.entries = calloc(count, sizeof *buckets->entries),
                                  .buckets = calloc(count, sizeof *buckets->buckets)};
  size_t *filled = calloc(ranks, sizeof *filled);
  if (buckets->entries == NULL || buckets->buckets == NULL || filled == NULL) {
    free(filled);
    plm_buckets_deinit(buckets);
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the buckets of %zu tensors", count);
  }
  const size_t entries = divide(buckets, table, count, owners, ranks, filled);
  list_small(buckets, table, count, owners, entries);
  free(filled);
  return PLM_OK;
}

void plm_buckets_deinit(struct plm_buckets *buckets)
{
  free(buckets->entries);
  free(buckets->buckets);
  *buckets = (struct plm_buckets){0};
}
