/* Tables with labels: formats, kinds, splits, and ugly tables, each with the message that names
 * line and column. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/sequences/labelled_table.h"
#include "tests/support/harness/scratch.h"

static struct plm_error failure;

static plm_status read_table(const char *name, const char *text, const char *target,
                             const char *split, enum plm_label_kind kind,
                             struct plm_labelled_table *table)
{
  const char *path = scratch_path(name);
  const struct plm_labelled_request request = {
      .path = path, .target_column = target, .split_column = split, .kind = kind};
  scratch_write(path, text, strlen(text));
  failure = (struct plm_error){0};
  return plm_labelled_table_read(&request, table, &failure);
}

/* "LINE SEQUENCE LABEL PART;" for each row. */
static const char *shown(const struct plm_labelled_table *table)
{
  static char text[4096];
  char *out = text;
  *out = '\0';
  for (size_t i = 0; i < table->count; i++) {
    const struct plm_labelled_row *row = &table->rows[i];
    out += sprintf(out, "%llu %.*s ", (unsigned long long)row->line, (int)row->length,
                   (const char *)row->residues);
    if (table->kind == PLM_LABEL_NUMBER) out += sprintf(out, "%g", row->number);
    if (table->kind == PLM_LABEL_CLASS) out += sprintf(out, "%s", table->classes[row->label]);
    for (uint32_t t = 0; t < row->length && table->kind == PLM_LABEL_RESIDUES; t++)
      out += sprintf(out, "%s%s", t == 0 ? "" : ",",
                     row->labels[t] < 0 ? "?" : table->classes[row->labels[t]]);
    out += sprintf(out, " %s;",
                   table->folds > 0 ? (const char *[]){"a", "b", "c"}[row->part]
                                    : plm_label_part_names[row->part]);
  }
  return text;
}

static void reads(const char *name, const char *text, const char *target, const char *split,
                  const char *expected)
{
  struct plm_labelled_table table;
  if (read_table(name, text, target, split, PLM_LABEL_GUESSED, &table) != PLM_OK)
    fail_msg("%s: %s", failure.where, failure.what);
  assert_string_equal(shown(&table), expected);
  plm_labelled_table_deinit(&table);
}

/* The error has the text, at the place, and the hint if it is not NULL. */
static void refuses(const char *text, enum plm_label_kind kind, const char *what, const char *where,
                    const char *hint)
{
  struct plm_labelled_table table;
  assert_int_not_equal(read_table("ugly.csv", text, "y", "part", kind, &table), PLM_OK);
  plm_labelled_table_deinit(&table);
  if (strstr(failure.what, what) == NULL) fail_msg("\"%s\" lacks \"%s\"", failure.what, what);
  if (strstr(failure.where, where) == NULL) fail_msg("\"%s\" lacks \"%s\"", failure.where, where);
  if (hint != NULL && strstr(failure.hint, hint) == NULL)
    fail_msg("\"%s\" lacks \"%s\"", failure.hint, hint);
}

static void formats(void **state)
{
  (void)state;
  reads("a.csv", "sequence,y,part\nMK,1.5,train\nac d,-2e3,TEST\n", "y", "part",
        "2 MK 1.5 train;3 ACD -2000 test;");
  reads("a.tsv", "y\tseq\tpart\n1,5\tMK*\tdev\n", "y", "part", "2 MK 1,5 valid;");
  reads("a.csv", "\xef\xbb\xbfsequence;y;part\r\nMK;\"a;b\";0\r\n\r\nMA;c;7\r\n", "y", "part",
        "2 MK a;b a;4 MA c b;");
  reads("a.jsonl",
        "{\"sequence\":\"MK\",\"y\":2,\"part\":\"train\"}\n\n{\"part\":\"test\",\"y\":null,"
        "\"sequence\":\"MA\"}\n{\"sequence\":\"MAV\",\"y\":0.25,\"part\":\"test\"}\n",
        "y", "part", "1 MK 2 train;4 MAV 0.25 test;");
  reads(
      "a.jsonl",
      "{\"sequence\":\"MKV\",\"y\":[0,null,12],\"f\":2}\n{\"sequence\":\"MA\",\"y\":\"HE\",\"f\":0}"
      "\n",
      "y", "f", "1 MKV 0,?,12 b;2 MA H,E a;");
  /* an item is one label, whatever is in it */
  reads("a.jsonl",
        "{\"sequence\":\"MK\",\"y\":[\"loop a\",\"H,E\"],\"f\":0}\n"
        "{\"sequence\":\"MAV\",\"y\":[\"H\",\"\",\"E\"],\"f\":1}\n",
        "y", "f", "1 MK loop a,H,E a;2 MAV H,?,E b;");
}

