/* One checkpoint, one corpus, one result on stdout. */
#include "evaluator/evaluate/evaluate_once.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/name_list.h"
#include "common/base/text/printable.h"
#include "common/checkpoint/trainer_json.h"
#include "common/huggingface/model_folder.h"
#include "common/inference/inference.h"
#include "common/metrics/metrics.h"
#include "common/run/stop.h"
#include "evaluator/evaluate/corpus_stream.h"
#include "evaluator/evaluate/evaluate.h"
#include "evaluator/labels/label_report.h"

static plm_status check_stop(void *context, struct plm_error *error)
{
  (void)context;
  return plm_stop_check("", error);
}

/* The layers whose attention is narrowest and widest. */
static void print_entropies(const struct plm_evaluation_result *result)
{
  const struct plm_layer_entropy *all = result->entropies, *least = NULL, *most = NULL;
  for (uint32_t i = 0; i < result->entropy_count; i++) {
    if (least == NULL || all[i].entropy < least->entropy) least = &all[i];
    if (most == NULL || all[i].entropy > most->entropy) most = &all[i];
  }
  PLM_ASSERT(most != NULL); /* the first block of each model has attention */
  printf("\nattention    entropy %.3f nats (%s) to %.3f (%s)", least->entropy, least->layer,
         most->entropy, most->layer);
}

/* The first lines: the model, and what it is measured on. `amount` is what was predicted. */
static void print_subject(const struct plm_evaluate_request *request,
                          const struct plm_model_folder *folder, const char *weights,
                          const char *amount)
{
  if (folder->checkpoint)
    plm_print(stdout, "checkpoint   %s (step %" PRIu64 ", weights: %s)\n", request->checkpoint,
              folder->step, weights);
  else
    plm_print(stdout, "model        %s\n", request->checkpoint);
  plm_print(stdout, "split        %s of %s%s\n", request->split, request->corpus, amount);
}

static void print_people(const struct plm_evaluate_request *request,
                         const struct plm_model_folder *folder,
                         const struct plm_evaluation_result *result, const char *weights,
                         double entropy)
{
  const uint64_t cut = result->lengths.cut;
  char amount[160] = "", documents[64];
  size_t used = 0;
  if (result->labels == NULL)
    used =
        (size_t)snprintf(amount, sizeof amount, ", %" PRIu64 " tokens predicted", result->tokens);
  if (cut > 0)
    snprintf(amount + used, sizeof amount - used, ", %s cut",
             plm_format_quantity(cut, "document", documents));
  print_subject(request, folder, weights, amount);
  if (result->labels != NULL) {
    plm_label_report_print(result->labels);
    printf("time         %.2f s\n", result->seconds);
    return;
  }
  printf("loss         %.6f nats (composition only: %.4f)\n", result->loss, entropy);
  printf("perplexity   %.4f\n", result->perplexity);
  printf("accuracy     %.4f   precision %.4f   recall %.4f   f1 %.4f   mcc %.4f\n",
         result->classification.accuracy, result->classification.precision,
         result->classification.recall, result->classification.f1, result->classification.mcc);
  if (!isnan(result->elbo)) printf("elbo         %.6f nats per residue\n", result->elbo);
  if (!isnan(result->pseudo_perplexity))
    printf("pseudo-perplexity  %.4f\n", result->pseudo_perplexity);
  if (!isnan(result->pseudo_perplexity_fast))
    printf("pseudo-perplexity  %.4f (estimated from one pass)\n", result->pseudo_perplexity_fast);
  printf("by length    ");
  for (int bin = 0; bin < PLM_LENGTH_BINS; bin++) {
    char name[32];
    if (result->bin_rows[bin] == 0) continue;
    plm_confusion_bin_name(bin, name);
    printf("%s: %.4f  ", name, result->bin_loss[bin]);
  }
  print_entropies(result);
  printf("\ntime         %.2f s\n", result->seconds);
}

static plm_status evaluate_once_print_json(const struct plm_evaluate_request *request,
                                           const struct plm_model_folder *folder,
                                           const struct plm_evaluation_result *result,
                                           const char *weights, double entropy,
                                           struct plm_error *error)
{
  char hex[PLM_HASH_HEX_SIZE];
  struct plm_hash identity = folder->identity;
  if (!folder->checkpoint)
    PLM_TRY(plm_model_folder_hash(folder, plm_model_folder_weights(folder), &identity, error));
  plm_hash_to_hex(identity, hex);
  cJSON *line = plm_metrics_line();
  if (folder->checkpoint) plm_metrics_integer(line, "step", folder->step);
  plm_metrics_string(line, "checkpoint", request->checkpoint);
  plm_metrics_string(line, "identity", hex);
  plm_metrics_string(line, "set", PLM_OWN_SET);
  plm_metrics_string(line, "split", request->split);
  plm_evaluation_report(result, weights, entropy, line);
  plm_metrics_number(line, "seconds", result->seconds);
  return plm_json_print(line, error);
}

