/* A wild type is a file with one sequence, or the letters themselves. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "evaluator/score/wild_type_file.h"
#include "tests/support/harness/scratch.h"

static const struct plm_sequence_choices choices; /* of a file, as without options */

static void reads(const char *text, enum plm_tokenizer_kind tokenizer, const char *name,
                  const char *residues)
{
  struct plm_wild_type wild_type;
  struct plm_error error = {0};
  if (plm_wild_type_read(text, &choices, tokenizer, -3, &wild_type, &error) != PLM_OK)
    fail_msg("%s", error.what);
  assert_string_equal(wild_type.name, name);
  assert_int_equal(wild_type.length, strlen(residues));
  assert_memory_equal(wild_type.residues, residues, strlen(residues));
  assert_int_equal(wild_type.first, -3);
  assert_int_equal(wild_type.tokenizer, tokenizer);
  plm_wild_type_deinit(&wild_type);
}

static void refuses(const char *text, enum plm_tokenizer_kind tokenizer, plm_status status,
                    const char *what)
{
  struct plm_wild_type wild_type;
  struct plm_error error = {0};
  assert_int_equal(plm_wild_type_read(text, &choices, tokenizer, 1, &wild_type, &error), status);
  if (strstr(error.what, what) == NULL) fail_msg("\"%s\", not \"%s\"", error.what, what);
  assert_int_equal(plm_wild_type_read(text, &choices, tokenizer, 1, &wild_type, NULL), status);
}

static const char *file(const char *name, const char *text)
{
  const char *path = scratch_path(name);
  scratch_write(path, text, strlen(text));
  return path;
}

static void letters_are_the_sequence(void **state)
{
  (void)state;
  static const char given[] = "the sequence given";
  reads("MKLAV", PLM_TOKENIZER_ESM, given, "MKLAV");
  reads("mklav", PLM_TOKENIZER_ESM, given, "MKLAV");
  static const char bases[] = "ACGTACGTACGTACGTACGTACGT"; /* it may look like nucleotides */
  reads(bases, PLM_TOKENIZER_ESM, given, bases);
  reads("any text: 1 > 0", PLM_TOKENIZER_BYTE, given, "any text: 1 > 0");
  reads(">text", PLM_TOKENIZER_BYTE, given, ">text"); /* it is no FASTA */
  refuses("", PLM_TOKENIZER_ESM, PLM_NOT_FOUND, "--wild-type : no such file, and not a sequence");
  refuses("", PLM_TOKENIZER_BYTE, PLM_NOT_FOUND, "no such file");
  refuses("MK LA", PLM_TOKENIZER_ESM, PLM_NOT_FOUND, "--wild-type MK LA: no such file");
  refuses("none.fasta", PLM_TOKENIZER_ESM, PLM_NOT_FOUND, "none.fasta: no such file");
  refuses("MK|LA", PLM_TOKENIZER_ESM, PLM_NOT_FOUND, "MK|LA: no such file");
}

/* ESM-C has a token between chains, but variants are those of one chain. */
static void chains_are_scored_apart(void **state)
{
  (void)state;
  static const char *const given[] = {"MK|LA", "MK LA"};
  for (int i = 0; i < 2; i++) {
    struct plm_wild_type wild_type;
    struct plm_error error = {0};
    assert_int_equal(
        plm_wild_type_read(given[i], &choices, PLM_TOKENIZER_ESM, 1, &wild_type, &error),
        PLM_NOT_FOUND);
    assert_int_equal(strstr(error.hint, "score each chain by itself") != NULL, i == 0);
    assert_int_equal(strstr(error.hint, "give a FASTA file") != NULL, i == 1);
  }
}

static void a_file_has_one_sequence(void **state)
{
  (void)state;
  reads(file("one.fasta", ">first of all\nMK\nLAV\n"), PLM_TOKENIZER_ESM, "first", "MKLAV");
  refuses(file("two.fasta", ">a\nMK\n>b\nLA\n"), PLM_TOKENIZER_ESM, PLM_FORMAT,
          "two.fasta has more than one sequence");
  refuses(file("none.fasta", "\n"), PLM_TOKENIZER_ESM, PLM_FORMAT, "none.fasta has no sequence");
  refuses(file("empty.fasta", ">a\n"), PLM_TOKENIZER_ESM, PLM_FORMAT,
          "record \"a\": empty sequence");
}

/* "-" is no letter, also if a file is called so. */
static void it_may_come_from_standard_input(void **state)
{
  (void)state;
  const int before = dup(STDIN_FILENO);
  for (int i = 0; i < 2; i++) {
    const char *path = file("input.fasta", i == 0 ? ">piped\nMKL\n" : "\n");
    const int opened = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(opened >= 0 && dup2(opened, STDIN_FILENO) == STDIN_FILENO);
    if (i == 0)
      reads("-", PLM_TOKENIZER_BYTE, "piped", "MKL");
    else
      refuses("-", PLM_TOKENIZER_BYTE, PLM_FORMAT, "has no sequence");
    close(opened);
  }
  if (before >= 0) assert_int_equal(dup2(before, STDIN_FILENO), STDIN_FILENO);
  close(before);
}

static void a_wild_type_has_a_longest_length(void **state)
{
  (void)state;
  static char text[PLM_WILD_TYPE_LIMIT + 5] = ">a\n";
  memset(text + 3, 'M', PLM_WILD_TYPE_LIMIT);
  reads(file("longest.fasta", text), PLM_TOKENIZER_ESM, "a", text + 3);
  text[PLM_WILD_TYPE_LIMIT + 3] = 'M';
  refuses(file("longer.fasta", text), PLM_TOKENIZER_ESM, PLM_LIMIT,
          "longer.fasta: a wild type has at most 1048576 residues, not 1048577");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(letters_are_the_sequence),
      cmocka_unit_test(chains_are_scored_apart),
      cmocka_unit_test(a_file_has_one_sequence),
      cmocka_unit_test(it_may_come_from_standard_input),
      cmocka_unit_test(a_wild_type_has_a_longest_length),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
