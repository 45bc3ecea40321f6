/* Cuts the list of parameters into buckets. */
#include "trainer/ranks/buckets.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/numbers/size.h"
#include "trainer/ranks/held.h"

static const double balance = 1.25;

enum {
  SLICE_ELEMENTS = 32, /* PLM_SLICE_UNIT bytes in bf16 */
  USED_UNIT = 64,      /* bytes; entries of weights begin at multiples */
};

/* What a rank has of the bucket that is being filled. */
struct filled {
  size_t elements, used_bytes;
};

static bool is_balanced(const struct filled *filled, uint32_t ranks)
{
  size_t total = 0, largest = 0;
  for (uint32_t r = 0; r < ranks; r++) {
    total += filled[r].elements;
    if (filled[r].elements > largest) largest = filled[r].elements;
  }
  return (double)largest * ranks <= balance * (double)total;
}

static void end_bucket(struct plm_buckets *buckets, const struct plm_parameter *table, size_t first,
                       size_t count, struct filled *filled, uint32_t ranks)
{
  struct plm_bucket *bucket = &buckets->buckets[buckets->count++];
  *bucket = (struct plm_bucket){.first = first, .count = count};
  for (uint32_t r = 0; r < ranks; r++) {
    if (filled[r].elements > bucket->slice) bucket->slice = filled[r].elements;
    if (filled[r].used_bytes > bucket->used_slice) bucket->used_slice = filled[r].used_bytes;
    filled[r] = (struct filled){0};
  }
  bucket->slice = plm_size_round_up(bucket->slice, SLICE_ELEMENTS);
  bucket->final_at = UINT32_MAX;
  for (size_t i = first; i < first + count; i++) {
    const uint32_t final_at = table[buckets->entries[i].parameter].final_at;
    if (final_at < bucket->final_at) bucket->final_at = final_at;
  }
  if (bucket->slice > buckets->largest_slice) buckets->largest_slice = bucket->slice;
}

static size_t buckets_divide(struct plm_buckets *buckets, const struct plm_bucket_request *request,
                             struct filled *filled)
{
  const struct plm_parameter *table = request->table;
  size_t entries = 0, first = 0;
  for (size_t i = request->count; i-- > 0;) { /* backward */
    const uint32_t owner = request->owners[i];
    if (!plm_has_owner(owner)) continue;
    struct filled *so_far = &filled[owner];
    const size_t used = plm_parameter_used_bytes(&table[i], request->act_bytes);
    buckets->entries[entries++] =
        (struct plm_bucket_entry){i, owner, so_far->elements, so_far->used_bytes};
    so_far->elements += plm_size_round_up(table[i].count, PLM_PARAMETER_ALIGNMENT);
    so_far->used_bytes += plm_size_round_up(used, USED_UNIT);
    if (!is_balanced(filled, request->ranks)) continue;
    end_bucket(buckets, table, first, entries - first, filled, request->ranks);
    first = entries;
  }
  if (entries > first) end_bucket(buckets, table, first, entries - first, filled, request->ranks);
  return entries;
}

static void list_small(struct plm_buckets *buckets, const struct plm_bucket_request *request,
                       size_t entries)
{
  buckets->small = (struct plm_bucket){.first = entries};
  for (size_t i = 0; i < request->count; i++) {
    if (request->owners[i] != PLM_OWNED_BY_ALL) continue;
    buckets->entries[entries++] =
        (struct plm_bucket_entry){i, PLM_OWNED_BY_ALL, buckets->small.slice, 0};
    buckets->small.slice += plm_size_round_up(request->table[i].count, PLM_PARAMETER_ALIGNMENT);
    buckets->small.count++;
  }
  buckets->small.slice = plm_size_round_up(buckets->small.slice, SLICE_ELEMENTS);
}

void plm_buckets_init(struct plm_buckets *buckets, const struct plm_bucket_request *request)
{
  *buckets =
      (struct plm_buckets){.entries = plm_alloc_zeroed(request->count, sizeof *buckets->entries),
                           .buckets = plm_alloc_zeroed(request->count, sizeof *buckets->buckets)};
  struct filled *filled = plm_alloc_zeroed(request->ranks, sizeof *filled);
  const size_t entries = buckets_divide(buckets, request, filled);
  list_small(buckets, request, entries);
  free(filled);
}

void plm_buckets_deinit(struct plm_buckets *buckets)
{
  free(buckets->entries);
  free(buckets->buckets);
  *buckets = (struct plm_buckets){0};
}
