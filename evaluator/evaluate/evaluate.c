/* Runs batches through the model and counts its predictions. */
#include "evaluator/evaluate/evaluate.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/inference/inference.h"
#include "common/metrics/metrics.h"
#include "common/model/architecture.h"
#include "evaluator/evaluate/each_batch.h"
#include "evaluator/evaluate/masking.h"
#include "evaluator/evaluate/measures.h"
#include "evaluator/labels/label_evaluation.h"
#include "evaluator/labels/label_report.h"

struct plm_evaluation {
  struct plm_inference *inference;
  struct plm_question question;
  struct plm_confusion confusion;
  float *logits; /* (max rows, V) */
  struct plm_attention_entropy *entropy;
  struct plm_label_evaluation *labels; /* of a model that predicts labels, which needs only this */
};

static plm_status evaluation_allocate_buffers(struct plm_evaluation *evaluation,
                                              struct plm_error *error)
{
  const struct plm_model_config *config = &evaluation->inference->config;
  const uint32_t tokens = evaluation->inference->max_chunks * config->max_length;
  PLM_TRY(plm_question_init(&evaluation->question, tokens, error));
  plm_confusion_init(&evaluation->confusion, config->vocab_size);
  evaluation->logits = calloc((size_t)tokens * config->vocab_size, sizeof(float));
  if (evaluation->logits == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the logits of %u tokens", tokens);
  return plm_attention_entropy_open(evaluation->inference, &evaluation->entropy, error);
}

/* Room for chunks of max_length tokens, or of the model's max_length, which is rounded up to a
 * power of two as chunks need it: that of published weights may be any number. */
static plm_status make_room(struct plm_inference *inference, uint32_t max_length,
                            struct plm_error *error)
{
  uint32_t length = max_length;
  if (max_length != 0)
    PLM_TRY(plm_inference_set_limit(inference, max_length, error));
  else
    for (length = 1; length < inference->config.max_length;) length *= 2;
  const uint32_t group = plm_architecture_group(&inference->config);
  if (length % group != 0)
    return plm_error_set(error, PLM_USAGE,
                         "--max-length %u is too short for chunks of this patch_unet, which merges "
                         "groups of %u tokens",
                         length, group);
  inference->warned = true; /* no sequence need be so long */
  PLM_TRY(plm_inference_make_room(inference, length, error));
  inference->warned = false;
  return PLM_OK;
}

plm_status plm_evaluation_open(const char *checkpoint, uint32_t max_length, struct plm_ops *ops,
                               struct plm_evaluation **evaluation, struct plm_error *error)
{
  struct plm_evaluation *opened = plm_alloc_zeroed(1, sizeof *opened);
  plm_status status =
      plm_inference_open(checkpoint, ops, PLM_INFERENCE_BATCH_TOKENS, &opened->inference, error);
  if (status == PLM_OK) status = make_room(opened->inference, max_length, error);
  if (status == PLM_OK && opened->inference->config.head.kind != PLM_PREDICTS_TOKENS)
    status = plm_label_evaluation_open(opened->inference, checkpoint, &opened->labels, error);
  else if (status == PLM_OK)
    status = evaluation_allocate_buffers(opened, error);
  if (status != PLM_OK) {
    plm_evaluation_close(opened);
    return status;
  }
  *evaluation = opened;
  return PLM_OK;
}

void plm_evaluation_close(struct plm_evaluation *evaluation)
{
  if (evaluation == NULL) return;
  plm_label_evaluation_close(evaluation->labels);
  plm_attention_entropy_close(evaluation->entropy);
  free(evaluation->logits);
  plm_confusion_deinit(&evaluation->confusion);
  plm_question_deinit(&evaluation->question);
  plm_inference_close(evaluation->inference);
  free(evaluation);
}

const struct plm_model_config *plm_evaluation_model(const struct plm_evaluation *evaluation)
{
  return &evaluation->inference->config;
}

void plm_evaluation_note_length(struct plm_evaluation *evaluation, uint32_t tokens)
{
  plm_inference_note_length(evaluation->inference, tokens);
}

const struct plm_tokenizer *plm_evaluation_tokenizer(const struct plm_evaluation *evaluation)
{
  return evaluation->inference->tokenizer;
}

const char *plm_evaluation_weights(const struct plm_evaluation *evaluation)
{
  return evaluation->inference->weights;
}

plm_status plm_evaluation_load(struct plm_evaluation *evaluation, const char *checkpoint,
                               struct plm_advance *advance, struct plm_error *error)
{
  return plm_inference_load(evaluation->inference, checkpoint, advance, error);
}

static bool is_causal(const struct plm_evaluation *evaluation)
{
  return evaluation->inference->objective == PLM_OBJECTIVE_CAUSAL;
}

/* One pass over a split at one mask rate. */
struct rate_pass {
  struct plm_evaluation *evaluation;
  uint64_t seed;
  double rate;
  bool wants_entropy; /* of the next batch */
};

/* Asks about one batch at one mask rate, and counts the answers. */
static plm_status count_batch(void *context, const struct plm_batch *batch, struct plm_error *error)
{
  struct rate_pass *pass = context;
  struct plm_evaluation *evaluation = pass->evaluation;
  struct plm_question *question = &evaluation->question;
  if (is_causal(evaluation))
    plm_question_causal(question, batch);
  else
    plm_question_masked(question, batch, evaluation->inference->tokenizer, pass->seed, pass->rate);
  if (pass->wants_entropy)
    PLM_TRY(plm_attention_entropy_measure(evaluation->entropy, batch, question->inputs, error));
  pass->wants_entropy = false;
  if (question->rows == 0) return PLM_OK;
  PLM_TRY(plm_inference_run(evaluation->inference, batch, question->inputs, question->positions,
                            question->rows, NULL, evaluation->logits, error));
  PLM_TRY(plm_question_check(question, batch, evaluation->logits,
                             evaluation->inference->config.vocab_size, error));
  plm_confusion_add(&evaluation->confusion, evaluation->logits, question->labels,
                    question->residues, question->rows);
  return PLM_OK;
}

static double mean_loss(const struct plm_confusion *confusion)
{
  return confusion->rows > 0 ? confusion->loss_sum / (double)confusion->rows : NAN;
}

static void fill_main_rate(const struct plm_confusion *confusion,
                           struct plm_evaluation_result *result)
{
  result->loss = mean_loss(confusion);
  result->perplexity = exp(result->loss);
  result->classification = plm_confusion_classification(confusion);
  result->tokens = confusion->rows;
  for (int bin = 0; bin < PLM_LENGTH_BINS; bin++) {
    result->bin_rows[bin] = confusion->bin_rows[bin];
    result->bin_loss[bin] = confusion->bin_rows[bin] > 0
                                ? confusion->bin_loss[bin] / (double)confusion->bin_rows[bin]
                                : NAN;
  }
}

static plm_status run_measures(struct plm_evaluation *evaluation, struct plm_batch_walk walk,
                               const struct plm_evaluation_options *options,
                               struct plm_evaluation_result *result, struct plm_error *error)
{
  const struct plm_measure_buffers buffers = {evaluation->inference, &evaluation->question,
                                              evaluation->logits};
  const bool pseudo = options->pseudo_perplexity || options->pseudo_perplexity_fast;
  result->elbo = result->pseudo_perplexity = result->pseudo_perplexity_fast = NAN;
  if (is_causal(evaluation) && pseudo)
    return plm_error_set(error, PLM_CONFIG,
                         "a causal model has no pseudo-perplexity; its "
                         "perplexity is exact");
  if (is_causal(evaluation)) return PLM_OK;
  walk.progress = options->progress ? "elbo" : NULL;
  if (options->elbo_rates > 0)
    PLM_TRY(plm_measure_elbo(&buffers, &walk, options->elbo_rates, options->seed, &result->elbo,
                             error));
  if (options->pseudo_perplexity_fast)
    PLM_TRY(plm_measure_pseudo_perplexity_fast(&buffers, &walk, options->random_fraction,
                                               options->keep_fraction,
                                               &result->pseudo_perplexity_fast, error));
  walk.progress = options->progress ? "pseudo-perplexity" : NULL;
  walk.most = 1;
  if (options->pseudo_perplexity)
    PLM_TRY(plm_measure_pseudo_perplexity(&buffers, &walk, &result->pseudo_perplexity, error));
  return PLM_OK;
}

static plm_status add_labels(void *context, const struct plm_batch *batch, struct plm_error *error)
{
  return plm_label_evaluation_add(context, batch, error);
}

/* The whole evaluation of a model that predicts labels. */
static plm_status run_labels(struct plm_evaluation *evaluation, const struct plm_batch_walk *walk,
                             const struct plm_evaluation_options *options,
                             struct plm_evaluation_result *result, struct plm_error *error)
{
  const struct plm_label_schema *schema;
  if (options->pseudo_perplexity || options->pseudo_perplexity_fast)
    return plm_error_set(error, PLM_CONFIG,
                         "a model that predicts labels has no pseudo-perplexity");
  PLM_TRY(walk->stream->labels(walk->stream->context, &schema, error));
  PLM_TRY(plm_label_evaluation_begin(evaluation->labels, schema, options->labels,
                                     options->label_count, options->labels_of_run, error));
  PLM_TRY(plm_each_batch(walk, add_labels, evaluation->labels, error));
  PLM_TRY(plm_label_evaluation_end(evaluation->labels, &result->labels, error));
  result->loss = result->labels->loss;
  return PLM_OK;
}

plm_status plm_evaluation_run(struct plm_evaluation *evaluation,
                              const struct plm_chunk_stream *stream, enum plm_split split,
                              const struct plm_evaluation_options *options,
                              plm_evaluation_stop *stop, void *stop_context,
                              struct plm_evaluation_result *result, struct plm_error *error)
{
  const uint64_t started = plm_clock_ns();
  const uint32_t rates = is_causal(evaluation) ? 1 : 1 + options->more_rate_count;
  struct plm_batch_walk walk = {.stream = stream,
                                .split = split,
                                .most = evaluation->inference->max_chunks,
                                .stop = stop,
                                .stop_context = stop_context,
                                .lengths = &result->lengths};
  *result = (struct plm_evaluation_result){.rate_count = is_causal(evaluation) ? 0 : rates,
                                           .compute_dtype =
                                               plm_ops_precision(evaluation->inference->ops)};
  if (evaluation->labels != NULL) {
    PLM_TRY(run_labels(evaluation, &walk, options, result, error));
    result->seconds = plm_clock_seconds_since(started);
    return PLM_OK;
  }
  for (uint32_t i = 0; i < rates; i++) {
    struct rate_pass pass = {evaluation, options->seed,
                             i == 0 ? options->mask_rate : options->more_rates[i - 1], i == 0};
    plm_confusion_reset(&evaluation->confusion);
    PLM_TRY(plm_each_batch(&walk, count_batch, &pass, error));
    walk.lengths = NULL; /* the other passes read the same documents */
    if (i == 0) fill_main_rate(&evaluation->confusion, result);
    result->rates[i] = pass.rate;
    result->rate_loss[i] = mean_loss(&evaluation->confusion);
  }
  result->entropies = plm_attention_entropies(evaluation->entropy, &result->entropy_count);
  PLM_TRY(run_measures(evaluation, walk, options, result, error));
  result->seconds = plm_clock_seconds_since(started);
  return PLM_OK;
}

void plm_evaluation_report(const struct plm_evaluation_result *result, const char *weights,
                           double baseline_entropy, cJSON *line)
{
  const struct plm_classification *classes = &result->classification;
  plm_metrics_string(line, "weights", weights);
  plm_metrics_string(line, "compute_dtype", result->compute_dtype);
  plm_metrics_integer(line, "cut", result->lengths.cut);
  if (result->labels != NULL) {
    plm_label_report(result->labels, line);
    return;
  }
  plm_metrics_number(line, "loss", result->loss);
  plm_metrics_number(line, "perplexity", result->perplexity);
  plm_metrics_number(line, "accuracy", classes->accuracy);
  plm_metrics_number(line, "precision", classes->precision);
  plm_metrics_number(line, "recall", classes->recall);
  plm_metrics_number(line, "f1", classes->f1);
  plm_metrics_number(line, "mcc", classes->mcc);
  plm_metrics_integer(line, "tokens", result->tokens);
  plm_metrics_number(line, "baseline_entropy", baseline_entropy);
  if (!isnan(result->elbo)) plm_metrics_number(line, "elbo", result->elbo);
  if (!isnan(result->pseudo_perplexity))
    plm_metrics_number(line, "pseudo_perplexity", result->pseudo_perplexity);
  if (!isnan(result->pseudo_perplexity_fast))
    plm_metrics_number(line, "pseudo_perplexity_fast", result->pseudo_perplexity_fast);
  cJSON *by_rate = cJSON_AddObjectToObject(line, "loss_by_mask_rate");
  for (uint32_t i = 0; i < result->rate_count; i++) {
    char name[32];
    snprintf(name, sizeof name, "%g", result->rates[i]);
    plm_metrics_number(by_rate, name, result->rate_loss[i]);
  }
  cJSON *by_length = cJSON_AddObjectToObject(line, "loss_by_length");
  for (int bin = 0; bin < PLM_LENGTH_BINS; bin++) {
    char name[32];
    if (result->bin_rows[bin] == 0) continue;
    plm_confusion_bin_name(bin, name);
    plm_metrics_number(by_length, name, result->bin_loss[bin]);
  }
  cJSON *by_layer = cJSON_AddObjectToObject(line, "attention_entropy");
  for (uint32_t i = 0; i < result->entropy_count; i++)
    plm_metrics_number(by_layer, result->entropies[i].layer, result->entropies[i].entropy);
}
