/* Rows with labels and their parts. */
#include "common/sequences/labelled_table.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/numbers/hash.h"
#include "common/sequences/labelled_cells.h"
#include "common/sequences/labelled_values.h"
#include "common/sequences/sequence_parts.h"

const char *const plm_label_part_names[] = {"train", "valid", "test", NULL};

enum { UNDECIDED = -1, PARTS = 0, FOLDS = 1, FOLD_NUMBERS = 10000, SHARES = 10 };

struct labelled_reading {
  struct plm_labelled_cells cells;
  struct plm_sequence_builder builder;
  struct plm_labelled_table *table;
  struct plm_label_text *texts; /* (capacity) */
  size_t capacity;
  int splits; /* UNDECIDED, PARTS or FOLDS */
};

/* ---- sequences ---- */

static plm_status refuse_sequence(const struct labelled_reading *reading, uint64_t line,
                                  struct plm_error *error)
{
  const struct plm_sequence_builder *builder = &reading->builder;
  const int bad = builder->bad;
  if (builder->no_memory)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a sequence");
  if (bad < 0)
    plm_error_set(error, PLM_FORMAT, "empty sequence");
  else if (isprint(bad))
    plm_error_set(error, PLM_FORMAT, "character '%c' is not a residue%s", bad,
                  bad == '*' ? "; '*' is allowed only at the end" : "");
  else
    plm_error_set(error, PLM_FORMAT, "byte 0x%02x is not a residue", (unsigned)bad);
  return plm_labelled_cells_where(&reading->cells, line, PLM_CELL_SEQUENCE, error);
}

static plm_status take_sequence(struct labelled_reading *reading, const struct plm_cell_row *cells,
                                struct plm_labelled_row *row, bool *bad, struct plm_error *error)
{
  struct plm_sequence_builder *builder = &reading->builder;
  const struct plm_line_span span = {.bytes = (const uint8_t *)cells->texts[PLM_CELL_SEQUENCE],
                                     .size = cells->sizes[PLM_CELL_SEQUENCE]};
  plm_sequence_builder_reset(builder);
  plm_sequence_builder_add(builder, &span, cells->line);
  if (reading->cells.request->corpus && !builder->no_memory &&
      (builder->bad >= 0 || builder->size == 0)) {
    *bad = true;
    return PLM_OK;
  }
  if (builder->bad >= 0 || builder->no_memory || builder->size == 0)
    return refuse_sequence(reading, cells->line, error);
  row->length = (uint32_t)builder->size; /* a field has at most 64 MiB */
  row->residues = malloc(builder->size);
  if (row->residues == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a sequence of %zu residues",
                         builder->size);
  memcpy(row->residues, builder->residues, builder->size);
  return PLM_OK;
}

static plm_status take_name(struct labelled_reading *reading, const struct plm_cell_row *cells,
                            struct plm_labelled_row *row, struct plm_error *error)
{
  const size_t size = cells->sizes[PLM_CELL_NAME];
  if (size == 0) {
    plm_error_set(error, PLM_FORMAT, "this row has no name");
    return plm_labelled_cells_where(&reading->cells, cells->line, PLM_CELL_NAME, error);
  }
  row->name = plm_strndup(cells->texts[PLM_CELL_NAME], size);
  return PLM_OK;
}

/* ---- splits ---- */

static bool is_word(const char *text, size_t size, const char *const *words)
{
  for (size_t i = 0; words[i] != NULL; i++)
    if (strlen(words[i]) == size && strncasecmp(words[i], text, size) == 0) return true;
  return false;
}

static bool read_part(const char *text, size_t size, uint32_t *part)
{
  static const char *const words[PLM_PARTS][6] = {
      {"train", "training", "learn"},
      {"valid", "validation", "val", "dev"},
      {"test", "testing"},
  };
  for (uint32_t i = 0; i < PLM_PARTS; i++) {
    if (!is_word(text, size, words[i])) continue;
    *part = i;
    return true;
  }
  return false;
}

/* An integer, also as 3.0, which is what a spreadsheet makes of it. */
static bool read_fold(const char *text, size_t size, uint32_t *fold)
{
  size_t digits = 0;
  uint32_t number = 0;
  for (; digits < size && digits < 5 && isdigit((unsigned char)text[digits]); digits++)
    number = 10 * number + (uint32_t)(text[digits] - '0');
  const bool whole = digits == size || (size == digits + 2 && memcmp(text + digits, ".0", 2) == 0);
  *fold = number;
  return digits > 0 && whole && number < FOLD_NUMBERS;
}

