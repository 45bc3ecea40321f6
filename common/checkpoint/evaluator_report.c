/* Takes the lines of evaluator.jsonl apart. */
#include "common/checkpoint/evaluator_report.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/metrics/metrics.h"

bool plm_report_of(const cJSON *line, struct plm_report *report)
{
  const cJSON *hex = cJSON_GetObjectItemCaseSensitive(line, "identity");
  const bool skipped = cJSON_HasObjectItem(line, "skipped");
  const bool intact = cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(line, "corrupt"));
  *report = (struct plm_report){.line = line,
                                .split = plm_json_string(line, "split", NULL),
                                .extra = plm_metrics_is_extra(line),
                                .skipped = skipped && !intact,
                                .waits = skipped && intact};
  report->identified =
      cJSON_IsString(hex) && plm_hash_from_hex(hex->valuestring, &report->identity, NULL) == PLM_OK;
  return plm_json_count(cJSON_GetObjectItemCaseSensitive(line, "step"), &report->step);
}

bool plm_report_is_of_split(const struct plm_report *report, const char *split)
{
  return !report->extra && report->split != NULL && strcmp(report->split, split) == 0;
}

double plm_report_number(const struct plm_report *report, const char *name)
{
  return plm_json_number(report->line, name, NAN);
}

/* ---- all of them --------------------------------------------------------------------------- */

struct visiting {
  void (*visit)(void *context, const struct plm_report *report);
  void *context;
};

static bool reports_on_line(void *context, const cJSON *line)
{
  const struct visiting *visiting = context;
  struct plm_report report;
  if (plm_report_of(line, &report)) visiting->visit(visiting->context, &report);
  return true;
}

plm_status plm_reports_each(const char *path,
                            void (*visit)(void *context, const struct plm_report *report),
                            void *context, struct plm_error *error)
{
  struct visiting visiting = {visit, context};
  return plm_metrics_each(path, reports_on_line, &visiting, error);
}
