/* Lists the rows that a head for labels reads. */
#include "common/model/labelled_rows.h"

#include <math.h>
#include <stdlib.h>

void plm_labelled_rows_deinit(struct plm_labelled_rows *rows)
{
  free(rows->begin);
  free(rows->end);
  free(rows->documents);
  *rows = (struct plm_labelled_rows){0};
}

static plm_status labelled_rows_reserve(struct plm_labelled_rows *rows, size_t most,
                                        struct plm_error *error)
{
  if (most <= rows->capacity) return PLM_OK;
  plm_labelled_rows_deinit(rows);
  rows->begin = malloc(most * sizeof *rows->begin);
  rows->end = malloc(most * sizeof *rows->end);
  rows->documents = malloc(most * sizeof *rows->documents);
  if (rows->begin == NULL || rows->end == NULL || rows->documents == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the labels of %zu rows", most);
  rows->capacity = most;
  return PLM_OK;
}

enum plm_label_task plm_label_task_of(const struct plm_head_config *head)
{
  PLM_ASSERT(head->kind != PLM_PREDICTS_TOKENS);
  if (head->kind == PLM_PREDICTS_RESIDUES) return PLM_TASK_RESIDUES;
  return head->loss == PLM_LOSS_SQUARES ? PLM_TASK_REGRESSION
         : head->loss == PLM_LOSS_CLASS ? PLM_TASK_CLASSIFICATION
                                        : PLM_TASK_MULTILABEL;
}

bool plm_labelled_span(const struct plm_head_config *head, const struct plm_label_span *span,
                       uint32_t *begin, uint32_t *end)
{
  const bool cls = head->pooling == PLM_HEAD_CLS;
  *begin = cls ? span->start : span->first_residue;
  *end = cls ? span->start + 1 : span->first_residue + span->residues;
  return cls ? span->first_residue > span->start : span->residues > 0;
}

uint32_t plm_labels_known(const struct plm_batch_labels *labels, uint32_t document)
{
  uint32_t known = 0;
  if (labels->task == PLM_TASK_CLASSIFICATION) return labels->classes[document] >= 0;
  for (uint32_t k = 0; k < labels->outputs; k++)
    known += !isnan(labels->values[(size_t)document * labels->outputs + k]);
  return known;
}

static void add_row(struct plm_labelled_rows *rows, uint64_t begin, uint64_t end, uint32_t document)
{
  PLM_ASSERT(rows->count < rows->capacity);
  rows->begin[rows->count] = (int32_t)begin;
  rows->end[rows->count] = (int32_t)end;
  rows->documents[rows->count++] = document;
}

plm_status plm_labelled_rows_list(const struct plm_head_config *head,
                                  const struct plm_batch_labels *labels,
                                  struct plm_labelled_rows *rows, struct plm_error *error)
{
  const bool residues = labels->task == PLM_TASK_RESIDUES;
  PLM_ASSERT(residues == (head->kind == PLM_PREDICTS_RESIDUES));
  PLM_TRY(labelled_rows_reserve(rows, residues ? (size_t)labels->B * labels->L : labels->documents,
                                error));
  rows->count = 0;
  for (uint32_t d = 0; d < labels->documents; d++) {
    const struct plm_label_span *span = &labels->spans[d];
    const uint64_t chunk = (uint64_t)span->chunk * labels->L;
    const uint64_t first = chunk + span->first_residue;
    for (uint64_t x = first; x < first + span->residues && residues; x++)
      if (labels->residues[x] >= 0) add_row(rows, x, x + 1, d);
    uint32_t begin, end;
    if (residues || plm_labels_known(labels, d) == 0) continue;
    if (plm_labelled_span(head, span, &begin, &end)) add_row(rows, chunk + begin, chunk + end, d);
  }
  return PLM_OK;
}
