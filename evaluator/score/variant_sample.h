/* A fixed sample of the rows of a table of variants: those whose variants have the smallest hashes
 * (XXH3-64 of the text without blanks around it); of equal hashes, the earlier rows. It does not
 * depend on the order of the rows, and a larger sample has all rows of a smaller one. */
#ifndef PLM_EVALUATOR_SCORE_VARIANT_SAMPLE_H
#define PLM_EVALUATOR_SCORE_VARIANT_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* {0} takes all rows. */
struct plm_variant_sample {
  uint64_t *rows; /* (count) without the header, from 0, ascending; NULL: all */
  size_t count;
  uint64_t row; /* that the next call of _takes is about */
  size_t next;  /* the first of rows that is not before it */
};

/* Reads the table at path, whose variants are in the column. most: of rows; 0: all, and nothing is
 * read. The caller frees *sample with _deinit. PLM_CONFIG: there is no such column. PLM_FORMAT,
 * PLM_LIMIT: as plm_csv_next. PLM_NO_MEMORY. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. */
plm_status plm_variant_sample_read(const char *path, const char *column, uint64_t most,
                                   struct plm_variant_sample *sample, struct plm_error *error);
void plm_variant_sample_deinit(struct plm_variant_sample *sample);

/* Whether the sample has the next row; called once for each row, in order. */
bool plm_variant_sample_takes(struct plm_variant_sample *sample);
void plm_variant_sample_rewind(struct plm_variant_sample *sample);

#endif
