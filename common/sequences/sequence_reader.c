/* What the formats share: names of records, the check of a complete record, and the choice of
 * the format. */
#include "common/sequences/sequence_reader.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/corpus/corpus.h"
#include "common/run/stop.h"
#include "common/sequences/csv_file.h"
#include "common/sequences/foreign_format.h"
#include "common/sequences/sequence_parts.h"

/* ---- records --------------------------------------------------------------------------------- */

enum plm_sequence_result plm_sequence_line_span(struct plm_sequence_reader *reader,
                                                struct plm_line_span *span, struct plm_error *error)
{
  if (reader->ended) return PLM_SEQUENCE_END;
  switch (plm_line_next(&reader->lines, span, error)) {
  case PLM_LINE_SPAN: return PLM_SEQUENCE_READ;
  case PLM_LINE_FAILED: return PLM_SEQUENCE_FAILED;
  case PLM_LINE_AGAIN: return PLM_SEQUENCE_AGAIN;
  case PLM_LINE_END: break;
  }
  reader->ended = true;
  *span = (struct plm_line_span){.bytes = (const uint8_t *)"", .ends = true};
  return reader->lines.inside_line ? PLM_SEQUENCE_READ : PLM_SEQUENCE_END;
}

bool plm_sequence_set_name(struct plm_sequence_reader *reader, const char *name, size_t size)
{
  for (size_t i = 0; i < size; i++)
    if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) return false;
  reader->name_too_long = size > PLM_NAME_LIMIT;
  reader->name_size = reader->name_too_long ? PLM_NAME_LIMIT : size;
  memcpy(reader->name, name, reader->name_size);
  return true;
}

void plm_sequence_name_by_place(struct plm_sequence_reader *reader)
{
  const int size = snprintf(reader->name, sizeof reader->name, "%.*s:%llu", PLM_NAME_LIMIT / 2,
                            reader->base_name, (unsigned long long)reader->record_line);
  reader->name_size = (size_t)size;
  for (char *at = reader->name; *at != '\0'; at++)
    if ((unsigned char)*at <= ' ') *at = '_';
}

