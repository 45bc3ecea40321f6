/* The root cause of a run's end. */
#ifndef PLM_STAGES_SUPERVISOR_REPORT_SUPERVISOR_REPORT_H
#define PLM_STAGES_SUPERVISOR_REPORT_SUPERVISOR_REPORT_H

#include <stdbool.h>

#include "common/base/text/text.h"
#include "stages/supervisor/supervised.h"

/* Appends what failed, with the root cause first, and leaves that in the run folder. Returns the
 * exit code that the failures give the run, 0 if none of them fails it. chosen: the kinds that the
 * run has. */
int stages_judge_failures(const struct stages *stages, const bool chosen[PLM_KIND_COUNT],
                          struct plm_text *text);

#endif
