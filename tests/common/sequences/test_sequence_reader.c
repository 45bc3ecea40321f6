/* The sequence reader against tables of inputs. Each is read plain, as gzip with several members
 * and as zstd, and with the ends of buffers at every place. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/base/text/text.h"
#include "common/sequences/sequence_reader.h"
#include "tests/support/corpora/packed_text.h"
#include "tests/support/harness/scratch.h"

static int interruptions; /* how often a signal has interrupted read_stream */

/* Prints each record on a line: "NAME RESIDUES", "NAME long LENGTH", "bad WHERE WHAT" or "failed
 * WHERE WHAT". */
static void read_stream(struct plm_byte_stream *stream, enum plm_tokenizer_kind tokenizer,
                        uint64_t max_residues, bool masks, struct plm_text *out)
{
  struct plm_sequence_reader *reader;
  reader = plm_sequence_reader_open(stream, tokenizer, max_residues);
  if (masks) plm_sequence_reader_accept_masks(reader);
  plm_text_puts(out, "");
  for (;;) {
    struct plm_sequence sequence;
    struct plm_error error = {0};
    const enum plm_sequence_result result = plm_sequence_reader_next(reader, &sequence, &error);
    if (result == PLM_SEQUENCE_END) break;
    if (result == PLM_SEQUENCE_AGAIN) {
      interruptions++;
      continue;
    }
    if (result == PLM_SEQUENCE_READ && sequence.too_long) {
      plm_text_printf(out, "%.*s long %llu\n", (int)sequence.name_size, sequence.name,
                      (unsigned long long)sequence.length);
    } else if (result == PLM_SEQUENCE_READ) {
      plm_text_printf(out, "%.*s ", (int)sequence.name_size, sequence.name);
      plm_text_append(out, sequence.residues, sequence.size);
      plm_text_puts(out, "\n");
    } else {
      plm_text_printf(out, "%s %s %s\n", result == PLM_SEQUENCE_BAD ? "bad" : "failed", error.where,
                      error.what);
      if (result == PLM_SEQUENCE_FAILED) break;
    }
  }
  plm_sequence_reader_close(reader);
}

struct reading {
  const char *file, *input, *expected;
  enum plm_tokenizer_kind tokenizer;
  uint64_t max_residues; /* 0: 1000 */
};

#define LETTERS_64 "LAGVSERTIDPKQNFYLAGVSERTIDPKQNFYLAGVSERTIDPKQNFYLAGVSERTIDPKQNFY"

