/* Reads changes of trainer.batch_tokens from the history in a checkpoint's trainer.json. */
#include "common/plan/batch_history.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/text/strict_json.h"

static plm_status batch_history_add(struct plm_mixture_history *history, uint64_t s,
                                    uint64_t chunks, struct plm_error *error)
{
  const struct plm_mixture alone = {.count = 1, .weights = {1}, .final_weights = {-1}};
  if (chunks == 0 || chunks > UINT32_MAX)
    return plm_error_set(error, PLM_FORMAT, "the history has a step of %llu chunks",
                         (unsigned long long)chunks);
  plm_mixture_history_add(history, s, (uint32_t)chunks, &alone);
  return PLM_OK;
}

/* Whether a line of the history says that trainer.batch_tokens changed. */
static bool is_batch_change(const char *line, uint64_t *before, uint64_t *now)
{
  unsigned long long tokens[2];
  int length;
  if (line == NULL ||
      sscanf(line, "trainer.batch_tokens: %llu -> %llu%n", &tokens[0], &tokens[1], &length) != 2)
    return false;
  *before = tokens[0];
  *now = tokens[1];
  return line[length] == '\0';
}

static plm_status add_change(struct plm_mixture_history *history, const cJSON *entry,
                             uint64_t before, uint64_t now, struct plm_error *error)
{
  uint64_t s;
  if (!plm_json_count(cJSON_GetObjectItemCaseSensitive(entry, "step"), &s))
    return plm_error_set(error, PLM_FORMAT, "an entry of the history has no step");
  if (history->count == 0) PLM_TRY(batch_history_add(history, 0, before, error));
  return batch_history_add(history, s, now, error);
}

/* An entry without numbers was written by an earlier build, which kept only sentences, in tokens.
 */
static plm_status read_sentences(struct plm_mixture_history *history, const cJSON *entry,
                                 uint32_t max_length, struct plm_error *error)
{
  const cJSON *line;
  uint64_t before, now;
  cJSON_ArrayForEach(line, cJSON_GetObjectItemCaseSensitive(entry, "changes"))
  {
    if (is_batch_change(cJSON_GetStringValue(line), &before, &now))
      PLM_TRY(add_change(history, entry, before / max_length, now / max_length, error));
  }
  return PLM_OK;
}

static plm_status read_numbers(struct plm_mixture_history *history, const cJSON *entry,
                               const cJSON *numbers, struct plm_error *error)
{
  uint64_t before, now;
  if (!plm_json_count(cJSON_GetObjectItemCaseSensitive(numbers, "before"), &before) ||
      !plm_json_count(cJSON_GetObjectItemCaseSensitive(numbers, "now"), &now))
    return plm_error_set(error, PLM_FORMAT,
                         "step_chunks of an entry of the history are not two counts");
  return add_change(history, entry, before, now, error);
}

plm_status plm_batch_history_read(struct plm_mixture_history *history, const struct cJSON *changes,
                                  uint32_t max_length, uint32_t chunks, struct plm_error *error)
{
  const cJSON *entry;
  PLM_ASSERT(history->count == 0 && max_length > 0);
  cJSON_ArrayForEach(entry, changes)
  {
    const cJSON *numbers = cJSON_GetObjectItemCaseSensitive(entry, PLM_HISTORY_CHUNKS);
    PLM_TRY(numbers != NULL ? read_numbers(history, entry, numbers, error)
                            : read_sentences(history, entry, max_length, error));
  }
  return history->count > 0 ? PLM_OK : batch_history_add(history, 0, chunks, error);
}

uint64_t plm_batch_history_sum(const struct plm_mixture_history *history, uint64_t s)
{
  uint64_t sum = 0;
  for (size_t p = 0; p < history->count && history->parts[p].first < s; p++) {
    const struct plm_mixture_part *part = &history->parts[p];
    const uint64_t end = p + 1 < history->count && part[1].first < s ? part[1].first : s;
    sum += (end - part->first) * part->chunks;
  }
  return sum;
}
