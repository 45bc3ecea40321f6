/* Writes the lines of the watching evaluator, and keeps their history. */
#include "evaluator/watch/watch_journal.h"

#include <inttypes.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/run/run.h"

plm_status plm_watch_journal_open(struct plm_watch_journal *journal,
                                  const struct plm_config *config, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  journal->history.evaluator = &config->evaluator;
  PLM_TRY(plm_path_join(path, config->run, PLM_RUN_EVALUATOR_METRICS, error));
  PLM_TRY(plm_metrics_open(path, &journal->metrics, error));
  return plm_history_read(&journal->history, path, error);
}

void plm_watch_journal_close(struct plm_watch_journal *journal)
{
  plm_metrics_close(journal->metrics);
  plm_history_deinit(&journal->history);
}

plm_status plm_watch_write(struct plm_watch_journal *journal, cJSON *line, struct plm_error *error)
{
  const plm_status status = plm_lock_watch(journal->lock, error);
  if (status != PLM_OK) {
    cJSON_Delete(line);
    return status;
  }
  PLM_TRY(plm_metrics_write(journal->metrics, line, error));
  journal->lines++;
  return plm_metrics_sync(journal->metrics, error);
}

static plm_status write_skip(struct plm_watch_journal *journal, uint64_t step,
                             enum plm_watch_skip_kind kind, const char *why,
                             struct plm_error *error)
{
  cJSON *line = plm_metrics_line();
  plm_metrics_integer(line, "step", step);
  plm_metrics_string(line, "skipped", why);
  if (kind != PLM_SKIP_MISSING) cJSON_AddBoolToObject(line, "corrupt", kind == PLM_SKIP_CORRUPT);
  plm_metrics_number(line, "time", plm_clock_wall_s());
  return plm_watch_write(journal, line, error);
}

plm_status plm_watch_skip(struct plm_watch_journal *journal, uint64_t step,
                          enum plm_watch_skip_kind kind, const char *why, struct plm_error *error)
{
  plm_warning("step %" PRIu64 " is skipped: %s", step, why);
  PLM_TRY(write_skip(journal, step, kind, why, error));
  plm_history_add_skip(&journal->history, step);
  return PLM_OK;
}

void plm_watch_wait(struct plm_watch_journal *journal, uint64_t step, const char *why)
{
  struct plm_error error = {0};
  const struct plm_history_entry *entry = plm_history_find(&journal->history, step);
  if (entry != NULL && (entry->waits || entry->skipped)) return;
  plm_status status = write_skip(journal, step, PLM_SKIP_UNREAD, why, &error);
  if (status == PLM_OK) plm_history_add_wait(&journal->history, step);
  if (status != PLM_OK) plm_log_error(&error);
}
