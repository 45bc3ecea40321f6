/* Statistics of a corpus: lengths, composition, entropy. */
#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/corpus/corpus_format.h"
#include "common/corpus/tokenizer.h"

void plm_corpus_count_length(struct plm_corpus_split *split, uint64_t length)
{
  PLM_ASSERT(length != 0 && length <= PLM_DOCUMENT_LIMIT);
  if (split->documents == 0 || length < split->length_min) split->length_min = length;
  if (length > split->length_max) split->length_max = length;
  split->documents++;
  split->residues += length;
  split->histogram[63 - __builtin_clzll(length)]++;
}

/* Adds to totals[byte] how often each byte occurs. Eight bytes are loaded at once and counted in
 * eight tables, because increments of the same counter would have to wait for each other. */
static void count_any(const uint8_t *bytes, size_t size, uint64_t totals[256])
{
  enum { TABLES = 8, BLOCK = 1 << 30 }; /* a block cannot overflow 32 bits */
  uint32_t counts[TABLES][256];
  while (size != 0) {
    const size_t block = size < BLOCK ? size : BLOCK;
    size_t i = 0;
    memset(counts, 0, sizeof counts);
    for (; i + TABLES <= block; i += TABLES) {
      uint64_t word;
      memcpy(&word, bytes + i, sizeof word);
#pragma GCC unroll 8
      for (int t = 0; t < TABLES; t++) counts[t][word >> (8 * t) & 255]++;
    }
    for (; i < block; i++) counts[0][bytes[i]]++;
    for (int t = 0; t < TABLES; t++)
      for (int byte = 0; byte < 256; byte++) totals[byte] += counts[t][byte];
    bytes += block;
    size -= block;
  }
}

#if defined(__x86_64__)
enum { TOGETHER = 7, ROUNDS = 255 /* of 32 bytes, before a count could overflow a byte */ };

/* Adds the counts of seven bytes, in at most ROUNDS vectors, to totals. */
__attribute__((target("avx2"))) static void count_seven(const uint8_t *bytes, size_t vectors,
                                                        const char *which, uint64_t totals[256])
{
  __m256i wanted[TOGETHER], counts[TOGETHER];
#pragma GCC unroll 7
  for (int t = 0; t < TOGETHER; t++) {
    wanted[t] = _mm256_set1_epi8(which[t]);
    counts[t] = _mm256_setzero_si256();
  }
  for (size_t i = 0; i < vectors; i++) {
    const __m256i here = _mm256_loadu_si256((const __m256i *)(const void *)(bytes + 32 * i));
#pragma GCC unroll 7
    for (int t = 0; t < TOGETHER; t++)
      counts[t] = _mm256_sub_epi8(counts[t], _mm256_cmpeq_epi8(here, wanted[t]));
  }
#pragma GCC unroll 7
  for (int t = 0; t < TOGETHER; t++) {
    uint64_t sums[4];
    _mm256_storeu_si256((__m256i *)(void *)sums,
                        _mm256_sad_epu8(counts[t], _mm256_setzero_si256()));
    totals[(uint8_t)which[t]] += sums[0] + sums[1] + sums[2] + sums[3];
  }
}

/* The same for residues with AVX2: counts each letter in turn, over bytes that stay in the
 * first-level cache. All other bytes are counted as NUL, because they become <unk> just as NUL
 * does.
 */
static void count_protein(const uint8_t *bytes, size_t size, uint64_t totals[256])
{
  static const char letters[] = "LAGVSERTIDPKQNFYMHWCXBUZO.-_";
  uint64_t whole[256] = {0}, known = 0;
  const size_t vectors = size / 32;
  for (size_t done = 0; done < vectors; done += ROUNDS)
    for (size_t l = 0; l < sizeof letters - 1; l += TOGETHER)
      count_seven(bytes + 32 * done, vectors - done < ROUNDS ? vectors - done : ROUNDS, letters + l,
                  whole);
  for (int byte = 0; byte < 256; byte++) known += whole[byte];
  whole[0] = 32 * vectors - known;
  for (int byte = 0; byte < 256; byte++) totals[byte] += whole[byte];
  count_any(bytes + 32 * vectors, size % 32, totals);
}

#define BIT_PLANES \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vbmi,avx512vpopcntdq,gfni")))

static bool has_bit_planes(void)
{
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vpopcntdq") &&
         __builtin_cpu_supports("gfni");
}

/* The same with AVX-512: 64 bytes are transposed into eight words of 64 bits; word j holds bit j of
 * each byte. A letter occurs where all words agree with its bits. The low five bits distinguish the
 * bytes 0x40..0x5f: lane l of sums[g] counts 0x40 + 8 g + l. */
