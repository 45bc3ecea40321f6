/* What `score` writes: CSV rows into a file (through a temporary name) or on stdout, or one JSON
 * object on stdout:
 *   {"variants": [{"mutant", "score", "measured"}, …], "spearman": {"value", "low", "high",
 * "count"}} measured only where there is one; spearman only with measurements, its numbers null
 * where they do not exist. */
#ifndef PLM_EVALUATOR_SCORE_SCORE_OUTPUT_H
#define PLM_EVALUATOR_SCORE_SCORE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "evaluator/score/rank_correlation.h"

struct plm_score_output;

/* path NULL: CSV goes to stdout with rows, else nowhere. */
plm_status plm_score_output_open(const char *path, bool rows, bool json, const char *header,
                                 size_t header_size, struct plm_score_output **output,
                                 struct plm_error *error);
/* fields: the row up to its score. *written is the score as it was written, with six decimals. */
plm_status plm_score_output_add(struct plm_score_output *output, const char *fields,
                                size_t fields_size, const char *mutant, size_t mutant_size,
                                double score, double measured, double *written,
                                struct plm_error *error);
/* correlation may be NULL. The file has its name from here on. */
plm_status plm_score_output_finish(struct plm_score_output *output,
                                   const struct plm_rank_correlation *correlation,
                                   struct plm_error *error);
/* NULL is fine. Removes what was not finished. */
void plm_score_output_close(struct plm_score_output *output);

#endif
