/* Residues to tokens. A byte of a protein corpus lies in 0x20..0x5f (letters, '.', '-'), so four
 * shuffles of sixteen ids, one for each high half of the byte, look up 32 residues at once. Byte
 * corpora are widened. */
#include "common/plan/translate.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static void esm_portable(const struct plm_translator *translator, const uint8_t *in, size_t count,
                         void *out)
{
  uint8_t *ids = out;
  for (size_t i = 0; i < count; i++) ids[i] = translator->ids[in[i]];
}

static void byte_portable(const struct plm_translator *translator, const uint8_t *in, size_t count,
                          void *out)
{
  uint16_t *ids = out;
  (void)translator; /* the id of a byte is the byte */
  for (size_t i = 0; i < count; i++) ids[i] = in[i];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static inline __m256i lookup(const __m256i rows[4], __m256i unknown,
                                                             __m256i bytes)
{
  const __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi8(0x0f));
  const __m256i high = _mm256_and_si256(bytes, _mm256_set1_epi8((char)0xf0));
  __m256i ids = unknown;
  for (int row = 0; row < 4; row++) {
    const __m256i here = _mm256_cmpeq_epi8(high, _mm256_set1_epi8((char)((row + 2) << 4)));
    ids = _mm256_blendv_epi8(ids, _mm256_shuffle_epi8(rows[row], low), here);
  }
  return ids;
}

__attribute__((target("avx2"))) static void esm_avx2(const struct plm_translator *translator,
                                                     const uint8_t *in, size_t count, void *out)
{
  uint8_t *ids = out;
  if (count < 32) {
    esm_portable(translator, in, count, out);
    return;
  }
  const __m256i unknown = _mm256_set1_epi8((char)translator->tokenizer->unk);
  __m256i rows[4];
  for (int row = 0; row < 4; row++)
    rows[row] = _mm256_broadcastsi128_si256(
        _mm_loadu_si128((const __m128i *)(const void *)translator->rows[row]));
  for (size_t i = 0; i + 32 <= count; i += 32)
    _mm256_storeu_si256(
        (__m256i *)(void *)(ids + i),
        lookup(rows, unknown, _mm256_loadu_si256((const __m256i *)(const void *)(in + i))));
  /* the rest, overlapping what was done */
  const size_t last = count - 32;
  _mm256_storeu_si256(
      (__m256i *)(void *)(ids + last),
      lookup(rows, unknown, _mm256_loadu_si256((const __m256i *)(const void *)(in + last))));
}

__attribute__((target("avx2"))) static void byte_avx2(const struct plm_translator *translator,
                                                      const uint8_t *in, size_t count, void *out)
{
  uint16_t *ids = out;
  size_t i = 0;
  for (; i + 16 <= count; i += 16)
    _mm256_storeu_si256(
        (__m256i *)(void *)(ids + i),
        _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(in + i))));
  byte_portable(translator, in + i, count - i, ids + i);
}
#endif

void plm_translator_init_portable(struct plm_translator *translator, enum plm_tokenizer_kind kind)
{
  memset(translator, 0, sizeof *translator);
  translator->tokenizer = plm_tokenizer_of(kind);
  if (kind == PLM_TOKENIZER_BYTE) {
    translator->residues = byte_portable;
    return;
  }
  translator->residues = esm_portable;
  for (int byte = 0; byte < 256; byte++)
    translator->ids[byte] = (uint8_t)plm_tokenizer_encode(translator->tokenizer, (uint8_t)byte);
  memcpy(translator->rows, translator->ids + 0x20, sizeof translator->rows);
}

void plm_translator_init(struct plm_translator *translator, enum plm_tokenizer_kind kind)
{
  plm_translator_init_portable(translator, kind);
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) return;
  if (kind == PLM_TOKENIZER_BYTE) {
    translator->residues = byte_avx2;
    return;
  }
  for (int byte = 0; byte < 256; byte++) /* what the rows do not hold must be unknown */
    if ((byte < 0x20 || byte >= 0x60) && translator->ids[byte] != translator->tokenizer->unk)
      return;
  translator->residues = esm_avx2;
#endif
}
