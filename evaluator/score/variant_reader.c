/* Reads variants from the command line, from a CSV file, or makes all substitutions. */
#include "evaluator/score/variant_reader.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "evaluator/score/variant_sample.h"

static const char amino_acids[] = "ACDEFGHIKLMNPQRSTVWY";

struct plm_variant_reader {
  struct plm_variant_reader_request request;
  const struct plm_wild_type *wild_type;
  struct plm_csv_file *csv;
  struct plm_variant_sample sample;
  struct plm_text header;              /* the fields of its header, as CSV */
  size_t columns, mutations, measured; /* number, and two indices; measured: SIZE_MAX if none */
  uint64_t line;                       /* of the last entry */
  const char *column;                  /* the column that an error is about; NULL: the whole row */
  size_t next;                         /* index of a text, or 20 * residue + letter */
  char text[48];
};

static plm_status no_column(const struct plm_variant_reader *reader, const struct plm_csv_row *row,
                            const char *name, const char *option, struct plm_error *error)
{
  char names[400] = "";
  for (size_t i = 0; i < row->count; i++) {
    const size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%.60s", i == 0 ? "" : ", ", row->fields[i].text);
  }
  plm_error_set(error, PLM_CONFIG, "there is no column \"%.80s\"", name);
  plm_error_where(error, "%s:%llu", plm_csv_name(reader->csv), (unsigned long long)row->line);
  return plm_error_hint(error, "name one with --%s: %s", option, names);
}

static plm_status open_csv(struct plm_variant_reader *reader, struct plm_error *error)
{
  const struct plm_variant_reader_request *request = &reader->request;
  struct plm_csv_row row;
  PLM_TRY(plm_csv_open(request->csv, &reader->csv, error));
  PLM_TRY(plm_csv_next(reader->csv, &row, error));
  if (row.count == 0)
    return plm_error_set(error, PLM_FORMAT, "%s is empty", plm_csv_name(reader->csv));
  reader->columns = row.count;
  reader->mutations = plm_csv_column(&row, request->mutations);
  if (reader->mutations == SIZE_MAX)
    return no_column(reader, &row, request->mutations, "mutations", error);
  if (request->measured != NULL) reader->measured = plm_csv_column(&row, request->measured);
  if (request->measured != NULL && reader->measured == SIZE_MAX)
    return no_column(reader, &row, request->measured, "measured", error);
  if (plm_csv_column(&row, request->added) != SIZE_MAX) {
    plm_error_set(error, PLM_CONFIG, "%s already has a column \"%s\"", plm_csv_name(reader->csv),
                  request->added);
    return plm_error_hint(error, "give the new column another name with --score-column NAME");
  }
  for (size_t i = 0; i < row.count; i++) {
    const char delimiter = plm_csv_delimiter(reader->csv);
    if (i != 0) plm_text_append(&reader->header, &delimiter, 1);
    plm_text_put_csv(&reader->header, row.fields[i].text, row.fields[i].size, delimiter);
  }
  return plm_variant_sample_read(request->csv, request->mutations, request->most, &reader->sample,
                                 error);
}

plm_status plm_variant_reader_open(const struct plm_variant_reader_request *request,
                                   const struct plm_wild_type *wild_type,
                                   struct plm_variant_reader **reader, struct plm_error *error)
{
  struct plm_variant_reader *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->request = *request;
  opened->wild_type = wild_type;
  opened->measured = SIZE_MAX;
  plm_status status = PLM_OK;
  if (request->csv != NULL)
    status = open_csv(opened, error);
  else
    plm_text_puts(&opened->header, "mutant");
  if (status != PLM_OK) {
    plm_variant_reader_close(opened);
    return status;
  }
  *reader = opened;
  return PLM_OK;
}

void plm_variant_reader_close(struct plm_variant_reader *reader)
{
  if (reader == NULL) return;
  plm_csv_close(reader->csv);
  plm_variant_sample_deinit(&reader->sample);
  plm_text_deinit(&reader->header);
  free(reader);
}

plm_status plm_variant_reader_rewind(struct plm_variant_reader *reader, struct plm_error *error)
{
  struct plm_csv_row header;
  reader->next = 0;
  plm_variant_sample_rewind(&reader->sample);
  if (reader->csv == NULL) return PLM_OK;
  PLM_TRY(plm_csv_rewind(reader->csv, error));
  return plm_csv_next(reader->csv, &header, error);
}

