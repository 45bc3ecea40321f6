/* What a label's text means: both sides of each bound, and each way of writing it.
 * test_labelled_table has the tables as wholes. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/sequences/labelled_table.h"
#include "tests/support/harness/scratch.h"

static struct plm_error failure;

static plm_status read_as(const struct plm_labelled_request *like, const char *name,
                          const char *text, struct plm_labelled_table *table)
{
  struct plm_labelled_request request = *like;
  request.path = scratch_path(name);
  if (request.target_column == NULL) request.target_column = "y";
  scratch_write(request.path, text, strlen(text));
  failure = (struct plm_error){0};
  return plm_labelled_table_read(&request, table, &failure);
}

/* "LABEL PART" or "LABEL" of each row, with spaces between the rows, and the kind before all. */
static const char *shown(const struct plm_labelled_table *table, bool parts)
{
  static char text[8192];
  char *out = text;
  out += sprintf(out, "%s:", plm_label_kind_name(table->kind));
  for (size_t i = 0; i < table->count; i++) {
    const struct plm_labelled_row *row = &table->rows[i];
    *out++ = ' ';
    *out = '\0';
    if (row->name != NULL) out += sprintf(out, "%s=", row->name);
    if (table->kind == PLM_LABEL_NUMBER) out += sprintf(out, "%.17g", row->number);
    if (table->kind == PLM_LABEL_CLASS) out += sprintf(out, "%s", table->classes[row->label]);
    for (uint32_t t = 0; t < row->label_count; t++)
      out += sprintf(out, "%s%s", t == 0 ? "" : ",",
                     row->labels[t] < 0 ? "?" : table->classes[row->labels[t]]);
    if (parts) out += sprintf(out, "/%u", row->part);
  }
  return text;
}

static void reads(const struct plm_labelled_request *like, const char *name, const char *text,
                  bool parts, const char *expected)
{
  struct plm_labelled_table table;
  if (read_as(like, name, text, &table) != PLM_OK)
    fail_msg("%s: %s (%s)", failure.where, failure.what, text);
  assert_string_equal(shown(&table, parts), expected);
  plm_labelled_table_deinit(&table);
}

/* `where` is what follows the name of the file. */
static void refuses(const struct plm_labelled_request *like, const char *name, const char *text,
                    plm_status status, const char *what, const char *where, const char *hint)
{
  struct plm_labelled_table table;
  const plm_status got = read_as(like, name, text, &table);
  plm_labelled_table_deinit(&table);
  assert_string_equal(failure.what, what);
  assert_int_equal(got, status);
  const char *place = strstr(failure.where, name);
  assert_non_null(place);
  assert_string_equal(place + strlen(name), where);
  assert_string_equal(failure.hint, hint);
}

static const struct plm_labelled_request guessed = {0}, number = {.kind = PLM_LABEL_NUMBER},
                                         one = {.kind = PLM_LABEL_CLASS},
                                         each = {.kind = PLM_LABEL_RESIDUES},
                                         several = {.kind = PLM_LABEL_CLASSES, .corpus = true};

static void words_for_a_missing_label(void **state)
{
  (void)state;
  reads(&one, "a.csv",
        "sequence,y\nM,NA\nM,N/A\nM,#N/A\nM,NaN\nM,nan\nM,null\nM,NULL\nM,None\nM,\n"
        "M,na\nM,NAN\nM,Null\nM,none\nM,N\nM,NA.\n",
        false, "class: na NAN Null none N NA.");
}

