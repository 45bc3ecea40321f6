/* What a step takes from each of the run's corpora. */
#include "stages/commands/trace_sources.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/checkpoint/trainer_json.h"
#include "common/plan/batch_history.h"
#include "common/run/run.h"

static void show_progress(void *context, uint64_t done, uint64_t total)
{
  plm_progress_update(context, done, total, done, done, "chunk");
}

static plm_status open_source(const struct plm_config *config, uint32_t k,
                              struct plm_trace_source *source, struct plm_advance *advance,
                              struct plm_error *error)
{
  const struct plm_corpus_options options = {.allow_remote = true};
  const struct plm_plan_parameters parameters = plm_config_source_plan(config, k);
  PLM_TRY(plm_corpus_open(plm_config_source(config, k).path, &options, &source->corpus, error));
  PLM_TRY(plm_plan_open_corpus(&parameters, source->corpus, PLM_SPLIT_TRAIN, &source->plan, error));
  PLM_TRY(plm_corpus_cursor_open(source->corpus, &source->cursor, error));
  const struct plm_plan_corpus from = {
      .plan = source->plan, .cursor = source->cursor, .split = PLM_SPLIT_TRAIN};
  return plm_trace_open(&from, advance, &source->trace, error);
}

/* A member that counts something; *count stays as it is if there is none. */
static plm_status read_count(const cJSON *object, const char *name, uint64_t *count,
                             struct plm_error *error)
{
  const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);
  if (value == NULL || plm_json_count(value, count)) return PLM_OK;
  return plm_error_set(error, PLM_FORMAT, "%s is not a whole number from 0 to 2^53", name);
}

/* Reads what the newest checkpoint says about the run's steps so far into an empty history, which
 * stays empty if there is no checkpoint. */
static plm_status read_parts(const struct cJSON *json, uint32_t max_length,
                             struct plm_mixture_history *history, uint64_t *steps,
                             struct plm_error *error)
{
  const cJSON *cursor = cJSON_GetObjectItemCaseSensitive(json, "cursor");
  const cJSON *mixture = cJSON_GetObjectItemCaseSensitive(cursor, "mixture");
  const cJSON *resolved = cJSON_GetObjectItemCaseSensitive(json, "resolved");
  uint64_t chunks = 0;
  PLM_TRY(read_count(cursor, "chunks", &chunks, error));
  PLM_TRY(read_count(json, "step", steps, error));
  if (mixture != NULL) {
    PLM_TRY(plm_mixture_history_from_json(history, mixture, error));
  } else if (*steps > 0 && chunks > 0) {
    const uint64_t mean = chunks / *steps;
    uint64_t usual = mean;
    PLM_TRY(read_count(resolved, "step_chunks", &usual, error));
    if (usual > UINT32_MAX)
      return plm_error_set(error, PLM_FORMAT, "its steps have %llu chunks, more than there can be",
                           (unsigned long long)usual);
    PLM_TRY(plm_batch_history_read(history, cJSON_GetObjectItemCaseSensitive(json, "history"),
                                   max_length, (uint32_t)usual, error));
  }
  const uint64_t sum = plm_batch_history_sum(history, *steps);
  if (history->count == 0 || sum == chunks) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "by its history, %llu steps took %llu chunks, not %llu",
                (unsigned long long)*steps, (unsigned long long)sum, (unsigned long long)chunks);
  return plm_error_hint(error, "which sequences a step was trained on cannot be told");
}

