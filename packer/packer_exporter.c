/* A packer's counters over HTTP. */
#include "packer/packer_exporter.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/metrics/http.h"
#include "common/metrics/prometheus.h"

enum { RATE_MS = 1000 };

struct packer_exporter {
  struct plm_http *http;
  struct plm_prometheus *metrics;
  struct plm_packer_counters counters; /* at the current tick */
  uint64_t rate_tokens;                /* tokens when the rate was last measured */
  int64_t rate_ms;
  double tokens_per_second;
};

static void packer_exporter_page(void *context, struct plm_text *text)
{
  const struct packer_exporter *exporter = context;
  const struct plm_packer_counters *counters = &exporter->counters;
  const double padded = (double)counters->padded_tokens;
  const struct {
    const char *name;
    double value;
  } values[] = {
      {"ready", 1.0},
      {"windows_total", (double)counters->windows},
      {"documents_total", (double)counters->documents},
      {"tokens_total", (double)counters->tokens},
      {"tokens_per_second", exporter->tokens_per_second},
      {"padding_fraction", padded > 0.0 ? 1.0 - (double)counters->tokens / padded : 0.0},
      {"queue", (double)counters->queue},
  };
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
    plm_prometheus_set(exporter->metrics, PLM_STAGE_PACKER, "0", values[i].name, values[i].value);
  plm_prometheus_print(exporter->metrics, text);
}

plm_status packer_exporter_open(const char *address, const char *run,
                                struct packer_exporter **exporter, struct plm_error *error)
{
  struct packer_exporter *made = plm_alloc_zeroed(1, sizeof *made);
  const char *name = run != NULL ? strrchr(run, '/') : NULL;
  if (run == NULL) run = "";
  made->metrics = plm_prometheus_open(name != NULL ? name + 1 : run);
  const plm_status status = plm_http_open(address, packer_exporter_page, made, &made->http, error);
  if (status != PLM_OK) {
    packer_exporter_close(made);
    return status;
  }
  plm_info("metrics at http://%s/metrics", plm_http_address(made->http));
  *exporter = made;
  return PLM_OK;
}

void packer_exporter_tick(struct packer_exporter *exporter,
                          const struct plm_packer_counters *counters, int64_t now)
{
  if (exporter == NULL) return;
  const int64_t elapsed_ms = now - exporter->rate_ms;
  if (elapsed_ms >= RATE_MS) {
    if (exporter->rate_ms != 0)
      exporter->tokens_per_second =
          1e3 * (double)(counters->tokens - exporter->rate_tokens) / (double)elapsed_ms;
    exporter->rate_tokens = counters->tokens;
    exporter->rate_ms = now;
  }
  exporter->counters = *counters;
  plm_http_turn(exporter->http);
}

void packer_exporter_close(struct packer_exporter *exporter)
{
  if (exporter == NULL) return;
  plm_http_close(exporter->http);
  plm_prometheus_close(exporter->metrics);
  free(exporter);
}