static plm_status refuse_split(const struct labelled_reading *reading,
                               const struct plm_cell_row *cells, enum plm_cell cell,
                               struct plm_error *error)
{
  const bool corpus = reading->cells.request->corpus;
  const size_t size = cells->sizes[cell];
  plm_error_set(error, PLM_FORMAT, "\"%.*s\" %s", (int)(size < 60 ? size : 60), cells->texts[cell],
                cell == PLM_CELL_VALIDATION ? "is neither true nor false"
                : reading->splits == FOLDS  ? "is not the number of a fold, as in the rows before"
                : corpus                    ? "is not a split"
                                            : "names no part of the data");
  plm_error_hint(error, cell == PLM_CELL_VALIDATION ? "a row without a value counts as false"
                        : corpus
                            ? "write train, valid or test"
                            : "the parts are train, valid and test; or give each row the number of "
                              "its fold");
  return plm_labelled_cells_where(&reading->cells, cells->line, cell, error);
}

/* The column `validation` beside `set`. */
static plm_status take_validation(struct labelled_reading *reading,
                                  const struct plm_cell_row *cells, uint32_t *part,
                                  struct plm_error *error)
{
  static const char *const yes[] = {"true", "1", "1.0", "yes", NULL}, *const no[] = {"false", "0",
                                                                                     "0.0", "no",
                                                                                     NULL};
  const char *text = cells->texts[PLM_CELL_VALIDATION];
  const size_t size = cells->sizes[PLM_CELL_VALIDATION];
  if (text == NULL || plm_label_is_missing(text, size) || is_word(text, size, no)) return PLM_OK;
  if (!is_word(text, size, yes)) return refuse_split(reading, cells, PLM_CELL_VALIDATION, error);
  if (*part == PLM_PART_TRAIN) *part = PLM_PART_VALID;
  return PLM_OK;
}

static plm_status take_split(struct labelled_reading *reading, const struct plm_cell_row *cells,
                             struct plm_labelled_row *row, struct plm_error *error)
{
  const char *text = cells->texts[PLM_CELL_SPLIT];
  const size_t size = cells->sizes[PLM_CELL_SPLIT];
  if (reading->cells.names[PLM_CELL_SPLIT] == NULL) {
    if (row->residues == NULL) return PLM_OK;
    const uint64_t share = plm_hash64_bytes(row->residues, row->length) % SHARES;
    row->part = share < SHARES - 2    ? PLM_PART_TRAIN
                : share == SHARES - 2 ? PLM_PART_VALID
                                      : PLM_PART_TEST;
    return PLM_OK;
  }
  if (reading->splits != FOLDS && read_part(text, size, &row->part)) {
    reading->splits = PARTS;
    return take_validation(reading, cells, &row->part, error);
  }
  if (reading->splits == PARTS || !read_fold(text, size, &row->part))
    return refuse_split(reading, cells, PLM_CELL_SPLIT, error);
  reading->splits = FOLDS;
  return PLM_OK;
}

/* Numbers the folds from 0 in the order of their integers. */
static void number_folds(struct plm_labelled_table *table)
{
  uint32_t numbers[FOLD_NUMBERS] = {0};
  for (size_t i = 0; i < table->count; i++) numbers[table->rows[i].part] = 1;
  table->folds = 0;
  for (uint32_t fold = 0; fold < FOLD_NUMBERS; fold++)
    if (numbers[fold] != 0) numbers[fold] = table->folds++;
  for (size_t i = 0; i < table->count; i++) table->rows[i].part = numbers[table->rows[i].part];
}

static int compare_residues(const struct plm_labelled_row *a, const struct plm_labelled_row *b)
{
  if (a->length != b->length) return a->length < b->length ? -1 : 1;
  return memcmp(a->residues, b->residues, a->length);
}

static int by_sequence(const void *left, const void *right, void *context)
{
  const struct plm_labelled_row *rows = context;
  const size_t a = *(const size_t *)left, b = *(const size_t *)right;
  const int order = compare_residues(&rows[a], &rows[b]);
  return order != 0 ? order : (a > b) - (a < b);
}

