/* Finds steps that are gone, and says why as far as it is known. */
#include "evaluator/watch/missing_steps.h"

#include <stdio.h>

#include "common/base/files/file.h"
#include "common/checkpoint/checkpoint.h"

/* The first multiple of `every` after the newest step that was evaluated. Earlier multiples were
 * looked for when that step was evaluated, with the `every` of that time, which a resume may have
 * changed. */
static uint64_t first_due(const struct plm_history *history, uint64_t every)
{
  for (size_t i = history->count; i-- > 0;)
    if (history->entries[i].splits != 0) return (history->entries[i].step / every + 1) * every;
  return 0;
}

static const char deleted[] = "deleted before evaluation";

/* A step was due and is missing, but a later one exists: somebody deleted it, unless the later
 * checkpoint records that it was never published. */
static plm_status report_missing(struct plm_watch_journal *journal, const char *folder,
                                 uint64_t step, uint64_t later, struct plm_error *error)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], directory[PLM_PATH_SIZE], why[600], text[700];
  plm_checkpoint_name(later, name);
  PLM_TRY(plm_path_join(directory, folder, name, error));
  const bool never = plm_seen_unpublished(directory, step, why, sizeof why);
  snprintf(text, sizeof text, "not published: %s", never ? why : "");
  return plm_watch_skip(journal, step, PLM_SKIP_MISSING, never ? text : deleted, error);
}

static bool is_listed(const struct plm_published *published, uint64_t step)
{
  for (size_t i = 0; i < published->count; i++)
    if (published->steps[i] == step) return true;
  return false;
}

plm_status plm_missing_report(struct plm_watch_journal *journal, const struct plm_seen_list *list,
                              const struct plm_published *published, unsigned bits,
                              struct plm_error *error)
{
  const uint64_t *steps = published->steps, every = published->every;
  const size_t count = published->count;
  for (size_t i = 0; i < list->count; i++) {
    const struct plm_seen *seen = &list->items[i];
    const uint64_t step = seen->step;
    if (!is_listed(published, step) &&
        !plm_history_settled(&journal->history, step, plm_seen_identity(seen), bits))
      PLM_TRY(plm_watch_skip(journal, step, PLM_SKIP_MISSING, deleted, error));
  }
  for (size_t i = 0; i < journal->history.count; i++) {
    const struct plm_history_entry *entry = &journal->history.entries[i];
    if (entry->waits && !is_listed(published, entry->step))
      PLM_TRY(plm_watch_skip(journal, entry->step, PLM_SKIP_MISSING, deleted, error));
  }
  if (count == 0 || every == 0) return PLM_OK;
  size_t next = 0;
  for (uint64_t step = first_due(&journal->history, every); step < steps[count - 1];
       step += every) {
    while (next < count && steps[next] < step) next++;
    if (next < count && steps[next] == step) continue;
    if (!plm_history_settled(&journal->history, step, NULL, bits))
      PLM_TRY(report_missing(journal, published->folder, step, steps[count - 1], error));
  }
  return PLM_OK;
}