static bool is_missing(const char *text, size_t size)
{
  static const char *const words[] = {"", "NA", "N/A", "NaN", "nan", "null", "None"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (size == strlen(words[i]) && strncmp(text, words[i], size) == 0) return true;
  return false;
}

static plm_status parse_measured(const struct plm_csv_field *field, double *value,
                                 struct plm_error *error)
{
  const char *text = field->text;
  size_t size = field->size;
  char *end;
  plm_trim(&text, &size);
  *value = NAN;
  if (is_missing(text, size)) return PLM_OK;
  const double number = strtod(text, &end);
  if (end != text + size || !isfinite(number)) {
    plm_error_set(error, PLM_FORMAT, "the measured value \"%.80s\" is not a number", field->text);
    return plm_error_hint(error,
                          memchr(text, ',', size) != NULL
                              ? "write the number with a decimal point"
                              : "leave the field empty, or write NA, if nothing was measured");
  }
  *value = number;
  return PLM_OK;
}

static plm_status next_row(struct plm_variant_reader *reader, struct plm_variant_entry *entry,
                           bool *ended, struct plm_error *error)
{
  do {
    const plm_status status = plm_csv_next(reader->csv, &entry->row, error);
    *ended = status != PLM_OK || entry->row.count == 0;
    if (*ended) return status;
  } while (!plm_variant_sample_takes(&reader->sample));
  reader->line = entry->row.line;
  reader->column = NULL;
  if (entry->row.count != reader->columns) {
    plm_error_set(error, PLM_FORMAT, "the row has %zu fields, but the header has %zu",
                  entry->row.count, reader->columns);
    return plm_error_hint(error, "put fields that hold separators into quotes");
  }
  entry->text = entry->row.fields[reader->mutations].text;
  entry->size = entry->row.fields[reader->mutations].size;
  plm_trim(&entry->text, &entry->size);
  reader->column = reader->request.measured;
  if (reader->measured != SIZE_MAX)
    PLM_TRY(parse_measured(&entry->row.fields[reader->measured], &entry->measured, error));
  reader->column = reader->request.mutations;
  return PLM_OK;
}

/* The next of all substitutions: position by position, letters in alphabetical order. Gaps in the
 * wild type are skipped. */
static bool next_substitution(struct plm_variant_reader *reader)
{
  const struct plm_wild_type *wild_type = reader->wild_type;
  for (;; reader->next++) {
    const size_t place = reader->next / 20;
    if (place >= wild_type->length) return false;
    const char wild = (char)wild_type->residues[place], mutant = amino_acids[reader->next % 20];
    if (wild == mutant || !isalpha((unsigned char)wild)) continue;
    const long long number = wild_type->first + (int64_t)place;
    snprintf(reader->text, sizeof reader->text, "%c%lld%c", wild, number, mutant);
    return true;
  }
}

plm_status plm_variant_reader_next(struct plm_variant_reader *reader,
                                   struct plm_variant_entry *entry, bool *ended,
                                   struct plm_error *error)
{
  *entry = (struct plm_variant_entry){.measured = NAN};
  if (reader->csv != NULL) return next_row(reader, entry, ended, error);
  const struct plm_variant_reader_request *request = &reader->request;
  if (request->texts != NULL) {
    *ended = reader->next == request->text_count;
    if (!*ended) entry->text = request->texts[reader->next];
  } else {
    *ended = !next_substitution(reader);
    entry->text = reader->text;
  }
  if (*ended) return PLM_OK;
  reader->next++;
  entry->size = strlen(entry->text);
  plm_trim(&entry->text, &entry->size);
  return PLM_OK;
}

void plm_variant_reader_where(const struct plm_variant_reader *reader, struct plm_error *error)
{
  if (reader->csv == NULL) return;
  const char *column = reader->column != NULL ? reader->column : "";
  plm_error_where(error, "%s:%llu%s%s", plm_csv_name(reader->csv), (unsigned long long)reader->line,
                  column[0] != '\0' ? ": column " : "", column);
}

void plm_variant_reader_header(const struct plm_variant_reader *reader, struct plm_text *out)
{
  const char delimiter = reader->csv != NULL ? plm_csv_delimiter(reader->csv) : ',';
  plm_text_append(out, reader->header.data, reader->header.length);
  plm_text_append(out, &delimiter, 1);
  plm_text_put_csv(out, reader->request.added, strlen(reader->request.added), delimiter);
  plm_text_append(out, "\n", 1);
}

void plm_variant_reader_fields(const struct plm_variant_reader *reader,
                               const struct plm_variant_entry *entry, struct plm_text *out)
{
  const char delimiter = reader->csv != NULL ? plm_csv_delimiter(reader->csv) : ',';
  if (reader->csv == NULL) plm_text_put_csv(out, entry->text, entry->size, delimiter);
  for (size_t i = 0; i < entry->row.count; i++) {
    if (i != 0) plm_text_append(out, &delimiter, 1);
    plm_text_put_csv(out, entry->row.fields[i].text, entry->row.fields[i].size, delimiter);
  }
  plm_text_append(out, &delimiter, 1);
}
