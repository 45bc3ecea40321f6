/* `generate`: opens the checkpoint, checks that the options fit its model, generates, and reports.
 */
#include "evaluator/generate/generate.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/cli/output_file.h"
#include "common/huggingface/huggingface.h"
#include "common/huggingface/model_folder.h"
#include "evaluator/generate/generate_work.h"

enum { CAUSAL_BATCH_TOKENS = 1, DEFAULT_STEPS = 20 };

/* ---- options ----------------------------------------------------------------------------------*/

static plm_status not_for(const char *option, const char *kind, const char *hint,
                          struct plm_error *error)
{
  plm_error_set(error, PLM_USAGE, "--%s does not apply to this checkpoint: its model is %s", option,
                kind);
  return plm_error_hint(error, "%s", hint);
}

static plm_status check_causal(const struct plm_generate_request *request, struct plm_error *error)
{
  static const char kind[] = "causal, and samples one token after another";
  if (request->steps != 0)
    return not_for("steps", kind, "leave it out; --max-tokens limits how much is generated", error);
  if (request->remask > 0)
    return not_for("remask", kind, "leave it out; a causal model has no masks", error);
  if (request->length != 0)
    return not_for("length", kind,
                   "leave it out; a sequence ends by itself, after --max-tokens, or at max_length",
                   error);
  return PLM_OK;
}

static plm_status check_masked(const struct plm_generate_request *request, uint32_t max_length,
                               struct plm_error *error)
{
  static const char kind[] = "masked, and fills <mask>";
  if (request->max_tokens != 0)
    return not_for("max-tokens", kind,
                   "leave it out; the masks of IN, or --length, determine how much is generated",
                   error);
  if (request->input == NULL && request->length == 0) {
    plm_error_set(error, PLM_USAGE, "this checkpoint's model fills masks, so it needs sequences");
    return plm_error_hint(error, "name a FASTA file with <mask> or _ in its sequences, or give "
                                 "--length N for sequences that are completely masked");
  }
  if (request->input != NULL && request->length != 0)
    return plm_error_set(error, PLM_USAGE, "--length applies only without IN");
  if (request->length > max_length - 2) {
    plm_error_set(error, PLM_USAGE,
                  "--length %u: this model (max_length %u) takes up to %u residues",
                  request->length, max_length, max_length - 2);
    return plm_error_hint(error, "shorten it, or give --max-length %u", request->length + 2);
  }
  return PLM_OK;
}

/* If an output were IN itself, its masks would be lost. */
static plm_status check_places(const struct plm_generate_request *request, struct plm_error *error)
{
  const size_t inputs = request->input != NULL;
  PLM_TRY(plm_output_check_inputs("--output", request->output, &request->input, inputs, error));
  return plm_output_check_inputs("--trace", request->trace, &request->input, inputs, error);
}

/* ---- the work ---------------------------------------------------------------------------------*/

static plm_status check_found(const struct plm_generate_request *request,
                              const struct plm_generate_work *work, bool causal,
                              struct plm_error *error)
{
  if (plm_generation_inputs(work->queue) == 0)
    return plm_error_set(error, PLM_FORMAT, "%s has no sequences", request->input);
  if (causal || plm_generation_masked_inputs(work->queue) > 0) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "no sequence of %s has a mask, so there is nothing to fill",
                request->input);
  if (work->inference->tokenizer->kind == PLM_TOKENIZER_BYTE)
    return plm_error_hint(error, "write <mask> for each byte that the model should choose");
  return plm_error_hint(error, "write <mask> or _ for each residue that the model should choose");
}

