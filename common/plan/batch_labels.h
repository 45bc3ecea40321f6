/* The labels of a batch in the form that losses and metrics take, from the label records that the
 * feed delivers with each document (struct plm_batch, labels).
 *
 * A choice names columns of the corpus's schema, for one of these objectives:
 *
 *   objective       columns                                         outputs K
 *   regression      numbers, one or several                         columns
 *   classification  one class                                       classes
 *   multilabel      one of kind classes, or several classes with    classes, or columns
 *                   two classes each (the second one counts as 1)
 *   residues        one of kind residues                            classes
 *
 * The sources of a mixture must have these columns with the same kinds and classes; their other
 * columns may differ. */
#ifndef PLM_COMMON_PLAN_BATCH_LABELS_H
#define PLM_COMMON_PLAN_BATCH_LABELS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/labels/label_record.h"
#include "common/plan/chunk.h"

enum plm_label_task {
  PLM_TASK_REGRESSION,
  PLM_TASK_CLASSIFICATION,
  PLM_TASK_MULTILABEL,
  PLM_TASK_RESIDUES,
  PLM_LABEL_TASKS
};
/* "regression", "classification", "multilabel", "residues", in the order of the enum; then NULL. */
extern const char *const plm_label_task_names[];

/* A document, or a piece of one, in a batch. */
struct plm_label_span {
  uint32_t chunk;                   /* of the batch */
  uint32_t start;                   /* the index of its first token in the chunk */
  uint32_t tokens;                  /* including <cls> and <eos> if it has them */
  uint32_t first_residue, residues; /* tokens that are residues: the index of the first one in the
                                       chunk, and how many; they are the input of pooling by mean */
  bool whole;                       /* it is the whole document */
};

/* The labels of a batch. The caller owns it and begins with {0}. Its memory is kept and grows;
 * plm_batch_labels_deinit frees it. */
struct plm_batch_labels {
  enum plm_label_task task;
  uint32_t B, L;      /* of the batch */
  uint32_t outputs;   /* K */
  uint32_t documents; /* D: documents and pieces of all chunks, in the order of the batch */
  struct plm_label_span *spans; /* (D) */
  uint32_t *begin;              /* (B + 1) the first span of each chunk */
  float *values;     /* (D, K) regression: normalised numbers; multilabel: 0 or 1. NaN: missing */
  int32_t *classes;  /* (D) classification; -1: missing */
  int32_t *residues; /* (B, L) residues: the class of each token that is a residue; -1: missing, or
                        no residue (<cls>, <eos>, padding) */
  uint64_t known;    /* labels that are not missing: values, classes or residues */
  size_t span_capacity, value_capacity, class_capacity, residue_capacity, begin_capacity;
};
void plm_batch_labels_deinit(struct plm_batch_labels *labels);

/* Which labels are used. Begins with {0}. */
struct plm_label_choice {
  enum plm_label_task task;
  uint32_t outputs; /* K */
  uint32_t column_count;
  struct plm_label_column *columns; /* (column_count) owned: with the statistics of all sources */
  /* Regression: (K) normalised = (number - mean) / deviation. A column without a deviation is
   * divided by 1. */
  double *mean, *deviation;
};
void plm_label_choice_deinit(struct plm_label_choice *choice);

/* Chooses columns by name. schemas: of the sources, in their order. PLM_CONFIG says which source
 * has no labels, lacks a column (and which it has), or has it with another kind or other classes;
 * that the objective needs another kind; or that the training split has no label of a column. */
plm_status plm_label_choose(enum plm_label_task task, const char *const *names, uint32_t count,
                            const struct plm_label_schema *const *schemas,
                            const char *const *sources, uint32_t source_count,
                            struct plm_label_choice *choice, struct plm_error *error);
/* The same checks of a corpus that is only evaluated, so that its training split needs no labels.
 * schema: NULL: it has none. */
plm_status plm_label_check_columns(enum plm_label_task task, const char *const *names,
                                   uint32_t count, const struct plm_label_schema *schema,
                                   const char *source, struct plm_error *error);

/* Fills labels from a batch, all of whose chunks have records. schemas are those of
 * plm_label_choose; chunk i is of source batch->sources[i], or of source 0 if that is NULL.
 * PLM_NO_MEMORY. */
plm_status plm_batch_labels_fill(const struct plm_label_choice *choice,
                                 const struct plm_label_schema *const *schemas,
                                 const struct plm_batch *batch, struct plm_batch_labels *labels,
                                 struct plm_error *error);

#endif