static const struct reading readings[] = {
    {"a.fasta", ">p1 a protein\nLAGV\nSERT\n>p2\nIDPK\n", "p1 LAGVSERT\np2 IDPK\n", 0, 0},
    {"crlf.fasta", ">p1 x\r\nLAGV\r\n\r\nSE RT\r\n>p2\r\nID\tPK*\r\n", "p1 LAGVSERT\np2 IDPK\n", 0,
     0},
    {"lower.fa", ">p1\nlagv", "p1 LAGV\n", 0, 0},
    {"blank.fas", "\n \r\n>p1\n\nL\n\n\nA\n\n", "p1 LA\n", 0, 0},
    {"again.faa", ">p\nL\n>p\nA\n", "p L\np A\n", 0, 0},
    {"unk.fasta", ">p\nLJXZ\n", "p LJXZ\n", 0, 0},
    {"gaps.a3m", ">q\nMKTA\n>h\nMK-AYia\n>s\nMKT.\n",
     "q MKTA\n"
     "bad gaps.a3m:4 record \"h\": '-' is a gap of an alignment, not a residue; --gaps remove or "
     "--gaps keep takes the sequence\n"
     "bad gaps.a3m:6 record \"s\": '.' is a gap of an alignment or a stop codon, not a residue; "
     "--gaps remove or --gaps keep takes the sequence\n",
     0, 0},
    {"dna.fasta", ">g\nATGGCTAAACTGACCGAANN\n>p\nLAGV\n",
     "failed dna.fasta:1 record \"g\": these are nucleotides (DNA or RNA), not a protein; "
     "--nucleotides takes them as they are\n",
     0, 0},
    {"rna.txt", "auggcuaaacugaccgaauuc\n",
     "failed rna.txt:1 record \"rna.txt:1\": these are nucleotides (DNA or RNA), not a protein; "
     "--nucleotides takes them as they are\n",
     0, 0},
    {"dna.fasta", ">p\nLAGV\n>g\nATGGCTAAACTGACCGAATR\n>q\nSERT\n",
     "p LAGV\n"
     "bad dna.fasta:3 record \"g\": these are nucleotides (DNA or RNA), not a protein; "
     "--nucleotides takes them as they are\n"
     "q SERT\n",
     0, 0},
    /* too short; two other letters in 20; one of the four is missing */
    {"no_dna.fasta",
     ">a\nATGGCTAAACTGACCGAAT\n>b\nATGGCTAAACTGACCGAALL\n>c\nATGGATAAAATGAAAGAATG\n"
     ">d\nTTGGCTTTTCTGTCCGTTTG\n>e\nATAACTAAACTAACCAAATA\n>f\nAAGGCAAAACAGACCGAAAG\n",
     "a ATGGCTAAACTGACCGAAT\nb ATGGCTAAACTGACCGAALL\nc ATGGATAAAATGAAAGAATG\n"
     "d TTGGCTTTTCTGTCCGTTTG\ne ATAACTAAACTAACCAAATA\nf AAGGCAAAACAGACCGAAAG\n",
     0, 0},
    {"dna.fasta", ">g\nATGGCTAAACTGACCGAA-.\n", "g ATGGCTAAACTGACCGAA-.\n", PLM_TOKENIZER_BYTE, 0},
    {"ids.jsonl",
     "{\"id\": 7, \"sequence\": \"L\"}\n{\"name\": -3, \"id\": 4, \"sequence\": \"A\"}\n"
     "{\"name\": null, \"id\": \"x\", \"sequence\": \"G\"}\n"
     "{\"id\": 999999999999999, \"sequence\": \"V\"}\n"
     "{\"id\": 1000000000000000, \"sequence\": \"V\"}\n{\"name\": 1.5, \"sequence\": \"V\"}\n",
     "7 L\n-3 A\nx G\n999999999999999 V\n"
     "bad ids.jsonl:5 \"id\" is neither a string without control characters nor an integer of at "
     "most 15 digits\n"
     "bad ids.jsonl:6 \"name\" is neither a string without control characters nor an integer of at "
     "most 15 digits\n",
     0, 0},
    {"names.fasta", ">\nL\n> \nA\n>sp|Q1|Q_X\tmore\nG\n> \tp7 more\nV\n> \r\nS\n",
     "names.fasta:1 L\nnames.fasta:3 A\nsp|Q1|Q_X G\np7 V\nnames.fasta:9 S\n", 0, 0},
    {"star.fasta", ">a\nLA*\n>b\nL*A\n>c\nLA**\n>d\nL\n*\n\n>e\n*\n",
     "a LA\nbad star.fasta:4 record \"b\": '*' is allowed only as the last character\nbad "
     "star.fasta:6 record \"c\": '*' is allowed only as the last character\nd L\nbad star.fasta:11 "
     "record \"e\": empty sequence\n",
     0, 0},
    {"chains.fasta", ">a\nLA|\nGV\n>b\nL\n",
     "bad chains.fasta:2 record \"a\": '|' separates chains, which only embed with ESM-C takes; "
     "make "
     "each chain a record\nb L\n",
     0, 0},
    {"bad.fasta", ">a\nLA\nG1V\n>b\nL\n>c\nL@\x01\n>d\n\x80\n",
     "bad bad.fasta:3 record \"a\": character '1' is not a residue\nb L\n"
     "bad bad.fasta:7 record \"c\": character '@' is not a residue\n"
     "bad bad.fasta:9 record \"d\": byte 0x80 is not a residue\n",
     0, 0},
    {"none.fasta", ">a\n>b\nL\n>c",
     "bad none.fasta:1 record \"a\": empty sequence\nb L\n"
     "bad none.fasta:4 record \"c\": empty sequence\n",
     0, 0},
    {"empty.fasta", "", "", 0, 0},
    {"blank.fasta", "  This is none.\n>a\nL\n",
     "failed blank.fasta:1 not FASTA: the file begins with byte 0x20 instead of '>'\n", 0, 0},
    {"prose.fasta", "This is no FASTA.\n",
     "failed prose.fasta:1 not FASTA: the first line begins with 'T' instead of '>'\n", 0, 0},
    {"mark.fasta", "!\n",
     "failed mark.fasta:1 not FASTA: the first line begins with '!' instead of '>'\n", 0, 0},
    {"wave.fasta", "~\n",
     "failed wave.fasta:1 not FASTA: the first line begins with '~' instead of '>'\n", 0, 0},
    {"prose2.fasta",
     "\n\x7f"
     "ELF>\n",
     "failed prose2.fasta:2 not FASTA: the file begins with byte 0x7f instead of '>'\n", 0, 0},
    {"long.fasta", ">a\nLAGVL\n>b\nLAGV\n", "a long 5\nb LAGV\n", 0, 4},
    {"unknown", ">a\nL\n", "a L\n", 0, 0},
    {"unknown", "{\"sequence\": \"la\"}\n", "unknown:1 LA\n", 0, 0},
    {"unknown", "lagv\nSERT\n", "unknown:1 LAGV\nunknown:2 SERT\n", 0, 0},
    {"bom.fasta", "\xef\xbb\xbf>a\nLA\n", "a LA\n", 0, 0},
    {"bom.jsonl", "\xef\xbb\xbf{\"sequence\": \"LA\"}\n", "bom.jsonl:1 LA\n", 0, 0},
    {"unknown", "\xef\xbb\xbf\r\nLA\n", "unknown:2 LA\n", 0, 0},
    {"bom.txt", "\xef\xbb\xbflaw\n", "bom.txt:1 \xef\xbb\xbflaw\n", PLM_TOKENIZER_BYTE, 0},
    {"half.fasta", "\xef\xbb>a\nLA\n",
     "failed half.fasta:1 not FASTA: the file begins with byte 0xef instead of '>'\n", 0, 0},
    {"unknown", "\xef\xbb", "failed unknown:1 this is not text: it begins with byte 0xef\n", 0, 0},
    {"u.fasta", "\xff\xfe>", "failed  u.fasta is text in UTF-16 or UTF-32, not in UTF-8\n", 0, 0},
    {"u.txt", "\xfe\xff", "failed  u.txt is text in UTF-16 or UTF-32, not in UTF-8\n",
     PLM_TOKENIZER_BYTE, 0},
    {"u.txt", "\xff\xfe", "failed  u.txt is text in UTF-16 or UTF-32, not in UTF-8\n",
     PLM_TOKENIZER_BYTE, 0},
    {"u.txt", "\xfe", "failed u.txt:1 this is not text: it begins with byte 0xfe\n", 0, 0},
    {"u.txt", "\xff\xff", "failed u.txt:1 this is not text: it begins with byte 0xff\n", 0, 0},
    {"t.txt", ">a\nLA\nGV\n>b\nSE\n", "a LAGV\nb SE\n", 0, 0},
    {"a b\tc!.txt", "LA\n", "a_b_c!.txt:1 LA\n", 0, 0}, /* a name is one word */
    {"t.txt", "\n{\"sequence\": \"LA\"}\n", "t.txt:2 LA\n", 0, 0},
    {"t.txt", ">a\n{\n", "t.txt:1 >a\nt.txt:2 {\n", PLM_TOKENIZER_BYTE, 0},
    {"t.txt.gz", "\n \nname\tsequence\ninsulin\tMALW\n",
     "failed t.txt.gz:3 this looks like a table, not like text with one sequence on each line\n", 0,
     0},
    {"t", "name\tsequence\ninsulin\tMALW\n", "t:1 name\tsequence\nt:2 insulin\tMALW\n",
     PLM_TOKENIZER_BYTE, 0},
    {"t.tsv.gz", "name\tsequence\ninsulin\tMALW\n", "insulin MALW\n", 0, 0},
    {"t.csv.zst", "id;sequence\r\np;\"LAGV\nS\"\r\nq;SERT", "p long 5\nq SERT\n", 0, 4},
    {"t.txt", "sequence\r\nMALW\r\n",
     "failed t.txt:1 the first line, \"sequence\", is the header of a column\n", 0, 0},
    {"t.txt", "LAGV\nL A\nSE\t\nL A\tG\n " LETTERS_64 " " LETTERS_64 "\nL* \nL *\nID\n",
     "t.txt:1 LAGV\n"
     "bad t.txt:2 record \"t.txt:2\": a blank inside the line; text has one sequence on each line, "
     "without names\n"
     "t.txt:3 SE\n"
     "bad t.txt:4 record \"t.txt:4\": a blank inside the line; text has one sequence on each line, "
     "without names\n"
     "bad t.txt:5 record \"t.txt:5\": a blank inside the line; text has one sequence on each line, "
     "without names\n"
     "t.txt:6 L\n"
     "bad t.txt:7 record \"t.txt:7\": a blank inside the line; text has one sequence on each line, "
     "without names\n"
     "t.txt:8 ID\n",
     0, 0},
    {"p.pir", ">P1;CRAB\nALPHA CRYSTALLIN\n  MDIT*\n",
     "failed p.pir:1 this looks like PIR, whose records have a line of text before the residues, "
     "not "
     "like FASTA\n",
     0, 0},
    {"p.fasta", ">P1;CRAB\nany text\n", "P1;CRAB any text\n", PLM_TOKENIZER_BYTE, 0},
    {"unknown", "@r1\nGATTAGA\n+\nIIIIIII\n",
     "failed unknown:1 the first line begins with '@', as FASTQ does\n", 0, 0},
    {"unknown", "\x01\nLA\n", "failed unknown:1 this is not text: it begins with byte 0x01\n", 0,
     0},
    {"unknown", "@r1\n", "unknown:1 @r1\n", PLM_TOKENIZER_BYTE, 0},
    {"t.txt", "lagv \r\n\n\r\n SE*\n>x\nL*L\n",
     "t.txt:1 LAGV\nt.txt:4 SE\nbad t.txt:5 record \"t.txt:5\": character '>' is not a "
     "residue\nbad t.txt:6 record \"t.txt:6\": '*' is allowed only as the last character\n",
     0, 0},
    {"t.txt", "Aa *\r\n\r\n\nb\rc\r\r\nlast", "t.txt:1 Aa *\nt.txt:4 b\nt.txt:5 c\nt.txt:7 last\n",
     PLM_TOKENIZER_BYTE, 0},
    {"mac.fasta", "\r\r\n>a x\rLA\rGV\r>b\r\rSE*\r>c\rL1\r>\rG\r", /* CR, also mixed */
     "a LAGV\nb SE\nbad mac.fasta:10 record \"c\": character '1' is not a residue\nmac.fasta:11 "
     "G\n",
     0, 0},
    {"mixed.fasta", ">a\rLAGV\r>b\rSERT\r>c\nIDPK\r\nQN\n>d\r\nFY\r>e\nMH",
     "a LAGV\nb SERT\nc IDPKQN\nd FY\ne MH\n", 0, 0},
    {"mixed.fasta",
     ">a\r" LETTERS_64 LETTERS_64 "\r\n" LETTERS_64 "\n" LETTERS_64 "\r>b\n" LETTERS_64 LETTERS_64
     "\r",
     "a " LETTERS_64 LETTERS_64 LETTERS_64 LETTERS_64 "\nb " LETTERS_64 LETTERS_64 "\n", 0, 0},
    {"mac.fasta", ">a\rA b\r>b\rc", "a A b\nb c\n", PLM_TOKENIZER_BYTE, 0},
    {"mac.txt", "LA\r\rGV\r\nSE\rID", "mac.txt:1 LA\nmac.txt:3 GV\nmac.txt:4 SE\nmac.txt:5 ID\n", 0,
     0},
    {"mac.jsonl", "{\"sequence\":\"LA\"}\r{\"sequence\":\"GV\"}\r\n\r{\"sequence\":\"SE\"}",
     "mac.jsonl:1 LA\nmac.jsonl:2 GV\nmac.jsonl:4 SE\n", 0, 0},
    {"mac", "\r\n\r\n\rname\tsequence\rinsulin\tMALW\r",
     "failed mac:4 this looks like a table, not like text with one sequence on each line\n", 0, 0},
    {"prose.fasta", "\r\n\rText\r",
     "failed prose.fasta:3 not FASTA: the first line begins with 'T' instead of '>'\n", 0, 0},
    {"f.fasta", ">a\nab c\r\nD*\n", "a ab cD*\n", PLM_TOKENIZER_BYTE, 0},
    {"unmasked.txt", "L_\nL<mask>\n",
     "bad unmasked.txt:1 record \"unmasked.txt:1\": character '_' is not a residue; only generate "
     "takes <mask> and _\n"
     "bad unmasked.txt:2 record \"unmasked.txt:2\": character '<' is not a residue; only generate "
     "takes <mask> and _\n",
     0, 0},
    {"j.jsonl",
     "{\"name\": \"a b\", \"sequence\": \"LA\\u0047V*\", \"more\": [1]}\r\n\n  \n"
     "{\"sequence\":\"l\"}\n{\"name\":\"x\"}\n[1]\nno\n{\"sequence\":3}\n"
     "{\"sequence\":\"L1\",\"name\":\"y\"}\n{\"sequence\":\"L\\u0000A\"}\n"
     "{\"name\":7,\"sequence\":\"L\"}\n{\"name\":\"a\\nb\",\"sequence\":\"L\"}\n"
     "{\"name\":null,\"sequence\":\"\"}",
     "a b LAGV\nj.jsonl:4 L\nbad j.jsonl:5 record \"x\": this object has no string \"sequence\"\n"
     "bad j.jsonl:6 not a JSON object\nbad j.jsonl:7 not a JSON object\n"
     "bad j.jsonl:8 record \"j.jsonl:8\": this object has no string \"sequence\"\n"
     "bad j.jsonl:9 record \"y\": character '1' is not a residue\n"
     "bad j.jsonl:10 this line contains a NUL character\n"
     "7 L\n"
     "bad j.jsonl:12 \"name\" is neither a string without control characters nor an integer of at "
     "most 15 digits\n"
     "bad j.jsonl:13 record \"j.jsonl:13\": empty sequence\n",
     0, 0},
    {"j.jsonl", "{\"sequence\": \"Text, as\\tit is \\u00e9\\r\"}\n",
     "j.jsonl:1 Text, as\tit is é\r\n", PLM_TOKENIZER_BYTE, 0},
};

