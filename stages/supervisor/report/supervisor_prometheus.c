/* Reading the files of a run, and filling the page. */
#include "stages/supervisor/report/supervisor_prometheus.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/strict_json.h"
#include "common/run/run.h"
#include "stages/views/run_activity.h"

static const struct {
  const char *file;
  enum plm_metric_stage stage;
} sources[PLM_KIND_COUNT] = {
    [PLM_KIND_TRAINER] = {PLM_RUN_TRAINER_METRICS, PLM_STAGE_TRAINER},
    [PLM_KIND_EVALUATOR] = {PLM_RUN_EVALUATOR_METRICS, PLM_STAGE_EVALUATOR},
    [PLM_KIND_PACKER] = {NULL, PLM_STAGE_PACKER},
};

/* ---- lines --------------------------------------------------------------------------------- */

struct reading {
  struct plm_prometheus *metrics;
  enum plm_metric_stage stage;
  bool counted;
};

static void supervisor_page_on_line(void *context, const char *text)
{
  const struct reading *reading = context;
  cJSON *line = plm_json_line(text);
  plm_prometheus_line(reading->metrics, reading->stage, "0", line, reading->counted);
  cJSON_Delete(line);
}

/* Begins at the last line, which sets only gauges: it was written before `up`, or it was counted
 * before a resume cut the file. */
static void supervisor_page_begin(struct exported *file)
{
  plm_tail_move(&file->tail, plm_tail_find(file->tail.path, 0, 1));
  file->counted = false;
}

static void supervisor_page_read_file(struct exporter *exporter, int kind)
{
  struct exported *file = &exporter->files[kind];
  struct reading reading = {.metrics = exporter->metrics, .stage = sources[kind].stage};
  struct stat info;
  if (stat(file->tail.path, &info) == 0 && (uint64_t)info.st_size < file->tail.offset)
    supervisor_page_begin(file);
  reading.counted = file->counted;
  plm_tail_read(&file->tail, 0, supervisor_page_on_line, &reading);
  file->counted = true;
}

/* Beside the run's own supervisor, which exports all of the run, only the evaluator is exported. */
static bool exports(const struct exporter *exporter, int kind)
{
  return !exporter->stages->apart || kind == PLM_KIND_EVALUATOR;
}

/* ---- packers, readiness and restarts ------------------------------------------------------- */

/* The trainer knows the folders. They are joined by commas. */
static void set_corpora(struct plm_prometheus *metrics, const cJSON *packer, const char *instance)
{
  const cJSON *corpora = cJSON_GetObjectItemCaseSensitive(packer, "corpora"), *one;
  struct plm_text joined = {0};
  char text[256];
  cJSON_ArrayForEach(one, corpora)
  {
    const char *path = cJSON_GetStringValue(one);
    if (path != NULL) plm_text_printf(&joined, "%s%s", joined.length > 0 ? "," : "", path);
  }
  if (joined.length > 0) {
    plm_printable(text, sizeof text, joined.data, PLM_PRINTABLE_LINE);
    plm_prometheus_set_text(metrics, PLM_STAGE_PACKER, instance, "corpus", "corpus", text, 1.0);
  }
  plm_text_deinit(&joined);
}

static void set_packer(struct exporter *exporter, const cJSON *packer)
{
  static const struct {
    const char *name, *field;
  } values[] = {
      {"windows_total", "windows"}, {"documents_total", "documents"},
      {"tokens_total", "tokens"},   {"tokens_per_second", "rate"},
      {"queue", "queue"},
  };
  struct plm_prometheus *metrics = exporter->metrics;
  char instance[96];
  stages_name_packer(exporter->stages, packer, instance);
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    plm_prometheus_set(metrics, PLM_STAGE_PACKER, instance, values[i].name,
                       plm_json_number(packer, values[i].field, 0.0));
  }
  const double padded = plm_json_number(packer, "padded_tokens", 0.0);
  plm_prometheus_set(metrics, PLM_STAGE_PACKER, instance, "padding_fraction",
                     padded > 0.0 ? 1.0 - plm_json_number(packer, "tokens", 0.0) / padded : 0.0);
  plm_prometheus_set(metrics, PLM_STAGE_PACKER, instance, "standby",
                     cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(packer, "standby")));
  plm_prometheus_set(metrics, PLM_STAGE_PACKER, instance, "ready", 1.0);
  set_corpora(metrics, packer, instance);
}

static void set_packers(struct exporter *exporter, const char *consumer)
{
  char *text;
  const cJSON *packer;
  if (plm_peers_read(exporter->stages->config->run, consumer, &text, NULL) != PLM_OK) return;
  cJSON *packers = plm_json_line(text);
  free(text);
  cJSON_ArrayForEach(packer, packers) set_packer(exporter, packer);
  cJSON_Delete(packers);
}

static void set_failure(const struct exporter *exporter, const struct supervised *stage,
                        const char *instance)
{
  struct plm_prometheus *metrics = exporter->metrics;
  char cause[256], remedy[REMEDY_SIZE];
  const enum plm_metric_stage kind = sources[stage->kind].stage;
  supervised_remedy(exporter->stages, stage, remedy);
  plm_prometheus_set_text(metrics, kind, instance, "fatal", "continue", remedy,
                          stage->state == PLM_STAGE_FATAL);
  if (stage->failed_s <= 0.0) return;
  plm_printable(cause, sizeof cause, stage->cause, PLM_PRINTABLE_LINE);
  plm_prometheus_set_text(metrics, kind, instance, "failed_time_seconds", "cause", cause,
                          stage->failed_s);
}

