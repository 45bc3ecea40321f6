/* Labels from a table: one reading for each column, and records put together from them. */
#include "stages/ingest/label_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/numbers/hash.h"

/* A row by what identifies it. */
struct row_key {
  uint64_t key; /* the line, or the hash of the name */
  size_t row;
};

struct table_column {
  struct plm_labelled_table table;
  struct row_key *keys; /* (table.count) ascending */
  uint64_t found;       /* sequences that have a row */
};

/* A document of the corpus whose split the table gives. */
struct placed {
  uint64_t hash; /* of the residues */
  const struct plm_labelled_row *row;
};

struct plm_label_table {
  bool by_name;
  struct plm_label_schema schema;
  struct table_column *columns; /* (schema.count) */
  struct table_column split;    /* its table has no rows without a column of splits */
  bool has_split;
  const struct plm_labelled_row *split_row; /* of the sequence that was included last */
  struct placed *placed;                    /* (placed_count) */
  size_t placed_count, placed_capacity;
  uint8_t *record;
  size_t capacity;
  uint64_t sequences, labelled, left_out;
  char first_name[64]; /* of a sequence without a row */
};

bool plm_label_options_any(const struct plm_label_options *options)
{
  return options->columns != NULL || options->split_column != NULL;
}

/* ---- reading ------------------------------------------------------------------------------ */

static int by_key_and_row(const void *left, const void *right)
{
  const struct row_key *a = left, *b = right;
  if (a->key != b->key) return a->key < b->key ? -1 : 1;
  return (a->row > b->row) - (a->row < b->row);
}

static plm_status repeated_name(const struct plm_labelled_table *table, size_t first, size_t second,
                                struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "the name %.80s is also in line %" PRIu64,
                table->rows[second].name, table->rows[first].line);
  plm_error_hint(error, "each sequence can have one row only");
  return plm_error_where(error, "%s:%" PRIu64, table->path, table->rows[second].line);
}

static plm_status index_rows(struct table_column *column, bool by_name, struct plm_error *error)
{
  const struct plm_labelled_table *table = &column->table;
  column->keys = malloc((table->count + 1) * sizeof *column->keys);
  if (column->keys == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu rows", table->count);
  for (size_t i = 0; i < table->count; i++) {
    const struct plm_labelled_row *row = &table->rows[i];
    column->keys[i].row = i;
    column->keys[i].key = by_name ? plm_hash64_bytes(row->name, strlen(row->name)) : row->line;
  }
  qsort(column->keys, table->count, sizeof *column->keys, by_key_and_row);
  for (size_t i = 1; i < table->count && by_name; i++) {
    const size_t a = column->keys[i - 1].row, b = column->keys[i].row;
    if (strcmp(table->rows[a].name, table->rows[b].name) == 0)
      return repeated_name(table, a, b, error);
  }
  return PLM_OK;
}

/* Reads one column of the table; the sequences are not needed afterwards. */
static plm_status read_column(struct plm_labelled_request *request, const char *name,
                              struct table_column *column, struct plm_error *error)
{
  request->target_column = name;
  PLM_TRY(plm_labelled_table_read(request, &column->table, error));
  for (size_t i = 0; i < column->table.count; i++) {
    free(column->table.rows[i].residues);
    column->table.rows[i].residues = NULL;
  }
  return index_rows(column, request->name_column != NULL, error);
}

static plm_status read_labels(struct plm_label_table *table, struct plm_labelled_request *request,
                              struct plm_error *error)
{
  const uint32_t i = table->schema.count;
  struct table_column *column = &table->columns[i];
  struct plm_label_column *out = &table->schema.columns[i];
  PLM_TRY(read_column(request, request->target_column, column, error));
  const bool no_class = column->table.kind != PLM_LABEL_NUMBER && column->table.class_count == 0;
  if (column->table.count == 0 || no_class) {
    plm_error_set(error, PLM_FORMAT, "column %s has no label", request->target_column);
    return plm_error_where(error, "%s", column->table.path);
  }
  out->name = plm_strdup(request->target_column);
  out->kind = column->table.kind;
  table->schema.count++;
  if (out->kind == PLM_LABEL_NUMBER) return PLM_OK;
  out->class_count = column->table.class_count;
  out->classes = plm_alloc_zeroed(out->class_count, sizeof *out->classes);
  out->counts = plm_alloc_zeroed(out->class_count, sizeof *out->counts);
  for (uint32_t c = 0; c < out->class_count; c++)
    out->classes[c] = plm_strdup(column->table.classes[c]);
  return PLM_OK;
}

/* Splits NAME:KIND. A colon that no kind follows is part of the name. */
static enum plm_label_kind take_kind(char *name)
{
  char *colon = strrchr(name, ':');
  for (int kind = PLM_LABEL_NUMBER; colon != NULL && kind < PLM_LABEL_KINDS; kind++) {
    if (strcmp(colon + 1, plm_label_kind_name((enum plm_label_kind)kind)) != 0) continue;
    *colon = '\0';
    return (enum plm_label_kind)kind;
  }
  return PLM_LABEL_GUESSED;
}

static plm_status read_all_labels(struct plm_label_table *table, const char *list,
                                  struct plm_labelled_request *request, struct plm_error *error)
{
  char *copy = plm_strdup(list), *state = NULL;
  plm_status status = PLM_OK;
  table->schema.columns = plm_alloc_zeroed(PLM_LABEL_COLUMNS_MOST, sizeof *table->schema.columns);
  table->columns = plm_alloc_zeroed(PLM_LABEL_COLUMNS_MOST, sizeof *table->columns);
  for (char *name = strtok_r(copy, ",", &state); name != NULL && status == PLM_OK;
       name = strtok_r(NULL, ",", &state)) {
    request->kind = take_kind(name);
    request->target_column = name;
    if (plm_label_schema_find(&table->schema, name) != NULL)
      status = plm_error_set(error, PLM_USAGE, "--labels names the column %.80s twice", name);
    else if (table->schema.count == PLM_LABEL_COLUMNS_MOST)
      status = plm_error_set(error, PLM_USAGE, "--labels names more than %d columns",
                             PLM_LABEL_COLUMNS_MOST);
    else
      status = read_labels(table, request, error);
  }
  if (status == PLM_OK && table->schema.count == 0)
    status = plm_error_set(error, PLM_USAGE, "--labels names no column");
  free(copy);
  return status == PLM_OK ? plm_label_schema_check(&table->schema, error) : status;
}

/* The column of splits is read as if it were one of labels, so that a row needs no label. */
static plm_status read_splits(struct plm_label_table *table, const char *column,
                              struct plm_labelled_request *request, struct plm_error *error)
{
  request->kind = PLM_LABEL_CLASS;
  request->split_column = column;
  table->has_split = true;
  PLM_TRY(read_column(request, column, &table->split, error));
  request->split_column = NULL;
  if (table->split.table.folds == 0) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "column %s has the numbers of folds", column);
  plm_error_hint(error, "a corpus has the splits train, valid and test; write these words, for "
                        "example with one fold as valid and one as test");
  return plm_error_where(error, "%s", table->split.table.path);
}

