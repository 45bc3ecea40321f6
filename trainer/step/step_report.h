/* Reports of a step: its line of trainer.jsonl, its TensorBoard scalars, and every few seconds a
 * line on stderr. The fields are described in doc/training.md#metrics. */
#ifndef PLM_TRAINER_STEP_STEP_REPORT_H
#define PLM_TRAINER_STEP_STEP_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/metrics/metrics.h"
#include "trainer/optimizer/optimizers.h"
#include "trainer/step/source_totals.h"
#include "trainer/step/step.h"

struct plm_step_line {
  uint64_t step; /* from 1 */
  const struct plm_step_result *result;
  const char *warning; /* plm_health_judge; NULL: none */
  struct plm_learning_rates rates;
  double mask_rate;
  uint64_t tokens;                           /* of the run */
  const struct plm_source_totals *by_source; /* of the step; NULL, or without sources: not told */
  double epoch;                              /* plm_data_cursor_epochs */
  uint64_t skipped_updates;                  /* of the run */
  bool exact;
  double step_s, data_wait_s, checkpoint_s; /* step_s includes data_wait_s, not checkpoint_s */
  double product_flops;                     /* plm_product_rate; 0 if not known, then mfu is null */
};

struct plm_step_report;
/* Appends to RUN/trainer.jsonl. A file longer than keep_bytes is cut there, because a resume
 * repeats the steps behind it; for a shorter one a warning is logged. resumed_step is -1 for a
 * fresh run. */
plm_status plm_step_report_open(const char *run, bool tensorboard, uint64_t keep_bytes,
                                int64_t resumed_step, uint64_t last_step,
                                struct plm_step_report **report, struct plm_error *error);
void plm_step_report_close(struct plm_step_report *report); /* NULL is fine */
struct plm_metrics_file *plm_step_report_file(struct plm_step_report *report);

/* Writes the line. If that fails, for example because the disk is full, lines wait in memory in
 * order and are tried again; if too many wait, the error is returned. */
plm_status plm_step_report_write(struct plm_step_report *report, const struct plm_step_line *line,
                                 struct plm_error *error);
/* Writes waiting lines and the TensorBoard file's buffer before a checkpoint, so that a resume
 * finds everything before its step in the files. PLM_OK if no line waits any more. */
plm_status plm_step_report_flush(struct plm_step_report *report, struct plm_error *error);

#endif
