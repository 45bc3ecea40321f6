/* What `score --assays` prints: score_assays.h has the columns and the JSON object. */
#ifndef PLM_EVALUATOR_SCORE_ASSAY_REPORT_H
#define PLM_EVALUATOR_SCORE_ASSAY_REPORT_H

#include <stdbool.h>

#include "evaluator/score/assay_statistics.h"

/* output: a path for the CSV, or NULL: stdout, unless json, with which the object goes there. The
 * means go to stderr as well. */
plm_status plm_assay_report(const struct plm_assay_result *results, size_t count,
                            const char *output, bool json, struct plm_error *error);

#endif
