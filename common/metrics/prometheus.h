/* The metrics of a run in Prometheus' text format: samples by name and labels (`stage`, `instance`,
 * `run`), HELP and TYPE once a name. The names are `plm_STAGE_FIELD`, from the metrics' table.
 *
 * Positions of the run and rates are gauges, the last line's values; counters (`_total`) belong to
 * a process of a stage and start at 0 with it. One thread at a time. */
#ifndef PLM_COMMON_METRICS_PROMETHEUS_H
#define PLM_COMMON_METRICS_PROMETHEUS_H

#include <stdbool.h>

#include "common/base/text.h"
#include "common/metrics/metrics.h"

struct cJSON;
struct plm_prometheus;
/* run: the label's value, a run folder's name. The caller closes. */
plm_status plm_prometheus_open(const char *run, struct plm_prometheus **metrics,
                               struct plm_error *error);
void plm_prometheus_close(struct plm_prometheus *metrics); /* NULL is fine */

/* A process of the stage started: its counters are 0. */
void plm_prometheus_started(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                            const char *instance);
/* A line of the stage's JSONL file. counted: it is this process's and adds to the counters; an
 * earlier one's only sets gauges. */
void plm_prometheus_line(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                         const char *instance, const struct cJSON *line, bool counted);
/* One value; name is the part after `plm_STAGE_`, of the metrics' table or of those in
 * prometheus.c. Others are passed over, so that a line may hold more. */
void plm_prometheus_set(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                        const char *instance, const char *name, double value);
/* Everything of an instance that is gone for good; NULL: of all instances of the stage. */
void plm_prometheus_forget(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                           const char *instance);

void plm_prometheus_print(const struct plm_prometheus *metrics, struct plm_text *text);

#endif