/* Readings with plm_sequence_reader_accept_masks. */
static const struct reading masked_readings[] = {
    {"mask.fasta", ">a\nLA_<mask>G<ma\r\n sk>*\n>b\n_\n>c\nL<mask\n>d\nLA<eos>\n>e\nL*_\n>f\nL>\n",
     "a LA__G_\nb _\nbad mask.fasta:6 record \"c\": it ends inside a <mask>\n"
     "bad mask.fasta:9 record \"d\": '<' may only begin <mask>\n"
     "bad mask.fasta:11 record \"e\": '*' is allowed only as the last character\n"
     "bad mask.fasta:13 record \"f\": character '>' is not a residue\n",
     0, 0},
    {"mask.txt", "<mas" LETTERS_64 "k>\n<mask>" LETTERS_64 "<mask>\n",
     "bad mask.txt:1 record \"mask.txt:1\": '<' may only begin <mask>\nmask.txt:2 _" LETTERS_64
     "_\n",
     0, 0},
    {"mask.csv", "seq,id\nL_<ma sk>,a\nL<,b\n",
     "a L__\nbad mask.csv:3 record \"b\": it ends inside a <mask>\n", 0, 0},
    {"mask.jsonl", "{\"sequence\": \"L_<mask>\"}\n", "mask.jsonl:1 L__\n", 0, 0},
    {"bytes.txt", "a_<mask>\n", "bytes.txt:1 a_<mask>\n", PLM_TOKENIZER_BYTE, 0},
};

