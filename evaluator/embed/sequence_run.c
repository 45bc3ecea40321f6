/* The loop over windows and batches. */
#include "evaluator/embed/sequence_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/cli/output_file.h"
#include "common/run/stop.h"

/* ---- opening --------------------------------------------------------------------------------- */

plm_status plm_sequence_run_read(struct plm_sequence_run *run, struct plm_intake_options *options,
                                 struct plm_error *error)
{
  const struct plm_sequence_request *request = run->request;
  const struct plm_tokenizer *tokenizer = run->inference->tokenizer;
  char folder[PLM_PATH_SIZE];
  options->inputs = request->inputs;
  options->input_count = request->input_count;
  options->tokenizer = tokenizer;
  options->max_length = plm_inference_most(run->inference);
  options->strict = request->strict;
  const bool columns = options->choices.columns;
  options->choices = request->choices;
  options->choices.columns = columns;
  options->choices.chains = options->chain_break != 0;
  PLM_TRY(plm_output_folder(request->output, folder, error));
  PLM_TRY(plm_sequence_spool_open(folder, tokenizer->token_bytes, &run->spool, error));
  PLM_TRY(plm_sequence_intake(options, run->spool, &run->intake, error));
  run->journal.input = plm_sequence_spool_fingerprint(run->spool);
  run->inference->warned |= run->intake.longer > 0;
  return plm_inference_make_room(run->inference, run->intake.longest, error);
}

static uint32_t window_length(void *context, uint32_t i)
{
  const struct plm_sequence_run *run = context;
  return run->window.lengths[i];
}

static const int32_t *window_tokens(void *context, uint32_t i)
{
  return plm_sequence_run_tokens(context, i);
}

static plm_status open_batches(struct plm_sequence_run *run, struct plm_error *error)
{
  const struct plm_inference *inference = run->inference;
  const struct plm_model_config *model = &inference->config;
  run->queue.waiting = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *run->queue.waiting);
  run->queue.length = window_length;
  run->queue.tokens = window_tokens;
  run->queue.context = run;
  run->taken = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *run->taken);
  run->row_of = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *run->row_of);
  run->tokens = calloc(model->max_length, sizeof *run->tokens);
  if (run->tokens == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for a sequence of %u tokens",
                         model->max_length);
  return plm_sequence_batch_open(model, inference->tokenizer->pad, inference->max_chunks,
                                 &run->batch, error);
}

plm_status plm_sequence_run_begin(struct plm_sequence_run *run, struct plm_error *error)
{
  const struct plm_sequence_request *request = run->request;
  char done[32], all[32];
  PLM_TRY(plm_embed_layout_compute(&run->layout, run->spool, error));
  run->journal.bytes = run->layout.bytes;
  PLM_TRY(plm_embed_output_open(request->output, &run->layout, run->spool, request->fresh,
                                &run->journal, &run->output, error));
  PLM_TRY(open_batches(run, error));
  run->resumed = run->journal.sequences;
  if (run->resumed > 0)
    plm_info("%s: continuing after %s of %s sequences", request->output,
             plm_format_count(run->resumed, done),
             plm_format_count(plm_sequence_spool_count(run->spool), all));
  return PLM_OK;
}

void plm_sequence_run_close(struct plm_sequence_run *run)
{
  free(run->intake.columns);
  plm_sequence_batch_close(run->batch);
  plm_spool_window_deinit(&run->window);
  plm_embed_output_close(run->output);
  plm_sequence_spool_close(run->spool);
  free(run->queue.waiting);
  free(run->taken);
  free(run->row_of);
  free(run->tokens);
}

/* ---- sequences ------------------------------------------------------------------------------- */

static uint32_t token_of(const struct plm_sequence_run *run, uint32_t i, uint32_t t)
{
  const uint64_t at = run->window.starts[i] + t;
  return run->inference->tokenizer->token_bytes == 1
             ? ((const uint8_t *)run->window.token_data)[at]
             : ((const uint16_t *)run->window.token_data)[at];
}

const int32_t *plm_sequence_run_tokens(struct plm_sequence_run *run, uint32_t i)
{
  for (uint32_t t = 0; t < run->window.lengths[i]; t++)
    run->tokens[t] = (int32_t)token_of(run, i, t);
  return run->tokens;
}

