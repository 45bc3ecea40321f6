/* Bin packing of a window: best fit decreasing, and next fit. Best fit looks for the chunk with the
 * least room that is sufficient. Rooms are small integers, so a bitmap over them, with a summary
 * bit for each of its words, finds it in a few instructions. */
#include "common/plan/packing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

#define NO_CHUNK UINT32_MAX

void plm_rooms_open(uint32_t capacity, struct plm_rooms *rooms)
{
  const uint32_t word_count = capacity / 64 + 1;
  const uint32_t summary_count = word_count / 64 + 1;
  *rooms = (struct plm_rooms){
      .capacity = capacity, .word_count = word_count, .summary_count = summary_count};
  rooms->first = plm_alloc(((size_t)capacity + 1) * sizeof *rooms->first);
  rooms->words = plm_alloc_zeroed(word_count, sizeof *rooms->words);
  rooms->summary = plm_alloc_zeroed(summary_count, sizeof *rooms->summary);
  rooms->buckets = plm_alloc(((size_t)capacity + 2) * sizeof *rooms->buckets);
}

void plm_rooms_deinit(struct plm_rooms *rooms)
{
  free(rooms->first);
  free(rooms->words);
  free(rooms->summary);
  free(rooms->buckets);
  *rooms = (struct plm_rooms){0};
}

static void rooms_clear(struct plm_rooms *rooms)
{
  memset(rooms->words, 0, rooms->word_count * sizeof *rooms->words);
  memset(rooms->summary, 0, rooms->summary_count * sizeof *rooms->summary);
}

static bool room_exists(const struct plm_rooms *rooms, uint32_t room)
{
  return rooms->words[room / 64] >> (room % 64) & 1;
}

static void room_add(struct plm_rooms *rooms, uint32_t room)
{
  rooms->words[room / 64] |= UINT64_C(1) << (room % 64);
  rooms->summary[room / 4096] |= UINT64_C(1) << (room / 64 % 64);
}

static void room_remove(struct plm_rooms *rooms, uint32_t room)
{
  rooms->words[room / 64] &= ~(UINT64_C(1) << (room % 64));
  if (rooms->words[room / 64] == 0)
    rooms->summary[room / 4096] &= ~(UINT64_C(1) << (room / 64 % 64));
}

/* The bits of word from bit `from` (0..64) upwards. */
static uint64_t bits_from(uint64_t word, uint32_t from)
{
  return from >= 64 ? 0 : word & (~UINT64_C(0) << from);
}

/* The least room >= units (>= 1) that a chunk has; 0 if none has. */
static uint32_t room_find(const struct plm_rooms *rooms, uint32_t units)
{
  uint32_t word = units / 64;
  uint64_t bits = bits_from(rooms->words[word], units % 64);
  if (bits == 0) {
    uint32_t block = word / 64;
    uint64_t later = bits_from(rooms->summary[block], word % 64 + 1);
    while (later == 0) {
      if (++block == rooms->summary_count) return 0;
      later = rooms->summary[block];
    }
    word = block * 64 + (uint32_t)__builtin_ctzll(later);
    bits = rooms->words[word];
  }
  return word * 64 + (uint32_t)__builtin_ctzll(bits);
}

/* Fills order with the items by descending size; items of equal size keep their window order. */
static void sort_descending(struct plm_rooms *rooms, const uint32_t *units, uint32_t count,
                            uint32_t *order)
{
  const uint32_t capacity = rooms->capacity;
  uint32_t *begin = rooms->buckets; /* size u begins at begin[capacity - u] */
  memset(begin, 0, ((size_t)capacity + 2) * sizeof *begin);
  for (uint32_t i = 0; i < count; i++) begin[capacity - units[i] + 1]++;
  for (uint32_t b = 1; b <= capacity; b++) begin[b] += begin[b - 1];
  for (uint32_t i = 0; i < count; i++) order[begin[capacity - units[i]]++] = i;
}

uint32_t plm_pack_best_fit(struct plm_rooms *rooms, const uint32_t *units, uint32_t count,
                           uint32_t *order, uint32_t *next, uint32_t *chunk_of)
{
  uint32_t chunks = 0;
  rooms_clear(rooms);
  sort_descending(rooms, units, count, order);
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t item = order[i], size = units[item];
    uint32_t room = room_find(rooms, size), chunk;
    if (room == 0) {
      chunk = chunks++;
      room = rooms->capacity;
    } else { /* the chunk that reached this room last */
      chunk = rooms->first[room];
      rooms->first[room] = next[chunk];
      if (next[chunk] == NO_CHUNK) room_remove(rooms, room);
    }
    chunk_of[item] = chunk;
    const uint32_t left = room - size;
    if (left == 0) continue;
    next[chunk] = room_exists(rooms, left) ? rooms->first[left] : NO_CHUNK;
    rooms->first[left] = chunk;
    room_add(rooms, left);
  }
  return chunks;
}

uint32_t plm_pack_next_fit(uint32_t capacity, const uint32_t *units, uint32_t count,
                           uint32_t *chunk_of)
{
  uint32_t chunks = 0, room = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (units[i] > room) {
      chunks++;
      room = capacity;
    }
    chunk_of[i] = chunks - 1;
    room -= units[i];
  }
  return chunks;
}

static void rooms_count_add(struct plm_rooms *rooms, uint32_t room, uint32_t chunks)
{
  if (room == 0 || chunks == 0) return;
  rooms->first[room] = chunks + (room_exists(rooms, room) ? rooms->first[room] : 0);
  room_add(rooms, room);
}

static void rooms_count_remove(struct plm_rooms *rooms, uint32_t room, uint32_t chunks)
{
  rooms->first[room] -= chunks;
  if (rooms->first[room] == 0) room_remove(rooms, room);
}

uint64_t plm_pack_best_fit_count(struct plm_rooms *rooms, const uint32_t *histogram)
{
  const uint32_t capacity = rooms->capacity;
  uint64_t chunks = 0;
  rooms_clear(rooms);
  for (uint32_t size = capacity; size >= 1; size--) {
    uint32_t items = histogram[size];
    while (items > 0) {
      /* A chosen chunk remains the best one as long as it has room for another item of this size,
       * so it takes `each` of them. */
      const uint32_t found = room_find(rooms, size);
      const uint32_t room = found ? found : capacity;
      const uint32_t each = room / size;
      uint32_t full = items / each;
      if (found) {
        const uint32_t there = rooms->first[room];
        if (full > there) full = there;
        rooms_count_remove(rooms, room, full);
        rooms_count_add(rooms, room - each * size, full);
        items -= full * each;
        if (items == 0 || full == there) continue;
        rooms_count_remove(rooms, room, 1);
      } else {
        chunks += full;
        rooms_count_add(rooms, room - each * size, full);
        items -= full * each;
        if (items == 0) continue;
        chunks++;
      }
      rooms_count_add(rooms, room - items * size, 1);
      items = 0;
    }
  }
  return chunks;
}
