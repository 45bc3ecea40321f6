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

enum { GOOD_EPOCHS = 4, TOKENS_PER_PARAMETER = 20 };

struct length {
  uint64_t documents, chunks; /* of the first epoch; clusters count as documents */
  double tokens;              /* of the split, <cls> and <eos> included */
};

static plm_status count_chunks(const struct plm_plan *plan, struct length *length,
                               struct plm_error *error)
{
  const uint64_t windows = plm_plan_windows(plan);
  uint32_t *counts = malloc((windows + 1) * sizeof *counts);
  if (counts == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for an epoch");
  const plm_status status = plm_plan_window_chunks(plan, 0, 0, windows, counts, error);
  for (uint64_t w = 0; status == PLM_OK && w < windows; w++) length->chunks += counts[w];
  length->documents = plm_plan_documents(plan);
  free(counts);
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
  if (status == PLM_OK) status = count_chunks(plan, length, error);
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
  printf("length\n  %s steps are %.3g epochs of %s %s%s",
         plm_format_count(config->trainer.steps, steps), epochs,
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
