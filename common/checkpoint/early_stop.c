/* Reads the values of a metric from evaluator.jsonl and finds the best. */
#include "common/checkpoint/early_stop.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/strict_json.h"
#include "common/metrics/metrics.h"

enum { REPORTS_LIMIT = 1 << 28, REPORT_VALUES = 1 << 16 };

struct value {
  uint64_t step;
  double number;
};

struct values {
  struct value *entries;
  size_t count, capacity;
};

/* Lines come almost in the order of their steps, so the search begins at the end. */
static void put(struct values *values, uint64_t step, double number)
{
  size_t at = values->count;
  while (at > 0 && values->entries[at - 1].step > step) at--;
  if (at > 0 && values->entries[at - 1].step == step) {
    values->entries[at - 1].number = number;
    return;
  }
  if (values->count == values->capacity) {
    values->capacity = values->capacity == 0 ? 64 : 2 * values->capacity;
    values->entries = plm_realloc(values->entries, values->capacity * sizeof *values->entries);
  }
  memmove(values->entries + at + 1, values->entries + at,
          (values->count - at) * sizeof *values->entries);
  values->entries[at] = (struct value){step, number};
  values->count++;
}

static void read_line(const char *line, size_t length, const struct plm_early_stop_rule *rule,
                      struct values *values)
{
  cJSON *report = plm_json_bounded(line, length, REPORT_VALUES);
  const cJSON *step = cJSON_GetObjectItemCaseSensitive(report, "step");
  const cJSON *split = cJSON_GetObjectItemCaseSensitive(report, "split");
  const cJSON *number = cJSON_GetObjectItemCaseSensitive(report, rule->metric);
  if (cJSON_IsNumber(step) && step->valuedouble >= 0 && step->valuedouble <= (double)rule->until &&
      cJSON_IsString(split) && strcmp(split->valuestring, rule->split) == 0 &&
      cJSON_IsNumber(number) && !plm_metrics_is_extra(report))
    put(values, (uint64_t)step->valuedouble, number->valuedouble);
  cJSON_Delete(report);
}

plm_status plm_early_stop_read(const char *path, const struct plm_early_stop_rule *rule,
                               struct plm_early_stop *found, struct plm_error *error)
{
  struct values values = {0};
  char *text;
  bool exists;
  size_t size;
  *found = (struct plm_early_stop){.best = NAN};
  PLM_TRY(plm_file_look(path, &exists, error));
  if (!exists) return PLM_OK;
  PLM_TRY(plm_file_read(path, REPORTS_LIMIT, &text, &size, error));
  for (char *line = text, *end; (end = memchr(line, '\n', size - (size_t)(line - text))) != NULL;
       line = end + 1)
    read_line(line, (size_t)(end - line), rule, &values);
  free(text);
  for (size_t i = 0; i < values.count; i++) {
    const struct value *value = &values.entries[i];
    const bool better = found->reported == 0 ||
                        (rule->higher ? value->number > found->best : value->number < found->best);
    found->reported++;
    found->since++;
    if (!better) continue;
    found->since = 0;
    found->best = value->number;
    found->best_step = value->step;
  }
  free(values.entries);
  return PLM_OK;
}
