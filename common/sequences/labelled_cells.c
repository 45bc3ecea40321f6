/* The cells of a table that the user's columns name, from CSV or from JSON lines. */
#include "common/sequences/labelled_cells.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text/strict_json.h"
#include "common/run/stop.h"
#include "common/sequences/table_columns.h"

enum { LINE_LIMIT_BYTES = 1 << 26, LINE_VALUES = 1 << 20 };

plm_status plm_labelled_cells_where(const struct plm_labelled_cells *cells, uint64_t line,
                                    enum plm_cell cell, struct plm_error *error)
{
  const char *path = plm_byte_stream_label(cells->request->path);
  if (cells->json)
    return plm_error_where(error, "%s:%llu, key \"%.60s\"", path, (unsigned long long)line,
                           cells->names[cell]);
  return plm_error_where(error, "%s:%llu, column %zu (%.60s)", path, (unsigned long long)line,
                         cells->columns[cell] + 1, cells->names[cell]);
}

static plm_status at_line(const struct plm_labelled_cells *cells, uint64_t line,
                          struct plm_error *error)
{
  return plm_error_where(error, "%s:%llu", plm_byte_stream_label(cells->request->path),
                         (unsigned long long)line);
}

/* ---- CSV ---- */

/* Says which columns there are, if one is missing. A file of FASTA has none. */
static plm_status list_columns(const struct plm_labelled_cells *cells,
                               const struct plm_csv_row *header, struct plm_error *error)
{
  struct plm_text names = {0};
  if (header->fields[0].size > 0 && header->fields[0].text[0] == '>') {
    const struct plm_labelled_request *request = cells->request;
    plm_error_set(error, PLM_FORMAT, "this file is FASTA, not a table");
    plm_error_hint(error, request->corpus && request->name_column == NULL
                              ? "the labels of FASTA are in a table beside it: --labels-table FILE"
                              : "give a table with named columns: CSV, TSV or JSON lines");
    return at_line(cells, header->line, error);
  }
  plm_table_list_columns(header, &names);
  plm_error_hint(error, "the columns are %s", names.data);
  plm_text_deinit(&names);
  return at_line(cells, header->line, error);
}

static plm_status find_column(struct plm_labelled_cells *cells, const struct plm_csv_row *header,
                              enum plm_cell cell, struct plm_error *error)
{
  const char *name = cells->names[cell];
  if (name == NULL) return PLM_OK;
  const size_t found = plm_table_columns(header, name, true, &cells->columns[cell]);
  if (found == 1) return PLM_OK;
  if (found == 0 && cell == PLM_CELL_VALIDATION) {
    cells->names[cell] = NULL;
    return PLM_OK;
  }
  if (found == 0)
    plm_error_set(error, PLM_FORMAT, "the table has no column \"%.80s\"", name);
  else
    plm_error_set(error, PLM_FORMAT, "the table has %zu columns \"%.80s\"", found, name);
  return list_columns(cells, header, error);
}

static plm_status find_sequences(struct plm_labelled_cells *cells, const struct plm_csv_row *header,
                                 struct plm_error *error)
{
  if (cells->names[PLM_CELL_NAME] != NULL) return PLM_OK;
  if (cells->names[PLM_CELL_SEQUENCE] != NULL)
    return find_column(cells, header, PLM_CELL_SEQUENCE, error);
  const size_t found = plm_table_sequence_columns(header, &cells->columns[PLM_CELL_SEQUENCE],
                                                  &cells->names[PLM_CELL_SEQUENCE]);
  if (found == 1) return PLM_OK;
  plm_error_set(error, PLM_FORMAT,
                "the table has %s column called sequence, seq, protein_sequence or "
                "mutated_sequence; name it with --sequence-column",
                found == 0 ? "no" : "more than one");
  return list_columns(cells, header, error);
}

static plm_status next_csv(struct plm_labelled_cells *cells, struct plm_csv_row *row,
                           struct plm_error *error)
{
  plm_status status;
  do {
    PLM_TRY(plm_stop_check(" while reading; nothing was written", error));
    status = plm_csv_next(cells->csv, row, error);
  } while (status == PLM_AGAIN);
  return status;
}

static plm_status open_csv(struct plm_labelled_cells *cells, struct plm_error *error)
{
  struct plm_csv_row header;
  PLM_TRY(plm_csv_open_stream(cells->stream, &cells->csv, error));
  PLM_TRY(next_csv(cells, &header, error));
  if (header.count == 0) {
    plm_error_set(error, PLM_FORMAT, "the table is empty");
    return at_line(cells, 1, error);
  }
  cells->column_count = header.count;
  PLM_TRY(find_sequences(cells, &header, error));
  for (enum plm_cell cell = PLM_CELL_TARGET; cell < PLM_CELLS; cell++)
    PLM_TRY(find_column(cells, &header, cell, error));
  return PLM_OK;
}