static void numbers_have_bounds(void **state)
{
  (void)state;
  /* 63 bytes are a number, 64 are not */
  char text[200];
  const int width = snprintf(text, sizeof text, "sequence,y\nM,%061.1f\nM,%062.1f\n", 0.5, 1.5);
  assert_true(width > 0);
  struct plm_labelled_table table;
  assert_int_equal(read_as(&number, "a.csv", text, &table), PLM_OK);
  assert_true(table.rows[0].number == 0.5 && table.rows[1].number == 1.5);
  plm_labelled_table_deinit(&table);
  snprintf(text, sizeof text, "sequence,y\nM,%063.1f\n", 0.5);
  assert_int_equal(read_as(&number, "a.csv", text, &table), PLM_OK);
  plm_labelled_table_deinit(&table);
  snprintf(text, sizeof text, "sequence,y\nM,%064.1f\n", 0.5);
  refuses(&number, "a.csv", text, PLM_FORMAT,
          "\"000000000000000000000000000000000000000000000000000000000000\" is not a finite number",
          ":2, column 2 (y)",
          "a missing number is an empty field or NA; for classes, give --task classification");
  reads(&number, "a.csv", "sequence,y\nM,1e100\nM,-1e100\nM,+2E-3\n", false,
        "number: 1e+100 -1e+100 0.002");
  refuses(&number, "a.csv", "sequence,y\nM,1.5e100\n", PLM_FORMAT,
          "1.5e+100 is beyond the limit of 1e100", ":2, column 2 (y)", "");
  refuses(&number, "a.csv", "sequence,y\nM,1\nM,-1.5e100\n", PLM_FORMAT,
          "-1.5e+100 is beyond the limit of 1e100", ":3, column 2 (y)", "");
  static const char *const wrong[] = {"1e400", "0x10", "-", "1.5.2", "infinity", "1 2"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char what[80];
    snprintf(text, sizeof text, "sequence,y\nM,%s\n", wrong[i]);
    snprintf(what, sizeof what, "\"%s\" is not a finite number", wrong[i]);
    refuses(&number, "a.csv", text, PLM_FORMAT, what, ":2, column 2 (y)",
            "a missing number is an empty field or NA; for classes, give --task classification");
  }
  const struct plm_labelled_request corpus = {.kind = PLM_LABEL_NUMBER, .corpus = true};
  refuses(&corpus, "a.csv", "sequence,y\nM,x\n", PLM_FORMAT, "\"x\" is not a finite number",
          ":2, column 2 (y)",
          "a missing number is an empty field or NA; for classes, give --labels COLUMN:class");
  refuses(&corpus, "a.jsonl", "{\"sequence\":\"M\",\"y\":[1]}\n", PLM_FORMAT,
          "an array is not a number", ":1, key \"y\"",
          "for several classes, give --labels COLUMN:classes");
  refuses(&one, "a.jsonl", "{\"sequence\":\"M\",\"y\":[1]}\n", PLM_FORMAT,
          "an array is not one class", ":1, key \"y\"", "");
}

static void residues_are_characters_or_words(void **state)
{
  (void)state;
  reads(&each, "a.csv",
        "sequence,y\nMKV,HE?\nMKV,H E  ?\nMKV,\"'H', \"\"E\"\";C\"\nMKV,[H;E;C]\nM,[loop]\n"
        "M,?\nMK,a\tbc\nMK,'H' 'E\nMK,H ' \nMK,[HE]\n",
        false, "residues: H,E,? H,E,? H,E,C H,E,C loop ? a,bc H,'E H,' H,E");
  reads(
      &each, "a.jsonl",
      " \n{\"sequence\":\"MKVAL\",\"y\":[\"a b\",null,\"\",true,0.5]}\n{\"sequence\":\"MK\",\"y\":"
      "\"b a\"}\n",
      false, "residues: a b,?,?,true,0.5 b,a");
  static const char hint[] =
      "give one character or one word for each residue; ? is a missing label";
  refuses(&each, "a.csv", "sequence,y\nMK,[HEC]\n", PLM_FORMAT,
          "there are 3 labels, but the sequence has 2 residues", ":2, column 2 (y)", hint);
  refuses(&each, "a.csv", "sequence,y\nMKVAL,H E\n", PLM_FORMAT,
          "there are 2 labels, but the sequence has 5 residues", ":2, column 2 (y)", hint);
  refuses(&each, "a.jsonl", "{\"sequence\":\"MK\",\"y\":[1]}\n", PLM_FORMAT,
          "there are 1 labels, but the sequence has 2 residues", ":1, key \"y\"", hint);
  refuses(&each, "a.jsonl", "{\"sequence\":\"MK\",\"y\":[1,[2]]}\n", PLM_FORMAT,
          "this value is not a number, a string or an array of them", ":1, key \"y\"", "");
}

