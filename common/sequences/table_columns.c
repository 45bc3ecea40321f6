/* Finds the columns of a table. */
#include "common/sequences/table_columns.h"

#include <string.h>
#include <strings.h>

const char *const plm_sequence_columns[PLM_SEQUENCE_COLUMNS] = {
    "sequence", "seq", "protein_sequence", "mutated_sequence"};

static bool is_called(const struct plm_csv_field *field, const char *name, bool exactly)
{
  const char *text = field->text;
  size_t size = field->size;
  plm_trim(&text, &size);
  if (size != strlen(name)) return false;
  return (exactly ? memcmp(text, name, size) : strncasecmp(text, name, size)) == 0;
}

size_t plm_table_columns(const struct plm_csv_row *header, const char *name, bool exactly,
                         size_t *column)
{
  size_t count = 0;
  for (size_t i = 0; i < header->count; i++)
    if (is_called(&header->fields[i], name, exactly) && count++ == 0) *column = i;
  return count;
}

size_t plm_table_sequence_columns(const struct plm_csv_row *header, size_t *column,
                                  const char **name)
{
  size_t count = 0;
  for (size_t i = 0; i < PLM_SEQUENCE_COLUMNS; i++) {
    const size_t found = plm_table_columns(header, plm_sequence_columns[i], false, column);
    if (found != 0 && name != NULL) *name = plm_sequence_columns[i];
    count += found;
  }
  return count;
}

void plm_table_list_columns(const struct plm_csv_row *header, struct plm_text *names)
{
  enum { MOST_BYTES = 300 };
  struct plm_text all = {0};
  for (size_t i = 0; i < header->count && all.length <= MOST_BYTES; i++) {
    const char *text = header->fields[i].text;
    size_t size = header->fields[i].size;
    plm_trim(&text, &size);
    plm_text_printf(&all, "%s\"%.*s\"", i == 0 ? "" : ", ", (int)(size < 60 ? size : 60), text);
  }
  plm_text_printf(names, "%.*s%s", MOST_BYTES, all.data, all.length <= MOST_BYTES ? "" : " ...");
  plm_text_deinit(&all);
}
