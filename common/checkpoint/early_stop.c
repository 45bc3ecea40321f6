/* Reads the values of a metric from evaluator.jsonl and finds the best. */
#include "common/checkpoint/early_stop.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/strict_json.h"
#include "common/checkpoint/evaluator_report.h"
#include "common/run/log_tail.h"

struct plm_reported_value {
  uint64_t step;
  double number;
};

void plm_early_stop_deinit(struct plm_early_stop_reports *reports)
{
  free(reports->tail);
  free(reports->values);
  *reports = (struct plm_early_stop_reports){0};
}

/* Lines come almost in the order of their steps, so the search begins at the end. */
static void put(struct plm_early_stop_reports *reports, uint64_t step, double number)
{
  size_t at = reports->count;
  while (at > 0 && reports->values[at - 1].step > step) at--;
  if (at > 0 && reports->values[at - 1].step == step) {
    reports->values[at - 1].number = number;
    return;
  }
  if (reports->count == reports->capacity) {
    reports->capacity = reports->capacity == 0 ? 64 : 2 * reports->capacity;
    reports->values = plm_realloc(reports->values, reports->capacity * sizeof *reports->values);
  }
  memmove(reports->values + at + 1, reports->values + at,
          (reports->count - at) * sizeof *reports->values);
  reports->values[at] = (struct plm_reported_value){step, number};
  reports->count++;
}

struct following {
  const struct plm_early_stop_rule *rule;
  struct plm_early_stop_reports *reports;
  bool lacking; /* a line was left out for lack of memory */
};

static void early_stop_on_line(void *context, const char *text)
{
  struct following *following = context;
  struct plm_report report;
  cJSON *line = plm_json_line(text);
  following->lacking |= line == NULL && plm_json_no_memory();
  if (plm_report_of(line, &report) && plm_report_is_of_split(&report, following->rule->split)) {
    const double number = plm_report_number(&report, following->rule->metric);
    if (!isnan(number)) put(following->reports, report.step, number);
  }
  cJSON_Delete(line);
}

/* The next call reads the file from its start. */
static void forget(struct plm_early_stop_reports *reports)
{
  reports->count = 0;
  plm_tail_move(reports->tail, 0);
}

static plm_status follow(const char *path, const struct plm_early_stop_rule *rule,
                         struct plm_early_stop_reports *reports, struct plm_error *error)
{
  struct following following = {.rule = rule, .reports = reports};
  if (reports->tail == NULL) {
    reports->tail = plm_alloc(sizeof *reports->tail);
    plm_tail_init(reports->tail, path, 0);
  }
  do {
    if (reports->tail->cut) forget(reports); /* what it had may have hidden what it has */
    plm_tail_read(reports->tail, 0, early_stop_on_line, &following);
  } while (reports->tail->cut && reports->tail->failure == 0);
  if (!following.lacking) return plm_tail_check(reports->tail, error);
  forget(reports);
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for a line of %s", path);
}

static void find_best(const struct plm_early_stop_rule *rule, uint64_t until,
                      const struct plm_early_stop_reports *reports, struct plm_early_stop *found)
{
  for (size_t i = 0; i < reports->count && reports->values[i].step <= until; i++) {
    const struct plm_reported_value *value = &reports->values[i];
    const bool better = found->reported == 0 ||
                        (rule->higher ? value->number > found->best : value->number < found->best);
    found->reported++;
    found->since++;
    if (!better) continue;
    found->since = 0;
    found->best = value->number;
    found->best_step = value->step;
  }
}

plm_status plm_early_stop_read(const char *path, const struct plm_early_stop_rule *rule,
                               uint64_t until, struct plm_early_stop_reports *reports,
                               struct plm_early_stop *found, struct plm_error *error)
{
  *found = (struct plm_early_stop){.best = NAN};
  PLM_TRY(follow(path, rule, reports, error));
  find_best(rule, until, reports, found);
  return PLM_OK;
}