static plm_status read_table(struct plm_label_table *table, const struct plm_label_options *options,
                             const char *input, enum plm_tokenizer_kind tokenizer,
                             struct plm_error *error)
{
  struct plm_labelled_request request = {.path = options->table != NULL ? options->table : input,
                                         .sequence_column = options->sequence_column,
                                         .tokenizer = tokenizer,
                                         .corpus = true};
  table->by_name = options->table != NULL;
  if (table->by_name)
    request.name_column = options->name_column != NULL ? options->name_column : "name";
  if (strcmp(request.path, "-") == 0) {
    plm_error_set(error, PLM_USAGE, "a table of labels cannot be read from standard input");
    return plm_error_hint(error, "it is read several times; store it in a file");
  }
  if (options->split_column != NULL)
    PLM_TRY(read_splits(table, options->split_column, &request, error));
  return options->columns == NULL ? PLM_OK
                                  : read_all_labels(table, options->columns, &request, error);
}

plm_status plm_label_table_open(const struct plm_label_options *options, const char *input,
                                enum plm_tokenizer_kind tokenizer, struct plm_label_table **table,
                                struct plm_error *error)
{
  struct plm_label_table *opened = plm_alloc_zeroed(1, sizeof *opened);
  const plm_status status = read_table(opened, options, input, tokenizer, error);
  if (status != PLM_OK) {
    plm_label_table_close(opened);
    opened = NULL;
  }
  *table = opened;
  return status;
}

void plm_label_table_close(struct plm_label_table *table)
{
  if (table == NULL) return;
  for (uint32_t i = 0; i < PLM_LABEL_COLUMNS_MOST && table->columns != NULL; i++) {
    plm_labelled_table_deinit(&table->columns[i].table);
    free(table->columns[i].keys);
  }
  plm_labelled_table_deinit(&table->split.table);
  free(table->split.keys);
  free(table->placed);
  free(table->columns);
  plm_label_schema_deinit(&table->schema);
  free(table->record);
  free(table);
}

const struct plm_label_schema *plm_label_table_schema(const struct plm_label_table *table)
{
  return table->schema.count == 0 ? NULL : &table->schema;
}

