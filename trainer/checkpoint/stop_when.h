/* trainer.stop_when: whether the evaluator's reports say that a run should end before its last
 * step.
 */
#ifndef PLM_TRAINER_CHECKPOINT_STOP_WHEN_H
#define PLM_TRAINER_CHECKPOINT_STOP_WHEN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/checkpoint/early_stop.h"
#include "common/config/config.h"
#include "common/run/done.h"

/* Reads evaluator.jsonl of the run folder on, up to the reports about this step. True, and a line
 * in the log, if trainer.stop_when.patience checkpoints have been reported since the best one. A
 * file that cannot be read is only a warning. */
bool plm_stop_when(const char *run, const struct plm_config *config, uint64_t step,
                   struct plm_early_stop_reports *reports);
/* Notes in DONE that this ended the run. */
void plm_stop_when_note(const struct plm_config *config, struct plm_done *done);

#endif
