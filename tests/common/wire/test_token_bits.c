/* Packed tokens: every form gives the bytes that the rule says, and back. */
#include "common/wire/token_bits.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

enum { MOST = 300 };

static uint8_t id_of(size_t i)
{
  return (uint8_t)((i * i / 3 + 7 * i) % 32);
}

static void pack(const struct plm_tokenizer *tokenizer, const void *tokens, size_t count,
                 uint8_t *bytes)
{
  plm_token_bits_begin(tokenizer, count, bytes);
  plm_token_bits_pack(tokenizer, tokens, 0, count, bytes);
}

/* Token i has bits 5 i to 5 i + 4 of the bytes, counted from the lowest of each. No form takes more
 * than the low 5 bits of an id. */
static void tokens_have_their_bits(void **state)
{
  (void)state;
  const struct plm_tokenizer *esm = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  for (int form = 0; form < PLM_BITS_FORMS; form++) {
    if (!plm_token_bits_limit((enum plm_token_bits_form)form)) {
      print_message("not tested: this processor does not have form %d (AVX-512 VBMI)\n", form);
      continue;
    }
    for (size_t count = 0; count <= MOST; count++) {
      const size_t size = plm_token_bits_size(esm, count);
      /* exactly as long as they are, so that an access beyond them is found */
      uint8_t *tokens = must(malloc(count + (count == 0)));
      uint8_t *bytes = must(malloc(size + (size == 0)));
      uint8_t *back = must(malloc(count + (count == 0)));
      for (size_t i = 0; i < count; i++) tokens[i] = (uint8_t)(id_of(i + count) | i << 5);
      assert_int_equal(size, (5 * count + 7) / 8);
      pack(esm, tokens, count, bytes);
      for (size_t bit = 0; bit < 8 * size; bit++)
        assert_int_equal(bytes[bit / 8] >> bit % 8 & 1,
                         bit < 5 * count ? tokens[bit / 5] >> bit % 5 & 1 : 0);
      assert_true(plm_token_bits_end(esm, bytes, count));
      plm_token_bits_unpack(esm, bytes, count, back);
      for (size_t i = 0; i < count; i++) assert_int_equal(back[i], tokens[i] & 31);
      free(tokens);
      free(bytes);
      free(back);
    }
  }
  (void)plm_token_bits_limit(PLM_BITS_FORMS - 1);
}

static void the_bits_after_the_last_token_are_zeros(void **state)
{
  (void)state;
  const struct plm_tokenizer *esm = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  uint8_t tokens[MOST], bytes[MOST];
  for (size_t i = 0; i < MOST; i++) tokens[i] = id_of(i);
  for (size_t count = 1; count < 140; count++) {
    pack(esm, tokens, count, bytes);
    for (size_t bit = 5 * count; bit < 8 * plm_token_bits_size(esm, count); bit++) {
      bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
      assert_false(plm_token_bits_end(esm, bytes, count));
      bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
  }
}

/* Parts of a stream that are packed from the last to the first, or from the first to the last,
 * leave each other's bits. */
static void parts_are_packed_in_any_order(void **state)
{
  (void)state;
  const struct plm_tokenizer *esm = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  uint8_t tokens[MOST];
  for (size_t i = 0; i < MOST; i++) tokens[i] = id_of(i);
  for (int form = 0; form < PLM_BITS_FORMS; form++) {
    if (!plm_token_bits_limit((enum plm_token_bits_form)form)) continue;
    for (size_t part = 1; part <= 90; part++)
      for (size_t count = MOST - 9; count <= MOST; count++)
        for (int backwards = 0; backwards < 2; backwards++) {
          const size_t size = plm_token_bits_size(esm, count), parts = (count - 1) / part + 1;
          uint8_t *bytes = must(malloc(size)), *expected = must(malloc(size));
          memset(bytes, 0xa5, size); /* as another window left them */
          pack(esm, tokens, count, expected);
          plm_token_bits_begin(esm, count, bytes);
          for (size_t p = 0; p < parts; p++) {
            const size_t at = part * (backwards ? parts - 1 - p : p);
            plm_token_bits_pack(esm, tokens + at, at, count - at < part ? count - at : part, bytes);
          }
          assert_memory_equal(bytes, expected, size);
          plm_token_bits_pack(esm, tokens, count, 0, bytes); /* none */
          assert_memory_equal(bytes, expected, size);
          free(bytes);
          free(expected);
        }
  }
  (void)plm_token_bits_limit(PLM_BITS_FORMS - 1);
}

static void tokens_of_byte_have_two_bytes(void **state)
{
  (void)state;
  const struct plm_tokenizer *byte = plm_tokenizer_of(PLM_TOKENIZER_BYTE);
  static const uint16_t tokens[] = {256, 'a', 0, 255, 258, 65535};
  static const uint8_t expected[] = {0, 1, 'a', 0, 0, 0, 255, 0, 2, 1, 255, 255};
  uint8_t bytes[sizeof tokens];
  uint16_t back[6];
  assert_int_equal(plm_token_bits_size(byte, 6), sizeof expected);
  pack(byte, tokens, 6, bytes);
  assert_memory_equal(bytes, expected, sizeof expected);
  assert_true(plm_token_bits_end(byte, bytes, 6));
  memset(bytes, 0xa5, sizeof bytes);
  plm_token_bits_pack(byte, tokens + 4, 4, 2, bytes); /* in parts, the last first */
  plm_token_bits_pack(byte, tokens, 0, 4, bytes);
  assert_memory_equal(bytes, expected, sizeof expected);
  plm_token_bits_unpack(byte, bytes, 6, back);
  assert_memory_equal(back, tokens, sizeof tokens);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_have_their_bits),
      cmocka_unit_test(the_bits_after_the_last_token_are_zeros),
      cmocka_unit_test(parts_are_packed_in_any_order),
      cmocka_unit_test(tokens_of_byte_have_two_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
