/* `--prometheus ADDRESS` of a stage that was started by hand: a thread that serves the stage's own
 * metrics, read from its JSONL file as it grows. (With `up` the supervisor serves all stages'.) */
#ifndef PLM_COMMON_METRICS_EXPORTER_H
#define PLM_COMMON_METRICS_EXPORTER_H

#include "common/metrics/metrics.h"

struct plm_exporter;
/* Opens at the end of RUN/FILE: call it once the stage has cut that file. address NULL: does
 * nothing, *exporter is NULL. */
plm_status plm_exporter_open(const char *address, const char *run, const char *file,
                             enum plm_metric_stage stage, struct plm_exporter **exporter,
                             struct plm_error *error);
void plm_exporter_close(struct plm_exporter *exporter); /* NULL is fine */

#endif
