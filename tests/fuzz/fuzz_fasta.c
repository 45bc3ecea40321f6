/* The readers of FASTA, JSONL, tables and text, plain and compressed, on arbitrary bytes. What they
 * hand out must keep the promises that the writer relies on. */
#include <stdio.h>
#include <string.h>

#include "common/corpus/corpus.h"
#include "common/sequences/sequence_reader.h"
#include "tests/support/harness/fuzz_seed.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT(">sp|P1|A_B a protein\nLAGVSERTIDPKQNFYMHWC\nXBUZO.-j*\n\n>q\r\nlagv\r\n"),
    FUZZ_TEXT(">a b\rLAGV\r>c\r\nSERT\r"),
    FUZZ_TEXT("LAGV\r\nSERT*\n\n  idpk\n"),
    FUZZ_TEXT(" 12 30\nname LAGV SERT\n"),
    FUZZ_TEXT(">P1;CRAB\nTITLE\n LAGV SERT*\n"),
    FUZZ_TEXT(">m\nLA_<mask>G<ma\nsk>\n"),
    FUZZ_TEXT("{\"name\": \"a b\", \"sequence\": \"LA\\u0047V\"}\n{\"sequence\":\"l\"}\n"),
    FUZZ_TEXT("\xef\xbb\xbfid,Sequence\r\n\"p, \"\"1\"\"\",\"LA\nGV\"\r\nq,SERT*,\rr\n,l\n"),
    FUZZ_TEXT("seq\tname\n\nLAGV\tp\n\t\n"),
    /* ">a\nLAGV\n" by gzip and by zstd */
    FUZZ_TEXT("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xb3\x4b\xe4\xf2\x71\x74\x0f\xe3\x02\x00\x88"
              "\xf8\x75\xbe\x08\x00\x00\x00"),
    FUZZ_TEXT("\x50\x2a\x4d\x18\x01\x00\x00\x00x\x28\xb5\x2f\xfd\x00\x58\x01\x00\x00"),
    FUZZ_TEXT("\x28\xb5\x2f\xfd\x04\xa8\x01\x00\x00"),
    FUZZ_TEXT("\x28\xb5\x2f\xfd\x00\x58\x41\x00\x00\x3e\x61\x0a\x4c\x41\x47\x56\x0a"),
    {NULL, 0},
};

static void check(const struct plm_sequence *sequence, uint64_t max_residues, bool esm, bool masks)
{
  PLM_ASSERT(sequence->name_size != 0 && sequence->name_size <= PLM_NAME_LIMIT);
  PLM_ASSERT(memchr(sequence->name, '\n', sequence->name_size) == NULL);
  PLM_ASSERT(memchr(sequence->name, '\0', sequence->name_size) == NULL);
  PLM_ASSERT(sequence->length != 0);
  PLM_ASSERT(sequence->too_long == (sequence->length > max_residues));
  if (sequence->too_long) return;
  PLM_ASSERT(sequence->size == sequence->length);
  for (size_t i = 0; esm && i < sequence->size; i++) {
    const uint8_t residue = sequence->residues[i];
    PLM_ASSERT((residue >= 'A' && residue <= 'Z') || residue == '.' || residue == '-' ||
               (masks && residue == PLM_SEQUENCE_MASK));
  }
}

static void read_as(const char *name, enum plm_tokenizer_kind tokenizer, bool masks,
                    const struct plm_sequence_choices *choices, const uint8_t *bytes, size_t size)
{
  static const uint64_t max_residues = 64;
  struct plm_byte_stream *stream;
  PLM_ASSERT(plm_byte_stream_open_memory(name, bytes, size, &stream, NULL) == PLM_OK);
  struct plm_sequence_reader *reader = plm_sequence_reader_open(stream, tokenizer, max_residues);
  if (masks) plm_sequence_reader_accept_masks(reader);
  plm_sequence_reader_choose(reader, choices);
  for (;;) {
    struct plm_sequence sequence;
    struct plm_error error = {0};
    const enum plm_sequence_result result = plm_sequence_reader_next(reader, &sequence, &error);
    if (result == PLM_SEQUENCE_READ)
      check(&sequence, max_residues, tokenizer == PLM_TOKENIZER_ESM, masks);
    else if (result == PLM_SEQUENCE_BAD)
      PLM_ASSERT(error.what[0] != '\0' && strstr(error.where, name) != NULL);
    else
      break;
  }
  plm_sequence_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  plm_byte_stream_limit_windows(1); /* the process may take little memory */
  static const char *const names[] = {"f.fasta", "j.jsonl", "t.txt", "c.csv", "t.tsv", "unknown"};
  static const struct plm_sequence_choices none = {0}, columns = {.sequence_column = "seq",
                                                                  .name_column = "name"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    read_as(names[i], PLM_TOKENIZER_ESM, false, &none, bytes, size);
    read_as(names[i], PLM_TOKENIZER_ESM, true, &none, bytes, size);
    read_as(names[i], PLM_TOKENIZER_BYTE, false, &none, bytes, size);
  }
  read_as("unknown", PLM_TOKENIZER_ESM, false, &columns, bytes, size);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
