/* Residues are counted alike in every way that the processor has. */
#include <math.h>
#include <stdlib.h>

#include "common/corpus/corpus_format.h"
#include "tests/support/harness/cmocka_all.h"

static const char letters[] = "LAGVSERTIDPKQNFYMHWCXBUZO.-J";

/* Whether the processor and the tokenizer allow a way to count. */
static bool allowed(enum plm_tokenizer_kind kind, enum plm_count_form form)
{
#if defined(__x86_64__)
  if (form == PLM_COUNT_AVX2) return kind == PLM_TOKENIZER_ESM && __builtin_cpu_supports("avx2");
  if (form == PLM_COUNT_BIT_PLANES)
    return kind == PLM_TOKENIZER_ESM && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("gfni");
#endif
  (void)kind;
  return form == PLM_COUNT_ANY;
}

/* Counts letters and arbitrary bytes in each way, in sizes up to more than the vectors' counters
 * hold before they are added up. */
static void residues_are_counted(void **state)
{
  enum { SIZE = 60000 };
  uint8_t *bytes = malloc(SIZE);
  (void)state;
  assert_non_null(bytes);
  for (int round = 0; round < 4; round++)
    for (size_t size = 0; size <= SIZE; size = size * 2 + (size < 100 ? 7 : 1)) {
      const enum plm_tokenizer_kind kind = round % 2 ? PLM_TOKENIZER_BYTE : PLM_TOKENIZER_ESM;
      const struct plm_tokenizer *tokenizer = plm_tokenizer_of(kind);
      uint64_t counted[512] = {0}, expected[512] = {0};
      counted[5] = expected[5] = 11; /* counts are added */
      for (size_t i = 0; i < size; i++) {
        const uint32_t random = (uint32_t)(i * 2654435761u + size) >> 8;
        bytes[i] = random % 16 == 0 && round < 2        ? (uint8_t)(random >> 4)
                   : random % 16 < 9 || size > SIZE / 2 ? 'L'
                   : round < 2                          ? (uint8_t)letters[random % 28]
                                                        : (uint8_t)('@' + random % 32);
        expected[plm_tokenizer_encode(tokenizer, bytes[i])]++;
      }
      plm_corpus_count_residues(kind, bytes, size, counted);
      assert_memory_equal(counted, expected, sizeof counted);
      for (int form = 0; form < PLM_COUNT_FORMS; form++) {
        uint64_t again[512] = {[5] = 11};
        const bool there = allowed(kind, (enum plm_count_form)form);
        assert_int_equal(
            plm_corpus_count_residues_form(kind, (enum plm_count_form)form, bytes, size, again),
            there);
        if (there) assert_memory_equal(again, expected, sizeof again);
      }
    }
  free(bytes);
}

/* Of all residues of the corpus, in whichever split and however they are encoded. */
static void the_entropy_is_that_of_all_splits(void **state)
{
  (void)state;
  struct plm_corpus_info info = {.entropy = 7};
  plm_corpus_info_finish(&info);
  assert_true(info.entropy == 0);
  info.splits[0].composition[0] = 1;
  info.splits[1].composition[300] = 1;
  info.splits[2].composition[511] = 1;
  info.splits[2].composition[0] = 1;
  plm_corpus_info_finish(&info);
  assert_true(fabs(info.entropy - 1.5 * log(2)) < 1e-12);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(residues_are_counted),
      cmocka_unit_test(the_entropy_is_that_of_all_splits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
