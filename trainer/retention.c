/* Retention: the decision, and what it needs to know of the evaluator's reports. */
#include "trainer/retention.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"

enum { REPORTS_LIMIT = 1 << 28 }; /* bytes of evaluator.jsonl */

static bool among_best(const struct plm_retained *checkpoints, size_t count, size_t i,
                       uint32_t keep_best)
{
  if (isnan(checkpoints[i].loss)) return false;
  size_t better = 0; /* a tie goes to the later one */
  for (size_t j = 0; j < count; j++)
    better += checkpoints[j].loss < checkpoints[i].loss ||
              (checkpoints[j].loss == checkpoints[i].loss && j > i);
  return better < keep_best;
}

void plm_retention_decide(const struct plm_config_checkpoint *rules, bool has_evaluator,
                          struct plm_retained *checkpoints, size_t count)
{
  size_t unreported = 0;
  for (size_t i = 0; i < count; i++) {
    const bool kept = checkpoints[i].newest_valid || i + rules->keep_last >= count ||
                      (rules->keep_every != 0 && checkpoints[i].step % rules->keep_every == 0) ||
                      among_best(checkpoints, count, i, rules->keep_best);
    checkpoints[i].remove = !kept;
    unreported += !checkpoints[i].reported;
  }
  if (!has_evaluator) return;
  for (size_t i = 0; i < count; i++) { /* the oldest first */
    if (!checkpoints[i].remove || checkpoints[i].reported) continue;
    if (unreported > rules->max_unevaluated)
      unreported--;
    else
      checkpoints[i].remove = false;
  }
}

static struct plm_retained *find(struct plm_retained *checkpoints, size_t count, uint64_t step)
{
  for (size_t i = 0; i < count; i++)
    if (checkpoints[i].step == step) return &checkpoints[i];
  return NULL;
}

static void read_report(const char *line, size_t length, const char *split,
                        struct plm_retained *checkpoints, size_t count)
{
  cJSON *report = cJSON_ParseWithLength(line, length);
  const cJSON *step = cJSON_GetObjectItemCaseSensitive(report, "step");
  struct plm_retained *checkpoint = cJSON_IsNumber(step) && step->valuedouble >= 0
                                        ? find(checkpoints, count, (uint64_t)step->valuedouble)
                                        : NULL;
  if (checkpoint != NULL) {
    checkpoint->reported = true;
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(report, "split");
    const cJSON *loss = cJSON_GetObjectItemCaseSensitive(report, "loss");
    if (cJSON_IsNumber(loss) && split != NULL && cJSON_IsString(name) &&
        strcmp(name->valuestring, split) == 0)
      checkpoint->loss = loss->valuedouble;
  }
  cJSON_Delete(report);
}

plm_status plm_retention_read_reports(const char *path, const char *split,
                                      struct plm_retained *checkpoints, size_t count,
                                      struct plm_error *error)
{
  if (!plm_file_exists(path)) return PLM_OK;
  char *text;
  size_t size;
  PLM_TRY(plm_file_read(path, REPORTS_LIMIT, &text, &size, error));
  for (char *line = text, *end; (end = memchr(line, '\n', size - (size_t)(line - text))) != NULL;
       line = end + 1)
    read_report(line, (size_t)(end - line), split, checkpoints, count);
  free(text);
  return PLM_OK;
}