/* With a column of names there are no sequences, and the labels say how long they are. */
static void names_stand_for_sequences(void **state)
{
  (void)state;
  const struct plm_labelled_request named = {
      .kind = PLM_LABEL_RESIDUES, .name_column = "id", .sequence_column = "no", .corpus = true};
  reads(&named, "a.csv", "id,y\na,HHE\nb,H E\nc,H\nd,[EH]\n", false,
        "residues: a=H,H,E b=H,E c=H d=E,H");
  reads(&named, "a.jsonl", "{\"id\":7,\"y\":[\"H\",null]}\n", false, "residues: 7=H,?");
  refuses(&named, "a.csv", "id,y\n ,HHE\n", PLM_FORMAT, "this row has no name", ":2, column 1 (id)",
          "");
  refuses(&named, "a.csv", ">a,y\n", PLM_FORMAT, "this file is FASTA, not a table", ":1",
          "give a table with named columns: CSV, TSV or JSON lines");
  refuses(&several, "a.csv", ">a,y\n", PLM_FORMAT, "this file is FASTA, not a table", ":1",
          "the labels of FASTA are in a table beside it: --labels-table FILE");
  refuses(&one, "a.csv", ">a,y\n", PLM_FORMAT, "this file is FASTA, not a table", ":1",
          "give a table with named columns: CSV, TSV or JSON lines");
}

static void several_classes_are_separated(void **state)
{
  (void)state;
  reads(&several, "a.csv",
        "sequence,y\nM,b;a|c\nM,\"a,,b\"\nM,\"' x y ';\"\"\"\"\"\nM,[c;a]\nM,;\nM,'\nM,[c\nM,[]\n",
        false, "classes: b,a,c a,b  x y  c,a  ' [c ");
  reads(&several, "a.jsonl",
        "{\"sequence\":\"M\",\"y\":[\"a;b\",\"\",null,2]}\n{\"sequence\":\"M\",\"y\":[]}\n", false,
        "classes: a;b,2 ");
}

/* The names of a corpus's classes are text of at most 1024 bytes. */
static void names_of_classes_have_bounds(void **state)
{
  (void)state;
  const struct plm_labelled_request class_ = {.kind = PLM_LABEL_CLASS, .corpus = true},
                                    residue = {.kind = PLM_LABEL_RESIDUES, .corpus = true};
  struct plm_text text = {0};
  struct plm_labelled_table table;
  for (int size = 1024; size <= 1025; size++) {
    plm_text_clear(&text);
    plm_text_printf(&text, "sequence,y\nM,%0*d\n", size, 7);
    if (size == 1025) {
      refuses(&class_, "a.csv", text.data, PLM_FORMAT,
              "this label is longer than the 1024 bytes that the name of a class may have",
              ":2, column 2 (y)", "");
      break;
    }
    assert_int_equal(read_as(&class_, "a.csv", text.data, &table), PLM_OK);
    assert_int_equal(strlen(table.classes[0]), 1024);
    plm_labelled_table_deinit(&table);
  }
  plm_text_deinit(&text);
  static const char control[] = "this label has a control character", at[] = ":3, column 2 (y)";
  refuses(&class_, "a.csv", "sequence,y\nM,ok\nM,a\tb\n", PLM_FORMAT, control, at, "");
  refuses(&class_, "a.csv", "sequence,y\nM,ok\nM,\x7f\n", PLM_FORMAT, control, at, "");
  refuses(&class_, "a.csv",
          "sequence,y\nM,ok\nM,a\x7f"
          "b\n",
          PLM_FORMAT, control, at, "");
  refuses(&class_, "a.csv", "sequence,y\nM,ok\nM,a\xffz\n", PLM_FORMAT, "this label is not UTF-8",
          at, "");
  refuses(&class_, "a.csv", "sequence,y\nM,ok\nM,a\xc3\n", PLM_FORMAT, "this label is not UTF-8",
          at, "");
  refuses(&residue, "a.csv", "sequence,y\nMK,ok\nMK,a\x7f\n", PLM_FORMAT, control, at, "");
  reads(&residue, "a.csv", "sequence,y\nMK,a\tb\n", false, "residues: a,b");
  reads(&class_, "a.csv", "sequence,y\nMK,~ \xce\xbc\n", false, "class: ~ \xce\xbc");
  reads(&one, "a.csv", "sequence,y\nMK,a\tb\n", false, "class: a\tb"); /* nothing is ingested */
}

