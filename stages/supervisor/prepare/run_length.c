/* The length of a run in epochs and in time. */
#include "stages/supervisor/prepare/run_length.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/corpus/corpus.h"
#include "common/metrics/metrics.h"
#include "common/plan/plan.h"
#include "common/run/run.h"

enum {
  GOOD_EPOCHS = 4,
  TOKENS_PER_PARAMETER = 20,
  SAMPLED_GROUPS = 4096 /* about a million documents, whose lengths are read in a moment */
};

struct length {
  uint64_t documents, chunks; /* of the first epoch; clusters count as documents */
  bool estimated;             /* chunks */
  double tokens;              /* of the split, <cls> and <eos> included */
};

plm_status plm_run_length_chunks(const struct plm_plan *plan, plm_plan_read *read,
                                 const void *context, uint64_t *chunks, bool *estimated,
                                 struct plm_error *error)
{
  const uint64_t windows = plm_plan_windows(plan);
  const uint32_t usual = plm_plan_group_count(plan, 0); /* groups of a window */
  const uint64_t most = usual < SAMPLED_GROUPS ? SAMPLED_GROUPS / usual : 1;
  const uint64_t sampled = windows < most ? windows : most;
  uint64_t groups = 0, counted = 0;
  for (uint64_t i = 0; i < sampled; i++) {
    const uint64_t window = i * windows / sampled;
    uint32_t count;
    PLM_TRY(plm_plan_window_chunks(plan, 0, window, 1, read, context, &count, error));
    groups += plm_plan_group_count(plan, window);
    counted += count;
  }
  const uint64_t all = plm_corpus_group_count(plm_plan_documents(plan));
  *estimated = sampled < windows;
  *chunks = *estimated ? (uint64_t)((double)counted * (double)all / (double)groups) : counted;
  return PLM_OK;
}

static plm_status measure_plan(const struct plm_plan *plan, struct plm_corpus *corpus,
                               struct length *length, struct plm_error *error)
{
  struct plm_plan_corpus from = {.plan = plan, .split = PLM_SPLIT_TRAIN};
  PLM_TRY(plm_corpus_cursor_open(corpus, &from.cursor, error));
  length->documents = plm_plan_documents(plan);
  const plm_status status = plm_run_length_chunks(plan, plm_plan_read_corpus, &from,
                                                  &length->chunks, &length->estimated, error);
  plm_corpus_cursor_close(from.cursor);
  return status;
}

/* Only what a look at the lengths gives: no document is read. */
static plm_status run_length_measure(const struct plm_config *config, struct length *length,
                                     struct plm_error *error)
{
  const struct plm_corpus_options options = {.allow_remote = true};
  const struct plm_plan_parameters parameters = plm_config_source_plan(config, 0);
  struct plm_corpus *corpus = NULL;
  struct plm_plan *plan = NULL;
  PLM_TRY(plm_corpus_open(config->corpus, &options, &corpus, error));
  plm_status status = plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &plan, error);
  if (status == PLM_OK) status = measure_plan(plan, corpus, length, error);
  const struct plm_corpus_info *info = plm_corpus_info(corpus);
  length->tokens = (double)info->splits[PLM_SPLIT_TRAIN].residues +
                   2.0 * (double)info->splits[PLM_SPLIT_TRAIN].documents;
  plm_plan_close(plan);
  plm_corpus_close(corpus);
  return status;
}

/* Seconds of the run's last step; NAN if it has not trained. */
static double last_step_s(const char *run)
{
  char path[PLM_PATH_SIZE];
  cJSON *line = NULL;
  if (plm_path_join(path, run, PLM_RUN_TRAINER_METRICS, NULL) != PLM_OK ||
      plm_metrics_last(path, &line, NULL) != PLM_OK)
    return NAN;
  const double step_s = 1e-3 * plm_json_number(line, "step_ms", NAN);
  cJSON_Delete(line);
  return step_s;
}

static double share_of_first(const struct plm_config *config)
{
  const struct plm_mixture mixture = plm_config_mixture(config);
  double weights[PLM_MAX_SOURCES], sum = 0;
  plm_mixture_weights(&mixture, 0, weights);
  for (uint32_t k = 0; k < mixture.count; k++) sum += weights[k];
  return weights[0] / sum;
}

void plm_run_length_advice(double epochs, double tokens, double parameters, uint64_t steps,
                           char text[PLM_ADVICE_SIZE])
{
  char count[32], size[32];
  plm_format_count((uint64_t)(GOOD_EPOCHS / epochs * (double)steps), count);
  snprintf(text, PLM_ADVICE_SIZE, "%s (Muennighoff et al., 2023): %d epochs are %s steps",
           epochs > GOOD_EPOCHS ? "beyond 4 epochs, repeated data teaches less and less"
                                : "up to 4 epochs, repeated data is nearly as good as new",
           GOOD_EPOCHS, count);
  const double seen = epochs * tokens;
  if (parameters > 0 && seen < TOKENS_PER_PARAMETER * parameters) {
    const size_t used = strlen(text);
    snprintf(text + used, PLM_ADVICE_SIZE - used,
             "\n                %.2g tokens a parameter; %d (Hoffmann et al., 2022) would be %s "
             "parameters",
             seen / parameters, TOKENS_PER_PARAMETER,
             plm_format_count((uint64_t)(seen / TOKENS_PER_PARAMETER), size));
  }
}

void plm_run_length_say(const struct plm_config *config, double parameters)
{
  struct length length = {0};
  char steps[32], documents[32], duration[32], advice[PLM_ADVICE_SIZE];
  if (config->corpus == NULL || run_length_measure(config, &length, NULL) != PLM_OK ||
      length.chunks == 0)
    return;
  const double chunks = (double)config->trainer.steps * (double)config->trainer.batch_tokens /
                        config->data.max_length * share_of_first(config);
  const double epochs = chunks / (double)length.chunks;
  const double time_s = last_step_s(config->run) * (double)config->trainer.steps;
  printf("length\n  %s steps are %s%.3g epochs of %s %s%s",
         plm_format_count(config->trainer.steps, steps), length.estimated ? "about " : "", epochs,
         plm_format_count(length.documents, documents),
         plm_config_source_plan(config, 0).sampling == PLM_SAMPLING_CLUSTERS ? "clusters"
                                                                             : "sequences",
         config->source_count > 1 ? " of the first corpus" : "");
  if (isfinite(time_s))
    printf(", about %s at the pace of the run's last step", plm_format_duration(time_s, duration));
  printf("\n");
  if (plm_objective_is_labels(config->trainer.objective)) return; /* it is about language models */
  plm_run_length_advice(epochs, length.tokens, parameters, config->trainer.steps, advice);
  printf("  advice        %s\n", advice);
}
