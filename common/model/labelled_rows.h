/* Which positions of a batch a head for labels reads: those of each document, or of each residue,
 * that has a label. */
#ifndef PLM_COMMON_MODEL_LABELLED_ROWS_H
#define PLM_COMMON_MODEL_LABELLED_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/head_config.h"
#include "common/plan/batch_labels.h"

/* Rows in ascending order, as struct plm_label_targets takes them. The caller owns it and begins
 * with {0}. Its memory is kept and grows; plm_labelled_rows_deinit frees it. */
struct plm_labelled_rows {
  uint32_t count;
  int32_t *begin, *end; /* (count) into B * L: [begin, end) is pooled, or begin is read */
  uint32_t *documents;  /* (count) of the batch: into plm_batch_labels.spans */
  size_t capacity;
};
void plm_labelled_rows_deinit(struct plm_labelled_rows *rows);

/* Lists the rows of a batch whose label is not missing; of several numbers or classes, at least one
 * of them. The head must fit the task of the labels. PLM_NO_MEMORY. */
plm_status plm_labelled_rows_list(const struct plm_head_config *head,
                                  const struct plm_batch_labels *labels,
                                  struct plm_labelled_rows *rows, struct plm_error *error);

#endif