/* As many classes as there may be, and one more. */
static void classes_are_limited(void **state)
{
  (void)state;
  const struct {
    struct plm_labelled_request request;
    int most;
    const char *hint;
  } rows[] = {{{.kind = PLM_LABEL_CLASS},
               1000,
               "is it a column of numbers (--task regression) or of names?"},
              {{.kind = PLM_LABEL_RESIDUES},
               1000,
               "is it a column of numbers (--task regression) or of names?"},
              {{.kind = PLM_LABEL_RESIDUES, .corpus = true},
               255,
               "is it a column of numbers (--labels COLUMN:number) or of names?"}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    for (int more = 0; more < 2; more++) {
      struct plm_text text = {0};
      struct plm_labelled_table table;
      char what[100];
      plm_text_puts(&text, "sequence,y\n");
      for (int i = 0; i < rows[r].most + more; i++)
        plm_text_printf(&text, rows[r].request.kind == PLM_LABEL_CLASS ? "MK,c%d\n" : "MK,c%d c0\n",
                        i);
      const plm_status status = read_as(&rows[r].request, "a.csv", text.data, &table);
      plm_text_deinit(&text);
      if (more == 0) {
        assert_int_equal(status, PLM_OK);
        assert_int_equal(table.class_count, rows[r].most);
        for (int i = 1; i < rows[r].most; i++)
          assert_true(strcmp(table.classes[i - 1], table.classes[i]) < 0);
        plm_labelled_table_deinit(&table);
        continue;
      }
      plm_labelled_table_deinit(&table);
      snprintf(what, sizeof what, "there are more than %d classes; this row has one too many",
               rows[r].most);
      assert_int_equal(status, PLM_LIMIT);
      assert_string_equal(failure.what, what);
      assert_string_equal(failure.hint, rows[r].hint);
      snprintf(what, sizeof what, "a.csv:%d, column 2 (y)", rows[r].most + 2);
      assert_non_null(strstr(failure.where, what));
    }
  }
}

