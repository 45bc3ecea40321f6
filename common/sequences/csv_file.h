/* Reads CSV as RFC 4180 defines it (libcsv in its strict mode), plain, .gz or .zst: quoted fields,
 * line ends inside quotes, CRLF, and a byte order mark. The separator is the comma, semicolon or
 * tab that the first line has most often outside quotes; in a file whose name ends in .tsv it is
 * the tab. Blanks belong to fields, and empty lines are skipped. Memory is bounded by the longest
 * row, which has at most 16 MiB in a field, 32 MiB and 65536 fields. */
#ifndef PLM_COMMON_SEQUENCES_CSV_FILE_H
#define PLM_COMMON_SEQUENCES_CSV_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text/text.h"
#include "common/sequences/byte_stream.h"

struct plm_csv_field {
  const char *text; /* NUL-terminated */
  size_t size;
};

/* Valid until the next call on its file. */
struct plm_csv_row {
  uint64_t line; /* where the row begins, from 1 */
  size_t count;
  const struct plm_csv_field *fields;
};

struct plm_csv_file;

/* path "-" is standard input. Standard input and pipes are copied to a temporary file, so that they
 * can be read twice. */
plm_status plm_csv_open(const char *path, struct plm_csv_file **file, struct plm_error *error);
/* Reads a stream, which stays the caller's and must not be used until the file is closed. Its byte
 * order mark has been skipped. It is read once, so plm_csv_rewind is not allowed; plm_csv_next
 * returns PLM_AGAIN after any signal, and is then called again. */
plm_status plm_csv_open_stream(struct plm_byte_stream *stream, struct plm_csv_file **file,
                               struct plm_error *error);
void plm_csv_close(struct plm_csv_file *file); /* NULL is fine */
const char *plm_csv_name(const struct plm_csv_file *file);
/* Known once a row has been read. */
char plm_csv_delimiter(const struct plm_csv_file *file);

/* The next row; row->count is 0 at the end. PLM_FORMAT, with file and line: malformed CSV.
 * PLM_LIMIT: a row is too long. The file cannot be read further after them. */
plm_status plm_csv_next(struct plm_csv_file *file, struct plm_csv_row *row,
                        struct plm_error *error);
/* The index of the field that, without blanks around it, is `name`; SIZE_MAX if there is none. */
size_t plm_csv_column(const struct plm_csv_row *row, const char *name);
/* Back to the first row. */
plm_status plm_csv_rewind(struct plm_csv_file *file, struct plm_error *error);

#endif
