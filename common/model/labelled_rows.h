/* Which positions of a batch a head for labels reads: those of each document, or of each residue,
 * that has a label. */
#ifndef PLM_COMMON_MODEL_LABELLED_ROWS_H
#define PLM_COMMON_MODEL_LABELLED_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/head_config.h"
#include "common/plan/batch_labels.h"

/* The labels that a head predicts, which is one for labels. */
enum plm_label_task plm_label_task_of(const struct plm_head_config *head);
/* What a head for whole sequences reads of a document or a piece of one, [*begin, *end) of what the
 * span counts in. False: nothing, because the piece has lost the <cls> that the head reads, or has
 * no residues to pool. */
bool plm_labelled_span(const struct plm_head_config *head, const struct plm_label_span *span,
                       uint32_t *begin, uint32_t *end);
/* How many labels a document of the batch has, of those of whole sequences. */
uint32_t plm_labels_known(const struct plm_batch_labels *labels, uint32_t document);

/* Rows in ascending order, as struct plm_label_targets takes them. The caller owns it and begins
 * with {0}. Its memory is kept and grows; plm_labelled_rows_deinit frees it. */
struct plm_labelled_rows {
  uint32_t count;
  int32_t *begin, *end; /* (count) into B * L: [begin, end) is pooled, or begin is read */
  uint32_t *documents;  /* (count) of the batch: into plm_batch_labels.spans */
  size_t capacity;
};
void plm_labelled_rows_deinit(struct plm_labelled_rows *rows);

/* Lists the rows of a batch that a head reads and whose label is not missing; of several numbers or
 * classes, at least one of them. The head must fit the task of the labels. PLM_NO_MEMORY. */
plm_status plm_labelled_rows_list(const struct plm_head_config *head,
                                  const struct plm_batch_labels *labels,
                                  struct plm_labelled_rows *rows, struct plm_error *error);

#endif
