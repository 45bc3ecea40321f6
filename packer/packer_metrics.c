/* packers.jsonl. Several packers append to the file, each line with one write(). */
#include "packer/packer_metrics.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/metrics/metrics.h"
#include "common/run/run.h"

enum { LINE_MS = 5000 };

struct packer_metrics {
  char path[PLM_PATH_SIZE];
  char name[96];
  int64_t written_ms;
  struct plm_packer_counters before;
  bool complained;
};

plm_status packer_metrics_open(const char *run, const struct plm_hello *who,
                               struct packer_metrics **metrics, struct plm_error *error)
{
  struct packer_metrics *made = plm_alloc_zeroed(1, sizeof *made);
  const plm_status status = plm_path_join(made->path, run, PLM_RUN_PACKER_METRICS, error);
  if (status != PLM_OK) {
    free(made);
    return status;
  }
  snprintf(made->name, sizeof made->name, "%s:%u", who->host, who->pid);
  made->written_ms = plm_clock_ms();
  *metrics = made;
  return PLM_OK;
}

/* plm_metrics_open will not do: it cuts a torn last line, which another packer may be writing. */
static void packer_metrics_append(struct packer_metrics *metrics, const char *text)
{
  struct plm_error error = {0};
  const int file = open(metrics->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  plm_status status = PLM_OK;
  if (file < 0) {
    status = plm_error_errno(&error, "cannot open %s", metrics->path);
  } else {
    status = plm_file_write_all(file, text, strlen(text), metrics->path, &error);
    close(file);
  }
  if (status != PLM_OK && !metrics->complained) plm_log_error(&error);
  metrics->complained = status != PLM_OK;
}

static void write_line(struct packer_metrics *metrics, const struct plm_packer_counters *counters,
                       int64_t now)
{
  const struct plm_packer_counters *before = &metrics->before;
  const double seconds = (double)(now - metrics->written_ms) / 1e3;
  const double tokens = (double)(counters->tokens - before->tokens);
  const double padded = (double)(counters->padded_tokens - before->padded_tokens);
  struct cJSON *line = plm_metrics_line();
  plm_metrics_string(line, "packer", metrics->name);
  plm_metrics_integer(line, "windows", counters->windows);
  plm_metrics_number(line, "documents_per_second",
                     (double)(counters->documents - before->documents) / seconds);
  plm_metrics_number(line, "tokens_per_second", tokens / seconds);
  plm_metrics_number(line, "padding_fraction", padded > 0 ? 1.0 - tokens / padded : 0.0);
  plm_metrics_integer(line, "queue", counters->queue);
  plm_metrics_number(line, "time", plm_clock_wall_s());
  char *json = plm_json_bytes(line, false);
  cJSON_Delete(line);
  if (json != NULL) {
    const size_t size = strlen(json) + 2;
    char *text = malloc(size);
    if (text != NULL) {
      snprintf(text, size, "%s\n", json);
      packer_metrics_append(metrics, text);
    }
    free(text);
    free(json);
  }
  metrics->before = *counters;
  metrics->written_ms = now;
}

void packer_metrics_tick(struct packer_metrics *metrics, const struct plm_packer_counters *counters,
                         int64_t now)
{
  if (metrics == NULL || now - metrics->written_ms < LINE_MS) return;
  if (counters->chunks == metrics->before.chunks) {
    metrics->written_ms = now; /* idle time does not count in the rates */
    return;
  }
  write_line(metrics, counters, now);
}

void packer_metrics_close(struct packer_metrics *metrics,
                          const struct plm_packer_counters *counters, int64_t now)
{
  if (metrics == NULL) return;
  if (counters->chunks != metrics->before.chunks && now > metrics->written_ms)
    write_line(metrics, counters, now);
  free(metrics);
}
