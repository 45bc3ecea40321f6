/* The inside of labelled_table.h, private to this folder: labels from their texts. */
#ifndef PLM_COMMON_SEQUENCES_LABELLED_VALUES_H
#define PLM_COMMON_SEQUENCES_LABELLED_VALUES_H

#include "common/sequences/labelled_cells.h"

/* The text of the label of each row, in the order of the table's rows. */
struct plm_label_text {
  char *text;
  size_t size;
};

bool plm_label_is_missing(const char *text, size_t size);

/* Sets the labels of all rows, and the table's kind if it is to be guessed, and its classes. The
 * errors are those of plm_labelled_table_read. */
plm_status plm_labels_from_texts(const struct plm_labelled_cells *cells,
                                 const struct plm_label_text *texts,
                                 struct plm_labelled_table *table, struct plm_error *error);

#endif
