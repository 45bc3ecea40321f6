/* What `score` writes: CSV rows to a file or a stream (common/cli/output_file.h), and with --json
 * one object on stdout.
 *
 *   {"variants": [{"mutant": "A42G", "score": -1.25, "measured": 0.3}, …],
 *    "spearman": {"value": 0.41, "low": 0.35, "high": 0.47, "count": 1200}}
 *
 * A variant has "measured" only if it was measured, and the object has "spearman" only if a column
 * of measurements was named. Numbers of "spearman" that do not exist are null. */
#ifndef PLM_EVALUATOR_SCORE_SCORE_OUTPUT_H
#define PLM_EVALUATOR_SCORE_SCORE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "evaluator/measures/rank_correlation.h"

struct plm_score_output;

/* header (header_size bytes) is the first line of the CSV. path is that of
 * --output; if it is NULL, the CSV goes to stdout with `rows`, and nowhere without. */
plm_status plm_score_output_open(const char *path, bool rows, bool json, const char *header,
                                 size_t header_size, struct plm_score_output **output,
                                 struct plm_error *error);

/* One variant and its score. The texts are borrowed for the call. */
struct plm_score_row {
  const char *fields; /* the CSV row up to its score, with the last separator */
  size_t fields_size;
  const char *mutant;
  size_t mutant_size;
  double score, measured; /* measured: NaN if there is none */
};
/* *written is the score as it was written, with six decimals. */
plm_status plm_score_output_add(struct plm_score_output *output, const struct plm_score_row *row,
                                double *written, struct plm_error *error);
/* Completes the output. correlation may be NULL. Whether the end of the object could be written,
 * plm_program_flush_output says. */
plm_status plm_score_output_finish(struct plm_score_output *output,
                                   const struct plm_rank_correlation *correlation,
                                   struct plm_error *error);
/* Removes a file that was not finished. NULL is fine. */
void plm_score_output_close(struct plm_score_output *output);

#endif
