/* Reads the reference file of a benchmark, and looks at each of its assays. */
#include "evaluator/score/assay_list.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/sequences/assay_ids.h"
#include "common/sequences/csv_file.h"
#include "evaluator/score/wild_type_file.h"

enum { ID, FILENAME, UNIPROT, TARGET, SELECTION, CUTOFF, COLUMNS };
static const char *const names[COLUMNS] = {
    "DMS_id",     "DMS_filename",          "UniProt_ID",
    "target_seq", "coarse_selection_type", "DMS_binarization_cutoff"};

static void assay_deinit(struct plm_assay *assay)
{
  free(assay->id);
  free(assay->uniprot);
  free(assay->selection);
  free(assay->target);
}

void plm_assay_list_deinit(struct plm_assay_list *list)
{
  for (size_t i = 0; i < list->count; i++) assay_deinit(&list->items[i]);
  free(list->items);
  *list = (struct plm_assay_list){0};
}

static plm_status find_columns(struct plm_csv_file *csv, size_t columns[COLUMNS],
                               struct plm_error *error)
{
  struct plm_csv_row header;
  PLM_TRY(plm_csv_next(csv, &header, error));
  if (header.count == 0) return plm_error_set(error, PLM_FORMAT, "%s is empty", plm_csv_name(csv));
  for (int i = 0; i < COLUMNS; i++) {
    columns[i] = plm_csv_column(&header, names[i]);
    if (columns[i] != SIZE_MAX || i == CUTOFF) continue;
    plm_error_set(error, PLM_CONFIG, "%s has no column \"%s\"", plm_csv_name(csv), names[i]);
    return plm_error_hint(error, "--reference is ProteinGym's list of assays, for example "
                                 "DMS_substitutions.csv or DMS_indels.csv");
  }
  return PLM_OK;
}

/* A field without blanks around it, as a string of its own. */
static char *field_text(const struct plm_csv_row *row, size_t column)
{
  const char *text = row->fields[column].text;
  size_t size = row->fields[column].size;
  plm_trim(&text, &size);
  return plm_strndup(text, size);
}

static plm_status parse_target(struct plm_assay *assay, char *letters, struct plm_error *error)
{
  const size_t length = strlen(letters);
  assay->target = (uint8_t *)letters;
  if (length == 0 || length > PLM_WILD_TYPE_LIMIT)
    return plm_error_set(error, PLM_FORMAT, "target_seq has %zu letters, not 1 to %d", length,
                         PLM_WILD_TYPE_LIMIT);
  for (size_t i = 0; i < length; i++) {
    if (!isalpha((unsigned char)letters[i]))
      return plm_error_set(error, PLM_FORMAT, "target_seq has \"%c\", which is not a residue",
                           letters[i]);
    letters[i] = (char)toupper((unsigned char)letters[i]);
  }
  assay->length = (uint32_t)length;
  return PLM_OK;
}

static plm_status parse_cutoff(const struct plm_csv_row *row, size_t column, double *cutoff,
                               struct plm_error *error)
{
  *cutoff = NAN;
  if (column == SIZE_MAX || row->fields[column].size == 0) return PLM_OK;
  char *end;
  *cutoff = strtod(row->fields[column].text, &end);
  if (end != row->fields[column].text && *end == '\0') return PLM_OK;
  return plm_error_set(error, PLM_FORMAT, "DMS_binarization_cutoff is \"%.80s\", not a number",
                       row->fields[column].text);
}

/* The texts of a row. The assay owns what was taken, even after an error. */
static plm_status assay_list_parse_row(const struct plm_csv_row *row, const size_t columns[COLUMNS],
                                       const char *folder, struct plm_assay *assay,
                                       struct plm_error *error)
{
  for (int i = 0; i < COLUMNS; i++)
    if (columns[i] != SIZE_MAX && columns[i] >= row->count)
      return plm_error_set(error, PLM_FORMAT, "the row has only %zu fields", row->count);
  assay->id = field_text(row, columns[ID]);
  assay->uniprot = field_text(row, columns[UNIPROT]);
  assay->selection = field_text(row, columns[SELECTION]);
  char *file = field_text(row, columns[FILENAME]), *target = field_text(row, columns[TARGET]);
  plm_status status = parse_target(assay, target, error);
  if (status == PLM_OK) status = parse_cutoff(row, columns[CUTOFF], &assay->cutoff, error);
  if (status == PLM_OK && file[0] == '\0')
    status = plm_error_set(error, PLM_FORMAT, "DMS_filename is empty");
  if (status == PLM_OK) status = plm_path_join(assay->file, folder, file, error);
  if (status == PLM_OK &&
      (assay->id[0] == '\0' || assay->id[0] == '.' || strchr(assay->id, '/') != NULL))
    status = plm_error_set(error, PLM_FORMAT, "DMS_id is \"%.80s\", which cannot name a file",
                           assay->id);
  free(file);
  return status;
}

