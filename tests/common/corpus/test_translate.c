/* Every form of the translator against the tokenizer: all bytes, and all lengths around that of a
 * vector, beyond which nothing is written. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "common/corpus/translate.h"
#include "common/plan/shuffle.h"

enum { LONGEST = 200, GUARD = 64 };

static void check(const struct plm_translator *translator, const uint8_t *residues, size_t count)
{
  const uint32_t width = translator->tokenizer->token_bytes;
  uint8_t expected[(LONGEST + GUARD) * 2], got[(LONGEST + GUARD) * 2];
  memset(expected, 0xaa, sizeof expected);
  memset(got, 0xaa, sizeof got);
  plm_tokenizer_encode_all(translator->tokenizer, residues, count, expected);
  translator->residues(translator, residues, count, got);
  assert_memory_equal(got, expected, (count + GUARD) * width);
}

static void agrees_with_the_tokenizer(const struct plm_translator *translator)
{
  for (size_t count = 0; count <= LONGEST; count++) {
    uint8_t *residues = malloc(count + 1); /* so tight that ASan detects a read beyond it */
    struct plm_draws draws = plm_draws_begin(count, 0, 100);
    for (size_t i = 0; i < count; i++)
      residues[i] = count % 2 ? (uint8_t)plm_draws_below(&draws, 256)
                              : (uint8_t) "LAGVSERTIDPKQNFYMHWCXBUZO.-J*"[i % 29];
    check(translator, residues, count);
    free(residues);
  }
  for (int base = 0; base < 256; base += 128) {
    uint8_t all[128];
    for (int i = 0; i < 128; i++) all[i] = (uint8_t)(base + i);
    check(translator, all, 128);
  }
}

/* Whether the processor of this test has what a form needs. */
static bool has(enum plm_tokenizer_kind kind, enum plm_translator_form form)
{
#if defined(__x86_64__)
  if (form == PLM_TRANSLATE_AVX2) return __builtin_cpu_supports("avx2") != 0;
  if (form == PLM_TRANSLATE_VBMI)
    return kind == PLM_TOKENIZER_ESM && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512bw");
#endif
  (void)kind;
  return form == PLM_TRANSLATE_PORTABLE;
}

/* Each form that the processor has is there, with a function of its own, and the last one of them
 * is taken. */
static void the_best_form_is_taken(void **state)
{
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    struct plm_translator best, translator, forms[PLM_TRANSLATE_FORMS];
    int count = 0;
    plm_translator_init(&best, (enum plm_tokenizer_kind)kind);
    bool taken = false;
    for (int form = PLM_TRANSLATE_FORMS; form-- > 0;) {
      const bool there = plm_translator_init_form(&translator, (enum plm_tokenizer_kind)kind,
                                                  (enum plm_translator_form)form);
      assert_int_equal(there, has((enum plm_tokenizer_kind)kind, (enum plm_translator_form)form));
      if (!there) continue;
      for (int i = 0; i < count; i++) assert_true(forms[i].residues != translator.residues);
      forms[count++] = translator;
      if (taken) continue;
      taken = true;
      assert_true(best.residues == translator.residues);
      assert_ptr_equal(best.tokenizer, plm_tokenizer_of((enum plm_tokenizer_kind)kind));
    }
  }
}

static void forms_agree_with_the_tokenizer(void **state)
{
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    struct plm_translator translator;
    for (int form = 0; form < PLM_TRANSLATE_FORMS; form++)
      if (plm_translator_init_form(&translator, (enum plm_tokenizer_kind)kind,
                                   (enum plm_translator_form)form))
        agrees_with_the_tokenizer(&translator);
      else
        assert_int_not_equal(form, PLM_TRANSLATE_PORTABLE);
    plm_translator_init(&translator, (enum plm_tokenizer_kind)kind);
    agrees_with_the_tokenizer(&translator);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_best_form_is_taken),
                                     cmocka_unit_test(forms_agree_with_the_tokenizer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
