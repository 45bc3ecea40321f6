/* XXH3 by libxxhash. */
#include "common/base/numbers/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/alloc.h"
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <immintrin.h>
#include <xxh_x86dispatch.h> /* chooses AVX2 or AVX-512 at run time for the functions below */

/* libxxhash may leave the upper halves of the vector registers dirty (AVX-512 in 0.8.1 does), which
 * slows down all SSE code that follows. */
__attribute__((target("avx"))) static void clear_upper_halves(void)
{
  _mm256_zeroupper();
}

static void after_vectors(void)
{
  if (__builtin_cpu_supports("avx")) clear_upper_halves();
}
#else
static void after_vectors(void)
{
}
#endif

enum { STATE_BYTES = 576 /* of an XXH3_state_t, which is opaque */ };

struct plm_hasher {
  XXH3_state_t *state;
};

static struct plm_hash from_xxh(XXH128_hash_t hash)
{
  return (struct plm_hash){hash.low64, hash.high64};
}

struct plm_hasher *plm_hasher_open(void)
{
  struct plm_hasher *hasher = plm_alloc(sizeof *hasher);
  while ((hasher->state = XXH3_createState()) == NULL) plm_alloc_lacks(1, STATE_BYTES);
  plm_hasher_reset(hasher);
  return hasher;
}

void plm_hasher_reset(struct plm_hasher *hasher)
{
  XXH3_128bits_reset(hasher->state);
}

void plm_hasher_update(struct plm_hasher *hasher, const void *bytes, size_t size)
{
  XXH3_128bits_update(hasher->state, bytes, size);
  after_vectors();
}

struct plm_hash plm_hasher_digest(const struct plm_hasher *hasher)
{
  return from_xxh(XXH3_128bits_digest(hasher->state));
}

void plm_hasher_close(struct plm_hasher *hasher)
{
  if (hasher == NULL) return;
  XXH3_freeState(hasher->state);
  free(hasher);
}

struct plm_hash plm_hash_bytes(const void *bytes, size_t size)
{
  const XXH128_hash_t hash = XXH3_128bits(bytes, size);
  after_vectors();
  return from_xxh(hash);
}

uint64_t plm_hash64_bytes(const void *bytes, size_t size)
{
  const XXH64_hash_t hash = XXH3_64bits(bytes, size);
  after_vectors();
  return hash;
}

uint32_t plm_hash32_name(const char *name)
{
  return XXH32(name, strlen(name), 0);
}

bool plm_hash_equal(struct plm_hash a, struct plm_hash b)
{
  return a.low == b.low && a.high == b.high;
}

bool plm_hash_known(struct plm_hash hash)
{
  return hash.low != 0 || hash.high != 0;
}

void plm_hash_to_hex(struct plm_hash hash, char hex[PLM_HASH_HEX_SIZE])
{
  snprintf(hex, PLM_HASH_HEX_SIZE, "%016llx%016llx", (unsigned long long)hash.high,
           (unsigned long long)hash.low);
}

static bool parse_half(const char *digits, uint64_t *value)
{
  *value = 0;
  for (int i = 0; i < 16; i++) {
    const char c = digits[i];
    unsigned digit;
    if (c >= '0' && c <= '9')
      digit = (unsigned)(c - '0');
    else if (c >= 'a' && c <= 'f')
      digit = (unsigned)(c - 'a') + 10;
    else
      return false;
    *value = *value << 4 | digit;
  }
  return true;
}

plm_status plm_hash_from_hex(const char *hex, struct plm_hash *hash, struct plm_error *error)
{
  if (strlen(hex) != 32 || !parse_half(hex, &hash->high) || !parse_half(hex + 16, &hash->low))
    return plm_error_set(error, PLM_FORMAT, "\"%.40s\" is not a hash of 32 hex digits", hex);
  return PLM_OK;
}
