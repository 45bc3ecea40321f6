/* What the watching evaluator has reported in its metrics: the file, and the history of its lines,
 * which says what is left to evaluate. */
#ifndef PLM_EVALUATOR_WATCH_WATCH_JOURNAL_H
#define PLM_EVALUATOR_WATCH_WATCH_JOURNAL_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/checkpoint/history.h"
#include "common/config/config.h"
#include "common/metrics/metrics.h"

struct plm_watch_journal {
  struct plm_lock *lock; /* on the run; the owner takes and releases it */
  struct plm_metrics_file *metrics;
  struct plm_history history;
  uint64_t lines; /* written by this process */
};

/* Opens the file in the run's folder, and reads what earlier evaluators wrote. config is borrowed.
 */
plm_status plm_watch_journal_open(struct plm_watch_journal *journal,
                                  const struct plm_config *config, struct plm_error *error);
void plm_watch_journal_close(struct plm_watch_journal *journal);

/* Takes line. Retention deletes on its word, so it must survive a power cut. */
plm_status plm_watch_write(struct plm_watch_journal *journal, cJSON *line, struct plm_error *error);

/* Why a step is not evaluated. Retention treats a checkpoint that is corrupt as reported, but not
 * one that could not be read. */
enum plm_watch_skip_kind { PLM_SKIP_MISSING, PLM_SKIP_CORRUPT, PLM_SKIP_UNREAD };
/* Reports that a step is never evaluated. */
plm_status plm_watch_skip(struct plm_watch_journal *journal, uint64_t step,
                          enum plm_watch_skip_kind kind, const char *why, struct plm_error *error);
/* The checkpoint could not be read and is tried again. One line tells the next evaluator that it
 * existed, in case this one is killed and the checkpoint is deleted. What kept the checkpoint from
 * being read may also keep the line from being written; the evaluator continues without it. */
void plm_watch_wait(struct plm_watch_journal *journal, uint64_t step, const char *why);

#endif
