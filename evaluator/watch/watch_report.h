/* What a watching evaluator reports about one checkpoint on one held-out set: a line for
 * evaluator.jsonl, scalars for TensorBoard, and a line of the log. */
#ifndef PLM_EVALUATOR_WATCH_WATCH_REPORT_H
#define PLM_EVALUATOR_WATCH_WATCH_REPORT_H

#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/metrics/metrics.h"
#include "evaluator/evaluate/evaluate.h"
#include "evaluator/watch/held_out.h"

struct plm_watch_report {
  uint64_t step;
  struct plm_hash identity; /* of the checkpoint's weights */
  const char *weights;      /* "model" or "ema" */
  const struct plm_held_out *held_out;
  double baseline_entropy;
  const struct plm_evaluation_result *result;
  const char *skipped; /* why there is no result, for example labels that do not fit; or NULL */
};

/* The beginning of a line about a checkpoint, and its end: the seconds it took, and lag_steps
 * unless trainer_path, the trainer's metrics, is NULL. The caller owns it. */
struct cJSON *plm_watch_line_begin(uint64_t step, const struct plm_hash *identity, const char *set,
                                   const char *split);
void plm_watch_line_end(struct cJSON *line, uint64_t step, double seconds,
                        const char *trainer_path);

/* The line, without lag_steps if trainer_path, the trainer's metrics, is NULL. The caller owns it.
 */
struct cJSON *plm_watch_report_line(const struct plm_watch_report *report,
                                    const char *trainer_path);
/* Tags are SPLIT/METRIC for the run's own corpus and SET/SPLIT/METRIC for another set. A failure is
 * only logged, because evaluator.jsonl is the record. board NULL: nothing is written. */
void plm_watch_report_board(const struct plm_watch_report *report, struct plm_tensorboard *board);
/* The measures of a line of a task, as it was read: tags are NAME/METRIC, and NAME/baseline/METRIC.
 */
void plm_watch_task_board(uint64_t step, const struct cJSON *line, struct plm_tensorboard *board);
void plm_watch_task_log(uint64_t step, const struct cJSON *line);
/* The same for the settings of the run and which metrics compare runs, into the folder of the event
 * files; and that the run is complete. */
void plm_watch_report_settings(const struct plm_config *config,
                               const struct plm_held_out_list *held_out, const char *directory);
void plm_watch_report_complete(const char *directory);
void plm_watch_report_log(const struct plm_watch_report *report);

#endif