static void kinds_are_guessed_by_most_labels(void **state)
{
  (void)state;
  static const struct {
    const char *text, *expected;
  } rows[] = {
      {"sequence,y\nMKV,HHE\nMKVA,x\n", "class: HHE x"}, /* half of them fit */
      {"sequence,y\nM,H\nK,E\n", "class: H E"},          /* no sequence is longer than 1 */
      {"sequence,y\nM,H\nKV,EE\n", "residues: H E,E"},
      {"sequence,y\nMK,12\nMA,34\n", "residues: 1,2 3,4"},
      {"sequence,y\nMK,12\nMA,34\nMAV,34\n", "number: 12 34 34"},
      {"sequence,y\nMKV,1.5\nMAV,345\n", "number: 1.5 345"},
      {"sequence,y\nMKV,0\nMAV,1\n", "class: 0 1"},
      {"sequence,y\nMKV,0\nMAV,2\n", "number: 0 2"},
      {"sequence,y\nMKV,00\nMAV,1\n", "number: 0 1"},
      {"sequence,y\nMKVA,1.5\nMAVA,x\nMAVAC,2\n", "class: 1.5 x 2"},
  };
  for (size_t i = 0; i + 1 < sizeof rows / sizeof *rows; i++)
    reads(&guessed, "a.csv", rows[i].text, false, rows[i].expected);
  const struct plm_labelled_request corpus = {.corpus = true};
  static const char list[] = "{\"sequence\":\"MKVA\",\"y\":[\"a\",\"b\"]}\n";
  reads(&corpus, "a.jsonl", list, false, "classes: a,b");
  refuses(&guessed, "a.jsonl", list, PLM_FORMAT, "an array is not one class", ":1, key \"y\"", "");
  reads(&guessed, "a.jsonl", "{\"sequence\":\"MK\",\"y\":[\"a\",\"b\"]}\n", false, "residues: a,b");
}

static void parts_and_folds(void **state)
{
  (void)state;
  const struct plm_labelled_request split = {.kind = PLM_LABEL_CLASS, .split_column = "s"};
  reads(&split, "a.csv",
        "sequence,y,s\nM,a,train\nM,a,training\nM,a,LEARN\nM,a,valid\nM,a,Validation\nM,a,val\n"
        "M,a,dev\nM,a,test\nM,a,testing\n",
        true, "class: a/0 a/0 a/0 a/1 a/1 a/1 a/1 a/2 a/2");
  reads(&split, "a.csv", "sequence,y,s\nM,a,9999\nM,a,3.0\nM,a,0\nM,a,3\nM,a,00004\n", true,
        "class: a/3 a/1 a/0 a/1 a/2");
  static const char *const wrong[] = {"10000", "3.00",   ".0",  "-1",
                                      "1.5",   "trains", "tes", "000001"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char text[100], what[100];
    snprintf(text, sizeof text, "sequence,y,s\nM,a,%s\n", wrong[i]);
    snprintf(what, sizeof what, "\"%s\" names no part of the data", wrong[i]);
    refuses(&split, "a.csv", text, PLM_FORMAT, what, ":2, column 3 (s)",
            "the parts are train, valid and test; or give each row the number of its fold");
  }
  refuses(&split, "a.csv", "sequence,y,s\nM,a,train\nM,a,1\n", PLM_FORMAT,
          "\"1\" names no part of the data", ":3, column 3 (s)",
          "the parts are train, valid and test; or give each row the number of its fold");
  const struct plm_labelled_request corpus = {
      .kind = PLM_LABEL_CLASS, .split_column = "s", .corpus = true};
  refuses(&corpus, "a.csv", "sequence,y,s\nM,a,x\n", PLM_FORMAT, "\"x\" is not a split",
          ":2, column 3 (s)", "write train, valid or test");
}

static void flips_column_moves_rows_of_training(void **state)
{
  (void)state;
  struct plm_labelled_request set = {.kind = PLM_LABEL_CLASS, .split_column = "set"};
  reads(&set, "a.csv",
        "sequence,y,set,validation\nM,a,train,TRUE\nM,a,train,1\nM,a,train,1.0\nM,a,train,yes\n"
        "M,a,train,False\nM,a,train,0\nM,a,train,0.0\nM,a,train,NO\nM,a,train,NA\nM,a,test,true\n"
        "M,a,valid,false\n",
        true, "class: a/1 a/1 a/1 a/1 a/0 a/0 a/0 a/0 a/0 a/2 a/1");
  refuses(&set, "a.csv", "sequence,y,set,validation\nM,a,train,maybe\n", PLM_FORMAT,
          "\"maybe\" is neither true nor false", ":2, column 4 (validation)",
          "a row without a value counts as false");
  reads(&set, "a.csv", "sequence,y,set\nM,a,train\n", true, "class: a/0");
  set.split_column = "part";
  reads(&set, "a.csv", "sequence,y,part,validation\nM,a,train,maybe\n", true, "class: a/0");
}

