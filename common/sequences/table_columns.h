/* The columns of a table by their names, private to this folder. */
#ifndef PLM_COMMON_SEQUENCES_TABLE_COLUMNS_H
#define PLM_COMMON_SEQUENCES_TABLE_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/text/text.h"
#include "common/sequences/csv_file.h"

/* What a column of sequences is called if the user names none, whatever its case. */
enum { PLM_SEQUENCE_COLUMNS = 4 };
extern const char *const plm_sequence_columns[PLM_SEQUENCE_COLUMNS];

/* How many columns have the name, in these letters or whatever their case; *column receives the
 * first of them. */
size_t plm_table_columns(const struct plm_csv_row *header, const char *name, bool exactly,
                         size_t *column);
/* How many columns have one of the names of plm_sequence_columns; *column receives the number of
 * one, and *name (may be NULL) its name there. */
size_t plm_table_sequence_columns(const struct plm_csv_row *header, size_t *column,
                                  const char **name);
/* Appends the names of the columns, "a", "b", for a message: about 300 bytes of them at most. */
void plm_table_list_columns(const struct plm_csv_row *header, struct plm_text *names);

#endif