/* ---- sequences ---------------------------------------------------------------------------- */

/* The row of a sequence; NULL: there is none, or its field is empty. */
static const struct plm_labelled_row *find_row(struct table_column *column, bool by_name,
                                               const struct plm_sequence *sequence)
{
  const uint64_t key =
      by_name ? plm_hash64_bytes(sequence->name, sequence->name_size) : sequence->line;
  size_t low = 0, high = column->table.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (column->keys[middle].key < key)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < column->table.count && column->keys[low].key == key; low++) {
    const struct plm_labelled_row *row = &column->table.rows[column->keys[low].row];
    if (by_name && (strlen(row->name) != sequence->name_size ||
                    memcmp(row->name, sequence->name, sequence->name_size) != 0))
      continue;
    column->found++;
    return row;
  }
  return NULL;
}

static plm_status put_residues(const struct table_column *column,
                               const struct plm_label_column *schema,
                               const struct plm_labelled_row *row,
                               const struct plm_sequence *sequence, uint8_t *at,
                               struct plm_error *error)
{
  if (row->label_count != sequence->size) {
    const int shown = (int)(sequence->name_size < 60 ? sequence->name_size : 60);
    plm_error_set(error, PLM_FORMAT, "there are %u labels, but the sequence %.*s has %zu residues",
                  row->label_count, shown, sequence->name, sequence->size);
    return plm_error_where(error, "%s:%" PRIu64 ", column %s", column->table.path, row->line,
                           schema->name);
  }
  for (uint32_t i = 0; i < row->label_count; i++) plm_label_put_residue(at, i, row->labels[i]);
  return PLM_OK;
}

static plm_status put_label(struct table_column *column, const struct plm_label_column *schema,
                            const struct plm_labelled_row *row, const struct plm_sequence *sequence,
                            uint8_t *at, struct plm_error *error)
{
  switch (schema->kind) {
  case PLM_LABEL_NUMBER: plm_label_put_number(at, row->number); return PLM_OK;
  case PLM_LABEL_CLASS: plm_label_put_class(at, row->label); return PLM_OK;
  case PLM_LABEL_RESIDUES: return put_residues(column, schema, row, sequence, at, error);
  default:
    plm_label_put_one_of(at, -1);
    for (uint32_t i = 0; i < row->label_count; i++) plm_label_put_one_of(at, row->labels[i]);
    return PLM_OK;
  }
}

static plm_status make_record(struct plm_label_table *table, const struct plm_sequence *sequence,
                              struct plm_error *error)
{
  const uint32_t residues = (uint32_t)sequence->size;
  const size_t size = plm_label_record_size(&table->schema, residues);
  bool any = false;
  if (size > PLM_LABEL_RECORD_LIMIT) {
    plm_error_set(error, PLM_LIMIT,
                  "the labels of a sequence of %u residues take %zu bytes; %d is "
                  "the limit",
                  residues, size, PLM_LABEL_RECORD_LIMIT);
    return plm_error_hint(error, "drop such sequences with --max-residues");
  }
  if (size > table->capacity) {
    free(table->record);
    table->record = plm_alloc(table->capacity = 2 * size);
  }
  plm_label_record_clear(&table->schema, residues, table->record);
  uint8_t *at = table->record;
  for (uint32_t i = 0; i < table->schema.count; i++) {
    const struct plm_label_column *schema = &table->schema.columns[i];
    const struct plm_labelled_row *row = find_row(&table->columns[i], table->by_name, sequence);
    if (row != NULL) PLM_TRY(put_label(&table->columns[i], schema, row, sequence, at, error));
    any |= row != NULL;
    at += plm_label_column_size(schema, residues);
  }
  table->labelled += any;
  if (!any && table->first_name[0] == '\0')
    snprintf(table->first_name, sizeof table->first_name, "%.*s",
             (int)(sequence->name_size < 60 ? sequence->name_size : 60), sequence->name);
  return PLM_OK;
}

bool plm_label_table_includes(struct plm_label_table *table, const struct plm_sequence *sequence,
                              struct plm_label_row *row)
{
  *row = (struct plm_label_row){0};
  if (!table->has_split) return true;
  const struct plm_labelled_row *split = find_row(&table->split, table->by_name, sequence);
  table->split_row = split;
  row->has_split = split != NULL;
  if (split != NULL) row->split = (enum plm_split)split->part;
  table->left_out += split == NULL;
  return split != NULL;
}