/* FLIP's columns, where a validation row says True and others are empty. */
static void flip(void **state)
{
  (void)state;
  reads("flip.csv",
        "sequence,target,set,validation\nMK,1,train,\nMA,2,train,True\nMV,3,test,\nML,4,,\n"
        "MC,,train,False\nMD,-1,train,False\n",
        "target", "set", "2 MK 1 train;3 MA 2 valid;4 MV 3 test;7 MD -1 train;");
}

static void kinds_are_guessed(void **state)
{
  (void)state;
  reads("a.csv", "sequence,y,f\nMK,0,0\nMA,1,1\n", "y", "f", "2 MK 0 a;3 MA 1 b;");
  reads("a.csv", "sequence,y,f\nMKV,HHE,0\nMA,?C,1\n", "y", "f", "2 MKV H,H,E a;3 MA ?,C b;");
  reads("a.csv", "sequence,y,f\nMKVAL,[HHEEC],0\nM,[H],1\n", "y", "f",
        "2 MKVAL H,H,E,E,C a;3 M H b;");
  reads("a.csv", "sequence,y,f\nMKV,\"[0, 12, 1]\",0\nMA,'a' 'b',1\n", "y", "f",
        "2 MKV 0,12,1 a;3 MA a,b b;");
  reads("a.csv", "sequence,y,f\nMKVA,0.25,0\nMAVL,1.75,1\n", "y", "f",
        "2 MKVA 0.25 a;3 MAVL 1.75 b;");
  struct plm_labelled_table table;
  assert_int_equal(
      read_table("a.csv", "sequence,y,f\nMK,1,0\nMA,2,1\n", "y", "f", PLM_LABEL_CLASS, &table),
      PLM_OK);
  assert_int_equal(table.kind, PLM_LABEL_CLASS);
  plm_labelled_table_deinit(&table);
}

/* Of a column of numbers, one that is wrong is an error also if nobody said that they are numbers.
 */
static void a_wrong_number_is_found(void **state)
{
  (void)state;
  static const char hint[] = "write numbers with a decimal point";
  refuses("sequence,y,part\nMKVA,\"0,25\",train\nMAVLC,\"1,75\",test\n", PLM_LABEL_GUESSED,
          "\"0,25\" is not a finite number", "ugly.csv:2, column 2 (y)", hint);
  refuses("sequence,y,part\nMKVA,0.25,train\nMAVLC,n.d.,test\nMKVAL,2,test\n", PLM_LABEL_GUESSED,
          "\"n.d.\" is not a finite number", "ugly.csv:3, column 2 (y)", "--task classification");
  /* whole numbers among names are classes, and so are numbers that are fewer than names */
  reads("a.csv", "sequence,y,part\nMKVA,7,train\nMAVLC,8,test\nMKV,x,test\n", "y", "part",
        "2 MKVA 7 train;3 MAVLC 8 test;4 MKV x test;");
  reads("a.csv", "sequence,y,part\nMKVA,1.5,train\nMAVLCD,x,test\n", "y", "part",
        "2 MKVA 1.5 train;3 MAVLCD x test;");
}

/* Missing values, duplicates across parts, and names in UTF-8 are right, and counted. */
static void what_is_left_out_is_counted(void **state)
{
  (void)state;
  struct plm_labelled_table table;
  static const char text[] =
      "sequence,y,part\nMK,\xc3\xa4,train\nMK,\xe8\x9b\x8b,test\nMA,NA,test\n"
      "MV,b,NaN\nMC, nan ,train\nMD,b,test\n";
  assert_int_equal(read_table("a.csv", text, "y", "part", PLM_LABEL_CLASS, &table), PLM_OK);
  assert_string_equal(shown(&table), "2 MK \xc3\xa4 train;3 MK \xe8\x9b\x8b test;7 MD b test;");
  assert_int_equal(table.missing_labels, 2);
  assert_int_equal(table.missing_splits, 1);
  assert_int_equal(table.shared[PLM_PART_TEST].count, 1);
  assert_int_equal(table.shared[PLM_PART_TEST].line, 3);
  assert_int_equal(table.parts[PLM_PART_TRAIN], 1);
  assert_int_equal(table.parts[PLM_PART_TEST], 2);
  plm_labelled_table_deinit(&table);
}

