/* The inside of labelled_table.h, private to this folder: the rows of a table as text, whatever its
 * format. */
#ifndef PLM_COMMON_SEQUENCES_LABELLED_CELLS_H
#define PLM_COMMON_SEQUENCES_LABELLED_CELLS_H

#include "common/sequences/csv_file.h"
#include "common/sequences/labelled_table.h"
#include "common/sequences/line_reader.h"

/* Stands before each item of a JSON array in the text of its cell. A null is an empty item. */
enum { PLM_CELL_ITEMS = 0x1f };

enum plm_cell {
  PLM_CELL_SEQUENCE,
  PLM_CELL_TARGET,
  PLM_CELL_SPLIT,
  PLM_CELL_VALIDATION,
  PLM_CELL_NAME,
  PLM_CELLS
};

struct plm_labelled_cells {
  const struct plm_labelled_request *request;
  struct plm_byte_stream *stream;
  struct plm_csv_file *csv;     /* NULL: JSON lines */
  struct plm_line_reader lines; /* of JSON */
  struct plm_text line;         /* a whole line of JSON */
  struct plm_text text;         /* the cells of a row of JSON, each followed by NUL */
  size_t columns[PLM_CELLS];    /* in CSV, from 0; SIZE_MAX: the table has none */
  size_t column_count;
  const char *names[PLM_CELLS]; /* of the columns; NULL: none is wanted */
  bool json;
};

/* One row: texts without blanks around them. Valid until the next call. */
struct plm_cell_row {
  uint64_t line; /* 0: the end */
  const char *texts[PLM_CELLS];
  size_t sizes[PLM_CELLS];
};

/* The caller closes it, also after an error. */
plm_status plm_labelled_cells_open(const struct plm_labelled_request *request,
                                   struct plm_labelled_cells *cells, struct plm_error *error);
void plm_labelled_cells_close(struct plm_labelled_cells *cells);
plm_status plm_labelled_cells_next(struct plm_labelled_cells *cells, struct plm_cell_row *row,
                                   struct plm_error *error);
/* Adds "FILE:LINE, column 3 (NAME)" to the error. */
plm_status plm_labelled_cells_where(const struct plm_labelled_cells *cells, uint64_t line,
                                    enum plm_cell cell, struct plm_error *error);

#endif
