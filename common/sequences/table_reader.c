/* Tables, CSV or TSV: the first row names the columns, and each further one is a record. */
#include <stdio.h>
#include <string.h>

#include "common/base/text/json.h"
#include "common/sequences/sequence_parts.h"
#include "common/sequences/table_columns.h"

/* What a column of names is called if the user names none, whatever its case. */
static const char *const record_names[] = {"id", "name", "accession", "entry"};
enum { RECORD_NAMES = 4 };

/* Says what is wrong with the header, which option helps, and which columns there are. */
static plm_status refuse_header(const struct plm_sequence_reader *reader,
                                const struct plm_csv_row *header, const char *remedy,
                                struct plm_error *error)
{
  struct plm_text names = {0};
  plm_table_list_columns(header, &names);
  plm_error_hint(error, "%s; the columns are %s", remedy, names.data);
  plm_text_deinit(&names);
  return plm_error_where(error, "%s:%llu", plm_byte_stream_name(reader->lines.stream),
                         (unsigned long long)header->line);
}

/* Finds the column that the user has named with an option. */
static plm_status find_named(const struct plm_sequence_reader *reader,
                             const struct plm_csv_row *header, const char *name, const char *option,
                             size_t *column, struct plm_error *error)
{
  const size_t count = plm_table_columns(header, name, true, column);
  if (count == 1) return PLM_OK;
  char remedy[64];
  snprintf(remedy, sizeof remedy, "give %s the name of one column", option);
  if (count == 0)
    plm_error_set(error, PLM_FORMAT, "the header of the table has no column \"%.80s\"", name);
  else
    plm_error_set(error, PLM_FORMAT, "the header of the table has %zu columns \"%.80s\"", count,
                  name);
  return refuse_header(reader, header, remedy, error);
}

static plm_status find_sequence_column(struct plm_sequence_reader *reader,
                                       const struct plm_csv_row *header, struct plm_error *error)
{
  struct plm_sequence_table *table = &reader->table;
  if (table->sequence_name != NULL)
    return find_named(reader, header, table->sequence_name, "--sequence-column",
                      &table->sequence_column, error);
  const size_t count = plm_table_sequence_columns(header, &table->sequence_column, NULL);
  if (count == 1) return PLM_OK;
  plm_error_set(error, PLM_FORMAT,
                "the header of the table has %s column called sequence, seq, protein_sequence or "
                "mutated_sequence",
                count == 0 ? "no" : "more than one");
  return refuse_header(reader, header, "name the column of sequences with --sequence-column NAME",
                       error);
}

static plm_status find_name_column(struct plm_sequence_reader *reader,
                                   const struct plm_csv_row *header, struct plm_error *error)
{
  struct plm_sequence_table *table = &reader->table;
  table->named = table->name_name != NULL;
  if (table->named)
    return find_named(reader, header, table->name_name, "--name-column", &table->name_column,
                      error);
  for (size_t i = 0; i < RECORD_NAMES && !table->named; i++) {
    const size_t count = plm_table_columns(header, record_names[i], false, &table->name_column);
    table->named = count != 0;
    if (count < 2) continue;
    plm_error_set(error, PLM_FORMAT, "the header of the table has %zu columns called %s", count,
                  record_names[i]);
    return refuse_header(reader, header, "name the column of names with --name-column NAME", error);
  }
  return PLM_OK;
}

/* The fields of the columns that are neither names nor sequences, as an array of JSON strings. */
static void put_others(const struct plm_sequence_table *table, const struct plm_csv_row *row,
                       struct plm_text *text)
{
  const char *between = "[";
  plm_text_clear(text);
  for (size_t i = 0; i < row->count; i++) {
    if (i == table->sequence_column || (table->named && i == table->name_column)) continue;
    plm_text_puts(text, between);
    plm_json_put_string(text, row->fields[i].text, row->fields[i].size);
    between = ", ";
  }
  plm_text_puts(text, between[0] == '[' ? "[]" : "]");
}

static plm_status read_header(struct plm_sequence_reader *reader, struct plm_error *error)
{
  struct plm_sequence_table *table = &reader->table;
  struct plm_csv_row header;
  if (table->csv == NULL) PLM_TRY(plm_csv_open_stream(reader->lines.stream, &table->csv, error));
  PLM_TRY(plm_csv_next(table->csv, &header, error));
  table->columns = header.count;
  if (header.count == 0) return PLM_OK;
  PLM_TRY(find_sequence_column(reader, &header, error));
  PLM_TRY(find_name_column(reader, &header, error));
  if (table->keep_columns) put_others(table, &header, &table->other_names);
  return PLM_OK;
}

/* A field may have line ends inside quotes. They are dropped, but belong to other text. */
static void add_residues(struct plm_sequence_builder *builder, const struct plm_csv_field *field,
                         uint64_t line)
{
  const char *at = field->text, *end = field->text + field->size;
  while (at < end) {
    const char *next =
        builder->tokenizer == PLM_TOKENIZER_BYTE ? NULL : memchr(at, '\n', (size_t)(end - at));
    const struct plm_line_span span = {.bytes = (const uint8_t *)at,
                                       .size = (size_t)((next != NULL ? next : end) - at)};
    plm_sequence_builder_add(builder, &span, line);
    at = next != NULL ? next + 1 : end;
  }
}

static enum plm_sequence_result table_parse_row(struct plm_sequence_reader *reader,
                                                const struct plm_csv_row *row,
                                                struct plm_sequence *sequence,
                                                struct plm_error *error)
{
  const struct plm_sequence_table *table = &reader->table;
  reader->record_line = row->line;
  reader->name_size = 0;
  plm_sequence_builder_reset(&reader->builder);
  if (row->count != table->columns)
    return plm_sequence_bad(reader, row->line, error,
                            "this row has %zu field%s, but the header has %zu", row->count,
                            row->count == 1 ? "" : "s", table->columns);
  if (table->named) {
    const char *name = row->fields[table->name_column].text;
    size_t size = row->fields[table->name_column].size;
    plm_trim(&name, &size);
    if (!plm_sequence_set_name(reader, name, size))
      return plm_sequence_bad(reader, row->line, error, "its name has a control character");
  }
  if (reader->name_size == 0) plm_sequence_name_by_place(reader);
  if (table->keep_columns) put_others(table, row, &reader->table.others);
  add_residues(&reader->builder, &row->fields[table->sequence_column], row->line);
  return plm_sequence_complete(reader, sequence, error);
}

enum plm_sequence_result plm_table_next(struct plm_sequence_reader *reader,
                                        struct plm_sequence *sequence, struct plm_error *error)
{
  struct plm_csv_row row;
  plm_status status = PLM_OK;
  if (reader->table.columns == 0) status = read_header(reader, error);
  if (status == PLM_OK && reader->table.columns == 0) return PLM_SEQUENCE_END;
  if (status == PLM_OK) status = plm_csv_next(reader->table.csv, &row, error);
  if (status == PLM_AGAIN) return PLM_SEQUENCE_AGAIN;
  if (status != PLM_OK) return PLM_SEQUENCE_FAILED;
  if (row.count == 0) return PLM_SEQUENCE_END;
  return table_parse_row(reader, &row, sequence, error);
}
