/* Tables of sequences: the header, the columns that are chosen, rows, and names of records. Each
 * input is read whole and in two spans, cut at every place. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "common/base/text/text.h"
#include "common/corpus/corpus.h"
#include "common/sequences/sequence_reader.h"

/* Prints each record on a line: "NAME RESIDUES", "bad WHERE WHAT" or "failed WHERE WHAT (HINT)". */
static void print_records(struct plm_byte_stream *stream, enum plm_tokenizer_kind tokenizer,
                          const struct plm_sequence_choices *choices, struct plm_text *out)
{
  struct plm_sequence_reader *reader;
  struct plm_sequence sequence;
  struct plm_error error = {0};
  enum plm_sequence_result result;
  reader = plm_sequence_reader_open(stream, tokenizer, 1000);
  plm_sequence_reader_choose(reader, choices);
  plm_text_puts(out, "");
  while ((result = plm_sequence_reader_next(reader, &sequence, &error)) != PLM_SEQUENCE_END) {
    if (result == PLM_SEQUENCE_READ) {
      plm_text_printf(out, "%.*s ", (int)sequence.name_size, sequence.name);
      plm_text_append(out, sequence.residues, sequence.size);
      assert_true(choices->columns == (sequence.columns != NULL && sequence.fields != NULL));
      if (choices->columns) plm_text_printf(out, " %s %s", sequence.columns, sequence.fields);
      plm_text_puts(out, "\n");
    } else if (result == PLM_SEQUENCE_BAD) {
      plm_text_printf(out, "bad %s %s\n", error.where, error.what);
    } else {
      assert_int_equal(result, PLM_SEQUENCE_FAILED);
      plm_text_printf(out, "failed %s %s (%s)\n", error.where, error.what, error.hint);
      break;
    }
  }
  if (result == PLM_SEQUENCE_END) /* and it stays there */
    assert_int_equal(plm_sequence_reader_next(reader, &sequence, &error), PLM_SEQUENCE_END);
  plm_sequence_reader_close(reader);
}

struct reading {
  const char *file, *input, *expected;
  struct plm_sequence_choices choices;
  enum plm_tokenizer_kind tokenizer;
};

static void check_readings(const struct reading *table, size_t count)
{
  static char packed[1 << 16];
  for (size_t i = 0; i < count; i++) {
    const struct reading *reading = &table[i];
    const size_t size = strlen(reading->input);
    for (size_t cut = 0; cut <= size; cut++) {
      struct plm_text out = {0};
      struct plm_byte_stream *stream;
      const char *bytes = reading->input;
      size_t length = size;
      if (cut != size) { /* two frames */
        length = ZSTD_compress(packed, sizeof packed, bytes, cut, 1);
        length +=
            ZSTD_compress(packed + length, sizeof packed - length, bytes + cut, size - cut, 1);
        bytes = packed;
      }
      assert_int_equal(plm_byte_stream_open_memory(reading->file, bytes, length, &stream, NULL),
                       PLM_OK);
      print_records(stream, reading->tokenizer, &reading->choices, &out);
      if (strcmp(out.data, reading->expected) != 0)
        fail_msg("input %zu (%s) cut at %zu:\n%s\nexpected:\n%s", i, reading->file, cut, out.data,
                 reading->expected);
      plm_text_deinit(&out);
    }
  }
}

static void other_columns_are_handed_out(void **state)
{
  (void)state;
  static const struct reading table[] = {
      {"a.csv",
       "id,sequence,y,z\np,LAGV,1,\nq,SERT,\"a \"\"b\"\"\nc\",2\n",
       "p LAGV [\"y\", \"z\"] [\"1\", \"\"]\n"
       "q SERT [\"y\", \"z\"] [\"a \\\"b\\\"\\nc\", \"2\"]\n",
       {.columns = true},
       0},
      {"a.csv",
       "x,Seq\n1,LAGV\n",
       "1 LAGV [] []\n",
       {.columns = true, .sequence_column = "Seq", .name_column = "x"},
       0},
      {"a.csv", "sequence,x\nLAGV,1\n", "a.csv:2 LAGV [\"x\"] [\"1\"]\n", {.columns = true}, 0},
      {"a.csv",
       "y,id,x,sequence\n1,p,2,LAGV\n",
       "p LAGV [\"y\", \"x\"] [\"1\", \"2\"]\n",
       {.columns = true},
       0},
  };
  check_readings(table, sizeof table / sizeof *table);
}