static plm_status read_history(const struct plm_config *config, struct plm_mixture_history *history,
                               uint64_t *steps, struct plm_error *error)
{
  char checkpoints[PLM_PATH_SIZE], latest[PLM_PATH_SIZE];
  cJSON *json;
  *steps = 0;
  PLM_TRY(plm_path_join(checkpoints, config->run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_path_join(latest, checkpoints, "latest", error));
  PLM_TRY(plm_trainer_json_read(latest, &json, error));
  if (json == NULL) return PLM_OK;
  const plm_status status = read_parts(json, config->data.max_length, history, steps, error);
  if (status != PLM_OK) (void)plm_error_where(error, "%s/trainer.json", latest);
  cJSON_Delete(json);
  return status;
}

/* The steps of the run over time: those until its newest checkpoint and, after it, those of its
 * configuration. */
static plm_status find_history(const struct plm_config *config, uint64_t s,
                               struct plm_mixture_history *history, struct plm_error *error)
{
  const struct plm_mixture now = plm_config_mixture(config);
  const uint32_t chunks = (uint32_t)(config->trainer.batch_tokens / config->data.max_length);
  uint64_t steps;
  PLM_TRY(read_history(config, history, &steps, error));
  if (history->count > 0 && history->parts[history->count - 1].mixture.count > now.count)
    return plm_error_set(error, PLM_CONFIG,
                         "corpus: the run was trained on %u corpora, but its pipeline.yaml has %u",
                         history->parts[history->count - 1].mixture.count, now.count);
  plm_mixture_history_add(history, history->count > 0 ? steps : 0, chunks, &now);
  if (steps < config->trainer.steps) steps = config->trainer.steps;
  if (s < steps) return PLM_OK;
  return plm_error_set(error, PLM_USAGE, "--step %llu is beyond the run's last step, %llu",
                       (unsigned long long)s + 1, (unsigned long long)steps);
}

plm_status plm_trace_sources_open(const struct plm_config *config, uint64_t s,
                                  struct plm_trace_sources *sources, struct plm_error *error)
{
  PLM_TRY(find_history(config, s, &sources->history, error));
  sources->seed = config->seed;
  sources->advance = (struct plm_advance){.tell = show_progress, .context = &sources->progress};
  for (uint32_t k = 0; k < plm_config_source_count(config); k++) {
    sources->count = k + 1;
    PLM_TRY(open_source(config, k, &sources->sources[k], &sources->advance, error));
  }
  return PLM_OK;
}

/* The chunks that each source gives before step s. After a step whose chunks were all taken, they
 * are known; otherwise the draws of all earlier steps are repeated. */
static plm_status count_before(struct plm_trace_sources *sources, uint64_t s,
                               struct plm_error *error)
{
  uint64_t counts[PLM_MAX_SOURCES], taken = 0;
  for (uint32_t k = 0; k < sources->count; k++) taken += sources->sources[k].next;
  if (sources->of == NULL || s != sources->step + 1 || taken != sources->begin + sources->chunks) {
    PLM_TRY(plm_mixture_history_count(&sources->history, sources->seed, s, counts, error));
    taken = 0;
    for (uint32_t k = 0; k < sources->count; k++) {
      sources->sources[k].next = counts[k];
      taken += counts[k];
    }
  }
  sources->begin = taken;
  sources->step = s;
  return PLM_OK;
}

plm_status plm_trace_sources_place(struct plm_trace_sources *sources, uint64_t s,
                                   struct plm_error *error)
{
  const struct plm_mixture_part *part = plm_mixture_history_at(&sources->history, s);
  PLM_TRY(count_before(sources, s, error));
  free(sources->of);
  sources->chunks = part->chunks;
  sources->of = plm_alloc((size_t)part->chunks + 1);
  plm_mixture_draw(&part->mixture, sources->seed, s, part->chunks, sources->of);
  return PLM_OK;
}

plm_status plm_trace_sources_next(struct plm_trace_sources *sources, uint32_t source,
                                  struct plm_traced_chunk *chunk, struct plm_error *error)
{
  struct plm_trace_source *of = &sources->sources[source];
  plm_progress_begin(&sources->progress, "count");
  sources->progress.rate_unit = "chunks";
  const plm_status status = plm_trace_chunk(of->trace, of->next++, chunk, error);
  plm_progress_clear(&sources->progress);
  return status;
}

void plm_trace_sources_close(struct plm_trace_sources *sources)
{
  for (uint32_t k = 0; k < sources->count; k++) {
    struct plm_trace_source *source = &sources->sources[k];
    plm_corpus_cursor_close(source->cursor);
    plm_trace_close(source->trace);
    plm_plan_close(source->plan);
    if (source->corpus != NULL) plm_corpus_close(source->corpus);
  }
  free(sources->of);
  plm_mixture_history_deinit(&sources->history);
  *sources = (struct plm_trace_sources){0};
}
