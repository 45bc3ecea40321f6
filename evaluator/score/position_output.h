/* Writes the log-probabilities of the 20 amino acids at each position of a protein. The ending of
 * the output's name chooses the format:
 *
 *   .npy       an array (length, 20) of fp32, with columns in the order of PLM_POSITION_LETTERS
 *   .svg       a picture: one column for each position, one row for each amino acid
 *   any other  CSV: position,wild_type,A,C,D,… with six decimals */
#ifndef PLM_EVALUATOR_SCORE_POSITION_OUTPUT_H
#define PLM_EVALUATOR_SCORE_POSITION_OUTPUT_H

#include "evaluator/score/variant.h"

enum { PLM_POSITION_COLUMNS = 20 };
#define PLM_POSITION_LETTERS "ACDEFGHIKLMNPQRSTVWY"

/* PLM_USAGE: the name ends in .png, which is not written. */
plm_status plm_position_check_output(const char *path, struct plm_error *error);

/* scores (length, PLM_POSITION_COLUMNS), natural logarithms. path "-" is stdout; a regular file
 * appears complete or not at all (common/cli/output_file.h). */
plm_status plm_position_write(const char *path, const struct plm_wild_type *wild_type,
                              const double *scores, struct plm_error *error);

#endif
