/* Variants as text: what is accepted, and every way in which a variant may be wrong. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "evaluator/score/variant.h"

static const struct plm_wild_type esm = {.name = "wild",
                                         .residues = (const uint8_t *)"MKTAYIAKQR",
                                         .length = 10,
                                         .first = 1,
                                         .tokenizer = PLM_TOKENIZER_ESM};

static plm_status parse(const struct plm_wild_type *wild_type, const char *text,
                        struct plm_variant *variant, struct plm_error *error)
{
  return plm_variant_parse(wild_type, text, strlen(text), variant, error);
}

static void substitutions_are_read_in_order(void **state)
{
  (void)state;
  struct plm_variant variant = {0};
  assert_int_equal(parse(&esm, "T3W", &variant, NULL), PLM_OK);
  assert_int_equal(variant.count, 1);
  assert_int_equal(variant.items[0].place, 2);
  assert_int_equal(variant.items[0].wild_type, 'T');
  assert_int_equal(variant.items[0].mutant, 'W');
  assert_int_equal(parse(&esm, " r10c : m1v:K8A:\tI6L \r", &variant, NULL), PLM_OK);
  static const uint32_t places[] = {0, 5, 7, 9};
  assert_int_equal(variant.count, 4);
  for (uint32_t i = 0; i < 4; i++) {
    assert_int_equal(variant.items[i].place, places[i]);
    assert_int_equal(variant.items[i].wild_type, esm.residues[places[i]]);
    assert_int_equal(variant.items[i].mutant, "VLAC"[i]);
  }
  plm_variant_deinit(&variant);
}

static void synonymous_ones_change_nothing(void **state)
{
  (void)state;
  struct plm_variant variant = {0};
  assert_int_equal(parse(&esm, "A4A", &variant, NULL), PLM_OK);
  assert_int_equal(variant.count, 0);
  assert_int_equal(parse(&esm, "A4A:K8E:R10R", &variant, NULL), PLM_OK);
  assert_int_equal(variant.count, 1);
  assert_int_equal(variant.items[0].place, 7);
  plm_variant_deinit(&variant);
}

static void other_numbering_and_other_text(void **state)
{
  (void)state;
  struct plm_wild_type shifted = esm, bytes = esm;
  struct plm_variant variant = {0};
  struct plm_error error;
  shifted.first = 24;
  assert_int_equal(parse(&shifted, "M24A", &variant, NULL), PLM_OK);
  assert_int_equal(variant.items[0].place, 0);
  shifted.first = -5; /* a tag comes before the residue that has number 1 */
  assert_int_equal(parse(&shifted, "M-5A:I0L:R4K", &variant, NULL), PLM_OK);
  assert_int_equal(variant.count, 3);
  assert_int_equal(variant.items[1].place, 5);
  assert_int_equal(variant.items[2].place, 9);
  shifted.first = 0;
  assert_int_equal(parse(&shifted, "M0A", &variant, NULL), PLM_OK);
  bytes.residues = (const uint8_t *)"aBcdefghij";
  bytes.tokenizer = PLM_TOKENIZER_BYTE;
  assert_int_equal(parse(&bytes, "B2b", &variant, NULL), PLM_OK);
  assert_int_equal(variant.items[0].mutant, 'b');
  assert_int_equal(parse(&bytes, "b2B", &variant, &error), PLM_FORMAT);
  plm_variant_deinit(&variant);
}

static void refuses(const char *text, plm_status status, const char *what)
{
  struct plm_variant variant = {0};
  struct plm_error error = {0};
  assert_int_equal(parse(&esm, text, &variant, &error), status);
  if (strstr(error.what, what) == NULL) fail_msg("%s: \"%s\" lacks \"%s\"", text, error.what, what);
  assert_true(error.hint[0] != '\0');
  plm_variant_deinit(&variant);
}