/* The same sequences are in the same parts, about four in five for training. */
static void the_hash_splits(void **state)
{
  (void)state;
  static const char letters[] = "ACDEFGHIKLMNPQRSTVWY";
  struct plm_text text = {0};
  struct plm_labelled_table table;
  plm_text_puts(&text, "sequence,y\n");
  for (int i = 0; i < 400; i++)
    plm_text_printf(&text, "M%c%c%c,%d.5\n", letters[i % 20], letters[i / 20], letters[i * 7 % 20],
                    i);
  assert_int_equal(read_table("a.csv", text.data, "y", NULL, PLM_LABEL_GUESSED, &table), PLM_OK);
  assert_true(table.hashed && table.count == 400 && table.shared[PLM_PART_TEST].count == 0);
  assert_in_range(table.parts[PLM_PART_TRAIN], 280, 360);
  assert_in_range(table.parts[PLM_PART_VALID], 20, 70);
  assert_in_range(table.parts[PLM_PART_TEST], 20, 70);
  plm_labelled_table_deinit(&table);
  plm_text_deinit(&text);
}

static void ugly_tables(void **state)
{
  (void)state;
  const enum plm_label_kind number = PLM_LABEL_NUMBER, residues = PLM_LABEL_RESIDUES;
  refuses("sequence;y;part\nMK;1.5;train\nMA;1,5;train\n", number, "\"1,5\" is not a finite number",
          "ugly.csv:3, column 2 (y)", "decimal point");
  refuses("sequence,y,part\nMK,inf,train\n", number, "\"inf\"", ":2, column 2 (y)", NULL);
  refuses("sequence,y,part\nMK,\"a\"b,train\n", number, "quote", ":2", "double");
  refuses("sequence,y,part\nMK,1\n", number, "2 fields, but the header has 3", ":2", NULL);
  refuses("sequence,y,part\nMK,1,train\n,2,train\n", number, "empty sequence",
          ":3, column 1 (sequence)", NULL);
  refuses("sequence,y,part\nM1K,1,train\n", number, "character '1' is not a residue",
          ":2, column 1 (sequence)", NULL);
  refuses("sequence,y,part\nMKV,HHE,train\nMKV,HH,test\n", residues,
          "2 labels, but the sequence has 3 residues", ":3, column 2 (y)", "one character");
  refuses("sequence,y,part\nMK,1,train\nMA,1,tset\n", number, "\"tset\" names no part",
          ":3, column 3 (part)", "train, valid and test");
  refuses("sequence,y,part\nMK,1,0\nMA,1,test\n", number, "not the number of a fold",
          ":3, column 3 (part)", NULL);
  refuses("sequence,z,part\nMK,1,0\n", number, "no column \"y\"", ":1", "\"z\"");
  refuses("sequence,Y,part\nMK,1,0\n", number, "no column \"y\"", ":1", "\"Y\"");
  refuses("sequence,y,y,part\nMK,1,2,0\n", number, "2 columns \"y\"", ":1", NULL);
  refuses("sequence,seq,y,part\nMK,MA,1,0\n", number, "more than one column called sequence", ":1",
          NULL);
  refuses("sequence,y,part\nMK,,train\n", number, "no row of the table has a label", "ugly.csv",
          NULL);
  refuses("", number, "empty", "ugly.csv", NULL);
  refuses("{\"sequence\":\"MK\",\"part\":0}\n", number, "no key \"y\"", ":1", "null");
  refuses("{\"sequence\":\"MK\",\"part\":0,\"y\":1}\n{\"sequence\":7,\"part\":0,\"y\":1}\n", number,
          "not a string", ":2, key \"sequence\"", NULL);
  refuses("{\"sequence\":\"MK\",\"part\":0,\"y\":{}}\n", number, "not a number, a string",
          ":1, key \"y\"", NULL);
  refuses("{\"sequence\":\"MK\"\n", number, "JSON", ":1", NULL);
  refuses("{\"y\":1,\"part\":0}\n", number,
          "this object has no key sequence, seq, protein_sequence or mutated_sequence", ":1",
          "name the key of the sequences with --sequence-column");
}

static void too_many_classes(void **state)
{
  (void)state;
  struct plm_text text = {0};
  plm_text_puts(&text, "sequence,y,part\n");
  for (int i = 0; i < 100000; i++) plm_text_printf(&text, "MK,c%d,train\n", i);
  refuses(text.data, PLM_LABEL_CLASS, "more than 1000 classes", ":1002, column 2 (y)",
          "--task regression");
  plm_text_deinit(&text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(formats),           cmocka_unit_test(flip),
      cmocka_unit_test(kinds_are_guessed), cmocka_unit_test(what_is_left_out_is_counted),
      cmocka_unit_test(the_hash_splits),   cmocka_unit_test(ugly_tables),
      cmocka_unit_test(too_many_classes),  cmocka_unit_test(a_wrong_number_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