static plm_status note_placed(struct plm_label_table *table, const struct plm_sequence *sequence,
                              struct plm_error *error)
{
  if (table->placed_count == table->placed_capacity) {
    const size_t capacity = 2 * table->placed_capacity + 256;
    struct placed *placed = realloc(table->placed, capacity * sizeof *placed);
    if (placed == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu sequences", capacity);
    table->placed = placed;
    table->placed_capacity = capacity;
  }
  table->placed[table->placed_count++] =
      (struct placed){plm_hash64_bytes(sequence->residues, sequence->size), table->split_row};
  return PLM_OK;
}

plm_status plm_label_table_find(struct plm_label_table *table, const struct plm_sequence *sequence,
                                struct plm_label_row *row, struct plm_error *error)
{
  table->sequences++;
  if (table->has_split) PLM_TRY(note_placed(table, sequence, error));
  if (table->schema.count == 0) return PLM_OK;
  PLM_TRY(make_record(table, sequence, error));
  row->record = table->record;
  row->record_size = plm_label_record_size(&table->schema, (uint32_t)sequence->size);
  return PLM_OK;
}

/* ---- what was unusual --------------------------------------------------------------------- */

static int by_hash(const void *left, const void *right)
{
  const uint64_t a = ((const struct placed *)left)->hash, b = ((const struct placed *)right)->hash;
  return (a > b) - (a < b);
}

/* Sequences of the corpus, also of FASTA beside the table, that are in several splits. */
static void report_shared(const struct plm_label_table *table)
{
  uint64_t counts[PLM_PARTS] = {0}, lines[PLM_PARTS] = {0};
  char count[32];
  struct placed *placed = table->placed;
  if (placed == NULL) return;
  qsort(placed, table->placed_count, sizeof *placed, by_hash);
  for (size_t begin = 0, end; begin < table->placed_count; begin = end) {
    bool several = false;
    for (end = begin; end < table->placed_count && placed[end].hash == placed[begin].hash; end++)
      several |= placed[end].row->part != placed[begin].row->part;
    for (size_t i = begin; i < end && several; i++) {
      const struct plm_labelled_row *row = placed[i].row;
      counts[row->part]++;
      if (lines[row->part] == 0 || row->line < lines[row->part]) lines[row->part] = row->line;
    }
  }
  for (int part = PLM_PART_VALID; part <= (int)PLM_PART_TEST; part++)
    if (counts[part] > 0)
      plm_warning("sequences of the %s split that another split has too: %s, the first is in line "
                  "%" PRIu64,
                  plm_label_part_names[part], plm_format_count(counts[part], count), lines[part]);
}

static void report_column(const struct plm_label_table *table, uint32_t i,
                          const struct plm_label_column *column)
{
  const struct table_column *from = &table->columns[i];
  char count[32], other[32];
  uint32_t unseen = 0, first = 0;
  for (uint32_t c = 0; c < column->class_count; c++)
    if (column->counts[c] == 0 && unseen++ == 0) first = c;
  if (column->kind == PLM_LABEL_NUMBER)
    plm_info("labels %s: numbers, %s of %s sequences have one", column->name,
             plm_format_count(from->found, count), plm_format_count(table->sequences, other));
  else
    plm_info("labels %s: kind %s with %u classes, %s of %s sequences have one", column->name,
             plm_label_kind_name(column->kind), column->class_count,
             plm_format_count(from->found, count), plm_format_count(table->sequences, other));
  if (unseen > 0)
    plm_warning("labels %s: classes that the training split does not have: %u, such as \"%.60s\"",
                column->name, unseen, column->classes[first]);
  if (column->kind != PLM_LABEL_NUMBER && column->class_count == 1)
    plm_warning("labels %s: all are \"%.60s\"; there is nothing to learn", column->name,
                column->classes[0]);
  if (from->found < from->table.count)
    plm_info("labels %s: rows without a sequence in the corpus: %s", column->name,
             plm_format_count(from->table.count - from->found, count));
}

plm_status plm_label_table_report(const struct plm_label_table *table,
                                  const struct plm_label_schema *schema, struct plm_error *error)
{
  char count[32];
  if (table->left_out > 0)
    plm_warning("sequences without a split, which are left out: %s",
                plm_format_count(table->left_out, count));
  report_shared(table);
  if (table->schema.count == 0) return PLM_OK;
  if (table->labelled == 0) {
    const struct plm_labelled_table *first = &table->columns[0].table;
    plm_error_set(error, PLM_FORMAT, "no sequence has a label");
    if (table->by_name)
      plm_error_hint(error,
                     "names must be the same: the table has \"%.60s\", and the sequences "
                     "have \"%.60s\"",
                     first->rows[0].name, table->first_name);
    return plm_error_where(error, "%s", first->path);
  }
  for (uint32_t i = 0; i < schema->count; i++) report_column(table, i, &schema->columns[i]);
  return PLM_OK;
}
