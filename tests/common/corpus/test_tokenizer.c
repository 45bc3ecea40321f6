/* The tokenizers against the alphabet, letter by letter. */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>

#include "common/corpus/tokenizer.h"

static void esm_has_its_33_tokens(void **state)
{
  (void)state;
  static const char *const expected[33] = {
      "<cls>", "<pad>", "<eos>", "<unk>", "L", "A", "G", "V", "S", "E",        "R",
      "T",     "I",     "D",     "P",     "K", "Q", "N", "F", "Y", "M",        "H",
      "W",     "C",     "X",     "B",     "U", "Z", "O", ".", "-", "<null_1>", "<mask>"};
  const struct plm_tokenizer *esm = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  assert_int_equal(esm->vocab_size, 33);
  assert_int_equal(esm->token_bytes, 1);
  for (uint16_t id = 0; id < 33; id++) {
    assert_string_equal(plm_token_text(esm, id), expected[id]);
    if (strlen(expected[id]) == 1)
      assert_int_equal(plm_tokenizer_encode(esm, (uint8_t)expected[id][0]), id);
  }
  assert_int_equal(plm_tokenizer_encode(esm, 'J'), esm->unk);
  assert_int_equal(plm_tokenizer_encode(esm, 'l'), esm->unk); /* residues are upper case */
  assert_int_equal(esm->cls, 0);
  assert_int_equal(esm->pad, 1);
  assert_int_equal(esm->eos, 2);
  assert_int_equal(esm->mask, 32);
  for (uint16_t id = esm->first_random; id < esm->first_random + esm->random_count; id++)
    assert_non_null(strchr("ACDEFGHIKLMNPQRSTVWY", plm_token_text(esm, id)[0]));
}

static void byte_keeps_the_numbers_with_specials_behind(void **state)
{
  (void)state;
  const struct plm_tokenizer *byte = plm_tokenizer_of(PLM_TOKENIZER_BYTE);
  assert_int_equal(byte->vocab_size, 261);
  assert_int_equal(byte->token_bytes, 2);
  for (uint16_t id = 0; id < 256; id++)
    assert_int_equal(plm_tokenizer_encode(byte, (uint8_t)id), id);
  assert_string_equal(plm_token_text(byte, 'q'), "q");
  assert_string_equal(plm_token_text(byte, '\n'), "<0x0a>");
  assert_string_equal(plm_token_text(byte, byte->mask), "<mask>");
  assert_int_equal(byte->mask, 260);
}

static void whole_sequences_are_encoded(void **state)
{
  (void)state;
  uint8_t narrow[4];
  uint16_t wide[4];
  plm_tokenizer_encode_all(plm_tokenizer_of(PLM_TOKENIZER_ESM), (const uint8_t *)"LAJ-", 4, narrow);
  assert_memory_equal(narrow, ((const uint8_t[]){4, 5, 3, 30}), 4);
  plm_tokenizer_encode_all(plm_tokenizer_of(PLM_TOKENIZER_BYTE), (const uint8_t *)"\xffLAJ", 4,
                           wide);
  assert_memory_equal(wide, ((const uint16_t[]){255, 'L', 'A', 'J'}), 8);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(esm_has_its_33_tokens),
      cmocka_unit_test(byte_keeps_the_numbers_with_specials_behind),
      cmocka_unit_test(whole_sequences_are_encoded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
