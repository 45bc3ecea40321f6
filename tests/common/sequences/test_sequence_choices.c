/* What callers and users choose about records: heads of long ones, gaps and nucleotides; and the
 * limit of names. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/corpus/corpus.h"
#include "common/sequences/sequence_reader.h"

#define LETTERS_64 "LAGVSERTIDPKQNFYLAGVSERTIDPKQNFYLAGVSERTIDPKQNFYLAGVSERTIDPKQNFY"

static struct plm_sequence_reader *open_reader(const char *name, const char *input,
                                               enum plm_tokenizer_kind tokenizer, uint64_t most)
{
  struct plm_byte_stream *stream;
  assert_int_equal(plm_byte_stream_open_memory(name, input, strlen(input), &stream, NULL), PLM_OK);
  return plm_sequence_reader_open(stream, tokenizer, most);
}

/* The residues of all records, each followed by a space, or "bad "; where and why the last of the
 * bad ones is bad, "" if there is none; and the end of the reader. */
static void expect_records(struct plm_sequence_reader *reader, const char *expected,
                           const char *why)
{
  struct plm_sequence sequence;
  struct plm_text heard = {0};
  struct plm_error error = {0};
  char last[sizeof error.where + sizeof error.what] = "";
  enum plm_sequence_result result;
  while ((result = plm_sequence_reader_next(reader, &sequence, &error)) != PLM_SEQUENCE_END) {
    assert_int_not_equal(result, PLM_SEQUENCE_FAILED);
    if (result == PLM_SEQUENCE_READ) plm_text_append(&heard, sequence.residues, sequence.size);
    plm_text_puts(&heard, result == PLM_SEQUENCE_READ ? " " : "bad ");
    if (result == PLM_SEQUENCE_BAD) snprintf(last, sizeof last, "%s %s", error.where, error.what);
  }
  assert_string_equal(heard.data, expected);
  assert_string_equal(last, why);
  plm_text_deinit(&heard);
  plm_sequence_reader_close(reader);
}

/* What --gaps and --nucleotides choose. */
static void choices_accept_gaps_and_nucleotides(void **state)
{
  static const char input[] =
      ">a\n" LETTERS_64 "-" LETTERS_64 ".\n>g\nATGGCTAAAC-TGACCGAATTC\n>e\n--\n";
  static const struct {
    struct plm_sequence_choices choices;
    const char *expected, *why; /* the residues, and why not */
  } cases[] = {
      {{.gaps = PLM_GAPS_REMOVE, .nucleotides = true},
       LETTERS_64 LETTERS_64 " ATGGCTAAACTGACCGAATTC bad ",
       "a.fasta:5 record \"e\": empty sequence"},
      {{.gaps = PLM_GAPS_KEEP, .nucleotides = true},
       LETTERS_64 "-" LETTERS_64 ". ATGGCTAAAC-TGACCGAATTC -- ",
       ""},
      {{.gaps = PLM_GAPS_REMOVE, .nucleotides = false},
       LETTERS_64 LETTERS_64 " bad bad ",
       "a.fasta:5 record \"e\": empty sequence"},
      {{.gaps = PLM_GAPS_KEEP, .nucleotides = false},
       LETTERS_64 "-" LETTERS_64 ". bad -- ",
       "a.fasta:3 record \"g\": these are nucleotides (DNA or RNA), not a protein; --nucleotides "
       "takes them as they are"},
      {{.gaps = PLM_GAPS_REFUSE, .nucleotides = true},
       "bad bad bad ",
       "a.fasta:6 record \"e\": '-' is a gap of an alignment, not a residue; --gaps remove or "
       "--gaps keep takes the sequence"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_sequence_reader *reader = open_reader("a.fasta", input, PLM_TOKENIZER_ESM, 1000);
    plm_sequence_reader_choose(reader, &cases[i].choices);
    expect_records(reader, cases[i].expected, cases[i].why);
  }
}

/* Chains of a protein are separated by | if the caller takes that. */
static void chains_are_kept_on_demand(void **state)
{
  static const char input[] = ">a\n" LETTERS_64 "|" LETTERS_64 "\nLA|\n>b\n|mk|*\n";
  static const char *const expected[] = {"bad bad ", LETTERS_64 "|" LETTERS_64 "LA| |MK| "};
  static const char *const why[] = {"a.fasta:5 record \"b\": '|' separates chains, which only "
                                    "embed with ESM-C takes; make each chain a record",
                                    ""};
  (void)state;
  for (int chains = 0; chains < 2; chains++) {
    const struct plm_sequence_choices choices = {.chains = chains};
    struct plm_sequence_reader *reader = open_reader("a.fasta", input, PLM_TOKENIZER_ESM, 1000);
    plm_sequence_reader_choose(reader, &choices);
    expect_records(reader, expected[chains], why[chains]);
  }
}

/* Only the heads of long records are kept, in all formats; bad characters after them are still
 * found. */
static void heads_are_kept_on_demand(void **state)
{
  static const struct {
    const char *file, *input, *heads; /* the head of each record, "" for a bad one */
  } inputs[] = {
      {"a.fasta", ">p\nLAGV\nSE\nRT\n>q\nLAGVS\n>r\nIDPKQN1\n>s\nFY\n", "LAGVS LAGVS  FY "},
      {"a.jsonl", "{\"sequence\":\"LAGVSERT\"}\n{\"sequence\":\"idpkqn*\"}\n", "LAGVS IDPKQ "},
      {"a.csv", "x,seq\n1,LAGVSERT\n2,\"LAGV\nS1\"\n3,lagvs\n", "LAGVS  LAGVS "},
      {"a.txt", "LAGVSERTIDPKQ\nLAGV*\n", "LAGVS LAGV "},
  };
  (void)state;
  for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
    struct plm_sequence_reader *reader =
        open_reader(inputs[i].file, inputs[i].input, PLM_TOKENIZER_ESM, 5);
    struct plm_text heads = {0};
    plm_sequence_reader_keep_heads(reader);
    for (;;) {
      struct plm_sequence sequence;
      const enum plm_sequence_result result = plm_sequence_reader_next(reader, &sequence, NULL);
      if (result == PLM_SEQUENCE_END) break;
      if (result == PLM_SEQUENCE_READ) {
        assert_int_equal(sequence.too_long, sequence.length > 5);
        plm_text_append(&heads, sequence.residues, sequence.size);
      }
      plm_text_puts(&heads, " ");
    }
    assert_string_equal(heads.data, inputs[i].heads);
    plm_text_deinit(&heads);
    plm_sequence_reader_close(reader);
  }
}