/* Rows that another part has too count for their part, and those of folds all together. */
static void shared_sequences_are_counted(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    uint64_t shared[PLM_PARTS], line[PLM_PARTS];
  } rows[] = {
      {"sequence,y,s\nMA,a,train\nMK,a,test\nMK,a,train\nMA,a,test\nMC,a,test\nMC,a,test\n",
       {2, 0, 2},
       {2, 0, 3}},
      {"sequence,y,s\nMA,a,test\nMAC,a,train\nMV,a,train\nMV,a,valid\nMV,a,valid\n",
       {1, 2, 0},
       {4, 5, 0}},
      {"sequence,y,s\nMV,a,5\nMA,a,1\nMA,a,1\nMC,a,5\nMA,a,5\nMC,a,5\n", {3}, {3}},
  };
  const struct plm_labelled_request split = {.kind = PLM_LABEL_CLASS, .split_column = "s"};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_labelled_table table;
    assert_int_equal(read_as(&split, "a.csv", rows[i].text, &table), PLM_OK);
    for (int part = 0; part < PLM_PARTS; part++) {
      assert_int_equal(table.shared[part].count, rows[i].shared[part]);
      assert_int_equal(table.shared[part].line, rows[i].line[part]);
    }
    plm_labelled_table_deinit(&table);
  }
}

/* Ingest skips a bad sequence, or says so, itself. */
static void bad_sequences(void **state)
{
  (void)state;
  refuses(&one, "a.csv", "sequence,y\nM*K,a\n", PLM_FORMAT,
          "character '*' is not a residue; '*' is allowed only at the end",
          ":2, column 1 (sequence)", "");
  refuses(&one, "a.csv", "sequence,y\nM\x01K,a\n", PLM_FORMAT, "byte 0x01 is not a residue",
          ":2, column 1 (sequence)", "");
  refuses(&one, "a.csv", "sequence,y\nM1,a\n", PLM_FORMAT, "character '1' is not a residue",
          ":2, column 1 (sequence)", "");
  refuses(&one, "a.csv", "sequence,y\n,a\n", PLM_FORMAT, "empty sequence",
          ":2, column 1 (sequence)", "");
  const struct plm_labelled_request corpus = {.kind = PLM_LABEL_CLASS, .corpus = true};
  reads(&corpus, "a.csv", "sequence,y\nM1,a\nMK,b\n,c\nMA,d\n", false, "class: b d");
  reads(&corpus, "a.csv", "sequence,y\nM1,a\n", false, "class:"); /* no row is left */
  const struct plm_labelled_request split = {.kind = PLM_LABEL_CLASS, .split_column = "s"};
  refuses(&one, "a.csv", "sequence,y\nM,\n", PLM_FORMAT, "no row of the table has a label", "", "");
  refuses(&split, "a.csv", "sequence,y,s\nM,,\nM,a,\n", PLM_FORMAT,
          "no row of the table has a label and a split", "", "");
  refuses(&split, "a.jsonl", "{\"sequence\":\"M\",\"y\":1,\"s\":{}}\n", PLM_FORMAT,
          "this value is not a number or a string", ":1, key \"s\"", "");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_for_a_missing_label),
      cmocka_unit_test(numbers_have_bounds),
      cmocka_unit_test(residues_are_characters_or_words),
      cmocka_unit_test(names_stand_for_sequences),
      cmocka_unit_test(several_classes_are_separated),
      cmocka_unit_test(names_of_classes_have_bounds),
      cmocka_unit_test(classes_are_limited),
      cmocka_unit_test(kinds_are_guessed_by_most_labels),
      cmocka_unit_test(parts_and_folds),
      cmocka_unit_test(flips_column_moves_rows_of_training),
      cmocka_unit_test(shared_sequences_are_counted),
      cmocka_unit_test(bad_sequences),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
