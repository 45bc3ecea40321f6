/* FASTA: a header that begins with '>', then residues on any number of lines. */
#include <string.h>

#include "common/corpus/corpus.h"
#include "common/sequences/foreign_format.h"
#include "common/sequences/sequence_parts.h"

static bool is_blank(uint8_t byte)
{
  return byte == ' ' || byte == '\t';
}

/* Takes the first word of a header, which may come in spans and may have blanks before it. */
static void append_name(struct plm_sequence_reader *reader, const uint8_t *bytes, size_t size)
{
  if (reader->name_complete) return;
  for (; reader->name_size == 0 && size != 0 && is_blank(*bytes); bytes++) size--;
  const size_t room = PLM_NAME_LIMIT - reader->name_size;
  size_t word = 0;
  while (word < size && !is_blank(bytes[word])) word++;
  reader->name_too_long = word > room;
  reader->name_complete = word < size || reader->name_too_long;
  if (reader->name_too_long) word = room;
  char *name = reader->name + reader->name_size;
  memcpy(name, bytes, word);
  for (char *nul; (nul = memchr(name, '\0', word)) != NULL;)
    *nul = '?'; /* a NUL would end the name early wherever it is printed */
  reader->name_size += word;
}

static void begin_record(struct plm_sequence_reader *reader)
{
  reader->record_line = reader->lines.line;
  reader->name_size = 0;
  reader->name_complete = false;
  plm_sequence_builder_reset(&reader->builder);
}

static enum plm_sequence_result not_fasta(const struct plm_sequence_reader *reader, int byte,
                                          uint64_t line, struct plm_error *error)
{
  if (byte > ' ' && byte < 0x7f)
    plm_error_set(error, PLM_FORMAT, "not FASTA: the first line begins with '%c' instead of '>'",
                  byte);
  else
    plm_error_set(error, PLM_FORMAT, "not FASTA: the file begins with byte 0x%02x instead of '>'",
                  (unsigned)byte);
  plm_error_hint(
      error, "FASTA begins with '>NAME'; files of plain text are named .txt, of JSON lines .jsonl");
  plm_error_where(error, "%s:%llu", plm_byte_stream_name(reader->lines.stream),
                  (unsigned long long)line);
  return PLM_SEQUENCE_FAILED;
}

static enum plm_sequence_result failed(enum plm_line_result result)
{
  return result == PLM_LINE_AGAIN ? PLM_SEQUENCE_AGAIN : PLM_SEQUENCE_FAILED;
}

/* Skips blank lines up to the first '>'; anything else is an error. */
static enum plm_sequence_result fasta_reader_find_first(struct plm_sequence_reader *reader,
                                                        struct plm_error *error)
{
  for (;;) {
    int byte;
    struct plm_line_span span;
    enum plm_line_result result = plm_line_peek(&reader->lines, &byte, error);
    if (result == PLM_LINE_END) return PLM_SEQUENCE_END;
    if (result != PLM_LINE_SPAN) return failed(result);
    if (byte == '>' && !reader->lines.inside_line) return PLM_SEQUENCE_READ;
    if (byte != '\n' && byte != '\r' && byte != ' ' && byte != '\t')
      return not_fasta(reader, byte, reader->lines.line + 1, error);
    result = plm_line_next(&reader->lines, &span, error);
    if (result != PLM_LINE_SPAN) return failed(result);
    if (!plm_line_is_blank(span.bytes, span.size))
      return not_fasta(reader, ' ', reader->lines.line, error);
  }
}

/* Reads a header line, or a span of it. */
static enum plm_line_result read_header(struct plm_sequence_reader *reader, struct plm_error *error)
{
  struct plm_line_span span;
  const enum plm_line_result result = plm_line_next(&reader->lines, &span, error);
  if (result == PLM_LINE_SPAN) {
    if (span.begins) begin_record(reader);
    const size_t skip = span.begins ? 1 : 0; /* '>' */
    append_name(reader, span.bytes + skip, span.size - skip);
    if (!span.ends) return result;
  } else if (result != PLM_LINE_END) {
    return result;
  }
  reader->fasta_state = FASTA_RESIDUES;
  const char *file = plm_byte_stream_name(reader->lines.stream);
  if (reader->builder.tokenizer == PLM_TOKENIZER_ESM &&
      plm_foreign_format_check_name(reader->name, reader->name_size, file, error) != PLM_OK) {
    plm_error_where(error, "%s:%llu", file, (unsigned long long)reader->record_line);
    return PLM_LINE_FAILED;
  }
  if (reader->name_size == 0) plm_sequence_name_by_place(reader);
  return PLM_LINE_SPAN;
}

/* Takes whole lines of letters directly from the buffer. */
static void read_plain_lines(struct plm_sequence_reader *reader)
{
  struct plm_line_reader *text = &reader->lines;
  uint64_t lines;
  if (text->inside_line || text->after_return) return;
  text->at += plm_sequence_builder_add_lines(&reader->builder, text->bytes + text->at,
                                             text->size - text->at, &lines);
  text->line += lines;
}

/* Reads residues up to the next header. PLM_LINE_END: the record is complete. */
static enum plm_line_result read_residues(struct plm_sequence_reader *reader,
                                          struct plm_error *error)
{
  int byte;
  struct plm_line_span span;
  enum plm_line_result result = plm_line_peek(&reader->lines, &byte, error);
  if (result == PLM_LINE_SPAN) {
    read_plain_lines(reader);
    result = plm_line_peek(&reader->lines, &byte, error);
  }
  if (result == PLM_LINE_END) reader->ended = true;
  if (result != PLM_LINE_SPAN) return result;
  if (byte == '>' && !reader->lines.inside_line) {
    reader->fasta_state = FASTA_HEADER;
    return PLM_LINE_END;
  }
  result = plm_line_next(&reader->lines, &span, error);
  if (result == PLM_LINE_SPAN)
    plm_sequence_builder_add(&reader->builder, &span, reader->lines.line);
  return result;
}

enum plm_sequence_result plm_fasta_next(struct plm_sequence_reader *reader,
                                        struct plm_sequence *sequence, struct plm_error *error)
{
  if (reader->ended) return PLM_SEQUENCE_END;
  if (reader->fasta_state == FASTA_BEFORE) {
    const enum plm_sequence_result first = fasta_reader_find_first(reader, error);
    if (first != PLM_SEQUENCE_READ) return first;
    reader->fasta_state = FASTA_HEADER;
  }
  for (;;) {
    const enum plm_line_result result = reader->fasta_state == FASTA_HEADER
                                            ? read_header(reader, error)
                                            : read_residues(reader, error);
    if (result == PLM_LINE_END) return plm_sequence_complete(reader, sequence, error);
    if (result != PLM_LINE_SPAN) return failed(result);
  }
}
