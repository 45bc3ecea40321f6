/* Metrics: one table (name, unit, kind, help) for trainer, evaluator and packers; JSONL is the
 * truth; TensorBoard and Prometheus are views of it.
 *
 * Exact fields are printed so that they read back equal ("%.17g" or shorter). A line is flushed
 * whole. Fields are operations.md's. */
#ifndef PLM_COMMON_METRICS_METRICS_H
#define PLM_COMMON_METRICS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

enum plm_metric_kind {
  PLM_METRIC_EXACT,
  PLM_METRIC_MEASURED,
  PLM_METRIC_TEXT, /* words, or true and false: no curve */
};
enum plm_metric_stage { PLM_STAGE_TRAINER, PLM_STAGE_EVALUATOR, PLM_STAGE_PACKER };

struct plm_metric_field {
  const char *name;
  enum plm_metric_stage stage;
  enum plm_metric_kind kind;
  const char *unit; /* "nats", "tokens/s", "" */
  const char *help;
};
/* The whole table; count through the pointer. */
const struct plm_metric_field *plm_metric_table(size_t *count);
const struct plm_metric_field *plm_metric_find(enum plm_metric_stage stage, const char *name);

/* One line being built. Order of calls is order in the line; "v":1 comes first. NaN and
 * infinities become null. */
struct cJSON;
struct cJSON *plm_metrics_line(void);
void plm_metrics_number(struct cJSON *line, const char *name, double value);
void plm_metrics_integer(struct cJSON *line, const char *name, uint64_t value); /* exact to 2^64 */
void plm_metrics_string(struct cJSON *line, const char *name, const char *value);

/* An append-only JSONL file. */
struct plm_metrics_file;
/* Creates or appends. A torn last line (no newline) is cut. */
plm_status plm_metrics_open(const char *path, struct plm_metrics_file **file,
                            struct plm_error *error);
/* Writes line and '\n' with one write; deletes line. */
plm_status plm_metrics_write(struct plm_metrics_file *file, struct cJSON *line,
                             struct plm_error *error);
plm_status plm_metrics_sync(struct plm_metrics_file *file, struct plm_error *error);
uint64_t plm_metrics_size(const struct plm_metrics_file *file); /* bytes so far */
/* Cuts to size bytes: a resume at its checkpoint. */
plm_status plm_metrics_cut(struct plm_metrics_file *file, uint64_t size, struct plm_error *error);
void plm_metrics_close(struct plm_metrics_file *file);

/* Calls visit with each whole line that is a JSON object, first to last; false ends the walk. A
 * missing file is an empty one; other lines are passed over. The line is the walk's. */
plm_status plm_metrics_each(const char *path,
                            bool (*visit)(void *context, const struct cJSON *line), void *context,
                            struct plm_error *error);
/* The last whole line; PLM_NOT_FOUND when there is none. The caller deletes *line. */
plm_status plm_metrics_last(const char *path, struct cJSON **line, struct plm_error *error);

/* TensorBoard event files: a new one at each start under DIR. resumed_step >= 0 begins with a
 * SessionLog START at that step, so that TensorBoard drops what came after it. Scalars are written
 * as simple_value summaries; records are masked CRC32C framed (TFRecord). */
struct plm_tensorboard;
plm_status plm_tensorboard_open(const char *directory, int64_t resumed_step,
                                struct plm_tensorboard **board, struct plm_error *error);
plm_status plm_tensorboard_scalar(struct plm_tensorboard *board, int64_t step, const char *tag,
                                  double value, struct plm_error *error);
plm_status plm_tensorboard_flush(struct plm_tensorboard *board, struct plm_error *error);
void plm_tensorboard_close(struct plm_tensorboard *board);

#endif