static plm_status read_csv(struct plm_labelled_cells *cells, struct plm_cell_row *row,
                           struct plm_error *error)
{
  struct plm_csv_row fields;
  PLM_TRY(next_csv(cells, &fields, error));
  *row = (struct plm_cell_row){0};
  if (fields.count == 0) return PLM_OK;
  if (fields.count != cells->column_count) {
    plm_error_set(error, PLM_FORMAT, "this row has %zu field%s, but the header has %zu",
                  fields.count, fields.count == 1 ? "" : "s", cells->column_count);
    plm_error_hint(error, "put a field with separators in it into quotes");
    return at_line(cells, fields.line, error);
  }
  row->line = fields.line;
  for (int cell = 0; cell < PLM_CELLS; cell++) {
    if (cells->names[cell] == NULL) continue;
    const struct plm_csv_field *field = &fields.fields[cells->columns[cell]];
    row->texts[cell] = field->text;
    row->sizes[cell] = field->size;
    plm_trim(&row->texts[cell], &row->sizes[cell]);
    if (memchr(row->texts[cell], '\0', row->sizes[cell]) == NULL) continue;
    plm_error_set(error, PLM_FORMAT, "this field has a NUL character");
    return plm_labelled_cells_where(cells, row->line, (enum plm_cell)cell, error);
  }
  return PLM_OK;
}

/* ---- JSON lines ---- */

/* The next line that is not blank, into cells->line; its length is 0 at the end. */
static plm_status next_line(struct plm_labelled_cells *cells, struct plm_error *error)
{
  struct plm_line_span span;
  plm_text_clear(&cells->line);
  for (;;) {
    PLM_TRY(plm_stop_check(" while reading; nothing was written", error));
    const enum plm_line_result result = plm_line_next(&cells->lines, &span, error);
    if (result == PLM_LINE_AGAIN) continue;
    if (result == PLM_LINE_FAILED) return error->status;
    if (result == PLM_LINE_END) return PLM_OK;
    if (cells->line.length + span.size > LINE_LIMIT_BYTES) {
      plm_error_set(error, PLM_LIMIT, "this line has more than 64 MiB");
      return at_line(cells, cells->lines.line, error);
    }
    plm_text_append(&cells->line, span.bytes, span.size);
    if (!span.ends) continue;
    if (!plm_line_is_blank(cells->line.data, cells->line.length)) return PLM_OK;
    plm_text_clear(&cells->line);
  }
}

/* Appends a value as text. False: it has none. */
static bool put_value(struct plm_text *text, const cJSON *value)
{
  if (cJSON_IsString(value)) {
    plm_text_puts(text, value->valuestring);
  } else if (cJSON_IsNumber(value)) {
    plm_text_printf(text, "%.17g", value->valuedouble);
  } else if (cJSON_IsBool(value)) {
    plm_text_puts(text, cJSON_IsTrue(value) ? "true" : "false");
  } else {
    return false;
  }
  return true;
}

static bool put_cell(struct plm_text *text, const cJSON *value)
{
  const char separator = PLM_CELL_ITEMS;
  const cJSON *item;
  if (value == NULL || cJSON_IsNull(value)) return true;
  if (!cJSON_IsArray(value)) return put_value(text, value);
  if (value->child == NULL) plm_text_puts(text, "[]"); /* an empty text would be missing */
  cJSON_ArrayForEach(item, value)
  {
    plm_text_append(text, &separator, 1);
    if (!cJSON_IsNull(item) && !put_value(text, item)) return false;
  }
  return true;
}

static plm_status take_object(struct plm_labelled_cells *cells, const cJSON *object,
                              struct plm_cell_row *row, struct plm_error *error)
{
  size_t begins[PLM_CELLS];
  plm_text_clear(&cells->text);
  for (int cell = 0; cell < PLM_CELLS; cell++) {
    const char *name = cells->names[cell];
    begins[cell] = cells->text.length;
    const cJSON *value = name == NULL ? NULL : cJSON_GetObjectItemCaseSensitive(object, name);
    if (value == NULL && cell == PLM_CELL_TARGET) {
      plm_error_set(error, PLM_FORMAT, "this object has no key \"%.80s\"", name);
      plm_error_hint(error, "a label that is missing is null");
      return at_line(cells, row->line, error);
    }
    const bool wrong = cell == PLM_CELL_SEQUENCE && name != NULL && !cJSON_IsString(value);
    if (wrong || !put_cell(&cells->text, value)) {
      plm_error_set(error, PLM_FORMAT, "this value is not %s",
                    cell == PLM_CELL_TARGET     ? "a number, a string or an array of them"
                    : cell == PLM_CELL_SEQUENCE ? "a string"
                                                : "a number or a string");
      return plm_labelled_cells_where(cells, row->line, (enum plm_cell)cell, error);
    }
    row->sizes[cell] = cells->text.length - begins[cell];
    plm_text_append(&cells->text, "", 1);
  }
  for (int cell = 0; cell < PLM_CELLS; cell++) {
    row->texts[cell] = cells->text.data + begins[cell];
    plm_trim(&row->texts[cell], &row->sizes[cell]);
  }
  return PLM_OK;
}