static void check_readings(const struct reading *table, size_t count, bool masks)
{
  static struct packed_text packed;
  for (size_t i = 0; i < count; i++) {
    const struct reading *reading = &table[i];
    const size_t size = strlen(reading->input);
    for (int how = 0; how < 3; how++) {
      for (size_t cut = 0; cut <= (how == 0 ? 0 : size); cut++) {
        struct plm_text out = {0};
        struct plm_byte_stream *stream;
        packed_text_make(reading->input, size, how, cut, &packed);
        assert_int_equal(
            plm_byte_stream_open_memory(reading->file, packed.bytes, packed.size, &stream, NULL),
            PLM_OK);
        read_stream(stream, reading->tokenizer,
                    reading->max_residues == 0 ? 1000 : reading->max_residues, masks, &out);
        if (strcmp(out.data, reading->expected) != 0)
          fail_msg("input %zu packed %d cut %zu:\n%s\nexpected:\n%s", i, how, cut, out.data,
                   reading->expected);
        plm_text_deinit(&out);
      }
    }
  }
}

static void inputs_read_as_they_should(void **state)
{
  (void)state;
  check_readings(readings, sizeof readings / sizeof *readings, false);
  check_readings(masked_readings, sizeof masked_readings / sizeof *masked_readings, true);
}

