/* Serves the metrics of one stage over HTTP. */
#include "common/metrics/exporter.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/process/thread.h"
#include "common/base/text/strict_json.h"
#include "common/metrics/http.h"
#include "common/metrics/prometheus.h"
#include "common/run/log_tail.h"

struct plm_exporter {
  enum plm_metric_stage stage;
  struct plm_prometheus *metrics;
  struct plm_http *http;
  struct plm_tail tail;
  bool counted; /* the lines read from now on were written by this process */
  int stop_fd;
  pthread_t thread;
};

static void exporter_on_line(void *context, const char *text)
{
  struct plm_exporter *exporter = context;
  cJSON *line = plm_json_line(text);
  plm_prometheus_line(exporter->metrics, exporter->stage, "0", line, exporter->counted);
  cJSON_Delete(line);
}

static void exporter_page(void *context, struct plm_text *text)
{
  struct plm_exporter *exporter = context;
  plm_tail_read(&exporter->tail, 0, exporter_on_line, exporter);
  plm_prometheus_print(exporter->metrics, text);
}

static void *exporter_serve(void *context)
{
  struct plm_exporter *exporter = context;
  struct pollfd items[1 + PLM_HTTP_POLLS];
  for (;;) {
    items[0] = (struct pollfd){.fd = exporter->stop_fd, .events = POLLIN};
    plm_http_fill(exporter->http, items + 1);
    poll(items, sizeof items / sizeof items[0], 1000);
    if (items[0].revents != 0) return NULL;
    plm_http_turn(exporter->http);
  }
}

plm_status plm_exporter_open(const char *address, const char *run, const char *file,
                             enum plm_metric_stage stage, struct plm_exporter **exporter,
                             struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  *exporter = NULL;
  if (address == NULL) return PLM_OK;
  PLM_TRY(plm_path_join(path, run, file, error));
  struct plm_exporter *made = plm_alloc_zeroed(1, sizeof *made);
  const char *name = strrchr(run, '/');
  plm_status status;
  made->stage = stage;
  made->stop_fd = eventfd(0, EFD_CLOEXEC);
  made->metrics = plm_prometheus_open(name != NULL ? name + 1 : run);
  PLM_TRY_GOTO(status, plm_http_open(address, exporter_page, made, &made->http, error), failed);
  plm_prometheus_started(made->metrics, stage, "0");
  plm_tail_init(&made->tail, path, plm_tail_find(path, 0, 1));
  plm_tail_read(&made->tail, 0, exporter_on_line,
                made); /* the last line says how far the run has come */
  made->counted = true;
  PLM_TRY_GOTO(status, plm_thread_start(&made->thread, "metrics", exporter_serve, made, error),
               failed);
  plm_info("metrics at http://%s/metrics", plm_http_address(made->http));
  *exporter = made;
  return PLM_OK;
failed:
  plm_http_close(made->http);
  plm_prometheus_close(made->metrics);
  close(made->stop_fd);
  free(made);
  return status;
}

void plm_exporter_close(struct plm_exporter *exporter)
{
  const uint64_t one = 1;
  if (exporter == NULL) return;
  if (write(exporter->stop_fd, &one, sizeof one) == sizeof one) {
    pthread_join(exporter->thread, NULL);
  }
  plm_http_close(exporter->http);
  plm_prometheus_close(exporter->metrics);
  close(exporter->stop_fd);
  free(exporter);
}
