/* A benchmark's list of assays: what is taken from its rows, how substitutions and indels are told
 * apart, and what each error says. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evaluator/score/assay_list.h"
#include "evaluator/score/wild_type_file.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

#define HEADER "DMS_id,DMS_filename,UniProt_ID,target_seq,coarse_selection_type,"
#define CUTOFF HEADER "DMS_binarization_cutoff\n"

static void put(const char *name, const char *text)
{
  scratch_write(scratch_path(name), text, strlen(text));
}

static plm_status read_chosen(const char *text, const char *const *ids, uint32_t count,
                              struct plm_assay_list *list, struct plm_error *error)
{
  const struct plm_assay_choice choice = {.ids = ids, .id_count = count};
  put("list.csv", text);
  return plm_assay_list_read(scratch_path("list.csv"), scratch_directory(), &choice, list, error);
}

static plm_status read_list(const char *text, struct plm_assay_list *list, struct plm_error *error)
{
  return read_chosen(text, NULL, 0, list, error);
}

static void make_assays(void)
{
  put("one.csv", "mutant,DMS_score,DMS_score_bin\nA1G,1,0\n");
  put("two.csv", "DMS_score,mutated_sequence,mutant\n1,AAG,p.Ala\n");
  put("three.csv", "mutated_sequence,DMS_score\nAAG,2\n");
  put("four.csv", "mutated_sequence,DMS_score,mutant\nAAG,2,K9E\n");
}

static void rows_are_taken(void **state)
{
  (void)state;
  static const struct {
    const char *id, *file, *uniprot, *target, *selection;
    double cutoff;
    bool indels;
  } expected[] = {{"ONE", "one.csv", "P1", "ACDY", "Activity", (double)NAN, false},
                  {"TWO", "two.csv", "P2", "Z", "Binding", -0.5, true},
                  {"THREE", "three.csv", "P3", "AZ", "", 1e3, true},
                  {"FOUR", "four.csv", "P4", "K", "x, y", 0, false}};
  struct plm_assay_list list;
  make_assays();
  assert_int_equal(read_list("other," CUTOFF "0, ONE ,one.csv, P1 , aCdy , Activity ,\n"
                             "0,TWO,two.csv,P2,z,Binding,-0.5\n0,THREE,three.csv,P3,AZ,,1e3\n"
                             "0,FOUR, four.csv ,P4,k,\"x, y\",0\n",
                             &list, NULL),
                   PLM_OK);
  assert_int_equal(list.count, 4);
  for (size_t i = 0; i < 4; i++) {
    const struct plm_assay *assay = &list.items[i];
    assert_string_equal(assay->id, expected[i].id);
    assert_string_equal(assay->file, scratch_path(expected[i].file));
    assert_string_equal(assay->uniprot, expected[i].uniprot);
    assert_string_equal((const char *)assay->target, expected[i].target);
    assert_int_equal(assay->length, strlen(expected[i].target));
    assert_string_equal(assay->selection, expected[i].selection);
    assert_int_equal(isnan(assay->cutoff), isnan(expected[i].cutoff));
    if (!isnan(assay->cutoff)) assert_true(assay->cutoff == expected[i].cutoff);
    assert_int_equal(assay->indels, expected[i].indels);
  }
  plm_assay_list_deinit(&list);
  assert_int_equal(list.count, 0);
  assert_null(list.items);
}

/* More rows than memory is taken for at first, and no column of cutoffs. */
static void many_rows_are_taken(void **state)
{
  (void)state;
  enum { ROWS = 300 };
  struct plm_assay_list list;
  char *text = must(malloc(ROWS * 64)), *end = text + sprintf(text, HEADER "x\n");
  make_assays();
  for (int i = 0; i < ROWS; i++) end += sprintf(end, "id%d,one.csv,P%d,AC,t,\n", i, i);
  assert_int_equal(read_list(text, &list, NULL), PLM_OK);
  assert_int_equal(list.count, ROWS);
  for (int i = 0; i < ROWS; i++) {
    char id[16];
    snprintf(id, sizeof id, "id%d", i);
    assert_string_equal(list.items[i].id, id);
    snprintf(id, sizeof id, "P%d", i);
    assert_string_equal(list.items[i].uniprot, id);
    assert_true(isnan(list.items[i].cutoff));
  }
  plm_assay_list_deinit(&list);
  free(text);
}