static void columns_have_usual_names(void **state)
{
  static const struct reading readings[] = {
      {"a.csv", "id,sequence\np,LAGV\nq,SERT\n", "p LAGV\nq SERT\n", {0}, 0},
      {"a.csv", "Seq,NAME\nlagv,p\n", "p LAGV\n", {0}, 0},
      {"a.csv", "Protein_Sequence, Accession \nLAGV, p \n", "p LAGV\n", {0}, 0},
      {"a.csv", "mutated_sequence,x,Entry\nLAGV,1,p\n", "p LAGV\n", {0}, 0},
      {"a.csv", "entry,accession,name,id,sequence\n1,2,3,4,LAGV\n", "4 LAGV\n", {0}, 0},
      {"a.csv", "entry,accession,name,sequence\n1,2,3,LAGV\n", "3 LAGV\n", {0}, 0},
      {"a.csv", "entry,accession,sequence\n1,2,LAGV\n", "2 LAGV\n", {0}, 0},
      {"dir/a.csv", "x,sequence\n1,LAGV\n\n2,SERT\n", "a.csv:2 LAGV\na.csv:4 SERT\n", {0}, 0},
      {"a.csv", "sequence\nLAGV\nSERT", "a.csv:2 LAGV\na.csv:3 SERT\n", {0}, 0},
      {"a.csv", "ids,sequence,identity\n1,LAGV,2\n", "a.csv:2 LAGV\n", {0}, 0},
      {"a.csv", "id,sequence\n", "", {0}, 0},
      {"a.csv", "", "", {0}, 0},
      {"a.csv", "\n\r\n", "", {0}, 0},
  };
  (void)state;
  check_readings(readings, sizeof readings / sizeof *readings);
}

static void options_choose_columns(void **state)
{
  static const char table[] = "Seq,sequence,id,Id\nLAGV,SERT,p,q\n";
  static const struct reading readings[] = {
      {"a.csv", table, "q LAGV\n", {.sequence_column = "Seq", .name_column = "Id"}, 0},
      {"a.csv", table, "p SERT\n", {.sequence_column = "sequence", .name_column = "id"}, 0},
      {"a.txt", "a,sequence\np,LAGV\n", "p LAGV\n", {.name_column = "a"}, 0},
      {"stdin", "b\tid\nLAGV\tp\n", "p LAGV\n", {.sequence_column = "b"}, 0},
      {"a.fasta", ">b\nLAGV\n", "a.fasta:2 LAGV\n", {.sequence_column = ">b"}, 0},
      {"a.jsonl",
       "b c, d\nLAGV,p\n",
       "p LAGV\n",
       {.sequence_column = "b c", .name_column = "d"},
       0},
      {"a.csv", ",b\np,LAGV\n", "p LAGV\n", {.sequence_column = "b", .name_column = ""}, 0},
      {"a",
       "b;c\nLA,GV;1\n",
       "bad a:2 record \"a:2\": character ',' is not a residue\n",
       {.sequence_column = "b"},
       0},
  };
  (void)state;
  check_readings(readings, sizeof readings / sizeof *readings);
}

static void text_of_tables_is_understood(void **state)
{
  static const struct reading readings[] = {
      {"a.TSV", "id\tsequence\tx,y,z,\np,1\tLAGV\t\"\"\n", "p,1 LAGV\n", {0}, 0},
      {"a.csv", "id\tsequence\tx,y\np,1\tLAGV\t\"\"\n", "p,1 LAGV\n", {0}, 0},
      {"a.csv", "id;sequence\np;LAGV\n", "p LAGV\n", {0}, 0},
      {"a.csv",
       "\xef\xbb\xbf\"id\",\"sequence\"\r\n\"p, \"\"1\"\"\",\"LAGV\"\r\n",
       "p, \"1\" LAGV\n",
       {0},
       0},
      {"a.csv",
       "\xef\xbb\xbfsequence\rLAGV\rSE1\r", /* CR */
       "a.csv:2 LAGV\nbad a.csv:3 record \"a.csv:3\": character '1' is not a residue\n",
       {0},
       0},
      {"a.csv",
       "id,sequence,note\np,\"LA\nGV\r\nse\",x\nq,\"SE*\n\",\"two\nlines\"\nr,L1,\n",
       "p LAGVSE\nq SE\nbad a.csv:8 record \"r\": character '1' is not a residue\n",
       {0},
       0},
      {"a.csv", "\"the\nsequence\",\"sequence\"\n1, LA GV \n", "a.csv:3 LAGV\n", {0}, 0},
      {"a.csv",
       "x,sequence\n1,\"La\nv, \"\"\n",
       "failed a.csv:2 the file ends inside a quoted field "
       "(put a field that holds quotes or separators into quotes, and double the quotes inside it: "
       "\"a \"\"b\"\", c\")\n",
       {0},
       0},
      {"a.csv",
       "x,sequence\n1,LA\n2,\"L\"A\n3,LA\n",
       "a.csv:2 LA\nfailed a.csv:3 a quote is not "
       "allowed here (put a field that holds quotes or separators into quotes, and double the "
       "quotes inside it: \"a \"\"b\"\", c\")\n",
       {0},
       0},
      {"a.csv",
       "id,text\n1,\"A b\n*\"\n2, x \n",
       "1 A b\n*\n2  x \n",
       {.sequence_column = "text"},
       PLM_TOKENIZER_BYTE},
      {"a.csv", "\xef\xbb\xbfseq\nA b\n", "a.csv:2 A b\n", {0}, PLM_TOKENIZER_BYTE},
      {"a.csv",
       "\xff\xfeseq\n",
       "failed  a.csv is text in UTF-16 or UTF-32, not in UTF-8 (convert "
       "it: iconv -f UTF-16 -t UTF-8 a.csv > NEW)\n",
       {0},
       0},
  };
  (void)state;
  check_readings(readings, sizeof readings / sizeof *readings);
}

