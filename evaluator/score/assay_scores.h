/* The folder in which `score --assays` keeps the scores of each assay, so that an interrupted
 * command continues there:
 *
 *   scores.json   what the scores were made with: {"weights": XXH3-128 of the weights file,
 *                 "masking": "additive" or "joint", "precision": "fp32", "bf16" or "int8",
 *                 "max_length": "N", if the user gave --max-length,
 *                 "max_variants": "N", if the user gave --max-variants}
 *   DMS_id.csv    the assay with all its columns, and the column `plm_score`; it appears complete
 *
 * One command at a time writes to a folder. */
#ifndef PLM_EVALUATOR_SCORE_ASSAY_SCORES_H
#define PLM_EVALUATOR_SCORE_ASSAY_SCORES_H

#include <stdbool.h>

#include "common/base/files/file.h"
#include "common/base/numbers/hash.h"
#include "evaluator/score/assay_list.h"
#include "evaluator/score/assay_statistics.h"

#define PLM_ASSAY_SCORE_COLUMN "plm_score"

struct plm_assay_origin {
  struct plm_hash weights;
  const char *masking, *precision;
  uint32_t max_length;   /* 0: the model's */
  uint64_t max_variants; /* of an assay; 0: all */
};

struct plm_assay_scores {
  char folder[PLM_PATH_SIZE];
  int lock; /* a descriptor */
};

/* Makes the folder if it is not there, locks it, and removes what a killed command left unfinished.
 * PLM_BUSY: another command writes there. PLM_EXISTS: the folder has scores of another origin, or
 * other things. */
plm_status plm_assay_scores_open(const char *folder, const struct plm_assay_origin *origin,
                                 struct plm_assay_scores *scores, struct plm_error *error);
void plm_assay_scores_close(struct plm_assay_scores *scores);

/* The file of an assay. */
plm_status plm_assay_scores_path(const struct plm_assay_scores *scores,
                                 const struct plm_assay *assay, char path[PLM_PATH_SIZE],
                                 struct plm_error *error);

/* Reads the scores of an assay whose file exists; the caller frees *values with _deinit. Variants
 * without a measurement are left out. max_variants: with which they were made. PLM_EXISTS: the
 * file's other columns are not those of the assay. PLM_FORMAT: a field is not a number, with file
 * and line. */
plm_status plm_assay_scores_read(const char *path, const struct plm_assay *assay,
                                 uint64_t max_variants, struct plm_assay_values *values,
                                 struct plm_error *error);
void plm_assay_values_deinit(struct plm_assay_values *values);

#endif
