/* Schemas: memory, comparison and rules. */
#include "common/labels/label_schema.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/text.h"

static const char *const kind_names[PLM_LABEL_KINDS] = {
    [PLM_LABEL_NUMBER] = "number",
    [PLM_LABEL_CLASS] = "class",
    [PLM_LABEL_RESIDUES] = "residues",
    [PLM_LABEL_CLASSES] = "classes",
};
static const uint32_t most_classes[PLM_LABEL_KINDS] = {
    [PLM_LABEL_CLASS] = PLM_LABEL_CLASS_MOST,
    [PLM_LABEL_RESIDUES] = PLM_LABEL_RESIDUES_MOST,
    [PLM_LABEL_CLASSES] = PLM_LABEL_CLASSES_MOST,
};

const char *plm_label_kind_name(enum plm_label_kind kind)
{
  PLM_ASSERT(kind > PLM_LABEL_GUESSED && kind < PLM_LABEL_KINDS);
  return kind_names[kind];
}

uint32_t plm_label_most_classes(enum plm_label_kind kind)
{
  PLM_ASSERT(kind > PLM_LABEL_GUESSED && kind < PLM_LABEL_KINDS);
  return most_classes[kind];
}

static void deinit_column(struct plm_label_column *column)
{
  for (uint32_t c = 0; c < column->class_count; c++) free(column->classes[c]);
  free(column->classes);
  free(column->counts);
  free(column->name);
}

void plm_label_schema_deinit(struct plm_label_schema *schema)
{
  for (uint32_t i = 0; i < schema->count; i++) deinit_column(&schema->columns[i]);
  free(schema->columns);
  *schema = (struct plm_label_schema){0};
}

static void copy_column(const struct plm_label_column *from, struct plm_label_column *to)
{
  *to = *from;
  to->name = plm_strdup(from->name);
  to->classes = plm_alloc_zeroed(from->class_count, sizeof *to->classes);
  to->counts = plm_alloc_zeroed(from->class_count, sizeof *to->counts);
  for (uint32_t c = 0; c < from->class_count; c++) {
    to->classes[c] = plm_strdup(from->classes[c]);
    to->counts[c] = from->counts[c];
  }
}

void plm_label_schema_copy(const struct plm_label_schema *from, struct plm_label_schema *to)
{
  *to = (struct plm_label_schema){.count = from->count};
  to->columns = plm_alloc_zeroed(from->count, sizeof *to->columns);
  for (uint32_t i = 0; i < from->count; i++) copy_column(&from->columns[i], &to->columns[i]);
}

const struct plm_label_column *plm_label_schema_find(const struct plm_label_schema *schema,
                                                     const char *name)
{
  for (uint32_t i = 0; i < schema->count; i++)
    if (strcmp(schema->columns[i].name, name) == 0) return &schema->columns[i];
  return NULL;
}

bool plm_label_column_equal(const struct plm_label_column *a, const struct plm_label_column *b)
{
  if (strcmp(a->name, b->name) != 0 || a->kind != b->kind || a->class_count != b->class_count)
    return false;
  for (uint32_t c = 0; c < a->class_count; c++)
    if (strcmp(a->classes[c], b->classes[c]) != 0) return false;
  return true;
}

/* ---- rules -------------------------------------------------------------------------------- */

static plm_status check_name(const char *what, const char *name, struct plm_error *error)
{
  const size_t size = strlen(name);
  if (size == 0) return plm_error_set(error, PLM_FORMAT, "the name of a %s is empty", what);
  if (size > PLM_LABEL_NAME_MOST)
    return plm_error_set(error, PLM_LIMIT,
                         "the name of a %s has %zu bytes: \"%.40s...\"; %d is the "
                         "limit",
                         what, size, name, PLM_LABEL_NAME_MOST);
  for (size_t i = 0, length; i < size; i += length) {
    length = plm_utf8_length((const unsigned char *)name + i, size - i);
    if (length == 0) return plm_error_set(error, PLM_FORMAT, "the name of a %s is not UTF-8", what);
    if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
      return plm_error_set(error, PLM_FORMAT, "the name of a %s has a control character", what);
  }
  return PLM_OK;
}

static plm_status check_column(const struct plm_label_column *column, struct plm_error *error)
{
  if (column->kind <= PLM_LABEL_GUESSED || column->kind >= PLM_LABEL_KINDS)
    return plm_error_set(error, PLM_FORMAT, "a column of labels is of no known kind");
  PLM_TRY(check_name("column of labels", column->name, error));
  const uint32_t most = most_classes[column->kind];
  if (column->kind != PLM_LABEL_NUMBER && column->class_count == 0)
    return plm_error_set(error, PLM_FORMAT, "column %s has no class", column->name);
  if (column->class_count > most)
    return plm_error_set(error, PLM_LIMIT, "column %s has %u classes; %u is the limit for kind %s",
                         column->name, column->class_count, most, kind_names[column->kind]);
  for (uint32_t c = 0; c < column->class_count; c++) {
    PLM_TRY(check_name("class", column->classes[c], error));
    if (c > 0 && strcmp(column->classes[c - 1], column->classes[c]) >= 0)
      return plm_error_set(error, PLM_FORMAT, "the classes of column %s are not in order",
                           column->name);
  }
  return PLM_OK;
}

plm_status plm_label_schema_check(const struct plm_label_schema *schema, struct plm_error *error)
{
  if (schema->count > PLM_LABEL_COLUMNS_MOST)
    return plm_error_set(error, PLM_LIMIT, "there are %u columns of labels; %d is the limit",
                         schema->count, PLM_LABEL_COLUMNS_MOST);
  for (uint32_t i = 0; i < schema->count; i++) {
    PLM_TRY(check_column(&schema->columns[i], error));
    if (plm_label_schema_find(schema, schema->columns[i].name) != &schema->columns[i])
      return plm_error_set(error, PLM_FORMAT, "two columns of labels are called %s",
                           schema->columns[i].name);
  }
  const size_t bytes = plm_label_schema_bytes(schema);
  if (bytes <= PLM_LABEL_SCHEMA_LIMIT) return PLM_OK;
  plm_error_set(error, PLM_LIMIT,
                "the names of columns and classes take %zu bytes; %d is the limit", bytes,
                PLM_LABEL_SCHEMA_LIMIT);
  return plm_error_hint(error, "shorten the names of classes, for example to identifiers");
}
