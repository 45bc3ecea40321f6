/* Packing eight ids of 5 bits into 5 bytes, by steps that join neighbours: 8 times 5 bits become 4
 * times 10, 2 times 20 and once 40. With AVX-512 VBMI, 64 ids are packed at once. Of a group of
 * eight that begins before the first of the tokens, or ends after the last, the others' bits are
 * kept. */
#include "common/wire/token_bits.h"

#include <endian.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { BITS = 5, EIGHT = 8 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens of byte travel as they are");

static atomic_int most = PLM_BITS_FORMS - 1;

/* ---- eight at once ------------------------------------------------------------------------ */

static uint64_t pack_eight(uint64_t x)
{
  x = (x & UINT64_C(0x001f001f001f001f)) | (x & UINT64_C(0x1f001f001f001f00)) >> 3;
  x = (x & UINT64_C(0x000003ff000003ff)) | (x & UINT64_C(0x03ff000003ff0000)) >> 6;
  return (x & UINT64_C(0x00000000000fffff)) | (x & UINT64_C(0x000fffff00000000)) >> 12;
}

static uint64_t unpack_eight(uint64_t x)
{
  x = (x & UINT64_C(0x00000000000fffff)) | (x & UINT64_C(0x000000fffff00000)) << 12;
  x = (x & UINT64_C(0x000003ff000003ff)) | (x & UINT64_C(0x000ffc00000ffc00)) << 6;
  return (x & UINT64_C(0x001f001f001f001f)) | (x & UINT64_C(0x03e003e003e003e0)) << 3;
}

/* Writes the low `count` bits of x at bit `at` of the bytes. */
static void put_bits(uint64_t x, size_t at, size_t count, uint8_t *bytes)
{
  uint64_t own = ((UINT64_C(1) << count) - 1) << at;
  x = x << at & own;
  for (; own != 0; own >>= 8, x >>= 8, bytes++) *bytes = (uint8_t)((*bytes & ~own) | x);
}

/* Up to eight ids, as many as there are of `count`. */
static uint64_t load_ids(const uint8_t *ids, size_t count)
{
  uint64_t x = 0;
  memcpy(&x, ids, count < EIGHT ? count : EIGHT);
  return x;
}

static void unpack_some(const uint8_t *bytes, size_t count, uint8_t *ids)
{
  uint64_t x = 0;
  memcpy(&x, bytes, (count * BITS + 7) / 8);
  x = unpack_eight(x);
  memcpy(ids, &x, count);
}

/* ---- 64 at once --------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi")))
enum { MANY = 64, MANY_BYTES = 40 };
#define MANY_MASK (((__mmask64)1 << MANY_BYTES) - 1)

static bool has_vbmi(void)
{
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi");
}

/* Where each byte of a vector comes from: when 5 bytes become a group of eight (the last three from
 * the vector's last byte, which is 0), and when a group becomes 5 bytes. */
#define SPREAD(group) (UINT64_C(0x3f3f3f0403020100) + UINT64_C(0x0505050505) * (group))
#define GATHER(at) (at), (at) + 1, (at) + 2, (at) + 3, (at) + 4
static const uint64_t spread_places[] = {SPREAD(0), SPREAD(1), SPREAD(2), SPREAD(3),
                                         SPREAD(4), SPREAD(5), SPREAD(6), SPREAD(7)};
static const uint8_t gather_places[MANY] = {GATHER(0),  GATHER(8),  GATHER(16), GATHER(24),
                                            GATHER(32), GATHER(40), GATHER(48), GATHER(56)};

/* Byte i of a group of eight comes from bit 5 i of the group's 40 bits. */
VBMI static size_t unpack_many(const uint8_t *bytes, size_t count, uint8_t *ids)
{
  const __m512i spread = _mm512_loadu_si512(spread_places);
  const __m512i shifts = _mm512_set1_epi64(0x231e19140f0a0500);
  const __m512i low = _mm512_set1_epi8(0x1f);
  size_t done = 0;
  for (; done + MANY <= count; done += MANY, bytes += MANY_BYTES) {
    const __m512i groups =
        _mm512_permutexvar_epi8(spread, _mm512_maskz_loadu_epi8(MANY_MASK, bytes));
    _mm512_storeu_si512(ids + done,
                        _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, groups), low));
  }
  return done;
}