enum plm_sequence_result plm_sequence_bad(const struct plm_sequence_reader *reader, uint64_t line,
                                          struct plm_error *error, const char *format, ...)
{
  char what[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (reader->name_size != 0)
    plm_error_set(error, PLM_FORMAT, "record \"%.*s\": %s",
                  (int)(reader->name_size < 80 ? reader->name_size : 80), reader->name, what);
  else
    plm_error_set(error, PLM_FORMAT, "%s", what);
  plm_error_where(error, "%s:%llu", plm_byte_stream_name(reader->lines.stream),
                  (unsigned long long)line);
  return PLM_SEQUENCE_BAD;
}

/* Whether the first residues are the letters of nucleotides, N among them, and each of the four
 * occurs. A protein of 20 residues or more does not look so. */
static bool is_nucleotides(const uint8_t *residues, size_t size)
{
  enum { LEAST = 20, EXAMINED = 256 };
  size_t counts[256] = {0}, letters = 0;
  if (size > EXAMINED) size = EXAMINED;
  for (size_t i = 0; i < size; i++) {
    counts[residues[i]]++;
    letters += residues[i] >= 'A' && residues[i] <= 'Z';
  }
  const size_t thymine = counts['T'] + counts['U'];
  const size_t bases = counts['A'] + counts['C'] + counts['G'] + thymine;
  return letters >= LEAST && counts['A'] != 0 && counts['C'] != 0 && counts['G'] != 0 &&
         thymine != 0 && 20 * (bases + counts['N']) >= 19 * letters;
}

/* A first record of nucleotides ends the file, and a later one is bad. */
static enum plm_sequence_result refuse_nucleotides(const struct plm_sequence_reader *reader,
                                                   bool first, struct plm_error *error)
{
  const enum plm_sequence_result result = plm_sequence_bad(
      reader, reader->record_line, error,
      "these are nucleotides (DNA or RNA), not a protein; --nucleotides takes them as they are");
  if (!first) return result;
  plm_error_hint(error, "translate the sequences into proteins first");
  return PLM_SEQUENCE_FAILED;
}

enum plm_sequence_result plm_sequence_complete(struct plm_sequence_reader *reader,
                                               struct plm_sequence *sequence,
                                               struct plm_error *error)
{
  const struct plm_sequence_builder *builder = &reader->builder;
  const bool first = !reader->any_record;
  reader->any_record = true;
  if (builder->no_memory) {
    plm_error_set(error, PLM_NO_MEMORY, "out of memory for a record of %s",
                  plm_byte_stream_name(reader->lines.stream));
    return PLM_SEQUENCE_FAILED;
  }
  if (reader->name_too_long)
    return plm_sequence_bad(reader, reader->record_line, error, "its name has more than %d bytes",
                            PLM_NAME_LIMIT);
  if (builder->bad >= 0) {
    const int bad = builder->bad;
    if (bad == '-' || bad == '.')
      return plm_sequence_bad(reader, builder->bad_line, error,
                              "'%c' is a gap of an alignment%s, not a residue; --gaps remove or "
                              "--gaps keep takes the sequence",
                              bad, bad == '.' ? " or a stop codon" : "");
    if (bad == ' ')
      return plm_sequence_bad(
          reader, builder->bad_line, error,
          "a blank inside the line; text has one sequence on each line, without "
          "names");
    if (bad == '<' && builder->masks)
      return plm_sequence_bad(reader, builder->bad_line, error, "'<' may only begin <mask>");
    if (bad == '*')
      return plm_sequence_bad(reader, builder->bad_line, error,
                              "'*' is allowed only as the last character");
    if (bad == PLM_SEQUENCE_CHAIN)
      return plm_sequence_bad(reader, builder->bad_line, error,
                              "'|' separates chains, which only embed with ESM-C takes; make each "
                              "chain a record");
    if (bad == '<' || bad == '_')
      return plm_sequence_bad(reader, builder->bad_line, error,
                              "character '%c' is not a residue; only generate takes <mask> and _",
                              bad);
    if (isprint(bad))
      return plm_sequence_bad(reader, builder->bad_line, error, "character '%c' is not a residue",
                              bad);
    return plm_sequence_bad(reader, builder->bad_line, error, "byte 0x%02x is not a residue",
                            (unsigned)bad);
  }
  if (builder->matched != 0)
    return plm_sequence_bad(reader, reader->record_line, error, "it ends inside a <mask>");
  if (builder->length == 0)
    return plm_sequence_bad(reader, reader->record_line, error, "empty sequence");
  if (builder->tokenizer == PLM_TOKENIZER_ESM && !reader->nucleotides &&
      is_nucleotides(builder->residues, builder->size))
    return refuse_nucleotides(reader, first, error);
  *sequence = (struct plm_sequence){.name = reader->name,
                                    .name_size = reader->name_size,
                                    .residues = builder->residues,
                                    .size = builder->size,
                                    .line = reader->record_line,
                                    .too_long = builder->length > builder->max_residues,
                                    .length = builder->length,
                                    .columns = reader->table.other_names.data,
                                    .fields = reader->table.others.data};
  return PLM_SEQUENCE_READ;
}

/* ---- the choice of a format ------------------------------------------------------------------ */

static const struct {
  const char *ending;
  enum plm_sequence_format format;
} endings[] = {
    {".fasta", PLM_FORMAT_FASTA}, {".fa", PLM_FORMAT_FASTA},    {".faa", PLM_FORMAT_FASTA},
    {".fas", PLM_FORMAT_FASTA},   {".jsonl", PLM_FORMAT_JSONL}, {".txt", PLM_FORMAT_TEXT},
    {".csv", PLM_FORMAT_TABLE},   {".tsv", PLM_FORMAT_TABLE},
};

/* The format that the name indicates, ignoring .gz or .zst. */
static bool format_of_name(const char *name, enum plm_sequence_format *format)
{
  size_t length = strlen(name);
  if (length > 3 && strcmp(name + length - 3, ".gz") == 0)
    length -= 3;
  else if (length > 4 && strcmp(name + length - 4, ".zst") == 0)
    length -= 4;
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
    const size_t tail = strlen(endings[i].ending);
    if (length <= tail || strncasecmp(name + length - tail, endings[i].ending, tail) != 0) continue;
    *format = endings[i].format;
    return true;
  }
  return false;
}