static void what_is_wrong_is_named(void **state)
{
  (void)state;
  refuses("G4A", PLM_FORMAT, "G4A: expected G at position 4, found A");
  refuses("K2E:G4A", PLM_FORMAT, "G4A: expected G at position 4, found A");
  refuses("A11G", PLM_FORMAT, "positions 1 to 10, and none numbered 11");
  refuses("A0G", PLM_FORMAT, "none numbered 0");
  refuses("A99999999999999999999G", PLM_FORMAT, "not a substitution");
  refuses("A4J", PLM_FORMAT, "the model does not know the letter J");
  refuses("A4G:A4L", PLM_FORMAT, "position 4 is substituted twice");
  refuses("A4A:A4L", PLM_FORMAT, "position 4 is substituted twice");
  refuses("", PLM_FORMAT, "a mutation is missing");
  refuses("A4G:", PLM_FORMAT, "a mutation is missing");
  refuses("A4", PLM_FORMAT, "\"A4\" is not a substitution");
  refuses("4G", PLM_FORMAT, "not a substitution");
  refuses("14G", PLM_FORMAT, "\"14G\" is not a substitution");
  refuses("A-4G", PLM_FORMAT, "A-4G: the wild type has positions 1 to 10, and none numbered -4");
  refuses("A-G", PLM_FORMAT, "not a substitution");
  refuses("A--4G", PLM_UNSUPPORTED, "not supported");
  refuses("A4-6G", PLM_UNSUPPORTED, "not supported");
  refuses("A4G,K2E", PLM_FORMAT, "not a substitution");
  refuses("p.Ala4Gly", PLM_FORMAT, "not a substitution");
  refuses("A4del", PLM_UNSUPPORTED, "insertions, deletions and stops are not supported");
  refuses("A4_Y5insG", PLM_UNSUPPORTED, "not supported");
  refuses("A4*", PLM_UNSUPPORTED, "not supported");
  refuses("A4-", PLM_UNSUPPORTED, "not supported");
  char text[100], what[200];
  for (int size = 79; size <= 81; size++) { /* at most 80 letters are shown */
    snprintf(text, sizeof text, "%0*d", size, 7);
    snprintf(what, sizeof what, "\"%.80s\" is not a substitution", text);
    refuses(text, PLM_FORMAT, what);
  }
}

/* A numbering is found only if it is the only one that fits. */
static void another_numbering_is_found(void **state)
{
  (void)state;
  struct plm_numbering numbering = {0};
  int64_t first;
  static const char *const texts[] = {"T103A", "T103G", "R110A:K102G", "nonsense", "A104L"};
  assert_false(plm_numbering_fit(&numbering, &esm, &first));
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    plm_numbering_add(&numbering, esm.tokenizer, texts[i], strlen(texts[i]));
  assert_true(plm_numbering_fit(&numbering, &esm, &first));
  assert_int_equal(first, 101);
  plm_numbering_add(&numbering, esm.tokenizer, "W105A", 5);
  assert_false(plm_numbering_fit(&numbering, &esm, &first));
  plm_numbering_deinit(&numbering);
  plm_numbering_add(&numbering, esm.tokenizer, "A50G", 4);
  assert_false(plm_numbering_fit(&numbering, &esm, &first)); /* both A4 and A7 fit */
  plm_numbering_deinit(&numbering);
  plm_numbering_add(&numbering, esm.tokenizer, "Y50G", 4);
  assert_true(plm_numbering_fit(&numbering, &esm, &first));
  assert_int_equal(first, 46);
  plm_numbering_deinit(&numbering);
}

/* All that is around the wild type looks as if it belonged to it. */
static void a_numbering_has_each_position_within(void **state)
{
  (void)state;
  static const char *const others[] = {"T95A", "T96A", "T105A", "T106A"};
  const struct plm_wild_type within = {.residues = (const uint8_t *)"TTTTTYTTTTTTTTTT" + 5,
                                       .length = 6,
                                       .tokenizer = PLM_TOKENIZER_ESM};
  for (int i = 0; i < 4; i++) {
    struct plm_numbering numbering = {0};
    int64_t first;
    plm_numbering_add(&numbering, esm.tokenizer, "Y100A", 5);
    plm_numbering_add(&numbering, esm.tokenizer, others[i], strlen(others[i]));
    assert_int_equal(plm_numbering_fit(&numbering, &within, &first), i == 2);
    if (i == 2) assert_int_equal(first, 100);
    plm_numbering_deinit(&numbering);
  }
}

/* So many claims are kept; what comes after them does not count. */
static void later_claims_are_ignored(void **state)
{
  (void)state;
  struct plm_numbering numbering = {0};
  int64_t first;
  for (int i = 0; i < PLM_NUMBERING_CLAIMS; i++) /* claims of the same position are not repeated */
    plm_numbering_add(&numbering, esm.tokenizer, i % 2 == 0 ? "T103A" : "M101A", 5);
  plm_numbering_add(&numbering, esm.tokenizer, "W103A", 5);
  assert_int_equal(numbering.count, PLM_NUMBERING_CLAIMS);
  assert_true(plm_numbering_fit(&numbering, &esm, &first));
  assert_int_equal(first, 101);
  plm_numbering_deinit(&numbering);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(substitutions_are_read_in_order),
      cmocka_unit_test(synonymous_ones_change_nothing),
      cmocka_unit_test(other_numbering_and_other_text),
      cmocka_unit_test(what_is_wrong_is_named),
      cmocka_unit_test(another_numbering_is_found),
      cmocka_unit_test(a_numbering_has_each_position_within),
      cmocka_unit_test(later_claims_are_ignored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