static void refuses(const char *text, plm_status status, const char *where, const char *what)
{
  struct plm_assay_list list;
  struct plm_error error = {0};
  char place[512] = "", name[512];
  assert_int_equal(read_list(text, &list, &error), status);
  snprintf(name, sizeof name, "%s", scratch_path("list.csv"));
  if (where[0] != '\0') snprintf(place, sizeof place, "%s%s", name, where);
  assert_string_equal(error.where, place);
  if (strncmp(error.what, name, strlen(name)) == 0)
    memmove(error.what, error.what + strlen(name) - strlen("list.csv"), sizeof error.what / 2);
  assert_string_equal(error.what, what);
  assert_int_equal(list.count, 0);
}

static void targets_have_a_longest_length(void **state)
{
  (void)state;
  enum { BEGIN = sizeof CUTOFF "a,one.csv,P," - 1 };
  static char text[BEGIN + PLM_WILD_TYPE_LIMIT + 10] = CUTOFF "a,one.csv,P,";
  struct plm_assay_list list;
  make_assays();
  memset(text + BEGIN, 'A', PLM_WILD_TYPE_LIMIT);
  strcpy(text + BEGIN + PLM_WILD_TYPE_LIMIT, ",t,\n");
  assert_int_equal(read_list(text, &list, NULL), PLM_OK);
  assert_int_equal(list.items[0].length, PLM_WILD_TYPE_LIMIT);
  plm_assay_list_deinit(&list);
  strcpy(text + BEGIN + PLM_WILD_TYPE_LIMIT, "A,t,\n");
  refuses(text, PLM_FORMAT, ":2", "target_seq has 1048577 letters, not 1 to 1048576");
}

static void wrong_rows_are_named(void **state)
{
  (void)state;
  char text[128];
  make_assays();
  refuses("", PLM_FORMAT, "", "list.csv is empty");
  refuses(CUTOFF, PLM_FORMAT, "", "list.csv lists no assays");
  refuses("DMS_id,DMS_filename,UniProt_ID,target_seq,type\n", PLM_CONFIG, "",
          "list.csv has no column \"coarse_selection_type\"");
  refuses("DMS_filename\n", PLM_CONFIG, "", "list.csv has no column \"DMS_id\"");
  refuses(CUTOFF "a,one.csv,P,AC,t,\nb,one.csv,P,AC\n", PLM_FORMAT, ":3",
          "the row has only 4 fields");
  refuses(CUTOFF "a,one.csv,P,AC,t\n", PLM_FORMAT, ":2", "the row has only 5 fields");
  refuses(CUTOFF "a,one.csv,P,,t,\n", PLM_FORMAT, ":2",
          "target_seq has 0 letters, not 1 to 1048576");
  refuses(CUTOFF "a,one.csv,P,AC-D,t,\n", PLM_FORMAT, ":2",
          "target_seq has \"-\", which is not a residue");
  refuses(CUTOFF "a,one.csv,P,AC,t,low\n", PLM_FORMAT, ":2",
          "DMS_binarization_cutoff is \"low\", not a number");
  refuses(CUTOFF "a,one.csv,P,AC,t,1x\n", PLM_FORMAT, ":2",
          "DMS_binarization_cutoff is \"1x\", not a number");
  refuses(CUTOFF "a, ,P,AC,t,\n", PLM_FORMAT, ":2", "DMS_filename is empty");
  static const char *const ids[] = {"", ".a", "a/b"};
  for (size_t i = 0; i < 3; i++) {
    char what[128];
    snprintf(text, sizeof text, CUTOFF "%s,one.csv,P,AC,t,\n", ids[i]);
    snprintf(what, sizeof what, "DMS_id is \"%s\", which cannot name a file", ids[i]);
    refuses(text, PLM_FORMAT, ":2", what);
  }
  refuses(CUTOFF "a,one.csv,P,AC,t,\nb,one.csv,P,AC,t,\na,two.csv,P,AC,t,\n", PLM_FORMAT, ":4",
          "DMS_id a is in an earlier row as well");
}

