/* Metrics. One table (name, unit, kind, help) covers trainer, evaluator and packers. The JSONL
 * files are authoritative; TensorBoard and Prometheus show the same values.
 *
 * Exact fields are bit-identical after a resume and are printed so that they read back equal (at
 * most 17 digits). Each line is written as a whole. */
#ifndef PLM_COMMON_METRICS_METRICS_H
#define PLM_COMMON_METRICS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

enum plm_metric_kind {
  PLM_METRIC_EXACT,
  PLM_METRIC_MEASURED,
  PLM_METRIC_TEXT, /* words, true or false: cannot be plotted */
};
enum plm_metric_stage { PLM_STAGE_TRAINER, PLM_STAGE_EVALUATOR, PLM_STAGE_PACKER };

struct plm_metric_field {
  const char *name;
  enum plm_metric_stage stage;
  enum plm_metric_kind kind;
  const char *unit; /* "nats", "tokens/s", "" */
  const char *help;
};
/* The table, with its number of rows in *count. */
const struct plm_metric_field *plm_metric_table(size_t *count);
/* NULL: there is no such field. Of "NAME/PART", the field is NAME. */
const struct plm_metric_field *plm_metric_find(enum plm_metric_stage stage, const char *name);

/* Building a line: it begins with "v":1, and fields follow in the order of the calls. NaN and
 * infinities become null. */
struct cJSON;
struct cJSON *plm_metrics_line(void);
void plm_metrics_number(struct cJSON *line, const char *name, double value);
void plm_metrics_integer(struct cJSON *line, const char *name, uint64_t value); /* exact to 2^64 */
void plm_metrics_string(struct cJSON *line, const char *name, const char *value);

/* A value of a line: "loss", or a part of an object as TensorBoard names it,
 * "tokens_by_source/uniref". NULL without one; it belongs to the line. */
const struct cJSON *plm_metrics_value(const struct cJSON *line, const char *key);

/* The name of the run's own corpus among the sets that an evaluator reports on (evaluator.sets). */
#define PLM_OWN_SET "corpus"
/* The set that a line of evaluator.jsonl is about; PLM_OWN_SET if it names none, as lines of older
 * versions. It belongs to the line. */
const char *plm_metrics_set(const struct cJSON *line);
/* Whether a line of evaluator.jsonl is about a set of evaluator.sets. */
bool plm_metrics_is_extra(const struct cJSON *line);
/* What a line is about, as people see it: its split, with the set's name before it unless that is
 * the run's own: "valid", "refseq valid". Cut to size bytes. */
void plm_metrics_subject(const struct cJSON *line, char *text, size_t size);

/* A JSONL file to which lines are appended. */
struct plm_metrics_file;
/* Opens or creates the file. An incomplete last line (without newline) is cut off. */
plm_status plm_metrics_open(const char *path, struct plm_metrics_file **file,
                            struct plm_error *error);
/* Writes the line and '\n' in one write and deletes line, even if it fails. */
plm_status plm_metrics_write(struct plm_metrics_file *file, struct cJSON *line,
                             struct plm_error *error);
plm_status plm_metrics_sync(struct plm_metrics_file *file, struct plm_error *error);
uint64_t plm_metrics_size(const struct plm_metrics_file *file); /* bytes so far */
/* Cuts the file to the length that a checkpoint states. PLM_CORRUPT if it is shorter. */
plm_status plm_metrics_cut(struct plm_metrics_file *file, uint64_t size, struct plm_error *error);
void plm_metrics_close(struct plm_metrics_file *file);

/* Calls visit with each complete line that is a JSON object, from the first to the last, until
 * visit returns false. Other lines are skipped, and a missing file counts as empty. The line is
 * only valid during the call. */
plm_status plm_metrics_each(const char *path,
                            bool (*visit)(void *context, const struct cJSON *line), void *context,
                            struct plm_error *error);
/* The last complete line; PLM_NOT_FOUND if there is none. The caller deletes *line. */
plm_status plm_metrics_last(const char *path, struct cJSON **line, struct plm_error *error);

/* TensorBoard event files: each start writes a new one in DIR. If resumed_step >= 0, it begins with
 * a SessionLog START, which makes TensorBoard drop all events after that step. Scalars are
 * simple_value summaries; records are framed with masked CRC32C (TFRecord). */
struct plm_tensorboard;
plm_status plm_tensorboard_open(const char *directory, int64_t resumed_step,
                                struct plm_tensorboard **board, struct plm_error *error);
plm_status plm_tensorboard_scalar(struct plm_tensorboard *board, int64_t step, const char *tag,
                                  double value, struct plm_error *error);
plm_status plm_tensorboard_flush(struct plm_tensorboard *board, struct plm_error *error);
void plm_tensorboard_close(struct plm_tensorboard *board);

#endif
