/* Entries sorted by step, filled from the lines of evaluator.jsonl. */
#include "common/checkpoint/history.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/checkpoint/evaluator_report.h"
#include "common/metrics/metrics.h"

plm_status plm_history_wanted(const struct plm_config_evaluator *evaluator, unsigned *bits,
                              struct plm_error *error)
{
  *bits = 0;
  for (uint32_t i = 0; i < evaluator->split_count; i++) {
    enum plm_split split;
    PLM_TRY(plm_split_parse(evaluator->splits[i], &split, error));
    *bits |= 1u << split;
  }
  for (uint32_t i = 0; i < evaluator->set_count; i++) *bits |= 1u << (PLM_SPLIT_COUNT + i);
  return PLM_OK;
}

unsigned plm_history_tasks_due(const struct plm_config *config, uint64_t step)
{
  const uint64_t every =
      config->trainer.checkpoint.every > 0 ? config->trainer.checkpoint.every : 1;
  unsigned bits = 0;
  for (uint32_t i = 0; i < config->evaluator.task_count; i++) {
    const uint64_t apart = every * config->evaluator.tasks[i].every;
    if (step % apart == 0 || step == config->trainer.steps) bits |= 1u << (PLM_HISTORY_TASK + i);
  }
  return bits;
}

/* The index of the first entry with at least this step. */
static size_t history_place_of(const struct plm_history *history, uint64_t step)
{
  size_t low = 0, high = history->count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (history->entries[middle].step < step)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The entry of a step, which is added if it is missing. */
static struct plm_history_entry *entry_at(struct plm_history *history, uint64_t step)
{
  const size_t place = history_place_of(history, step);
  if (place < history->count && history->entries[place].step == step)
    return &history->entries[place];
  if (history->count == history->capacity) {
    history->capacity = history->capacity != 0 ? 2 * history->capacity : 64;
    history->entries = plm_realloc(history->entries, history->capacity * sizeof *history->entries);
  }
  memmove(history->entries + place + 1, history->entries + place,
          (history->count - place) * sizeof *history->entries);
  history->count++;
  history->entries[place] = (struct plm_history_entry){.step = step};
  PLM_ASSERT(place == 0 || history->entries[place - 1].step < step);
  PLM_ASSERT(place + 1 == history->count || step < history->entries[place + 1].step);
  return &history->entries[place];
}

const struct plm_history_entry *plm_history_find(const struct plm_history *history, uint64_t step)
{
  const size_t place = history_place_of(history, step);
  return place < history->count && history->entries[place].step == step ? &history->entries[place]
                                                                        : NULL;
}

static bool is_of(const struct plm_history_entry *entry, const struct plm_hash *identity)
{
  return identity == NULL || !entry->identified || plm_hash_equal(entry->identity, *identity);
}

void plm_history_add(struct plm_history *history, uint64_t step, const struct plm_hash *identity,
                     unsigned bit)
{
  struct plm_history_entry *entry = entry_at(history, step);
  if (!is_of(entry, identity)) entry->splits = 0;
  entry->identified = identity != NULL;
  if (identity != NULL) entry->identity = *identity;
  entry->splits |= 1u << bit;
  entry->skipped = entry->waits = false;
}

void plm_history_add_skip(struct plm_history *history, uint64_t step)
{
  *entry_at(history, step) = (struct plm_history_entry){.step = step, .skipped = true};
}

void plm_history_add_wait(struct plm_history *history, uint64_t step)
{
  struct plm_history_entry *entry = entry_at(history, step);
  entry->skipped = false;
  entry->waits = true;
}

unsigned plm_history_splits(const struct plm_history *history, uint64_t step,
                            const struct plm_hash *identity)
{
  const struct plm_history_entry *entry = plm_history_find(history, step);
  return entry != NULL && is_of(entry, identity) ? entry->splits : 0;
}

bool plm_history_settled(const struct plm_history *history, uint64_t step,
                         const struct plm_hash *identity, unsigned splits)
{
  const struct plm_history_entry *entry = plm_history_find(history, step);
  if (entry != NULL && entry->skipped) return true;
  return (plm_history_splits(history, step, identity) & splits) == splits;
}

static unsigned bit_of(const struct plm_history *history, const struct plm_report *report,
                       enum plm_split split)
{
  const char *set = plm_metrics_set(report->line);
  if (strcmp(set, PLM_OWN_SET) == 0) return split;
  for (uint32_t i = 0; history->evaluator != NULL && i < history->evaluator->set_count; i++) {
    const struct plm_config_set *known = &history->evaluator->sets[i];
    if (strcmp(known->name, set) == 0 && known->split == split) return PLM_SPLIT_COUNT + i;
  }
  for (uint32_t i = 0; history->evaluator != NULL && i < history->evaluator->task_count; i++)
    if (strcmp(history->evaluator->tasks[i].name, set) == 0) return PLM_HISTORY_TASK + i;
  return PLM_HISTORY_OTHER;
}

static void history_on_report(void *context, const struct plm_report *report)
{
  struct plm_history *history = context;
  enum plm_split split;
  if (report->waits)
    plm_history_add_wait(history, report->step);
  else if (report->skipped)
    plm_history_add_skip(history, report->step);
  else if (report->split != NULL && plm_split_parse(report->split, &split, NULL) == PLM_OK)
    plm_history_add(history, report->step, report->identified ? &report->identity : NULL,
                    bit_of(history, report, split));
}

plm_status plm_history_read(struct plm_history *history, const char *path, struct plm_error *error)
{
  return plm_reports_each(path, history_on_report, history, error);
}

void plm_history_deinit(struct plm_history *history)
{
  free(history->entries);
  *history = (struct plm_history){0};
}
