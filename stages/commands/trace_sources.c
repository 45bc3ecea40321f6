/* What a step takes from each of the run's corpora. */
#include "stages/commands/trace_sources.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/strict_json.h"
#include "common/run/run.h"

enum { STATE_LIMIT = 64 << 20, STATE_VALUES = 1 << 22 };

static plm_status open_source(const struct plm_config *config, uint32_t k,
                              struct plm_trace_source *source, struct plm_error *error)
{
  const struct plm_corpus_options options = {.allow_remote = true};
  const struct plm_plan_parameters parameters = plm_config_source_plan(config, k);
  PLM_TRY(plm_corpus_open(plm_config_source(config, k).path, &options, &source->corpus, error));
  PLM_TRY(plm_plan_open_corpus(&parameters, source->corpus, PLM_SPLIT_TRAIN, &source->plan, error));
  PLM_TRY(plm_trace_open(source->plan, &source->trace, error));
  return plm_corpus_cursor_open(source->corpus, &source->cursor, error);
}

/* Reads the mixture of the newest checkpoint, and its number of steps. It stays empty if there is
 * no checkpoint, or if its run had only one corpus. */
static plm_status read_history(const char *run, struct plm_mixture_history *history,
                               uint64_t *steps, uint64_t *chunks, struct plm_error *error)
{
  char checkpoints[PLM_PATH_SIZE], path[PLM_PATH_SIZE], *text;
  size_t size;
  bool exists;
  *steps = *chunks = 0;
  PLM_TRY(plm_path_join(checkpoints, run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_path_join(path, checkpoints, "latest/trainer.json", error));
  PLM_TRY(plm_file_look(path, &exists, error));
  if (!exists) return PLM_OK;
  PLM_TRY(plm_file_read(path, STATE_LIMIT, &text, &size, error));
  cJSON *json = plm_json_bounded(text, size, STATE_VALUES);
  const cJSON *cursor = cJSON_GetObjectItemCaseSensitive(json, "cursor");
  const cJSON *mixture = cJSON_GetObjectItemCaseSensitive(cursor, "mixture");
  free(text);
  *steps = (uint64_t)plm_json_number(json, "step", 0);
  *chunks = (uint64_t)plm_json_number(cursor, "chunks", 0);
  plm_status status = PLM_OK;
  if (json == NULL) status = plm_error_set(error, PLM_FORMAT, "it is not JSON");
  if (mixture != NULL) status = plm_mixture_history_from_json(history, mixture, error);
  if (status != PLM_OK) (void)plm_error_where(error, "%s", path);
  cJSON_Delete(json);
  return status;
}

/* The mixture of the run over time: that of its newest checkpoint and, after it, that of its
 * configuration. */
static plm_status find_history(const struct plm_config *config, uint32_t chunks,
                               struct plm_mixture_history *history, struct plm_error *error)
{
  const struct plm_mixture now = plm_config_mixture(config);
  uint64_t steps, consumed;
  PLM_TRY(read_history(config->run, history, &steps, &consumed, error));
  if (history->count == 0 && steps > 0 && consumed > 0) { /* one corpus until then */
    const struct plm_mixture alone = {.count = 1, .weights = {1}, .final_weights = {-1}};
    PLM_TRY(plm_mixture_history_add(history, 0, (uint32_t)(consumed / steps), &alone, error));
  }
  return plm_mixture_history_add(history, history->count > 0 ? steps : 0, chunks, &now, error);
}

static plm_status place_mixture(const struct plm_config *config, uint64_t s, uint32_t chunks,
                                struct plm_trace_sources *sources, struct plm_error *error)
{
  struct plm_mixture_history history = {0};
  uint64_t counts[PLM_MAX_SOURCES];
  plm_status status = find_history(config, chunks, &history, error);
  if (status == PLM_OK)
    status = plm_mixture_history_count(&history, config->seed, s, counts, error);
  if (status == PLM_OK) {
    const struct plm_mixture_part *part = plm_mixture_history_at(&history, s);
    sources->chunks = part->chunks;
    sources->of = malloc(part->chunks);
    if (sources->of == NULL)
      status = plm_error_set(error, PLM_NO_MEMORY, "no memory for %u chunks", part->chunks);
    else
      plm_mixture_draw(&part->mixture, config->seed, s, part->chunks, sources->of);
    for (uint32_t k = 0; k < sources->count; k++) sources->sources[k].next = counts[k];
  }
  plm_mixture_history_deinit(&history);
  return status;
}

plm_status plm_trace_sources_open(const struct plm_config *config, uint64_t s,
                                  struct plm_trace_sources *sources, struct plm_error *error)
{
  const uint32_t chunks = (uint32_t)(config->trainer.batch_tokens / config->data.max_length);
  for (uint32_t k = 0; k < plm_config_source_count(config); k++) {
    sources->count = k + 1;
    PLM_TRY(open_source(config, k, &sources->sources[k], error));
  }
  if (config->source_count > 0) return place_mixture(config, s, chunks, sources, error);
  sources->chunks = chunks;
  sources->of = calloc(1, (size_t)chunks + 1);
  sources->sources[0].next = s * chunks;
  if (sources->of != NULL) return PLM_OK;
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for %u chunks", chunks);
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
  *sources = (struct plm_trace_sources){0};
}
