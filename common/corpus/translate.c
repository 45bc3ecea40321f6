/* Residues to tokens. The residues of a protein corpus (letters, '.', '-') are bytes from 0x20 to
 * 0x5f. With AVX2, four shuffles of sixteen ids, one for each high half of a byte, look up 32
 * residues at once; with AVX-512 VBMI, one permutation of 64 ids looks up 64. In a byte
 * corpus, each byte is its own id and is only widened. */
#include "common/corpus/translate.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/base/status.h"

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
  /* The rest is covered by the last 32 residues; some of them are translated twice. */
  const size_t last = count - 32;
  _mm256_storeu_si256(
      (__m256i *)(void *)(ids + last),
      lookup(rows, unknown, _mm256_loadu_si256((const __m256i *)(const void *)(in + last))));
}

#define VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi")))

/* translator->rows has the ids of the bytes 0x20..0x5f in their order. The permutation's index is
 * the low six bits of a byte, which puts 0x40..0x5f first. */
VBMI static void esm_vbmi(const struct plm_translator *translator, const uint8_t *in, size_t count,
                          void *out)
{
  uint8_t *ids = out;
  const __m512i unknown = _mm512_set1_epi8((char)translator->tokenizer->unk);
  __m512i table = _mm512_loadu_si512(translator->rows);
  table = _mm512_shuffle_i64x2(table, table, 0x4e); /* swaps the halves */
  for (size_t i = 0; i < count; i += 64) {
    const size_t left = count - i;
    const __mmask64 there = left < 64 ? ((__mmask64)1 << left) - 1 : ~(__mmask64)0;
    const __m512i bytes = _mm512_maskz_loadu_epi8(there, in + i);
    const __mmask64 known = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(bytes, _mm512_set1_epi8(0x20)),
                                                   _mm512_set1_epi8(0x40));
    _mm512_mask_storeu_epi8(ids + i, there,
                            _mm512_mask_permutexvar_epi8(unknown, known, bytes, table));
  }
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

#if defined(__x86_64__)
/* The vector forms translate every byte outside the rows to <unk>. */
static void check_rows(const struct plm_translator *translator)
{
  for (int byte = 0; byte < 256; byte++)
    if (byte < 0x20 || byte >= 0x60)
      PLM_ASSERT(translator->ids[byte] == translator->tokenizer->unk);
}
#endif

bool plm_translator_init_form(struct plm_translator *translator, enum plm_tokenizer_kind kind,
                              enum plm_translator_form form)
{
  memset(translator, 0, sizeof *translator);
  translator->tokenizer = plm_tokenizer_of(kind);
  const bool esm = kind == PLM_TOKENIZER_ESM;
  for (int byte = 0; esm && byte < 256; byte++)
    translator->ids[byte] = (uint8_t)plm_tokenizer_encode(translator->tokenizer, (uint8_t)byte);
  memcpy(translator->rows, translator->ids + 0x20, sizeof translator->rows);
  translator->residues = esm ? esm_portable : byte_portable;
  if (form == PLM_TRANSLATE_PORTABLE) return true;
#if defined(__x86_64__)
  if (form == PLM_TRANSLATE_AVX2 && __builtin_cpu_supports("avx2")) {
    translator->residues = esm ? esm_avx2 : byte_avx2;
    if (esm) check_rows(translator);
    return true;
  }
  if (form == PLM_TRANSLATE_VBMI && __builtin_cpu_supports("avx512vbmi") &&
      __builtin_cpu_supports("avx512bw") && esm) {
    translator->residues = esm_vbmi;
    check_rows(translator);
    return true;
  }
#endif
  return false;
}

void plm_translator_init(struct plm_translator *translator, enum plm_tokenizer_kind kind)
{
  int form = PLM_TRANSLATE_FORMS - 1;
  while (!plm_translator_init_form(translator, kind, (enum plm_translator_form)form)) form--;
}
