/* BLAKE2b by libsodium. */
#include "common/proof/proof_hash.h"

#include <endian.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Lets libsodium choose the fastest code for this processor. Without it, the results are the same.
 */
static void choose_code(void)
{
  (void)!sodium_init();
}

void proof_hash(enum proof_tag tag, const void *message, size_t size, uint8_t *out,
                size_t out_bytes)
{
  uint8_t personal[crypto_generichash_blake2b_PERSONALBYTES] = "plm-proof";
  personal[sizeof personal - 1] = (uint8_t)tag;
  pthread_once(&once, choose_code);
  /* it does not fail with valid sizes */
  (void)crypto_generichash_blake2b_salt_personal(out, out_bytes, message, size, NULL, 0, NULL,
                                                 personal);
}

uint8_t *proof_put(uint8_t *at, const void *bytes, size_t size)
{
  memcpy(at, bytes, size);
  return at + size;
}

uint8_t *proof_put_u32(uint8_t *at, uint32_t value)
{
  const uint32_t little = htole32(value);
  return proof_put(at, &little, sizeof little);
}

uint8_t *proof_put_u64(uint8_t *at, uint64_t value)
{
  const uint64_t little = htole64(value);
  return proof_put(at, &little, sizeof little);
}
