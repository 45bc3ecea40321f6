/* Reads the values of a metric from evaluator.jsonl and finds the best. */
#include "common/checkpoint/early_stop.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/numbers/hash.h"
#include "common/base/text/strict_json.h"
#include "common/metrics/metrics.h"

enum { REPORTS_LIMIT = 1 << 28, REPORT_VALUES = 1 << 16 };

struct plm_reported_value {
  uint64_t step;
  double number;
};

void plm_early_stop_deinit(struct plm_early_stop_reports *reports)
{
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

static plm_status no_memory(size_t size, const char *path, struct plm_error *error)
{
  return plm_error_set(error, PLM_NO_MEMORY, "no memory to read %zu bytes of %s", size, path);
}

static plm_status read_line(const char *line, size_t length, const struct plm_early_stop_rule *rule,
                            struct plm_early_stop_reports *reports, const char *path,
                            struct plm_error *error)
{
  uint64_t step;
  cJSON *report = plm_json_bounded(line, length, REPORT_VALUES);
  if (report == NULL && plm_json_no_memory()) return no_memory(length, path, error);
  const cJSON *split = cJSON_GetObjectItemCaseSensitive(report, "split");
  const cJSON *number = cJSON_GetObjectItemCaseSensitive(report, rule->metric);
  if (plm_json_count(cJSON_GetObjectItemCaseSensitive(report, "step"), &step) &&
      cJSON_IsString(split) && strcmp(split->valuestring, rule->split) == 0 &&
      cJSON_IsNumber(number) && !plm_metrics_is_extra(report))
    put(reports, step, number->valuedouble);
  cJSON_Delete(report);
  return PLM_OK;
}

/* Whether the file still begins with what was read: its last line is where it was. */
static plm_status check_begin(int file, struct plm_early_stop_reports *reports, const char *path,
                              struct plm_error *error)
{
  if (reports->read == 0) return PLM_OK;
  char *line = malloc(reports->last_size);
  if (line == NULL) return no_memory(reports->last_size, path, error);
  const plm_status status = plm_file_read_at(file, line, reports->last_size,
                                             reports->read - reports->last_size, path, error);
  const bool same =
      status == PLM_OK && plm_hash64_bytes(line, reports->last_size) == reports->last_hash;
  free(line);
  if (status != PLM_OK && status != PLM_CORRUPT) return status; /* PLM_CORRUPT: it is shorter */
  if (!same) plm_early_stop_deinit(reports);
  return PLM_OK;
}

/* Reads the lines that follow; an unfinished one is left for the next call. */
static plm_status read_more(int file, const char *path, const struct plm_early_stop_rule *rule,
                            struct plm_early_stop_reports *reports, struct plm_error *error)
{
  struct stat info;
  if (fstat(file, &info) != 0) return plm_error_errno(error, "cannot stat %s", path);
  if ((uint64_t)info.st_size <= reports->read) return PLM_OK;
  const uint64_t size = (uint64_t)info.st_size - reports->read;
  if (size > REPORTS_LIMIT)
    return plm_error_set(error, PLM_LIMIT, "%s has more than %d bytes", path, REPORTS_LIMIT);
  char *text = malloc(size);
  if (text == NULL) return no_memory(size, path, error);
  plm_status status = plm_file_read_at(file, text, size, reports->read, path, error);
  for (char *line = text, *end;
       status == PLM_OK && (end = memchr(line, '\n', size - (size_t)(line - text))) != NULL;
       line = end + 1) {
    const size_t length = (size_t)(end - line) + 1;
    status = read_line(line, length - 1, rule, reports, path, error);
    if (status != PLM_OK) break; /* the next call reads it again */
    reports->read += length;
    reports->last_size = length;
    reports->last_hash = plm_hash64_bytes(line, length);
  }
  free(text);
  return status;
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
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) {
    plm_early_stop_deinit(reports);
    return PLM_OK;
  }
  if (file < 0) return plm_error_errno(error, "cannot open %s", path);
  plm_status status = check_begin(file, reports, path, error);
  if (status == PLM_OK) status = read_more(file, path, rule, reports, error);
  close(file);
  if (status == PLM_OK) find_best(rule, until, reports, found);
  return status;
}
