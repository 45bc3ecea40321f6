/* What a step tells the world: its line of trainer.jsonl, TensorBoard, and now and then a line for
 * people on stderr. Fields: operations.md, "Metrics". */
#ifndef PLM_TRAINER_STEP_REPORT_H
#define PLM_TRAINER_STEP_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/metrics/metrics.h"
#include "trainer/optimizers.h"
#include "trainer/step.h"

struct plm_step_line {
  uint64_t step; /* from 1 */
  const struct plm_step_result *result;
  struct plm_learning_rates rates;
  double mask_rate;
  uint64_t tokens;          /* of the run */
  uint64_t skipped_updates; /* of the run */
  bool exact;
  double step_s, data_wait_s, checkpoint_s; /* step_s holds data_wait_s, not checkpoint_s */
  double product_flops;                     /* 0: not known, mfu is null */
};

struct plm_step_report;
/* Appends to RUN/trainer.jsonl; a file longer than keep_bytes is cut there (the resume's rule), a
 * shorter one is taken as it is, with a warning. resumed_step < 0: a fresh run. */
plm_status plm_step_report_open(const char *run, bool tensorboard, uint64_t keep_bytes,
                                int64_t resumed_step, uint64_t last_step,
                                struct plm_step_report **report, struct plm_error *error);
void plm_step_report_close(struct plm_step_report *report); /* NULL is fine */
struct plm_metrics_file *plm_step_report_file(struct plm_step_report *report);

/* Writes the line. A disk that is full now may have room later: lines wait in memory, in order, up
 * to a limit; beyond it the error is returned. */
plm_status plm_step_report_write(struct plm_step_report *report, const struct plm_step_line *line,
                                 struct plm_error *error);
/* Tries to write what waits, the TensorBoard file's buffer, too: a resume from the checkpoint that
 * is due goes on behind it. PLM_OK when no line waits any more. */
plm_status plm_step_report_flush(struct plm_step_report *report, struct plm_error *error);

#endif
