/* What has been reported. */
#include "evaluator/history.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "common/metrics/metrics.h"

/* Index of the first entry whose step is not below. */
static size_t place_of(const struct plm_history *history, uint64_t step)
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

struct plm_history_entry *plm_history_at(struct plm_history *history, uint64_t step)
{
  const size_t place = place_of(history, step);
  if (place < history->count && history->entries[place].step == step)
    return &history->entries[place];
  if (history->count == history->capacity) {
    const size_t capacity = history->capacity != 0 ? 2 * history->capacity : 64;
    struct plm_history_entry *entries =
        realloc(history->entries, capacity * sizeof *history->entries);
    if (entries == NULL) return NULL;
    history->entries = entries;
    history->capacity = capacity;
  }
  memmove(history->entries + place + 1, history->entries + place,
          (history->count - place) * sizeof *history->entries);
  history->count++;
  history->entries[place] = (struct plm_history_entry){.step = step};
  return &history->entries[place];
}

const struct plm_history_entry *plm_history_find(const struct plm_history *history, uint64_t step)
{
  const size_t place = place_of(history, step);
  return place < history->count && history->entries[place].step == step ? &history->entries[place]
                                                                        : NULL;
}

bool plm_history_settled(const struct plm_history *history, uint64_t step, unsigned splits)
{
  const struct plm_history_entry *entry = plm_history_find(history, step);
  return entry != NULL && (entry->skipped || (entry->splits & splits) == splits);
}

static bool read_line(void *context, const cJSON *line)
{
  struct plm_history *history = context;
  const cJSON *step = cJSON_GetObjectItemCaseSensitive(line, "step");
  const cJSON *split = cJSON_GetObjectItemCaseSensitive(line, "split");
  if (!cJSON_IsNumber(step) || step->valuedouble < 0) return true;
  struct plm_history_entry *entry = plm_history_at(history, (uint64_t)step->valuedouble);
  if (entry == NULL) return false;
  if (cJSON_HasObjectItem(line, "skipped")) entry->skipped = true;
  enum plm_split which;
  if (cJSON_IsString(split) && plm_split_parse(split->valuestring, &which, NULL) == PLM_OK)
    entry->splits |= 1u << which;
  return true;
}

plm_status plm_history_read(struct plm_history *history, const char *path, struct plm_error *error)
{
  return plm_metrics_each(path, read_line, history, error);
}

void plm_history_deinit(struct plm_history *history)
{
  free(history->entries);
  *history = (struct plm_history){0};
}