/* Letters that a user gives are text, whatever they begin with, and text is checked as in a file.
 */
static void text_is_not_guessed(void **state)
{
  static const struct {
    const char *input;
    enum plm_tokenizer_kind tokenizer;
    const char *expected, *why; /* the residues, and why not */
  } cases[] = {
      {"lag", PLM_TOKENIZER_ESM, "LAG ", ""},
      {"LA GV", PLM_TOKENIZER_ESM, "bad ",
       "letters:1 record \"letters:1\": a blank inside the line; text has one sequence on each "
       "line, without names"},
      {">LAG\nSE\n", PLM_TOKENIZER_ESM, "bad SE ",
       "letters:1 record \"letters:1\": character '>' is not a residue"},
      {"\xef\xbb\xbfLAG", PLM_TOKENIZER_ESM, "LAG ", ""},
      {"\xef\xbb\xbf>a\nb", PLM_TOKENIZER_BYTE, "\xef\xbb\xbf>a b ", ""},
      {"{\"a\": 1}", PLM_TOKENIZER_BYTE, "{\"a\": 1} ", ""},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_sequence_reader *reader =
        open_reader("letters", cases[i].input, cases[i].tokenizer, 1000);
    plm_sequence_reader_read_as_text(reader);
    expect_records(reader, cases[i].expected, cases[i].why);
  }
}

/* A record whose name is too long is bad, and the next one, which has no name, is not. */
static void names_have_a_limit(void **state)
{
  static const struct {
    const char *file, *format;
    int line;
  } cases[] = {
      {"a.fasta", ">%.*s\nLAGV\n>\nSERT\n", 1},
      {"a.jsonl", "{\"id\":\"%.*s\",\"sequence\":\"LAGV\"}\n{\"sequence\":\"SERT\"}\n", 1},
      {"a.csv", "id,sequence\n%.*s,LAGV\n,SERT\n", 2},
  };
  char name[PLM_NAME_LIMIT + 1], why[256];
  (void)state;
  memset(name, 'n', sizeof name);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int more = 0; more < 2; more++) {
      struct plm_text text = {0};
      plm_text_printf(&text, cases[i].format, PLM_NAME_LIMIT + more, name);
      snprintf(why, sizeof why, "%s:%d record \"%.80s\": its name has more than %d bytes",
               cases[i].file, cases[i].line, name, PLM_NAME_LIMIT);
      expect_records(open_reader(cases[i].file, text.data, PLM_TOKENIZER_ESM, 1000),
                     more ? "bad SERT " : "LAGV SERT ", more ? why : "");
      plm_text_deinit(&text);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(choices_accept_gaps_and_nucleotides),
      cmocka_unit_test(chains_are_kept_on_demand),
      cmocka_unit_test(heads_are_kept_on_demand),
      cmocka_unit_test(text_is_not_guessed),
      cmocka_unit_test(names_have_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
