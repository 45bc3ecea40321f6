/* The metrics of a run in Prometheus' text format: samples by name and labels (`stage`, `instance`,
 * `run`), with HELP and TYPE once for each name. A name is `plm_STAGE_FIELD`, with the field from
 * the table of metrics.
 *
 * Positions of the run and rates are gauges with the values of the last line. Times in milliseconds
 * (NAME_ms) are shown in seconds (NAME_seconds), because Prometheus wants base units. Counters
 * (`_total`) belong to a process of a stage and start at 0 with it. Not thread-safe. */
#ifndef PLM_COMMON_METRICS_PROMETHEUS_H
#define PLM_COMMON_METRICS_PROMETHEUS_H

#include <stdbool.h>

#include "common/base/text/text.h"
#include "common/metrics/metrics.h"

struct cJSON;
struct plm_prometheus;
/* run: the value of the label `run`, the name of the run folder. */
struct plm_prometheus *plm_prometheus_open(const char *run);
void plm_prometheus_close(struct plm_prometheus *metrics); /* NULL is fine */

/* A process of the stage has started: sets its counters to 0. */
void plm_prometheus_started(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                            const char *instance);
/* Takes a line of the stage's JSONL file, which sets the gauges. counted: the current process wrote
 * it, so it adds to the counters as well. */
void plm_prometheus_line(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                         const char *instance, const struct cJSON *line, bool counted);
/* Sets a value. name is the part after `plm_STAGE_`, from the table of metrics or from `extras` in
 * prometheus.c; other names are ignored. */
void plm_prometheus_set(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                        const char *instance, const char *name, double value);
/* The same with one more label, whose text (at most 255 bytes, printable) replaces the one before.
 */
void plm_prometheus_set_text(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                             const char *instance, const char *name, const char *label,
                             const char *text, double value);
/* Drops all samples of an instance that will not return; NULL: of all instances of the stage. */
void plm_prometheus_forget(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                           const char *instance);

void plm_prometheus_print(const struct plm_prometheus *metrics, struct plm_text *text);

#endif