static plm_status assay_list_add(struct plm_assay_list *list, struct plm_assay **assay,
                                 struct plm_error *error)
{
  if (list->count == list->capacity) {
    const size_t capacity = 2 * list->capacity + 64;
    struct plm_assay *items = realloc(list->items, capacity * sizeof *items);
    if (items == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu assays", capacity);
    list->items = items;
    list->capacity = capacity;
  }
  *assay = &list->items[list->count++];
  **assay = (struct plm_assay){0};
  return PLM_OK;
}

static plm_status read_rows(struct plm_csv_file *csv, const char *folder,
                            struct plm_assay_list *list, struct plm_error *error)
{
  size_t columns[COLUMNS];
  struct plm_csv_row row;
  PLM_TRY(find_columns(csv, columns, error));
  for (;;) {
    struct plm_assay *assay = NULL;
    PLM_TRY(plm_csv_next(csv, &row, error));
    if (row.count == 0) break;
    PLM_TRY(assay_list_add(list, &assay, error));
    plm_status status = assay_list_parse_row(&row, columns, folder, assay, error);
    for (size_t i = 0; i + 1 < list->count && status == PLM_OK; i++)
      if (strcmp(list->items[i].id, assay->id) == 0)
        status = plm_error_set(error, PLM_FORMAT, "DMS_id %.80s is in an earlier row as well",
                               assay->id);
    if (status == PLM_OK) continue;
    plm_error_where(error, "%s:%llu", plm_csv_name(csv), (unsigned long long)row.line);
    return status;
  }
  if (list->count == 0)
    return plm_error_set(error, PLM_FORMAT, "%s lists no assays", plm_csv_name(csv));
  return PLM_OK;
}

/* ---- the choice ---- */

static bool is_chosen(const struct plm_assay_choice *choice, const char *id)
{
  for (uint32_t i = 0; i < choice->id_count; i++)
    if (strcmp(choice->ids[i], id) == 0) return true;
  return false;
}

/* Leaves out the assays that are not of the choice. */
static void keep_chosen(const struct plm_assay_choice *choice, struct plm_assay_list *list)
{
  size_t kept = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (is_chosen(choice, list->items[i].id))
      list->items[kept++] = list->items[i];
    else
      assay_deinit(&list->items[i]);
  }
  list->count = kept;
}

/* ---- the assays ---- */

static bool has_digit(const struct plm_csv_field *field)
{
  return memchr(field->text, '\0', field->size) == NULL && strpbrk(field->text, "0123456789");
}

/* Looks at the header and the first row of an assay. */
static plm_status look_at(struct plm_csv_file *csv, struct plm_assay *assay,
                          struct plm_error *error)
{
  struct plm_csv_row row;
  PLM_TRY(plm_csv_next(csv, &row, error));
  const size_t mutant = plm_csv_column(&row, "mutant");
  const bool sequence = plm_csv_column(&row, "mutated_sequence") != SIZE_MAX;
  if (plm_csv_column(&row, "DMS_score") == SIZE_MAX)
    return plm_error_set(error, PLM_CONFIG, "%s has no column \"DMS_score\"", plm_csv_name(csv));
  if (isnan(assay->cutoff) && plm_csv_column(&row, "DMS_score_bin") == SIZE_MAX) {
    plm_error_set(error, PLM_CONFIG, "%s has no column \"DMS_score_bin\"", plm_csv_name(csv));
    return plm_error_hint(error, "add it, or the column DMS_binarization_cutoff to the reference");
  }
  PLM_TRY(plm_csv_next(csv, &row, error));
  if (row.count == 0)
    return plm_error_set(error, PLM_FORMAT, "%s has no variants", plm_csv_name(csv));
  assay->indels = mutant >= row.count || !has_digit(&row.fields[mutant]);
  if (assay->indels && !sequence)
    return plm_error_set(error, PLM_CONFIG,
                         "%s has neither substitutions in a column \"mutant\" nor a column "
                         "\"mutated_sequence\"",
                         plm_csv_name(csv));
  return PLM_OK;
}

static plm_status look_at_all(struct plm_assay_list *list, const char *folder,
                              struct plm_error *error)
{
  size_t missing = 0;
  const struct plm_assay *first = NULL;
  for (size_t i = 0; i < list->count; i++) {
    if (plm_file_exists(list->items[i].file)) continue;
    if (missing++ == 0) first = &list->items[i];
  }
  if (missing > 0) {
    plm_error_set(error, PLM_NOT_FOUND, "%zu of %zu assays are not in %.1000s, the first is %.80s",
                  missing, list->count, folder, first->id);
    return plm_error_hint(error,
                          "name the folder that holds the assays' CSV files with --assays, or "
                          "leave these lines out of the reference file");
  }
  for (size_t i = 0; i < list->count; i++) {
    struct plm_csv_file *csv;
    PLM_TRY(plm_csv_open(list->items[i].file, &csv, error));
    const plm_status status = look_at(csv, &list->items[i], error);
    plm_csv_close(csv);
    if (status != PLM_OK) return status;
  }
  return PLM_OK;
}

plm_status plm_assay_list_read(const char *reference, const char *folder,
                               const struct plm_assay_choice *choice, struct plm_assay_list *list,
                               struct plm_error *error)
{
  struct plm_csv_file *csv;
  *list = (struct plm_assay_list){0};
  PLM_TRY(plm_csv_open(reference, &csv, error));
  plm_status status = read_rows(csv, folder, list, error);
  plm_csv_close(csv);
  if (status == PLM_OK && choice->id_count > 0) {
    status = plm_assay_ids_check(reference, choice->ids, choice->id_count, error);
    if (status == PLM_OK) keep_chosen(choice, list);
  }
  if (status == PLM_OK) status = look_at_all(list, folder, error);
  if (status != PLM_OK) plm_assay_list_deinit(list);
  return status;
}