BIT_PLANES static void count_bit_planes(const uint8_t *bytes, size_t size, uint64_t totals[256])
{
  const __m512i lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i one_bit_each = _mm512_set1_epi64((long long)0x8040201008040201);
  uint8_t transposed[64];
  for (int i = 0; i < 64; i++) transposed[i] = (uint8_t)(i % 8 * 8 + i / 8);
  const __m512i order = _mm512_loadu_si512(transposed);
  __m512i unlike[3], sums[4]; /* unlike[j]: all ones in lanes whose number has bit j clear */
  for (int j = 0; j < 3; j++)
    unlike[j] =
        _mm512_movm_epi64((__mmask8)~_mm512_test_epi64_mask(lane, _mm512_set1_epi64(1 << j)));
  for (int g = 0; g < 4; g++) sums[g] = _mm512_setzero_si512();
  for (; size >= 64; bytes += 64, size -= 64) {
    const __m512i here = _mm512_loadu_si512(bytes);
    const __m512i high = _mm512_and_si512(here, _mm512_set1_epi8((char)0xe0));
    if (_mm512_cmpneq_epi8_mask(high, _mm512_set1_epi8(0x40)) != 0) {
      for (int i = 0; i < 64; i++)
        totals[bytes[i]]++; /* a byte outside 0x40..0x5f, such as a gap, is rare */
      continue;
    }
    const __m512i planes =
        _mm512_permutexvar_epi8(order, _mm512_gf2p8affine_epi64_epi8(one_bit_each, here, 0));
    __m512i bit[5];
    for (int j = 0; j < 5; j++) bit[j] = _mm512_permutexvar_epi64(_mm512_set1_epi64(j), planes);
    for (int j = 0; j < 3; j++) bit[j] = _mm512_xor_si512(bit[j], unlike[j]);
    const __m512i low = _mm512_ternarylogic_epi64(bit[0], bit[1], bit[2], 0x80); /* all three */
    const __m512i found[4] = {_mm512_ternarylogic_epi64(low, bit[3], bit[4], 0x10),
                              _mm512_ternarylogic_epi64(low, bit[3], bit[4], 0x40),
                              _mm512_ternarylogic_epi64(low, bit[3], bit[4], 0x20),
                              _mm512_ternarylogic_epi64(low, bit[3], bit[4], 0x80)};
    for (int g = 0; g < 4; g++) sums[g] = _mm512_add_epi64(sums[g], _mm512_popcnt_epi64(found[g]));
  }
  for (int g = 0; g < 4; g++) {
    uint64_t counts[8];
    _mm512_storeu_si512(counts, sums[g]);
    for (int l = 0; l < 8; l++) totals[0x40 + 8 * g + l] += counts[l];
  }
  for (size_t i = 0; i < size; i++) totals[bytes[i]]++;
}
#endif

bool plm_corpus_count_residues_form(enum plm_tokenizer_kind tokenizer, enum plm_count_form form,
                                    const uint8_t *residues, size_t size, uint64_t composition[512])
{
  uint64_t totals[256] = {0};
  if (form == PLM_COUNT_ANY) count_any(residues, size, totals);
#if defined(__x86_64__)
  else if (form == PLM_COUNT_AVX2 && tokenizer == PLM_TOKENIZER_ESM &&
           __builtin_cpu_supports("avx2"))
    count_protein(residues, size, totals);
  else if (form == PLM_COUNT_BIT_PLANES && tokenizer == PLM_TOKENIZER_ESM && has_bit_planes())
    count_bit_planes(residues, size, totals);
#endif
  else
    return false;
  const struct plm_tokenizer *table = plm_tokenizer_of(tokenizer);
  for (uint32_t byte = 0; byte < 256; byte++)
    composition[plm_tokenizer_encode(table, (uint8_t)byte)] += totals[byte];
  return true;
}

void plm_corpus_count_residues(enum plm_tokenizer_kind tokenizer, const uint8_t *residues,
                               size_t size, uint64_t composition[512])
{
  int form = PLM_COUNT_FORMS - 1;
  while (!plm_corpus_count_residues_form(tokenizer, (enum plm_count_form)form, residues, size,
                                         composition))
    form--;
}

double plm_composition_entropy(const uint64_t *counts, size_t count)
{
  double total = 0.0, entropy = 0.0;
  for (size_t i = 0; i < count; i++) total += (double)counts[i];
  for (size_t i = 0; i < count; i++) {
    if (counts[i] == 0) continue;
    const double share = (double)counts[i] / total;
    entropy -= share * log(share);
  }
  return entropy;
}

void plm_corpus_info_finish(struct plm_corpus_info *info)
{
  uint64_t all[512] = {0};
  for (int s = 0; s < PLM_SPLIT_COUNT; s++)
    for (int id = 0; id < 512; id++) all[id] += info->splits[s].composition[id];
  info->entropy = plm_composition_entropy(all, 512);
}
