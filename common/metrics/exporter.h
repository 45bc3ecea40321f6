/* `--prometheus ADDRESS` of a stage that was started by hand: a thread serves the stage's metrics,
 * which it reads from the stage's JSONL file as that grows. Under `up`, the supervisor serves the
 * metrics of all stages instead. */
#ifndef PLM_COMMON_METRICS_EXPORTER_H
#define PLM_COMMON_METRICS_EXPORTER_H

#include "common/metrics/metrics.h"

struct plm_exporter;
/* Starts at the end of RUN/FILE, so call it after the stage has cut that file. If address is NULL,
 * it does nothing and *exporter is NULL. */
plm_status plm_exporter_open(const char *address, const char *run, const char *file,
                             enum plm_metric_stage stage, struct plm_exporter **exporter,
                             struct plm_error *error);
void plm_exporter_close(struct plm_exporter *exporter); /* NULL is fine */

#endif
