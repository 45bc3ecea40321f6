/* Reads the hashes of all rows, and keeps the rows with the smallest ones. */
#include "evaluator/score/variant_sample.h"

#include <stdlib.h>

#include "common/base/numbers/hash.h"
#include "common/base/text/text.h"
#include "common/sequences/csv_file.h"

struct hashed_row {
  uint64_t hash, row;
};

struct hashed_rows {
  struct hashed_row *items;
  size_t count, capacity;
};

static int compare_hashes(const void *a, const void *b)
{
  const struct hashed_row *x = a, *y = b;
  if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

static int compare_rows(const void *a, const void *b)
{
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static plm_status add_row(struct hashed_rows *rows, const struct plm_csv_row *row, size_t column,
                          struct plm_error *error)
{
  if (rows->count == rows->capacity) {
    const size_t capacity = 2 * rows->capacity + 1024;
    struct hashed_row *items = realloc(rows->items, capacity * sizeof *items);
    if (items == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu variants", capacity);
    rows->items = items;
    rows->capacity = capacity;
  }
  struct plm_csv_field field = {.text = ""};
  if (column < row->count) field = row->fields[column];
  plm_trim(&field.text, &field.size);
  rows->items[rows->count] =
      (struct hashed_row){.hash = plm_hash64_bytes(field.text, field.size), .row = rows->count};
  rows->count++;
  return PLM_OK;
}

static plm_status hash_rows(struct plm_csv_file *csv, const char *name, struct hashed_rows *rows,
                            struct plm_error *error)
{
  struct plm_csv_row row;
  PLM_TRY(plm_csv_next(csv, &row, error));
  const size_t column = plm_csv_column(&row, name);
  if (column == SIZE_MAX)
    return plm_error_set(error, PLM_CONFIG, "%s has no column \"%.80s\"", plm_csv_name(csv), name);
  for (;;) {
    PLM_TRY(plm_csv_next(csv, &row, error));
    if (row.count == 0) return PLM_OK;
    PLM_TRY(add_row(rows, &row, column, error));
  }
}

static plm_status keep_smallest(struct hashed_rows *rows, uint64_t most,
                                struct plm_variant_sample *sample, struct plm_error *error)
{
  const size_t count = rows->count < most ? rows->count : (size_t)most;
  sample->rows = malloc((count + 1) * sizeof *sample->rows);
  if (sample->rows == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu variants", count);
  if (rows->count > 0) qsort(rows->items, rows->count, sizeof *rows->items, compare_hashes);
  for (size_t i = 0; i < count; i++) sample->rows[i] = rows->items[i].row;
  qsort(sample->rows, count, sizeof *sample->rows, compare_rows);
  sample->count = count;
  return PLM_OK;
}

plm_status plm_variant_sample_read(const char *path, const char *column, uint64_t most,
                                   struct plm_variant_sample *sample, struct plm_error *error)
{
  struct plm_csv_file *csv;
  struct hashed_rows rows = {0};
  *sample = (struct plm_variant_sample){0};
  if (most == 0) return PLM_OK;
  PLM_TRY(plm_csv_open(path, &csv, error));
  plm_status status = hash_rows(csv, column, &rows, error);
  plm_csv_close(csv);
  if (status == PLM_OK) status = keep_smallest(&rows, most, sample, error);
  free(rows.items);
  return status;
}

void plm_variant_sample_deinit(struct plm_variant_sample *sample)
{
  free(sample->rows);
  *sample = (struct plm_variant_sample){0};
}

bool plm_variant_sample_takes(struct plm_variant_sample *sample)
{
  if (sample->rows == NULL) return true;
  const bool takes = sample->next < sample->count && sample->rows[sample->next] == sample->row;
  sample->next += takes;
  sample->row++;
  return takes;
}

void plm_variant_sample_rewind(struct plm_variant_sample *sample)
{
  sample->row = 0;
  sample->next = 0;
}