/* A split is held out only from models that were trained on another split of the same corpus. If
 * trainer.json cannot be read, nothing is known, and that is no reason to end. */
static void warn_of_other_corpus(const struct plm_evaluate_request *request,
                                 const struct plm_model_folder *folder,
                                 const struct plm_corpus_info *corpus)
{
  cJSON *json = NULL;
  if (folder->checkpoint) (void)plm_trainer_json_read(folder->directory, &json, NULL);
  if (!plm_trainer_json_is_of(json, corpus))
    plm_warning("%s was not trained on %s, so sequences of its split %s may be in what it was "
                "trained on; `plm-pipeline corpus --against` counts them",
                request->checkpoint, request->corpus, request->split);
  cJSON_Delete(json);
}

/* What one evaluation opens. */
struct once {
  struct plm_evaluation *evaluation;
  struct plm_corpus *corpus;
  struct plm_corpus_stream *stream;
};

static plm_status open_once(struct once *once, const struct plm_evaluate_request *request,
                            const struct plm_model_folder *folder, struct plm_ops *ops,
                            struct plm_error *error)
{
  const struct plm_corpus_options options = {.allow_remote = true}; /* it reads once, in order */
  PLM_TRY(
      plm_evaluation_open(folder->directory, request->max_length, ops, &once->evaluation, error));
  PLM_TRY(plm_evaluation_load(once->evaluation, folder->directory, NULL, error));
  PLM_TRY(plm_corpus_open(request->corpus, &options, &once->corpus, error));
  const struct plm_model_config *model = plm_evaluation_model(once->evaluation);
  const struct plm_corpus_info *info = plm_corpus_info(once->corpus);
  const struct plm_tokenizer *tokenizer = plm_evaluation_tokenizer(once->evaluation);
  if (tokenizer->kind != info->tokenizer) {
    plm_error_set(error, PLM_CONFIG, "the checkpoint has %u tokens, the corpus's tokenizer %u",
                  tokenizer->vocab_size, plm_tokenizer_of(info->tokenizer)->vocab_size);
    return plm_error_hint(error, "ingest the sequences with the tokenizer the model was trained "
                                 "with (--tokenizer esm | byte)");
  }
  const uint32_t length = request->max_length != 0 ? request->max_length : model->max_length;
  warn_of_other_corpus(request, folder, info);
  const struct plm_config config = {
      .model = *model,
      .data = {.tokenizer = info->tokenizer,
               .max_length = length,
               .document_alignment = request->alignment,
               .window_groups = 64},
      .evaluator.max_tokens = request->max_tokens,
  };
  const struct plm_plan_parameters parameters = plm_config_evaluation_plan(&config);
  return plm_corpus_stream_open(once->corpus, &parameters, plm_inference_batch_chunks(length),
                                &once->stream, error);
}

static plm_status run_once(struct once *once, const struct plm_evaluate_request *request,
                           const struct plm_model_folder *folder, struct plm_error *error)
{
  struct plm_evaluation_options options = {
      .mask_rate = request->mask_rate,
      .seed = request->seed,
      .elbo_rates = request->elbo_rates,
      .pseudo_perplexity = request->pseudo_perplexity,
      .pseudo_perplexity_fast = request->pseudo_perplexity_fast,
      .random_fraction = request->random_fraction,
      .keep_fraction = request->keep_fraction,
      .progress = true,
  };
  const struct plm_chunk_stream stream = plm_stream_of_corpus(once->stream);
  const double entropy = plm_corpus_info(once->corpus)->entropy;
  const char *weights = plm_evaluation_weights(once->evaluation);
  struct plm_evaluation_result result;
  enum plm_split split;
  PLM_TRY(plm_split_parse(request->split, &split, error));
  struct plm_name_list labels;
  plm_name_list_init(&labels, request->labels);
  options.labels = labels.names;
  options.label_count = labels.count;
  const plm_status status = plm_evaluation_run(once->evaluation, &stream, split, &options,
                                               check_stop, NULL, &result, error);
  plm_name_list_deinit(&labels);
  PLM_TRY(status);
  plm_evaluation_note_length(once->evaluation, result.lengths.longest);
  if (!plm_corpus_info(once->corpus)->clustered)
    plm_info("split %s", plm_corpus_split_words(false));
  if (request->json)
    return evaluate_once_print_json(request, folder, &result, weights, entropy, error);
  print_people(request, folder, &result, weights, entropy);
  return PLM_OK;
}

plm_status plm_evaluate_once(const struct plm_evaluate_request *request, struct plm_ops *ops,
                             struct plm_error *error)
{
  struct once once = {0};
  struct plm_model_folder folder;
  PLM_TRY(plm_model_folder_check(request->checkpoint, &folder, NULL, error));
  plm_status status = open_once(&once, request, &folder, ops, error);
  if (status == PLM_OK) status = run_once(&once, request, &folder, error);
  plm_corpus_stream_close(once.stream);
  plm_corpus_close(once.corpus);
  plm_evaluation_close(once.evaluation);
  return status;
}
