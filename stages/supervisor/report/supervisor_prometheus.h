/* metrics.prometheus: one listener for the whole run. The metrics of the trainer and the evaluator
 * come from their JSONL files, those of the packers from the peers files of their consumers, and
 * readiness and restarts from the process table. */
#ifndef PLM_STAGES_SUPERVISOR_REPORT_SUPERVISOR_PROMETHEUS_H
#define PLM_STAGES_SUPERVISOR_REPORT_SUPERVISOR_PROMETHEUS_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/metrics/http.h"
#include "common/metrics/prometheus.h"
#include "common/run/log_tail.h"
#include "stages/supervisor/report/supervisor_screen.h"
#include "stages/supervisor/supervised.h"

/* The source of the trainer's or the evaluator's metrics: its JSONL file. */
struct exported {
  struct plm_tail tail;
  bool counted; /* new lines were written since `up` started, so they advance counters */
};

/* http is NULL if metrics.prometheus is not set. */
struct exporter {
  const struct stages *stages;
  struct screen *screen;
  struct plm_http *http;
  struct plm_prometheus *metrics;
  struct exported files[2]; /* trainer, evaluator */
};

/* Listens, and says where. The caller has set stages and screen. */
plm_status exporter_open(struct exporter *exporter, struct plm_error *error);
/* Called after each start of a stage: its counters begin anew. */
void exporter_started(struct exporter *exporter, const struct supervised *stage);
/* Reads new lines of the stages' files, and serves HTTP clients after a poll of the descriptors
 * that plm_http_fill gave. */
void exporter_update(struct exporter *exporter);
void exporter_close(struct exporter *exporter);

#endif