uint32_t plm_sequence_run_residues(const struct plm_sequence_run *run, uint32_t i)
{
  const uint32_t tokens = run->window.lengths[i];
  return tokens - 1 - (token_of(run, i, tokens - 1) == run->inference->tokenizer->eos);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The places of the window's sequences in the file. */
static void place_window(struct plm_sequence_run *run)
{
  for (uint32_t i = 0; i < run->window.count; i++) {
    run->row_of[i] = run->rows_before;
    run->rows_before += plm_embed_layout_rows_of(&run->layout, run->window.lengths[i]);
  }
}

static void sort_window(struct plm_sequence_run *run)
{
  run->queue.count = run->window.count;
  for (uint32_t i = 0; i < run->window.count; i++) run->queue.waiting[i] = i;
  plm_sequence_queue_sort(&run->queue);
}

/* The tokens of the sequences in a filled batch. */
static uint64_t tokens_of_batch(const struct plm_sequence_run *run)
{
  uint64_t tokens = 0;
  for (uint32_t k = 0; k < plm_sequence_batch_count(run->batch); k++)
    tokens += run->window.lengths[run->taken[k]];
  return tokens;
}

static plm_status stopped(struct plm_sequence_run *run, struct plm_error *error)
{
  const plm_status status = plm_stop_check("", NULL);
  if (status == PLM_OK) return PLM_OK;
  char done[32], all[32], what[128];
  PLM_TRY(plm_embed_output_save(run->output, &run->journal, false, error));
  snprintf(what, sizeof what, " after %s of %s sequences",
           plm_format_count(run->journal.sequences, done),
           plm_format_count(plm_sequence_spool_count(run->spool), all));
  plm_stop_check(what, error);
  if (!plm_output_is_stream(run->request->output))
    plm_error_hint(error, "the same command continues from there");
  return status;
}

static plm_status run_window(struct plm_sequence_run *run, uint64_t batches_done,
                             plm_status (*compute)(void *context, struct plm_error *error),
                             void *context, struct plm_error *error)
{
  struct plm_embed_journal *journal = &run->journal;
  sort_window(run);
  for (uint64_t batch = 0; run->queue.count > 0; batch++) {
    (void)plm_sequence_batch_fill(run->batch, &run->queue, run->taken);
    const uint64_t tokens = tokens_of_batch(run);
    run->tokens_at += tokens;
    if (batch < batches_done) {
      run->progress.done_before = run->tokens_at;
      continue;
    }
    PLM_TRY(compute(context, error));
    run->computed += tokens;
    journal->windows = run->windows;
    journal->batches = batch + 1;
    journal->sequences += plm_sequence_batch_count(run->batch);
    plm_progress_update(&run->progress, run->tokens_at, plm_sequence_spool_tokens(run->spool),
                        run->computed, journal->sequences, "sequence");
    PLM_TRY(stopped(run, error));
    PLM_TRY(plm_embed_output_save(run->output, journal, true, error));
  }
  return PLM_OK;
}

plm_status plm_sequence_run_all(struct plm_sequence_run *run, const char *label,
                                plm_status (*compute)(void *context, struct plm_error *error),
                                void *context, struct plm_error *error)
{
  const uint64_t windows_done = run->journal.windows, batches_done = run->journal.batches;
  plm_progress_begin(&run->progress, label);
  run->progress.rate_unit = "tokens";
  for (;; run->windows++) {
    PLM_TRY(plm_sequence_spool_next(run->spool, &run->window, error));
    if (run->window.count == 0) return PLM_OK;
    place_window(run);
    if (run->windows < windows_done) {
      run->tokens_at += run->window.tokens;
      run->progress.done_before = run->tokens_at;
      continue;
    }
    PLM_TRY(
        run_window(run, run->windows == windows_done ? batches_done : 0, compute, context, error));
  }
}

plm_status plm_sequence_run_end(struct plm_sequence_run *run, plm_status status,
                                struct plm_error *error)
{
  plm_progress_clear(&run->progress);
  if (status == PLM_NO_SPACE && !plm_output_is_stream(run->request->output))
    plm_error_hint(error,
                   "finished work is kept; free some space and run the same command to continue");
  return status;
}
