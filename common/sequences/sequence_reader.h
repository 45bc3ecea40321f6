/* Reads sequences, one record after another, from FASTA, JSONL or plain text; see data.md's rules:
 * letters become upper case; CR, blanks, empty lines and one `*` at the end are dropped; a letter
 * outside the alphabet stays (it becomes <unk>); any other character makes the record bad.
 * With the byte tokenizer the text stays as it is, its line ends aside.
 *
 * The format comes from the name, or from the first byte for standard input and other names. A byte
 * order mark before it is skipped (in texts of the byte tokenizer it is a part of the text).
 * Memory is bounded by the longest record that is kept. */
#ifndef PLM_COMMON_SEQUENCES_SEQUENCE_READER_H
#define PLM_COMMON_SEQUENCES_SEQUENCE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/sequences/byte_stream.h"

enum plm_sequence_format { PLM_FORMAT_FASTA, PLM_FORMAT_JSONL, PLM_FORMAT_TEXT };

struct plm_sequence {
  const char *name; /* not NUL-terminated; FILE:LINE where the input has none */
  size_t name_size;
  const uint8_t *residues;
  size_t size;   /* stored residues: when too_long none, or max_residues where heads are kept */
  uint64_t line; /* where it begins, from 1 */
  bool too_long; /* more than max_residues; length says how many */
  uint64_t length;
};

enum plm_sequence_result {
  PLM_SEQUENCE_READ, /* *sequence is valid until the next call */
  PLM_SEQUENCE_BAD,  /* error says what and where; reading goes on behind it */
  PLM_SEQUENCE_END,
  PLM_SEQUENCE_FAILED, /* error: the file cannot be read further */
  PLM_SEQUENCE_AGAIN,  /* a signal came; call again */
};

struct plm_sequence_reader;

/* Takes the stream over, also when it fails. max_residues >= 1. */
plm_status plm_sequence_reader_open(struct plm_byte_stream *stream,
                                    enum plm_tokenizer_kind tokenizer, uint64_t max_residues,
                                    struct plm_sequence_reader **reader, struct plm_error *error);
/* Of a record that is too long, its first max_residues are kept. (In JSONL a line has to fit:
 * what one of max_residues residues may need, and 1 MiB.) Before the first record. */
void plm_sequence_reader_keep_heads(struct plm_sequence_reader *reader);
/* Residues may be unknown: `<mask>`, or `_` for short, is kept as PLM_SEQUENCE_MASK. (With the byte
 * tokenizer, whose text stays as it is, it is the caller's to look for.) Before the first record.
 */
enum { PLM_SEQUENCE_MASK = '_' };
void plm_sequence_reader_take_masks(struct plm_sequence_reader *reader);
void plm_sequence_reader_close(
    struct plm_sequence_reader *reader); /* and the stream; NULL is fine */

enum plm_sequence_result plm_sequence_reader_next(struct plm_sequence_reader *reader,
                                                  struct plm_sequence *sequence,
                                                  struct plm_error *error);

const struct plm_byte_stream *plm_sequence_reader_stream(const struct plm_sequence_reader *reader);

#endif