VBMI static void pack_many(const uint8_t *ids, size_t count, uint8_t *bytes)
{
  const __m512i gather = _mm512_loadu_si512(gather_places);
  const __m512i pairs = _mm512_set1_epi16(0x2001), fours = _mm512_set1_epi32(0x04000001);
  for (size_t done = 0; done < count; done += MANY, bytes += MANY_BYTES) {
    const size_t left = count - done < MANY ? count - done : MANY;
    const __mmask64 there = ~(__mmask64)0 >> (MANY - left);
    __m512i x = _mm512_maskz_loadu_epi8(there, ids + done);
    x = _mm512_and_si512(x, _mm512_set1_epi8(0x1f));
    x = _mm512_maddubs_epi16(x, pairs); /* times 1 and 32 */
    x = _mm512_madd_epi16(x, fours);    /* times 1 and 1024 */
    const __m512i high = _mm512_slli_epi64(_mm512_srli_epi64(x, 32), 20);
    x = _mm512_or_si512(_mm512_and_si512(x, _mm512_set1_epi64(0xfffff)), high);
    _mm512_mask_storeu_epi8(bytes, ~(__mmask64)0 >> (MANY - left / EIGHT * BITS),
                            _mm512_permutexvar_epi8(gather, x));
  }
}
#else
static bool has_vbmi(void)
{
  return false;
}

static size_t unpack_many(const uint8_t *bytes, size_t count, uint8_t *ids)
{
  (void)bytes, (void)count, (void)ids;
  return 0;
}

static void pack_many(const uint8_t *ids, size_t count, uint8_t *bytes)
{
  (void)ids, (void)count, (void)bytes;
}
#endif

/* ---- any number --------------------------------------------------------------------------- */

bool plm_token_bits_limit(enum plm_token_bits_form form)
{
  most = form;
  return form < PLM_BITS_VBMI || has_vbmi();
}

static bool many_at_once(void)
{
  return atomic_load_explicit(&most, memory_order_relaxed) >= PLM_BITS_VBMI && has_vbmi();
}

size_t plm_token_bits_size(const struct plm_tokenizer *tokenizer, size_t count)
{
  return tokenizer->token_bytes == 1 ? (count * BITS + 7) / 8 : 2 * count;
}

void plm_token_bits_pack(const struct plm_tokenizer *tokenizer, const void *tokens, size_t at,
                         size_t count, uint8_t *bytes)
{
  const uint8_t *ids = tokens;
  if (tokenizer->token_bytes != 1) {
    memcpy(bytes + 2 * at, tokens, 2 * count);
    return;
  }
  const size_t before = at % EIGHT, last = count < EIGHT ? count : EIGHT;
  const uint64_t last_ids = load_ids(ids + count - last, last);
  bytes += at / EIGHT * BITS;
  if (before > 0) {
    const size_t head = count < EIGHT - before ? count : EIGHT - before;
    put_bits(pack_eight(load_ids(ids, count)), BITS * before, BITS * head, bytes);
    ids += head;
    count -= head;
    bytes += BITS;
  }
  const size_t groups = count / EIGHT, tail = count % EIGHT;
  /* Before the whole groups, because a load that overlaps a recent store waits for it. */
  if (tail > 0)
    put_bits(pack_eight(last_ids >> 8 * (last - tail)), 0, BITS * tail, bytes + groups * BITS);
  if (many_at_once()) {
    pack_many(ids, groups * EIGHT, bytes);
    return;
  }
  for (size_t group = 0; group < groups; group++, ids += EIGHT, bytes += BITS) {
    const uint64_t x = pack_eight(load_ids(ids, EIGHT));
    memcpy(bytes, &x, BITS);
  }
}

void plm_token_bits_begin(const struct plm_tokenizer *tokenizer, size_t count, uint8_t *bytes)
{
  if (tokenizer->token_bytes == 1 && count * BITS % 8 != 0) bytes[count * BITS / 8] = 0;
}

void plm_token_bits_unpack(const struct plm_tokenizer *tokenizer, const uint8_t *bytes,
                           size_t count, void *tokens)
{
  uint8_t *ids = tokens;
  if (tokenizer->token_bytes != 1) {
    memcpy(tokens, bytes, 2 * count);
    return;
  }
  size_t i = many_at_once() ? unpack_many(bytes, count, ids) : 0;
  for (; i + EIGHT <= count; i += EIGHT) unpack_some(bytes + i / EIGHT * BITS, EIGHT, ids + i);
  if (i < count) unpack_some(bytes + i / EIGHT * BITS, count - i, ids + i);
}

bool plm_token_bits_end(const struct plm_tokenizer *tokenizer, const uint8_t *bytes, size_t count)
{
  const size_t used = count * BITS % 8; /* bits of the last byte */
  return tokenizer->token_bytes != 1 || used == 0 || bytes[count * BITS / 8] >> used == 0;
}
