/* The chain is a hash over bytes in a certain order, which other programs compute too. */
#include <string.h>

#include "common/plan/chain.h"
#include "tests/support/harness/cmocka_all.h"

static const struct plm_chunk_document documents[] = {{7, 0, 5, 0, 3}, {9, 8, 6, 2, 40}};
static const uint8_t tokens[] = {0, 5, 6, 7, 2, 1, 1, 1, 4, 4, 4, 4, 4, 4, 1, 1};

/* Appends to the bytes of an independent computation. */
static void put(uint8_t *bytes, size_t *size, const void *more, size_t count)
{
  memcpy(bytes + *size, more, count);
  *size += count;
}

static struct plm_hash expected(bool mixture, struct plm_hash chain, uint64_t g)
{
  uint8_t bytes[512];
  size_t size = 0;
  const uint64_t chunks = 2;
  put(bytes, &size, &chain.low, 8);
  put(bytes, &size, &chain.high, 8);
  put(bytes, &size, &g, 8);
  put(bytes, &size, &chunks, 8);
  for (uint32_t c = 0; c < 2; c++) {
    const uint8_t source = (uint8_t)(3 + c);
    const uint32_t count = 2 - c;
    if (mixture) put(bytes, &size, &source, 1);
    put(bytes, &size, &count, 4);
    for (uint32_t d = 0; d < count; d++) {
      put(bytes, &size, &documents[d].number, 8);
      put(bytes, &size, &documents[d].start, 4);
      put(bytes, &size, &documents[d].tokens, 4);
      put(bytes, &size, &documents[d].offset, 4);
      put(bytes, &size, &documents[d].residues, 4);
    }
    put(bytes, &size, tokens, sizeof tokens - c);
  }
  return plm_hash_bytes(bytes, size);
}

static void a_step_extends_it_by_its_chunks(void **state)
{
  struct plm_hasher *hasher = plm_hasher_open();
  (void)state;
  for (int mixture = 0; mixture < 2; mixture++) {
    struct plm_hash chain = {0, 0};
    for (uint64_t g = 0; g < 3; g++) {
      const struct plm_hash next = expected(mixture, chain, g);
      plm_chain_begin(hasher, chain, g, 2);
      for (uint32_t c = 0; c < 2; c++) {
        const uint8_t source = (uint8_t)(3 + c);
        plm_chain_add(hasher, mixture ? &source : NULL, documents, 2 - c, tokens,
                      sizeof tokens - c);
      }
      chain = plm_hasher_digest(hasher);
      assert_true(plm_hash_equal(chain, next));
    }
  }
  plm_hasher_close(hasher);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_extends_it_by_its_chunks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
