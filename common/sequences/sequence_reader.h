/* Reads sequences, one record after another, from FASTA, JSON lines, tables (CSV, TSV) or plain
 * text. Letters become upper case. CR, blanks, empty lines and one `*` at the end are dropped, but
 * a blank inside a line of plain text makes the record bad. A letter outside the alphabet stays,
 * and becomes <unk> later. Any other character makes the record bad. With the byte tokenizer the
 * text stays as it is, apart from its line ends. doc/data.md#reading-sequences
 *
 * The format comes from the file's name; for standard input, .txt and other names, it comes from
 * the first byte, which never means a table. Text that begins like a table, an alignment or a flat
 * file of a database is refused (foreign_format.h). A byte order mark is skipped. With the byte
 * tokenizer, a .txt is always plain text, no text is refused, and its mark is part of it. Memory is
 * bounded by the longest record that is kept. */
#ifndef PLM_COMMON_SEQUENCES_SEQUENCE_READER_H
#define PLM_COMMON_SEQUENCES_SEQUENCE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/sequences/byte_stream.h"

enum plm_sequence_format {
  PLM_FORMAT_FASTA,
  PLM_FORMAT_JSONL,
  PLM_FORMAT_TEXT,
  PLM_FORMAT_TABLE,
};

/* What is done with the signs '-' and '.', which stand for gaps in aligned sequences. */
enum plm_gaps { PLM_GAPS_REFUSE, PLM_GAPS_REMOVE, PLM_GAPS_KEEP };

/* What the user says about the input; {0} is the default. Gaps and nucleotides are for proteins
 * only: with the byte tokenizer everything is kept. */
struct plm_sequence_choices {
  enum plm_gaps gaps; /* PLM_GAPS_REFUSE: a record with a gap is bad */
  bool nucleotides;   /* take records of nucleotides */
  bool chains;        /* keep PLM_SEQUENCE_CHAIN between the chains of a protein; else it is bad */
  bool columns;       /* hand out the other columns of a table */
  /* The columns of a table, by their exact names; if one is given, every file is a table. They must
   * stay valid as long as the reader. NULL: what common tables call them. */
  const char *sequence_column, *name_column;
};

struct plm_sequence {
  const char *name; /* not NUL-terminated; FILE:LINE if the record has no name */
  size_t name_size;
  const uint8_t *residues;
  size_t size;     /* number of residues; if too_long: 0, or max_residues if heads are kept */
  uint64_t line;   /* on which it begins, from 1 */
  bool too_long;   /* it has more than max_residues */
  uint64_t length; /* all its residues */
  /* With choices.columns, the columns of a table beside those of names and sequences, and their
   * fields in this row: two arrays of JSON strings, on one line. Otherwise NULL. */
  const char *columns, *fields;
};

enum { PLM_SEQUENCE_CHAIN = '|' };

enum plm_sequence_result {
  PLM_SEQUENCE_READ, /* *sequence is valid until the next call */
  PLM_SEQUENCE_BAD,  /* error says what is wrong and where; the next call continues after it */
  PLM_SEQUENCE_END,
  PLM_SEQUENCE_FAILED, /* error says why the file cannot be read further */
  PLM_SEQUENCE_AGAIN,  /* a signal arrived; call again */
};

struct plm_sequence_reader;

/* Takes ownership of the stream. max_residues >= 1. */
struct plm_sequence_reader *plm_sequence_reader_open(struct plm_byte_stream *stream,
                                                     enum plm_tokenizer_kind tokenizer,
                                                     uint64_t max_residues);
/* Keeps the first max_residues of a record that is too long. (A line of JSONL must still fit into
 * what max_residues residues may need, plus 1 MiB.) Call it before the first record. */
void plm_sequence_reader_keep_heads(struct plm_sequence_reader *reader);
/* Accepts unknown residues: `<mask>`, or `_` for short, is kept as PLM_SEQUENCE_MASK. (With the
 * byte tokenizer the text stays as it is, and the caller looks for them.) Call it before the
 * first record. */
enum { PLM_SEQUENCE_MASK = '_' };
void plm_sequence_reader_accept_masks(struct plm_sequence_reader *reader);
/* Without it, the choices are {0}: a record that consists of nucleotides is bad, and if it is the
 * first one, the file cannot be read further. Call it before the first record. */
void plm_sequence_reader_choose(struct plm_sequence_reader *reader,
                                const struct plm_sequence_choices *choices);
/* Takes the input as plain text, whatever it begins with. Call it before the first record. */
void plm_sequence_reader_read_as_text(struct plm_sequence_reader *reader);
void plm_sequence_reader_close(
    struct plm_sequence_reader *reader); /* and the stream; NULL is fine */

enum plm_sequence_result plm_sequence_reader_next(struct plm_sequence_reader *reader,
                                                  struct plm_sequence *sequence,
                                                  struct plm_error *error);

/* The same, but continues after signals. After a stop signal it returns PLM_SEQUENCE_FAILED with
 * the error of plm_stop_check(consequence). error must not be NULL. */
enum plm_sequence_result plm_sequence_reader_next_unless_stopped(struct plm_sequence_reader *reader,
                                                                 const char *consequence,
                                                                 struct plm_sequence *sequence,
                                                                 struct plm_error *error);

const struct plm_byte_stream *plm_sequence_reader_stream(const struct plm_sequence_reader *reader);

#endif
