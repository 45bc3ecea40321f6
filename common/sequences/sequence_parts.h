/* The inside of the sequence readers, private to this folder: the record that is put together from
 * pieces of lines, the reader's state, and the functions of the formats. */
#ifndef PLM_COMMON_SEQUENCES_SEQUENCE_PARTS_H
#define PLM_COMMON_SEQUENCES_SEQUENCE_PARTS_H

#include "common/sequences/line_source.h"
#include "common/sequences/sequence_reader.h"

/* A record that is being put together. */
struct plm_sequence_builder {
  enum plm_tokenizer_kind tokenizer;
  uint64_t max_residues;
  bool keep_heads; /* of records beyond max_residues */
  uint8_t *residues;
  size_t size, capacity;
  uint64_t length; /* residues seen, also those beyond max_residues */
  bool star;       /* a `*` came: nothing may follow */
  bool masks;      /* <mask> and _ are taken */
  uint8_t matched; /* characters of a <mask> that has begun */
  bool carriage;   /* byte tokenizer: a CR came last, which a line end would swallow */
  int bad;         /* first character that may not be there, -1: none */
  uint64_t bad_line;
  bool no_memory;
};

void plm_sequence_builder_reset(struct plm_sequence_builder *builder);
/* A piece of line number `line`. */
void plm_sequence_builder_add(struct plm_sequence_builder *builder,
                              const struct plm_line_piece *piece, uint64_t line);
/* The same, faster, for whole lines of nothing but letters, from the beginning of a line up to the
 * first that is another or begins with '>', or that may not be whole. Returns how many bytes that
 * were, line ends included, and in lines how many lines; 0 is always a right answer. */
size_t plm_sequence_builder_add_lines(struct plm_sequence_builder *builder, const uint8_t *bytes,
                                      size_t size, uint64_t *lines);

struct plm_sequence_reader {
  struct plm_line_source lines;
  struct plm_sequence_builder builder;
  enum plm_sequence_format format;
  bool format_known, begun, ended;
  unsigned mark_bytes;   /* of a byte order mark, skipped */
  const char *base_name; /* of the file, for records without a name */
  char name[4096 + 32];  /* of the record being read */
  size_t name_size;
  bool name_complete, name_too_long;
  enum { FASTA_BEFORE, FASTA_HEADER, FASTA_RESIDUES } fasta_state;
  uint64_t record_line;
  char *line; /* JSONL: a whole line */
  size_t line_size, line_capacity;
  bool line_too_long;
};

/* JSONL, text: the next piece of a line. An open line gets an empty last piece from the end of the
 * file. */
enum plm_sequence_result plm_sequence_piece(struct plm_sequence_reader *reader,
                                            struct plm_line_piece *piece, struct plm_error *error);

/* "FILE:LINE", blanks made '_': the name of a record that has none. */
void plm_sequence_name_by_place(struct plm_sequence_reader *reader);
/* The record in the builder is complete: checks it and hands it out, or says why it is bad. */
enum plm_sequence_result plm_sequence_complete(struct plm_sequence_reader *reader,
                                               struct plm_sequence *sequence,
                                               struct plm_error *error);
/* PLM_SEQUENCE_BAD with the place and name of the record. */
enum plm_sequence_result plm_sequence_bad(const struct plm_sequence_reader *reader, uint64_t line,
                                          struct plm_error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

enum plm_sequence_result plm_fasta_next(struct plm_sequence_reader *reader,
                                        struct plm_sequence *sequence, struct plm_error *error);
enum plm_sequence_result plm_jsonl_next(struct plm_sequence_reader *reader,
                                        struct plm_sequence *sequence, struct plm_error *error);
enum plm_sequence_result plm_text_next(struct plm_sequence_reader *reader,
                                       struct plm_sequence *sequence, struct plm_error *error);

#endif