static plm_status not_sequences(const struct plm_sequence_reader *reader, int byte,
                                struct plm_error *error)
{
  if (byte == '@')
    plm_error_set(error, PLM_FORMAT, "the first line begins with '@', as FASTQ does");
  else
    plm_error_set(error, PLM_FORMAT, "this is not text: it begins with byte 0x%02x",
                  (unsigned)byte);
  plm_error_hint(error,
                 "FASTA, JSON lines, tables and plain text are supported, also compressed as .gz "
                 "or .zst");
  return plm_error_where(error, "%s:1", plm_byte_stream_name(reader->lines.stream));
}

/* Skips a byte order mark. For the byte tokenizer it is part of a plain text. */
static plm_status skip_byte_order_mark(struct plm_sequence_reader *reader, struct plm_error *error)
{
  const bool keep = reader->builder.tokenizer == PLM_TOKENIZER_BYTE &&
                    (!reader->format_known || reader->format == PLM_FORMAT_TEXT);
  if (reader->mark_skipped) return PLM_OK;
  PLM_TRY(plm_byte_stream_begin_text(reader->lines.stream, keep, error));
  reader->mark_skipped = true;
  return PLM_OK;
}

static bool is_space(uint8_t byte)
{
  return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

/* The first line that is not blank, or its beginning, and its number. *size is 0 if there is none.
 */
static plm_status first_line(struct plm_sequence_reader *reader, const char **line, size_t *size,
                             uint64_t *number, struct plm_error *error)
{
  for (size_t want = 1;;) {
    const uint8_t *bytes;
    size_t available, begin = 0;
    PLM_TRY(plm_byte_stream_peek(reader->lines.stream, want, &bytes, &available, error));
    *number = 1;
    for (; begin < available && is_space(bytes[begin]); begin++)
      *number += bytes[begin] == '\r' ||
                 (bytes[begin] == '\n' && (begin == 0 || bytes[begin - 1] != '\r'));
    *line = (const char *)bytes + begin;
    *size = 0;
    while (begin + *size < available && bytes[begin + *size] != '\n' &&
           bytes[begin + *size] != '\r')
      ++*size;
    const bool whole = begin + *size < available;
    if (whole || available < want || available == PLM_PEEK_BYTES) return PLM_OK;
    want = available + 1;
  }
}

/* Looks at the first line, to tell the formats from each other and from everything else. */
static plm_status format_of_content(struct plm_sequence_reader *reader, struct plm_error *error)
{
  const char *line, *file = plm_byte_stream_name(reader->lines.stream);
  const bool esm = reader->builder.tokenizer == PLM_TOKENIZER_ESM;
  size_t size;
  uint64_t number;
  PLM_TRY(first_line(reader, &line, &size, &number, error));
  const int byte = size == 0 ? '\n' : (unsigned char)*line;
  if (reader->format_known && !esm) return PLM_OK;
  reader->format = byte == '>'   ? PLM_FORMAT_FASTA
                   : byte == '{' ? PLM_FORMAT_JSONL
                                 : PLM_FORMAT_TEXT;
  reader->format_known = true;
  if (!esm || reader->format != PLM_FORMAT_TEXT) return PLM_OK;
  if (byte == '@' || byte > '~' || (byte < ' ' && byte != '\n'))
    return not_sequences(reader, byte, error);
  if (plm_foreign_format_check(line, size, file, error) == PLM_OK) return PLM_OK;
  return plm_error_where(error, "%s:%llu", file, (unsigned long long)number);
}

/* Skips a byte order mark and decides on the format, before the first record. */
static plm_status sequence_reader_begin(struct plm_sequence_reader *reader, struct plm_error *error)
{
  const bool text = !reader->format_known || reader->format == PLM_FORMAT_TEXT;
  PLM_TRY(skip_byte_order_mark(reader, error));
  if (text && !reader->only_text) PLM_TRY(format_of_content(reader, error));
  reader->builder.one_word = reader->format == PLM_FORMAT_TEXT;
  reader->begun = true;
  return PLM_OK;
}

struct plm_sequence_reader *plm_sequence_reader_open(struct plm_byte_stream *stream,
                                                     enum plm_tokenizer_kind tokenizer,
                                                     uint64_t max_residues)
{
  struct plm_sequence_reader *opened = plm_alloc_zeroed(1, sizeof *opened);
  const char *name = plm_byte_stream_name(stream), *slash = strrchr(name, '/');
  opened->lines.stream = stream;
  opened->base_name = slash == NULL ? name : slash + 1;
  opened->builder.tokenizer = tokenizer;
  opened->builder.max_residues = max_residues;
  opened->format_known = format_of_name(name, &opened->format);
  return opened;
}

void plm_sequence_reader_keep_heads(struct plm_sequence_reader *reader)
{
  reader->builder.keep_heads = true;
}

void plm_sequence_reader_accept_masks(struct plm_sequence_reader *reader)
{
  reader->builder.masks = true;
}

void plm_sequence_reader_choose(struct plm_sequence_reader *reader,
                                const struct plm_sequence_choices *choices)
{
  reader->builder.gaps = choices->gaps;
  reader->builder.chains = choices->chains;
  reader->nucleotides = choices->nucleotides;
  reader->table.keep_columns = choices->columns;
  reader->table.sequence_name = choices->sequence_column;
  reader->table.name_name = choices->name_column;
  if (choices->sequence_column == NULL && choices->name_column == NULL) return;
  reader->format = PLM_FORMAT_TABLE;
  reader->format_known = true;
}

void plm_sequence_reader_read_as_text(struct plm_sequence_reader *reader)
{
  reader->only_text = true;
  reader->format = PLM_FORMAT_TEXT;
  reader->format_known = true;
}

void plm_sequence_reader_close(struct plm_sequence_reader *reader)
{
  if (reader == NULL) return;
  plm_csv_close(reader->table.csv);
  plm_text_deinit(&reader->table.other_names);
  plm_text_deinit(&reader->table.others);
  plm_byte_stream_close(reader->lines.stream);
  free(reader->builder.residues);
  free(reader->line);
  free(reader);
}

enum plm_sequence_result plm_sequence_reader_next(struct plm_sequence_reader *reader,
                                                  struct plm_sequence *sequence,
                                                  struct plm_error *error)
{
  static enum plm_sequence_result (*const readers[])(struct plm_sequence_reader *,
                                                     struct plm_sequence *, struct plm_error *) = {
      [PLM_FORMAT_FASTA] = plm_fasta_next,
      [PLM_FORMAT_JSONL] = plm_jsonl_next,
      [PLM_FORMAT_TEXT] = plm_text_next,
      [PLM_FORMAT_TABLE] = plm_table_next,
  };
  if (!reader->begun) {
    const plm_status status = sequence_reader_begin(reader, error);
    if (status != PLM_OK) return status == PLM_AGAIN ? PLM_SEQUENCE_AGAIN : PLM_SEQUENCE_FAILED;
  }
  return readers[reader->format](reader, sequence, error);
}

enum plm_sequence_result plm_sequence_reader_next_unless_stopped(struct plm_sequence_reader *reader,
                                                                 const char *consequence,
                                                                 struct plm_sequence *sequence,
                                                                 struct plm_error *error)
{
  for (;;) {
    if (plm_stop_check(consequence, error) != PLM_OK) return PLM_SEQUENCE_FAILED;
    const enum plm_sequence_result result = plm_sequence_reader_next(reader, sequence, error);
    if (result != PLM_SEQUENCE_AGAIN) return result;
  }
}

const struct plm_byte_stream *plm_sequence_reader_stream(const struct plm_sequence_reader *reader)
{
  return reader->lines.stream;
}