/* Times are values, so the labels have none. */
static void set_activity(struct exporter *exporter, const struct supervised *stage,
                         const char *instance)
{
  struct plm_prometheus *metrics = exporter->metrics;
  struct plm_activity activity = {0};
  struct supervised_trouble trouble;
  const enum plm_metric_stage kind = sources[stage->kind].stage;
  const bool ready = stage->state == PLM_STAGE_READY;
  if (ready && stage->kind == PLM_KIND_TRAINER)
    plm_activity_read(exporter->stages->config->run, &activity);
  if (ready && stage->kind == PLM_KIND_EVALUATOR)
    plm_activity_read_evaluator(exporter->stages->config->run, &activity);
  if (stage->kind == PLM_KIND_PACKER) activity.sign_age_s = fmax(0.0, supervised_unheard_s(stage));
  supervised_trouble(exporter->stages, stage, &trouble);
  if (trouble.word[0] != '\0') snprintf(activity.word, sizeof activity.word, "%s", trouble.word);
  plm_prometheus_set_text(metrics, kind, instance, "sign_age_seconds", "activity", activity.word,
                          activity.sign_age_s);
  plm_prometheus_set_text(metrics, kind, instance, "state", "state",
                          plm_stage_state_name(stage->state), 1.0);
  if (stage->kind == PLM_KIND_TRAINER)
    plm_prometheus_set_text(metrics, kind, instance, "step_age_seconds", "activity", activity.word,
                            activity.age_s);
}

static void supervisor_page(void *context, struct plm_text *text)
{
  struct exporter *exporter = context;
  struct plm_prometheus *metrics = exporter->metrics;
  plm_prometheus_forget(metrics, PLM_STAGE_PACKER,
                        NULL); /* the peers files have all of them again */
  if (exports(exporter, PLM_KIND_PACKER)) {
    set_packers(exporter, "evaluator");
    set_packers(exporter, "trainer"); /* a packer tells both its total */
  }
  for (size_t i = 0; i < exporter->stages->count; i++) {
    const struct supervised *stage = &exporter->stages->all[i];
    char instance[16];
    if (stage->removed) continue;
    snprintf(instance, sizeof instance, "%u", stage->instance);
    plm_prometheus_set(metrics, sources[stage->kind].stage, instance, "ready",
                       stage->state == PLM_STAGE_READY);
    plm_prometheus_set(metrics, sources[stage->kind].stage, instance, "restarts_total",
                       stage->restarts);
    set_failure(exporter, stage, instance);
    set_activity(exporter, stage, instance);
  }
  plm_prometheus_print(metrics, text);
}

/* ---- life ---------------------------------------------------------------------------------- */

plm_status exporter_open(struct exporter *exporter, struct plm_error *error)
{
  const char *name = strrchr(exporter->stages->config->run, '/');
  if (exporter->stages->config->prometheus == NULL) return PLM_OK;
  exporter->metrics = plm_prometheus_open(name != NULL ? name + 1 : exporter->stages->config->run);
  PLM_TRY(plm_http_open(exporter->stages->config->prometheus, supervisor_page, exporter,
                        &exporter->http, error));
  for (int kind = 0; kind < PLM_KIND_PACKER; kind++) {
    char path[PLM_PATH_SIZE];
    if (!exports(exporter, kind)) continue;
    PLM_TRY(plm_path_join(path, exporter->stages->config->run, sources[kind].file, error));
    plm_tail_init(&exporter->files[kind].tail, path, 0);
    supervisor_page_begin(&exporter->files[kind]);
    supervisor_page_read_file(exporter, kind);
  }
  if (!exporter->stages->apart)
    PLM_TRY(plm_endpoint_write(exporter->stages->config->run, "prometheus",
                               plm_http_address(exporter->http), error));
  screen_say(exporter->screen, "metrics at http://%s/metrics", plm_http_address(exporter->http));
  return PLM_OK;
}

void exporter_started(struct exporter *exporter, const struct supervised *stage)
{
  char instance[16];
  if (exporter->metrics == NULL || stage->kind == PLM_KIND_PACKER) return;
  supervisor_page_read_file(exporter, (int)stage->kind); /* the last lines of the process before */
  snprintf(instance, sizeof instance, "%u", stage->instance);
  plm_prometheus_started(exporter->metrics, sources[stage->kind].stage, instance);
}

void exporter_update(struct exporter *exporter)
{
  if (exporter->http == NULL) return;
  for (int kind = 0; kind < PLM_KIND_PACKER; kind++)
    if (exports(exporter, kind)) supervisor_page_read_file(exporter, kind);
  plm_http_turn(exporter->http);
}

void exporter_close(struct exporter *exporter)
{
  if (exporter->http != NULL && !exporter->stages->apart)
    plm_endpoint_remove(exporter->stages->config->run, "prometheus");
  plm_http_close(exporter->http);
  plm_prometheus_close(exporter->metrics);
}