static void bad_rows_are_named(void **state)
{
  static const struct reading readings[] = {
      {"a.csv",
       "id,sequence,x\np,LAGV,1\nq,SERT\nr,IDPK,1,2\ns\nt,\"N\nQ\",1\nu,LAGV,1,\n",
       "p LAGV\nbad a.csv:3 this row has 2 fields, but the header has 3\n"
       "bad a.csv:4 this row has 4 fields, but the header has 3\n"
       "bad a.csv:5 this row has 1 field, but the header has 3\nt NQ\n"
       "bad a.csv:8 this row has 4 fields, but the header has 3\n",
       {0},
       0},
      {"a.csv",
       "id,sequence\np,\nq,\"\"\nr, \n,L\n \t,A\n",
       "bad a.csv:2 record \"p\": empty sequence\nbad a.csv:3 record \"q\": empty sequence\n"
       "bad a.csv:4 record \"r\": empty sequence\na.csv:5 L\na.csv:6 A\n",
       {0},
       0},
      {"a.csv", "sequence\n\"\"\n", "bad a.csv:2 record \"a.csv:2\": empty sequence\n", {0}, 0},
      {"a.csv",
       "id,sequence\n\"p\nq\",L\np\x1fq,L\np\x7fq,L\np q,L\n",
       "bad a.csv:2 its name has a control character\nbad a.csv:4 its name has a control "
       "character\n"
       "bad a.csv:5 its name has a control character\np q L\n",
       {0},
       0},
      {"a.csv",
       "id,sequence\np,L-A\n",
       "bad a.csv:2 record \"p\": '-' is a gap of an alignment, not a residue; --gaps remove or "
       "--gaps keep takes the sequence\n",
       {0},
       0},
      {"a.csv", "id,sequence\np,L-A\n", "p LA\n", {.gaps = PLM_GAPS_REMOVE}, 0},
      {"a.csv",
       "id,sequence\np,LA\ng,ATGGCTAAACTGACCGAANN\n",
       "p LA\nbad a.csv:3 record \"g\": these are nucleotides (DNA or RNA), not a protein; "
       "--nucleotides takes them as they are\n",
       {0},
       0},
      {"a.csv",
       "id,sequence\ng,ATGGCTAAACTGACCGAANN\np,LA\n",
       "failed a.csv:2 record \"g\": these are nucleotides (DNA or RNA), not a protein; "
       "--nucleotides takes them as they are (translate the sequences into proteins first)\n",
       {0},
       0},
      {"a.csv",
       "id,sequence\ng,ATGGCTAAACTGACCGAANN\n",
       "g ATGGCTAAACTGACCGAANN\n",
       {.nucleotides = true},
       0},
  };
  (void)state;
  check_readings(readings, sizeof readings / sizeof *readings);
}

#define LACKS                                                                        \
  "the header of the table has no column called sequence, seq, protein_sequence or " \
  "mutated_sequence (name the column of sequences with --sequence-column NAME; the columns are "
#define HAS_SEVERAL                                                                             \
  "the header of the table has more than one column called sequence, seq, protein_sequence or " \
  "mutated_sequence (name the column of sequences with --sequence-column NAME; the columns are "