static plm_status generate_report(const struct plm_generate_request *request,
                                  const struct plm_generate_work *work, double seconds,
                                  struct plm_error *error)
{
  const uint64_t blanks = plm_fasta_writer_blanks(work->writer);
  char sequences[64], residues[64];
  const uint64_t cut = plm_generation_cut_inputs(work->queue);
  if (cut > 0)
    plm_warning("sequences longer than the max_length of %u tokens, cut to their first %u: %s",
                plm_inference_most(work->inference), plm_inference_most(work->inference),
                plm_format_count(cut, sequences));
  if (blanks > 0)
    plm_warning("FASTA cannot hold line ends, so generated ones were written as blanks: %" PRIu64,
                blanks);
  if (!request->json) {
    plm_info("%s: %s, %s generated in %.1f s", plm_output_name(request->output),
             plm_format_quantity(work->sequences, "sequence", sequences),
             plm_format_quantity(work->residues, "residue", residues), seconds);
    return PLM_OK;
  }
  cJSON *line = cJSON_CreateObject();
  cJSON_AddStringToObject(line, "output", request->output);
  cJSON_AddStringToObject(line, "weights", work->inference->weights);
  cJSON_AddStringToObject(line, "objective", plm_objective_name(work->inference->objective));
  cJSON_AddNumberToObject(line, "sequences", (double)work->sequences);
  cJSON_AddNumberToObject(line, "residues", (double)work->residues);
  cJSON_AddNumberToObject(line, "seconds", seconds);
  return plm_json_print(line, error);
}

static plm_status work_on(const struct plm_generate_request *request,
                          struct plm_generate_work *work, bool causal, struct plm_error *error)
{
  const struct plm_generation_options options = {
      .input = request->input,
      .choices = request->choices,
      .tokenizer = work->inference->tokenizer,
      .max_length = plm_inference_most(work->inference),
      .cut = !causal && request->max_length != 0,
      .causal = causal,
      .count = request->count,
      .length = request->length,
      .max_tokens = request->max_tokens,
  };
  const uint64_t started = plm_clock_ns();
  if (causal) /* a sequence may grow as long as that */
    PLM_TRY(plm_inference_make_room(work->inference, plm_inference_most(work->inference), error));
  PLM_TRY(plm_generation_queue_open(&options, &work->queue, error));
  PLM_TRY(plm_fasta_writer_open(request->output, &work->writer, error));
  if (request->trace != NULL) PLM_TRY(plm_output_open(request->trace, &work->trace, error));
  plm_sampler_init(&work->sampler, work->inference->tokenizer, causal, request->temperature,
                   request->top_p, request->top_k, request->seed);
  work->total = request->input == NULL ? request->count : 0;
  plm_progress_begin(&work->progress, "generate");
  work->progress.rate_unit = "residues";
  const uint32_t steps = request->steps != 0 ? request->steps : DEFAULT_STEPS;
  plm_status status = causal ? plm_generate_causal(work, error)
                             : plm_generate_masked(work, steps, request->remask, error);
  plm_progress_clear(&work->progress);
  if (status == PLM_OK) status = check_found(request, work, causal, error);
  if (status == PLM_OK) status = plm_step_trace_finish(work->trace, error);
  if (status == PLM_OK) status = plm_fasta_writer_finish(work->writer, error);
  if (status != PLM_OK) return status;
  return generate_report(request, work, plm_clock_seconds_since(started), error);
}

plm_status plm_generate(const struct plm_generate_request *request, struct plm_ops *ops,
                        struct plm_error *error)
{
  struct plm_generate_work work = {0};
  struct plm_model_config config;
  enum plm_objective objective;
  uint32_t most;
  plm_status status =
      plm_huggingface_config_read(request->checkpoint, &config, NULL, &objective, error);
  if (status != PLM_OK) {
    struct plm_model_folder folder; /* its check explains what is there instead */
    PLM_TRY(plm_model_folder_check(request->checkpoint, &folder, NULL, error));
    return status;
  }
  const bool causal = objective == PLM_OBJECTIVE_CAUSAL;
  PLM_TRY(plm_inference_limit(&config, request->max_length, &most, error));
  if (causal)
    PLM_TRY(check_causal(request, error));
  else
    PLM_TRY(check_masked(request, most, error));
  PLM_TRY(check_places(request, error));
  status = plm_inference_open_verified(request->checkpoint, request->weights, ops,
                                       causal ? CAUSAL_BATCH_TOKENS : PLM_INFERENCE_BATCH_TOKENS,
                                       &work.inference, NULL, error);
  if (status == PLM_OK)
    status = plm_inference_set_limit(work.inference, request->max_length, error);
  if (status == PLM_OK) status = work_on(request, &work, causal, error);
  plm_output_close(work.trace);
  plm_fasta_writer_close(work.writer);
  plm_generation_queue_close(work.queue);
  plm_inference_close(work.inference);
  return status;
}