/* Other compressions are refused, though some of their bytes are letters between line ends. */
static void other_compressions_are_refused(void **state)
{
  (void)state;
  static const struct {
    const char *name, *bytes, *said;
    size_t size;
  } others[] = {
      {"a.fa.bz2", "BZh91AY&SY\nLA\n", "a.fa.bz2 is compressed by bzip2, which is not supported",
       14},
      {"a.fa.xz",
       "\xfd"
       "7zXZ\0\0\4\nLA\n",
       "a.fa.xz is compressed by xz, which is not supported", 12},
      {"a.zip", "PK\3\4\24\0\0\0\nLA\n", "a.zip is compressed by zip, which is not supported", 12},
      {"a", "\x04\x22\x4d\x18\x64\x40\nL\nA\n", "a is compressed by lz4, which is not supported",
       11},
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    struct plm_byte_stream *stream;
    struct plm_sequence_reader *reader;
    struct plm_sequence sequence;
    struct plm_error error = {0};
    assert_int_equal(
        plm_byte_stream_open_memory(others[i].name, others[i].bytes, others[i].size, &stream, NULL),
        PLM_OK);
    reader = plm_sequence_reader_open(stream, PLM_TOKENIZER_ESM, 100);
    assert_int_equal(plm_sequence_reader_next(reader, &sequence, &error), PLM_SEQUENCE_FAILED);
    assert_string_equal(error.what, others[i].said);
    plm_sequence_reader_close(reader);
  }
  struct plm_text out = {0};
  struct plm_byte_stream *stream; /* a protein that begins like bzip2 */
  assert_int_equal(plm_byte_stream_open_memory("t.txt", "BZh\nLAGVSERT\n", 13, &stream, NULL),
                   PLM_OK);
  read_stream(stream, PLM_TOKENIZER_ESM, 100, false, &out);
  assert_string_equal(out.data, "t.txt:1 BZH\nt.txt:2 LAGVSERT\n");
  plm_text_deinit(&out);
}

