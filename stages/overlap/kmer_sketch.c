/* Sketches of sequences, in memory that does not grow with their length. */
#include "stages/overlap/kmer_sketch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1024 };

/* The finaliser of MurmurHash3 (Appleby), which mixes every bit of a word into every bit. */
static uint32_t mix(uint64_t word)
{
  word ^= word >> 33;
  word *= 0xFF51AFD7ED558CCDu;
  word ^= word >> 33;
  word *= 0xC4CEB9FE1A85EC53u;
  word ^= word >> 33;
  return (uint32_t)word;
}

static int kmer_sketch_ascending(const void *left, const void *right)
{
  const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
  return (a > b) - (a < b);
}

/* Sorts the hashes, removes repetitions, and keeps the smallest. */
static uint32_t kmer_sketch_compact(uint32_t *hashes, uint32_t count)
{
  uint32_t kept = 0;
  qsort(hashes, count, sizeof *hashes, kmer_sketch_ascending);
  for (uint32_t i = 0; i < count && kept < PLM_SKETCH_SIZE; i++)
    if (kept == 0 || hashes[i] != hashes[kept - 1]) hashes[kept++] = hashes[i];
  return kept;
}

void plm_kmer_sketch(const uint8_t *letters, size_t length, struct plm_kmer_sketch *sketch)
{
  uint32_t buffer[BUFFER], count = 0, bound = UINT32_MAX;
  const uint64_t word_mask = ((uint64_t)1 << (8 * PLM_SKETCH_KMER)) - 1;
  uint64_t word = 0;
  for (size_t i = 0; i < length; i++) {
    word = (word << 8 | letters[i]) & word_mask;
    if (i + 1 < PLM_SKETCH_KMER) continue;
    const uint32_t hash = mix(word);
    if (hash > bound) continue;
    buffer[count++] = hash;
    if (count < BUFFER) continue;
    count = kmer_sketch_compact(buffer, count);
    if (count == PLM_SKETCH_SIZE) bound = buffer[count - 1];
  }
  sketch->count = kmer_sketch_compact(buffer, count);
  memcpy(sketch->hashes, buffer, sketch->count * sizeof *buffer);
}

double plm_kmer_jaccard(const struct plm_kmer_sketch *a, const struct plm_kmer_sketch *b)
{
  uint32_t i = 0, j = 0, all = 0, common = 0;
  if (a->count == 0 || b->count == 0) return 0;
  while (all < PLM_SKETCH_SIZE && (i < a->count || j < b->count)) {
    const uint64_t x = i < a->count ? a->hashes[i] : UINT64_MAX;
    const uint64_t y = j < b->count ? b->hashes[j] : UINT64_MAX;
    common += x == y;
    i += x <= y;
    j += y <= x;
    all++;
  }
  return (double)common / all;
}

double plm_kmer_sequence_identity(double jaccard)
{
  return pow(2 * jaccard / (1 + jaccard), 1.0 / PLM_SKETCH_KMER);
}

double plm_kmer_jaccard_at(double sequence_identity)
{
  const double share = pow(sequence_identity, PLM_SKETCH_KMER);
  return share / (2 - share);
}