static plm_status read_json(struct plm_labelled_cells *cells, struct plm_cell_row *row,
                            struct plm_error *error)
{
  static const struct plm_json_limits limits = {
      .values = LINE_VALUES, .depth = 8, .numbers = PLM_JSON_ANY_NUMBER};
  cJSON *object;
  *row = (struct plm_cell_row){0};
  PLM_TRY(next_line(cells, error));
  if (cells->line.length == 0) return PLM_OK;
  row->line = cells->lines.line;
  plm_status status = plm_json_parse(cells->line.data, cells->line.length, &limits, &object, error);
  if (status != PLM_OK) return at_line(cells, row->line, error);
  const bool named = cells->names[PLM_CELL_NAME] != NULL;
  for (size_t i = 0; i < PLM_SEQUENCE_COLUMNS && cells->names[PLM_CELL_SEQUENCE] == NULL && !named;
       i++)
    if (cJSON_GetObjectItemCaseSensitive(object, plm_sequence_columns[i]) != NULL)
      cells->names[PLM_CELL_SEQUENCE] = plm_sequence_columns[i];
  if (cells->names[PLM_CELL_SEQUENCE] == NULL && !named) {
    plm_error_set(error, PLM_FORMAT,
                  "this object has no key sequence, seq, protein_sequence or mutated_sequence");
    plm_error_hint(error, "name the key of the sequences with --sequence-column");
    status = at_line(cells, row->line, error);
  }
  if (status == PLM_OK) status = take_object(cells, object, row, error);
  cJSON_Delete(object);
  return status;
}

/* ---- both ---- */

/* Whether the text begins with {. */
static plm_status look_for_json(struct plm_labelled_cells *cells, struct plm_error *error)
{
  const uint8_t *bytes;
  size_t size;
  PLM_TRY(plm_byte_stream_begin_text(cells->stream, false, error));
  PLM_TRY(plm_byte_stream_peek(cells->stream, PLM_PEEK_BYTES, &bytes, &size, error));
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] == ' ' || bytes[i] == '\t' || bytes[i] == '\n' || bytes[i] == '\r') continue;
    cells->json = bytes[i] == '{';
    break;
  }
  return PLM_OK;
}

plm_status plm_labelled_cells_open(const struct plm_labelled_request *request,
                                   struct plm_labelled_cells *cells, struct plm_error *error)
{
  const char *split = request->split_column;
  *cells = (struct plm_labelled_cells){.request = request};
  cells->names[PLM_CELL_SEQUENCE] = request->sequence_column;
  cells->names[PLM_CELL_TARGET] = request->target_column;
  cells->names[PLM_CELL_SPLIT] = split;
  cells->names[PLM_CELL_NAME] = request->name_column;
  if (request->name_column != NULL) cells->names[PLM_CELL_SEQUENCE] = NULL;
  if (split != NULL && strcmp(split, "set") == 0) cells->names[PLM_CELL_VALIDATION] = "validation";
  PLM_TRY(plm_byte_stream_open(request->path, &cells->stream, error));
  plm_status status;
  do {
    PLM_TRY(plm_stop_check(" while reading; nothing was written", error));
    status = look_for_json(cells, error);
  } while (status == PLM_AGAIN);
  PLM_TRY(status);
  if (!cells->json) return open_csv(cells, error);
  cells->lines.stream = cells->stream;
  return PLM_OK;
}

void plm_labelled_cells_close(struct plm_labelled_cells *cells)
{
  plm_csv_close(cells->csv);
  plm_byte_stream_close(cells->stream);
  plm_text_deinit(&cells->line);
  plm_text_deinit(&cells->text);
}

plm_status plm_labelled_cells_next(struct plm_labelled_cells *cells, struct plm_cell_row *row,
                                   struct plm_error *error)
{
  return cells->json ? read_json(cells, row, error) : read_csv(cells, row, error);
}