static int pipe_end;
static const char *const *parts; /* three */
static volatile sig_atomic_t signals;

/* Writes while the reader waits, so that each of its waits is interrupted first. */
static void write_a_part(int number)
{
  (void)number;
  const int part = ++signals / 3 - 1;
  if (signals % 3 != 0) return; /* nothing to read yet */
  if (part < 3)
    assert_int_equal(write(pipe_end, parts[part], strlen(parts[part])), strlen(parts[part]));
  else if (part == 3)
    close(pipe_end);
}

static void a_pipe_is_read_in_spite_of_signals(void **state)
{
  (void)state;
  static const struct {
    const char *file, *parts[3];
  } pipes[] = {
      {"pipe.fasta", {">a\nLAG", "V\n>b\n", "SERT\n"}},
      /* its first line tells its format */
      {"pipe", {"\n\n\n\n\n\n\n\n\n\n\n\n", ">a\nLAGV\n", ">b\nSERT\n"}},
      {"pipe.csv", {"id\tseq", "uence\na\t\"LAG", "V\n\"\nb\tSERT\n"}},
  };
  char path[300];
  struct plm_byte_stream *stream;
  const struct itimerval often = {.it_interval.tv_usec = 3000, .it_value.tv_usec = 3000};
  for (size_t i = 0; i < sizeof pipes / sizeof *pipes; i++) {
    struct plm_text out = {0};
    struct sigaction before;
    parts = pipes[i].parts;
    signals = interruptions = 0;
    snprintf(path, sizeof path, "%s/%s", scratch_directory(), pipes[i].file);
    assert_int_equal(mkfifo(path, 0600), 0);
    pipe_end = open(path, O_RDWR);
    assert_true(pipe_end >= 0);
    assert_int_equal(plm_byte_stream_open(path, &stream, NULL), PLM_OK);
    const struct sigaction acting = {.sa_handler = write_a_part}; /* without SA_RESTART */
    assert_int_equal(sigaction(SIGALRM, &acting, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    read_stream(stream, PLM_TOKENIZER_ESM, 100, false, &out);
    assert_int_equal(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_string_equal(out.data, "a LAGV\nb SERT\n");
    assert_true(interruptions > 0);
    plm_text_deinit(&out);
  }
}

/* Lines and records across the ends of the reader's buffers: a CR LF, a header and a residue at
 * every distance from an end. */
static void buffer_borders_change_nothing(void **state)
{
  (void)state;
  enum { BORDER = 1 << 18, AROUND = 40 };
  char *text = malloc(BORDER + 4096);
  for (size_t shift = 0; shift < AROUND; shift++) {
    const size_t filler = BORDER - AROUND + shift;
    size_t size = (size_t)sprintf(text, ">long\n");
    memset(text + size, 'l', filler - size);
    size = filler;
    size += (size_t)sprintf(text + size, "\r\n>p|%zu a header\r\nLAGV\r\nSERT*\r\n>q\r\nID", shift);
    struct plm_byte_stream *stream;
    struct plm_text out = {0};
    char expected[64];
    assert_int_equal(plm_byte_stream_open_memory("b.fasta", text, size, &stream, NULL), PLM_OK);
    read_stream(stream, PLM_TOKENIZER_ESM, 1000, false, &out);
    snprintf(expected, sizeof expected, "long long %zu\np|%zu LAGVSERT\nq ID\n", filler - 6, shift);
    assert_string_equal(out.data, expected);
    plm_text_deinit(&out);
    /* The same with the byte tokenizer, which keeps a CR unless the line ends with it. */
    struct plm_text raw = {0};
    assert_int_equal(plm_byte_stream_open_memory("b.txt", text, size, &stream, NULL), PLM_OK);
    read_stream(stream, PLM_TOKENIZER_BYTE, 1000, false, &raw);
    assert_null(strchr(raw.data, '\r'));
    assert_non_null(strstr(raw.data, "\nb.txt:4 LAGV\nb.txt:5 SERT*\n"));
    plm_text_deinit(&raw);
  }
  free(text);
}

/* FASTA with lines of all lengths. Most contain only letters; some contain other characters, valid
 * or not. */
static size_t random_fasta(uint32_t *random, char *text, size_t room)
{
  static const char odd[] = " \r\t*>1.-\n@<_", letters[] = "LAGVsertIDPKQNFYMHWCxbuzoj";
  size_t size = 0;
  while (size + 300 < room) {
    const uint32_t width = (*random = *random * 1664525 + 1013904223) >> 16;
    if (width % 4 == 0) size += (size_t)sprintf(text + size, ">r%u a record\n", width);
    const uint32_t line = width % 3 == 0 ? 60 : width % 3 == 1 ? width % 200 : width % 70;
    for (uint32_t i = 0; i < line; i++) {
      *random = *random * 1664525 + 1013904223;
      const uint32_t draw = *random >> 16;
      text[size++] = draw % 512 == 0 ? odd[draw / 512 % (sizeof odd - 1)] : letters[draw % 26];
    }
    if (width % 13 == 0) text[size++] = '*';
    if (width % 11 == 0) text[size++] = '\r';
    text[size++] = '\n';
  }
  return random[0] % 2 ? size : size - 1; /* the last line may lack its line end */
}

/* Long spans give the same records as spans that are too short for the fast path of whole lines.
 */
static void long_spans_read_like_short_ones(void **state)
{
  (void)state;
  static struct packed_text packed;
  enum { ROOM = 6000, ROUNDS = 400 };
  char *text = malloc(ROOM);
  uint32_t random = 1, read = 0, bad = 0;
  for (int round = 0; round < ROUNDS; round++) {
    text[0] = '>';
    text[1] = '\n';
    const size_t size = 2 + random_fasta(&random, text + 2, ROOM - 2);
    const uint64_t max_residues = round % 3 == 0 ? 200 : 100000;
    const bool masks = round % 5 == 0;
    struct plm_text whole = {0}, spans = {0};
    struct plm_byte_stream *stream;
    assert_int_equal(plm_byte_stream_open_memory("r.fasta", text, size, &stream, NULL), PLM_OK);
    read_stream(stream, PLM_TOKENIZER_ESM, max_residues, masks, &whole);
    packed.size = 0;
    for (size_t at = 0, span; at < size; at += span) {
      span = 30 + at % 30 < size - at ? 30 + at % 30 : size - at;
      packed.size += packed_text_gzip(text + at, span, packed.bytes + packed.size,
                                      sizeof packed.bytes - packed.size);
    }
    assert_int_equal(
        plm_byte_stream_open_memory("r.fasta", packed.bytes, packed.size, &stream, NULL), PLM_OK);
    read_stream(stream, PLM_TOKENIZER_ESM, max_residues, masks, &spans);
    assert_string_equal(whole.data, spans.data);
    for (const char *line = whole.data; *line != '\0'; line = strchr(line, '\n') + 1)
      *(strncmp(line, "bad ", 4) == 0 ? &bad : &read) += 1;
    plm_text_deinit(&whole);
    plm_text_deinit(&spans);
  }
  assert_true(read > 1000 && bad > 100);
  free(text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(inputs_read_as_they_should),
      cmocka_unit_test(other_compressions_are_refused),
      cmocka_unit_test(a_pipe_is_read_in_spite_of_signals),
      cmocka_unit_test(buffer_borders_change_nothing),
      cmocka_unit_test(long_spans_read_like_short_ones),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
