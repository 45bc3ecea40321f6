/* What a probe predicts: one item for each row of a table or, for labels of residues, one for each
 * labelled residue that the model sees. */
#ifndef PLM_EVALUATOR_PROBE_PROBE_ITEMS_H
#define PLM_EVALUATOR_PROBE_PROBE_ITEMS_H

#include "common/sequences/labelled_table.h"

/* The folds among which alpha is chosen without a validation part: XXH3-64 of the sequence, divided
 * by 16, modulo 5, so that equal sequences share one. */
enum { PLM_INNER_FOLDS = 5 };

struct plm_probe_items {
  const struct plm_labelled_table *table; /* borrowed */
  uint32_t max_length;                    /* of the model, in tokens */
  uint32_t count;
  uint32_t *rows;      /* (count) numbers of the table's rows, ascending */
  uint32_t *positions; /* (count) of residues from 0; NULL: items are rows */
  uint32_t *firsts;    /* (rows of the table + 1) the first item of each row */
  double *targets;     /* (count) for numbers, else NULL */
  int32_t *labels;     /* (count) otherwise */
  uint32_t *parts;     /* (count) enum plm_label_part, or the fold */
  uint32_t *inner;     /* (count) the inner fold */
  uint64_t cut;        /* rows with more residues than the model sees */
};

/* The residues of a sequence that the model sees beside <cls>, as `embed` cuts. */
static inline uint32_t plm_residues_seen(uint32_t length, uint32_t max_length)
{
  return length < max_length - 1 ? length : max_length - 1;
}

/* The caller frees it with _deinit. PLM_NO_MEMORY. PLM_LIMIT: more than 2^31 items. */
plm_status plm_probe_items_init(struct plm_probe_items *items,
                                const struct plm_labelled_table *table, uint32_t max_length,
                                struct plm_error *error);
void plm_probe_items_deinit(struct plm_probe_items *items);

#endif
