/* The inside of the sequence readers, private to this folder: the record that is assembled from
 * spans of lines, the reader's state, and the functions of the formats. */
#ifndef PLM_COMMON_SEQUENCES_SEQUENCE_PARTS_H
#define PLM_COMMON_SEQUENCES_SEQUENCE_PARTS_H

#include "common/base/text/text.h"
#include "common/corpus/corpus.h"
#include "common/sequences/line_reader.h"
#include "common/sequences/sequence_reader.h"

/* A record that is being assembled. */
struct plm_sequence_builder {
  enum plm_tokenizer_kind tokenizer;
  uint64_t max_residues;
  bool keep_heads; /* keep the first max_residues of longer records */
  uint8_t *residues;
  size_t size, capacity;
  uint64_t length; /* all residues seen, including those beyond max_residues */
  bool star;       /* a `*` was seen, so nothing may follow */
  bool masks;      /* <mask> and _ are accepted */
  bool chains;     /* | is accepted */
  enum plm_gaps gaps;
  bool one_word;   /* no residue may follow a blank */
  bool blank;      /* one_word: a blank was seen after residues */
  uint8_t matched; /* number of characters seen of a <mask> that has begun */
  int bad;         /* the first invalid character, -1 if none */
  uint64_t bad_line;
  bool no_memory;
};

void plm_sequence_builder_reset(struct plm_sequence_builder *builder);
/* Adds a span of line number `line`. */
void plm_sequence_builder_add(struct plm_sequence_builder *builder,
                              const struct plm_line_span *span, uint64_t line);
/* A fast path for whole lines that contain only letters. bytes begins with a line. It adds lines up
 * to the first one that contains anything else, begins with '>' or may be incomplete. Returns the
 * number of bytes taken, including line ends, and in *lines the number of lines. It may take fewer
 * lines than it could, even none. */
size_t plm_sequence_builder_add_lines(struct plm_sequence_builder *builder, const uint8_t *bytes,
                                      size_t size, uint64_t *lines);

/* A table that is being read. */
struct plm_sequence_table {
  struct plm_csv_file *csv;              /* NULL before the header */
  const char *sequence_name, *name_name; /* as plm_sequence_choices says */
  size_t columns;                        /* of the header; 0 before it is read */
  bool named;                            /* there is a column of names */
  size_t sequence_column, name_column;
  bool keep_columns;                   /* as plm_sequence_choices says */
  struct plm_text other_names, others; /* as JSON, if they are kept; of the current row */
};

struct plm_sequence_reader {
  struct plm_line_reader lines;
  struct plm_sequence_builder builder;
  enum plm_sequence_format format;
  bool format_known, begun, ended;
  bool mark_skipped;              /* a byte order mark, if there was one */
  bool nucleotides;               /* as plm_sequence_choices says */
  bool any_record;                /* one was complete, good or bad */
  bool only_text;                 /* as plm_sequence_reader_read_as_text says */
  const char *base_name;          /* of the file, to name records without a name */
  char name[PLM_NAME_LIMIT + 32]; /* of the current record */
  size_t name_size;
  bool name_complete, name_too_long;
  enum { FASTA_BEFORE, FASTA_HEADER, FASTA_RESIDUES } fasta_state;
  uint64_t record_line;
  char *line; /* JSONL: a whole line */
  size_t line_size, line_capacity;
  bool line_too_long;
  struct plm_sequence_table table;
};

/* The next span of a line, for JSONL and text. If the last line has no line end, an empty last
 * span ends it. */
enum plm_sequence_result plm_sequence_line_span(struct plm_sequence_reader *reader,
                                                struct plm_line_span *span,
                                                struct plm_error *error);

/* Takes the name of a record, which may be empty or too long. False: it has a control character. */
bool plm_sequence_set_name(struct plm_sequence_reader *reader, const char *name, size_t size);
/* Names a record that has no name "FILE:LINE", with blanks replaced by '_'. */
void plm_sequence_name_by_place(struct plm_sequence_reader *reader);
/* Checks the record in the builder, which is complete, and hands it out or says why it is bad. */
enum plm_sequence_result plm_sequence_complete(struct plm_sequence_reader *reader,
                                               struct plm_sequence *sequence,
                                               struct plm_error *error);
/* Fills error with the place and the name of the record. Returns PLM_SEQUENCE_BAD. */
enum plm_sequence_result plm_sequence_bad(const struct plm_sequence_reader *reader, uint64_t line,
                                          struct plm_error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

enum plm_sequence_result plm_fasta_next(struct plm_sequence_reader *reader,
                                        struct plm_sequence *sequence, struct plm_error *error);
enum plm_sequence_result plm_jsonl_next(struct plm_sequence_reader *reader,
                                        struct plm_sequence *sequence, struct plm_error *error);
enum plm_sequence_result plm_text_next(struct plm_sequence_reader *reader,
                                       struct plm_sequence *sequence, struct plm_error *error);
enum plm_sequence_result plm_table_next(struct plm_sequence_reader *reader,
                                        struct plm_sequence *sequence, struct plm_error *error);

#endif