/* Counts the rows of each part, or of all folds, whose sequence is in another part too. */
static plm_status find_shared(struct plm_labelled_table *table, struct plm_error *error)
{
  const struct plm_labelled_row *rows = table->rows;
  size_t *order = malloc((table->count + 1) * sizeof *order);
  if (order == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu rows", table->count);
  for (size_t i = 0; i < table->count; i++) order[i] = i;
  qsort_r(order, table->count, sizeof *order, by_sequence, table->rows);
  for (size_t begin = 0, end; begin < table->count; begin = end) {
    const struct plm_labelled_row *first = &rows[order[begin]];
    bool several = false;
    for (end = begin + 1; end < table->count; end++) {
      if (compare_residues(&rows[order[end]], first) != 0) break;
      several |= rows[order[end]].part != first->part;
    }
    for (size_t i = begin; i < end && several; i++) {
      const struct plm_labelled_row *row = &rows[order[i]];
      const uint32_t part = table->folds == 0 ? row->part : 0;
      uint64_t *line = &table->shared[part].line;
      table->shared[part].count++;
      if (*line == 0 || row->line < *line) *line = row->line;
    }
  }
  free(order);
  return PLM_OK;
}

/* ---- rows ---- */

static plm_status labelled_make_room(struct labelled_reading *reading, struct plm_error *error)
{
  struct plm_labelled_table *table = reading->table;
  if (table->count < reading->capacity) return PLM_OK;
  const size_t capacity = 2 * reading->capacity + 256;
  struct plm_labelled_row *rows = realloc(table->rows, capacity * sizeof *rows);
  if (rows != NULL) table->rows = rows;
  struct plm_label_text *texts = realloc(reading->texts, capacity * sizeof *texts);
  if (texts != NULL) reading->texts = texts;
  if (rows == NULL || texts == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu rows", capacity);
  reading->capacity = capacity;
  return PLM_OK;
}

static plm_status take_row(struct labelled_reading *reading, const struct plm_cell_row *cells,
                           struct plm_error *error)
{
  struct plm_labelled_table *table = reading->table;
  const char *label = cells->texts[PLM_CELL_TARGET], *split = cells->texts[PLM_CELL_SPLIT];
  const bool unlabelled = plm_label_is_missing(label, cells->sizes[PLM_CELL_TARGET]);
  const bool has_split = reading->cells.names[PLM_CELL_SPLIT] != NULL;
  const bool apart = has_split && plm_label_is_missing(split, cells->sizes[PLM_CELL_SPLIT]);
  table->missing_labels += unlabelled;
  table->missing_splits += !unlabelled && apart;
  if (unlabelled || apart) return PLM_OK;
  PLM_TRY(labelled_make_room(reading, error));
  struct plm_labelled_row *row = &table->rows[table->count];
  struct plm_label_text *text = &reading->texts[table->count];
  *row = (struct plm_labelled_row){.line = cells->line};
  *text = (struct plm_label_text){.size = cells->sizes[PLM_CELL_TARGET]};
  text->text = malloc(text->size + 1);
  table->count++; /* from here on it is freed with the table */
  if (text->text == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a label of %zu bytes",
                         text->size);
  memcpy(text->text, label, text->size);
  text->text[text->size] = '\0';
  if (reading->cells.request->name_column != NULL) {
    PLM_TRY(take_name(reading, cells, row, error));
  } else {
    bool bad = false;
    PLM_TRY(take_sequence(reading, cells, row, &bad, error));
    if (bad) { /* ingest says so, or skips it */
      free(text->text);
      table->count--;
      return PLM_OK;
    }
  }
  return take_split(reading, cells, row, error);
}

static plm_status labelled_read_rows(struct labelled_reading *reading, struct plm_error *error)
{
  const struct plm_labelled_request *request = reading->cells.request;
  struct plm_labelled_table *table = reading->table;
  for (;;) {
    struct plm_cell_row cells;
    PLM_TRY(plm_labelled_cells_next(&reading->cells, &cells, error));
    if (cells.line == 0) break;
    PLM_TRY(take_row(reading, &cells, error));
  }
  if (table->count == 0 && !request->corpus) {
    plm_error_set(error, PLM_FORMAT, "no row of the table has a label%s",
                  table->missing_splits > 0 ? " and a split" : "");
    return plm_error_where(error, "%s", table->path);
  }
  table->hashed = request->split_column == NULL;
  if (reading->splits == FOLDS) number_folds(table);
  for (size_t i = 0; i < table->count && table->folds == 0; i++)
    table->parts[table->rows[i].part]++;
  PLM_TRY(plm_labels_from_texts(&reading->cells, reading->texts, table, error));
  const bool with_parts = !request->corpus || request->split_column != NULL;
  return with_parts && request->name_column == NULL ? find_shared(table, error) : PLM_OK;
}

plm_status plm_labelled_table_read(const struct plm_labelled_request *request,
                                   struct plm_labelled_table *table, struct plm_error *error)
{
  struct labelled_reading reading = {.table = table, .splits = UNDECIDED};
  reading.builder = (struct plm_sequence_builder){
      .tokenizer = request->tokenizer, .max_residues = UINT32_MAX, .gaps = PLM_GAPS_KEEP};
  *table = (struct plm_labelled_table){0};
  table->path = plm_strdup(plm_byte_stream_label(request->path));
  table->target_name = plm_strdup(request->target_column);
  plm_status status = plm_labelled_cells_open(request, &reading.cells, error);
  if (status == PLM_OK) status = labelled_read_rows(&reading, error);
  for (size_t i = 0; i < table->count; i++) free(reading.texts[i].text);
  free(reading.texts);
  free(reading.builder.residues);
  plm_labelled_cells_close(&reading.cells);
  return status;
}

void plm_labelled_table_deinit(struct plm_labelled_table *table)
{
  for (size_t i = 0; i < table->count; i++) {
    free(table->rows[i].residues);
    free(table->rows[i].labels);
    free(table->rows[i].name);
  }
  for (uint32_t i = 0; i < table->class_count; i++) free(table->classes[i]);
  free(table->rows);
  free(table->classes);
  free(table->path);
  free(table->target_name);
  *table = (struct plm_labelled_table){0};
}