static void a_header_without_the_column_is_refused(void **state)
{
  static const struct reading readings[] = {
      {"a.csv",
       "id, sequences \np,L\n",
       "failed a.csv:1 " LACKS "\"id\", \"sequences\")\n",
       {0},
       0},
      {"a.tsv", "\n\nid,sequence\np,L\n", "failed a.tsv:3 " LACKS "\"id,sequence\")\n", {0}, 0},
      {"a.csv", "p,L\nq,A\n", "failed a.csv:1 " LACKS "\"p\", \"L\")\n", {0}, 0},
      {"a.csv", "p,L\nq,A\n", "failed a.csv:1 " LACKS "\"p\", \"L\")\n", {0}, PLM_TOKENIZER_BYTE},
      {"a.csv", "seq,sequence\n", "failed a.csv:1 " HAS_SEVERAL "\"seq\", \"sequence\")\n", {0}, 0},
      {"a.csv",
       "sequence,Sequence\n",
       "failed a.csv:1 " HAS_SEVERAL "\"sequence\", \"Sequence\")\n",
       {0},
       0},
      {"a.csv",
       "Sequence,b\n",
       "failed a.csv:1 the header of the table has no column \"sequence\" (give --sequence-column "
       "the name of one column; the columns are \"Sequence\", \"b\")\n",
       {.sequence_column = "sequence"},
       0},
      {"a.csv",
       "b,c,b\n",
       "failed a.csv:1 the header of the table has 2 columns \"b\" (give --sequence-column the "
       "name "
       "of one column; the columns are \"b\", \"c\", \"b\")\n",
       {.sequence_column = "b"},
       0},
      {"a.csv",
       "seq,b\n",
       "failed a.csv:1 the header of the table has no column \"c\" (give --name-column the name of "
       "one column; the columns are \"seq\", \"b\")\n",
       {.name_column = "c"},
       0},
      {"a.csv",
       "seq,b,b\n",
       "failed a.csv:1 the header of the table has 2 columns \"b\" (give --name-column the name of "
       "one column; the columns are \"seq\", \"b\", \"b\")\n",
       {.name_column = "b"},
       0},
      {"a.csv",
       "ID,seq,id,name,name\n",
       "failed a.csv:1 the header of the table has 2 columns called id (name the column of names "
       "with --name-column NAME; the columns are \"ID\", \"seq\", \"id\", \"name\", \"name\")\n",
       {0},
       0},
      {"a.csv", "id,seq,name,name\np,L,1,2\n", "p L\n", {0}, 0},
  };
  (void)state;
  check_readings(readings, sizeof readings / sizeof *readings);
}

/* Reads text as a.csv. The caller frees out. */
static void read_text(const struct plm_text *text, struct plm_text *out)
{
  static const struct plm_sequence_choices none = {0};
  struct plm_byte_stream *stream;
  assert_int_equal(plm_byte_stream_open_memory("a.csv", text->data, text->length, &stream, NULL),
                   PLM_OK);
  print_records(stream, PLM_TOKENIZER_ESM, &none, out);
}

/* A header of many columns is found behind its first 4 KiB, and a message lists only some. */
static void headers_may_be_long(void **state)
{
  (void)state;
  for (int has = 0; has < 2; has++) {
    struct plm_text text = {0}, out = {0};
    for (int i = 0; i < 2000; i++) plm_text_printf(&text, "column %d;", i);
    plm_text_puts(&text, has ? "sequence\n" : "none\n");
    for (int i = 0; i < 2000; i++) plm_text_puts(&text, "1,2,3;");
    plm_text_puts(&text, "LAGV\n");
    read_text(&text, &out);
    if (has)
      assert_string_equal(out.data, "a.csv:2 LAGV\n");
    else
      assert_non_null(strstr(out.data, "columns are \"column 0\", \"column 1\", "));
    if (!has) assert_string_equal(out.data + strlen(out.data) - 6, " ...)\n");
    if (!has) assert_null(strstr(out.data, "column 99"));
    plm_text_deinit(&text);
    plm_text_deinit(&out);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_have_usual_names),
      cmocka_unit_test(other_columns_are_handed_out),
      cmocka_unit_test(options_choose_columns),
      cmocka_unit_test(text_of_tables_is_understood),
      cmocka_unit_test(bad_rows_are_named),
      cmocka_unit_test(a_header_without_the_column_is_refused),
      cmocka_unit_test(headers_may_be_long),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