static void the_longest_target_is_taken(void **state)
{
  (void)state;
  const size_t begin = strlen(CUTOFF "a,one.csv,P,"), most = 1 << 20;
  char *text = must(calloc(most + 256, 1));
  struct plm_assay_list list;
  struct plm_error error = {0};
  make_assays();
  memcpy(text, CUTOFF "a,one.csv,P,", begin);
  memset(text + begin, 'A', most + 1);
  strcpy(text + begin + most, ",t,\n");
  assert_int_equal(read_list(text, &list, NULL), PLM_OK);
  assert_int_equal(list.items[0].length, most);
  plm_assay_list_deinit(&list);
  strcpy(text + begin + most, "A,t,\n");
  assert_int_equal(read_list(text, &list, &error), PLM_FORMAT);
  assert_string_equal(error.what, "target_seq has 1048577 letters, not 1 to 1048576");
  free(text);
}

/* Files of assays that are not chosen may be missing; the order is that of the list. */
static void only_chosen_assays_are_taken(void **state)
{
  (void)state;
  static const char text[] = CUTOFF "a,one.csv,P,AC,t,\nab,none.csv,P,AC,t,\nc,two.csv,Q,AC,t,0\n";
  static const char *const ids[] = {"c", "a", "aB"};
  struct plm_assay_list list;
  struct plm_error error = {0};
  make_assays();
  assert_int_equal(read_chosen(text, ids, 2, &list, NULL), PLM_OK);
  assert_int_equal(list.count, 2);
  assert_string_equal(list.items[0].id, "a");
  assert_string_equal(list.items[1].id, "c");
  assert_string_equal(list.items[1].uniprot, "Q");
  assert_true(list.items[1].indels);
  plm_assay_list_deinit(&list);
  assert_int_equal(read_chosen(text, ids, 1, &list, NULL), PLM_OK);
  assert_int_equal(list.count, 1); /* the second one is not among them */
  assert_string_equal(list.items[0].id, "c");
  plm_assay_list_deinit(&list);
  assert_int_equal(read_chosen(text, ids, 3, &list, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "list.csv lists no assay \"aB\""));
  assert_non_null(strstr(error.hint, "did you mean \"a"));
  assert_int_equal(list.count, 0);
}

static void missing_assays_are_counted(void **state)
{
  (void)state;
  char what[512];
  make_assays();
  snprintf(what, sizeof what, "2 of 3 assays are not in %s, the first is b", scratch_directory());
  refuses(CUTOFF "a,one.csv,P,AC,t,\nb,none.csv,P,AC,t,\nc,neither.csv,P,AC,t,\n", PLM_NOT_FOUND,
          "", what);
}

/* assay.csv with this text, with a cutoff in the list or without. */
static void assay_is_refused(const char *assay, const char *cutoff, plm_status status,
                             const char *what)
{
  char text[256], expected[512];
  put("assay.csv", assay);
  snprintf(text, sizeof text, CUTOFF "a,one.csv,P,AC,t,\nb,assay.csv,P,AC,t,%s\n", cutoff);
  snprintf(expected, sizeof expected, "%s %s", scratch_path("assay.csv"), what);
  refuses(text, status, "", expected);
}

static void wrong_assays_are_named(void **state)
{
  (void)state;
  struct plm_assay_list list;
  make_assays();
  assay_is_refused("mutant,DMS_score_bin\nA1G,1\n", "0.5", PLM_CONFIG,
                   "has no column \"DMS_score\"");
  assay_is_refused("mutant,DMS_score\nA1G,1\n", "", PLM_CONFIG, "has no column \"DMS_score_bin\"");
  assay_is_refused("mutant,DMS_score\n", "0.5", PLM_FORMAT, "has no variants");
  assay_is_refused("mutant,DMS_score\nwild,1\n", "0.5", PLM_CONFIG,
                   "has neither substitutions in a column \"mutant\" nor a column "
                   "\"mutated_sequence\"");
  assay_is_refused("DMS_score\n1\n", "0.5", PLM_CONFIG,
                   "has neither substitutions in a column \"mutant\" nor a column "
                   "\"mutated_sequence\"");
  put("assay.csv", "mutant,DMS_score\nA1G,1\n");
  assert_int_equal(read_list(CUTOFF "b,assay.csv,P,AC,t,0.5\n", &list, NULL), PLM_OK);
  assert_false(list.items[0].indels);
  plm_assay_list_deinit(&list);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_taken),
      cmocka_unit_test(many_rows_are_taken),
      cmocka_unit_test(targets_have_a_longest_length),
      cmocka_unit_test(wrong_rows_are_named),
      cmocka_unit_test(missing_assays_are_counted),
      cmocka_unit_test(wrong_assays_are_named),
      cmocka_unit_test(the_longest_target_is_taken),
      cmocka_unit_test(only_chosen_assays_are_taken),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
