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
      plm_token_bits_pack(esm, tokens, count, bytes);
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
    plm_token_bits_pack(esm, tokens, count, bytes);
    for (size_t bit = 5 * count; bit < 8 * plm_token_bits_size(esm, count); bit++) {
      bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
      assert_false(plm_token_bits_end(esm, bytes, count));
      bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
  }
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
  plm_token_bits_pack(byte, tokens, 6, bytes);
  assert_memory_equal(bytes, expected, sizeof expected);
  assert_true(plm_token_bits_end(byte, bytes, 6));
  plm_token_bits_unpack(byte, bytes, 6, back);
  assert_memory_equal(back, tokens, sizeof tokens);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_have_their_bits),
      cmocka_unit_test(the_bits_after_the_last_token_are_zeros),
      cmocka_unit_test(tokens_of_byte_have_two_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
