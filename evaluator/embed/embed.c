/* The loop of `embed` over windows and batches. */
#include "evaluator/embed/embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/numbers/finite.h"
#include "common/checkpoint/parameter_file.h"
#include "common/cli/output_file.h"
#include "common/huggingface/contact_head.h"
#include "common/inference/finite_output.h"
#include "common/inference/inference.h"
#include "common/inference/sequence_batch.h"
#include "common/model/architecture.h"
#include "common/run/stop.h"
#include "evaluator/embed/embed_maps.h"
#include "evaluator/embed/embed_output.h"
#include "evaluator/embed/embed_report.h"
#include "evaluator/embed/layer_choice.h"
#include "evaluator/embed/sequence_intake.h"

struct embed {
  const struct plm_embed_request *request;
  struct plm_inference *inference;
  struct plm_sequence_spool *spool;
  struct plm_embed_layout layout;
  struct plm_embed_output *output;
  struct plm_embed_journal journal;
  struct plm_spool_window window;
  struct plm_sequence_batch *batch;
  struct plm_sequence_queue queue; /* sequences of the window that no batch has taken yet */
  uint32_t *taken;      /* (window) the sequences of the batch, in the order they were added */
  uint64_t *row_of;     /* (window) the first row of each in the file */
  uint64_t rows_before; /* of the sequences before the window */
  int32_t *tokens;      /* (max_length) of one sequence */
  float *values;        /* (max_chunks * max_length, columns) */
  float *room;          /* (max_chunks * max_length, D) for a state; NULL without --layers */
  struct plm_layer_choice layers; /* none: the last hidden state */
  struct plm_map_choice choice;   /* of attention maps */
  struct plm_contact_head head;   /* for contacts */
  struct plm_embed_maps *maps;    /* NULL unless maps are wanted */
  uint32_t *map_tokens;           /* (window) of each sequence of the batch */
  float *pooled;                  /* (layout.width) */
  double *scratch;                /* (2 D) */
  uint64_t windows;               /* number of windows before this one */
  uint64_t tokens_at;             /* tokens of the finished sequences */
  struct plm_progress progress;
  struct plm_embed_report report;
  char pooling[PLM_POOLING_NAME_SIZE];
};

/* The token of |, 0 if the model has none. */
static uint16_t chain_break_of(const struct embed *embed)
{
  return plm_architecture_rules(embed->inference->config.architecture)->chain_break;
}

/* ---- opening --------------------------------------------------------------------------------- */

static plm_status open_model(struct embed *embed, struct plm_ops *ops, struct plm_error *error)
{
  const struct plm_embed_request *request = embed->request;
  struct plm_embed_journal *journal = &embed->journal;
  char path[PLM_PATH_SIZE];
  const bool logits = request->kind == PLM_EMBED_LOGITS;
  PLM_TRY((logits ? plm_inference_open_verified : plm_inference_open_trunk)(
      request->checkpoint, request->weights, ops, request->batch_tokens, &embed->inference,
      &journal->checkpoint, error));
  if (embed->inference->head == PLM_HEAD_CLASSIFIER)
    plm_info("%s is a classifier: its hidden states are embedded, and its classifier is ignored",
             request->checkpoint);
  PLM_TRY(plm_inference_set_limit(embed->inference, request->max_length, error));
  if (request->separate_chains && chain_break_of(embed) == 0) {
    plm_error_set(error, PLM_USAGE, "--separate-chains: %s has no token for a break of chains",
                  request->checkpoint);
    return plm_error_hint(error, "ESM-C has one, which is written |");
  }
  if (request->kind == PLM_EMBED_CONTACTS)
    PLM_TRY(plm_contact_head_read(&embed->inference->folder, embed->inference->file, &embed->head,
                                  error));
  PLM_TRY(plm_path_join(path, request->checkpoint, "config.json", error));
  return plm_hash_file(path, &journal->config, NULL, NULL, error);
}

static plm_status read_inputs(struct embed *embed, struct plm_error *error)
{
  const struct plm_embed_request *request = embed->request;
  const struct plm_tokenizer *tokenizer = embed->inference->tokenizer;
  struct plm_intake_options options = {
      .inputs = request->inputs,
      .input_count = request->input_count,
      .tokenizer = tokenizer,
      .max_length = plm_inference_most(embed->inference),
      .keep_eos = request->kind == PLM_EMBED_CONTACTS,
      .strict = request->strict,
      .choices = request->choices,
      .chain_break = chain_break_of(embed),
  };
  char folder[PLM_PATH_SIZE];
  options.choices.chains = options.chain_break != 0;
  PLM_TRY(plm_output_folder(request->output, folder, error));
  PLM_TRY(plm_sequence_spool_open(folder, tokenizer->token_bytes, &embed->spool, error));
  PLM_TRY(plm_sequence_intake(&options, embed->spool, &embed->report.intake, error));
  embed->journal.input = plm_sequence_spool_fingerprint(embed->spool);
  return plm_inference_make_room(embed->inference, embed->report.intake.longest, error);
}

/* The number of floats for each token. */
static uint32_t columns_of(const struct embed *embed)
{
  const struct plm_model_config *model = &embed->inference->config;
  if (plm_embed_kind_is_map(embed->request->kind)) return 1;
  if (embed->request->kind == PLM_EMBED_LOGITS) return model->vocab_size;
  return embed->layers.count > 0 ? embed->layers.width : model->hidden_size;
}

static plm_status embed_open_output(struct embed *embed, struct plm_error *error)
{
  static const char *const kinds[] = {"pooled", "per token", "logits", "attention", "contacts"};
  const struct plm_embed_request *request = embed->request;
  const struct plm_model_config *model = &embed->inference->config;
  const bool narrow = embed->inference->ops->act_bytes < sizeof(float);
  struct plm_embed_layout *layout = &embed->layout;
  PLM_TRY(plm_embed_format_of(request->output, request->kind, &layout->format, error));
  layout->kind = request->kind;
  layout->pooling = plm_pooling_name(&request->pooling, embed->pooling);
  if (request->layers != NULL) {
    PLM_TRY(plm_layer_choice_parse(request->layers, model, &embed->layers, error));
    layout->layers = embed->layers.name;
  }
  if (request->kind == PLM_EMBED_ATTENTION) {
    PLM_TRY(plm_map_choice_parse(request->attention, model, &embed->choice, error));
    layout->attention = request->attention;
    layout->maps = embed->choice.maps;
  }
  layout->width = columns_of(embed);
  if (request->kind == PLM_EMBED_POOLED) layout->width *= request->pooling.count;
  PLM_TRY(plm_embed_layout_compute(layout, embed->spool, error));
  embed->journal.bytes = layout->bytes;
  snprintf(embed->journal.options, sizeof embed->journal.options,
           "%s%s%s %s %s --batch-tokens %u%s%s%s%s%s", kinds[request->kind],
           embed->pooling[0] == '\0' ? "" : " ", embed->pooling, narrow ? "bf16" : "fp32",
           layout->format == PLM_EMBED_NPY ? "npy" : "safetensors", request->batch_tokens,
           layout->layers != NULL ? " --layers " : "", layout->layers != NULL ? layout->layers : "",
           layout->attention != NULL ? " --attention " : "",
           layout->attention != NULL ? layout->attention : "",
           request->separate_chains ? " --separate-chains" : "");
  return plm_embed_output_open(request->output, layout, embed->spool, request->fresh,
                               &embed->journal, &embed->output, error);
}

static plm_status open_maps(struct embed *embed, struct plm_error *error)
{
  const bool contacts = embed->request->kind == PLM_EMBED_CONTACTS;
  const struct plm_maps_request request = {.inference = embed->inference,
                                           .choice = contacts ? NULL : &embed->choice,
                                           .weights = embed->head.weights,
                                           .bias = embed->head.bias};
  embed->map_tokens = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *embed->map_tokens);
  return plm_embed_maps_open(&request, &embed->maps, error);
}

static plm_status embed_allocate_buffers(struct embed *embed, struct plm_error *error)
{
  const struct plm_inference *inference = embed->inference;
  const struct plm_model_config *model = &inference->config;
  const size_t rows = (size_t)inference->max_chunks * model->max_length;
  const size_t columns = columns_of(embed);
  embed->queue.waiting = calloc(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *embed->queue.waiting);
  embed->taken = calloc(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *embed->taken);
  embed->row_of = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *embed->row_of);
  embed->tokens = calloc(model->max_length, sizeof *embed->tokens);
  embed->values = calloc(rows * columns, sizeof *embed->values);
  embed->pooled = calloc(embed->layout.width, sizeof *embed->pooled);
  embed->scratch = calloc(2 * columns, sizeof *embed->scratch);
  if (embed->layers.count > 0) embed->room = calloc(rows * model->hidden_size, sizeof *embed->room);
  if (embed->queue.waiting == NULL || embed->taken == NULL || embed->tokens == NULL ||
      embed->values == NULL || embed->pooled == NULL || embed->scratch == NULL ||
      (embed->layers.count > 0 && embed->room == NULL))
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a batch of %zu tokens", rows);
  if (plm_embed_kind_is_map(embed->request->kind)) PLM_TRY(open_maps(embed, error));
  PLM_TRY(plm_sequence_batch_open(model, inference->tokenizer->pad, inference->max_chunks,
                                  &embed->batch, error));
  if (embed->request->separate_chains)
    plm_sequence_batch_split_at(embed->batch, chain_break_of(embed));
  return PLM_OK;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* The places of the window's sequences in the file. */
static void place_window(struct embed *embed)
{
  const struct plm_spool_window *window = &embed->window;
  for (uint32_t i = 0; i < window->count; i++) {
    embed->row_of[i] = embed->rows_before;
    embed->rows_before += plm_embed_layout_rows_of(&embed->layout, window->lengths[i]);
  }
}

static uint32_t window_length(void *context, uint32_t i)
{
  const struct embed *embed = context;
  return embed->window.lengths[i];
}

static const int32_t *widen_tokens(void *context, uint32_t i)
{
  struct embed *embed = context;
  const struct plm_spool_window *window = &embed->window;
  const uint32_t bytes = embed->inference->tokenizer->token_bytes;
  const uint8_t *narrow = (const uint8_t *)window->token_data + window->starts[i] * bytes;
  for (uint32_t t = 0; t < window->lengths[i]; t++)
    embed->tokens[t] = bytes == 1 ? narrow[t] : ((const uint16_t *)(const void *)narrow)[t];
  return embed->tokens;
}

static void sort_window(struct embed *embed)
{
  embed->queue.length = window_length;
  embed->queue.tokens = widen_tokens;
  embed->queue.context = embed;
  embed->queue.count = embed->window.count;
  for (uint32_t i = 0; i < embed->window.count; i++) embed->queue.waiting[i] = i;
  plm_sequence_queue_sort(&embed->queue);
}

/* Takes the name of the sequence whose number it is. */
struct wanted_name {
  uint64_t number;
  char name[200];
};

static plm_status copy_wanted_name(void *context, uint64_t number, const char *name, size_t size,
                                   struct plm_error *error)
{
  (void)error;
  struct wanted_name *wanted = context;
  if (number == wanted->number)
    snprintf(wanted->name, sizeof wanted->name, "%.*s", (int)(size < 199 ? size : 199), name);
  return PLM_OK;
}

/* Values of sequence i of the window. */
static plm_status check_values(struct embed *embed, uint32_t i, const float *values, size_t count,
                               struct plm_error *error)
{
  struct wanted_name wanted = {.number = embed->window.first + i};
  if (plm_first_not_finite(values, count) == count) return PLM_OK;
  PLM_TRY(plm_sequence_spool_each_name(embed->spool, copy_wanted_name, &wanted, error));
  return plm_finite_output(values, count, error, "sequence %s", wanted.name);
}

/* Writes the result of sequence i of the window. values (tokens, D or V) begin at its first token.
 */
static plm_status put_sequence(struct embed *embed, uint32_t i, const float *values,
                               struct plm_error *error)
{
  const struct plm_spool_window *window = &embed->window;
  const uint32_t tokens = window->lengths[i];
  const uint32_t bytes = embed->inference->tokenizer->token_bytes;
  PLM_TRY(check_values(embed, i, values, (size_t)tokens * columns_of(embed), error));
  if (embed->request->kind != PLM_EMBED_POOLED)
    return plm_embed_output_put(embed->output, embed->row_of[i], values, tokens, error);
  const uint8_t *last =
      (const uint8_t *)window->token_data + (window->starts[i] + tokens - 1) * bytes;
  const uint32_t end = bytes == 1 ? *last : *(const uint16_t *)(const void *)last;
  const uint32_t residues = tokens - 1 - (end == embed->inference->tokenizer->eos);
  plm_pooling_run(&embed->request->pooling, values, residues, columns_of(embed), embed->scratch,
                  embed->pooled);
  PLM_TRY(check_values(embed, i, embed->pooled, embed->layout.width, error));
  return plm_embed_output_put(embed->output, embed->row_of[i], embed->pooled, 1, error);
}

static plm_status put_map(void *context, uint32_t k, uint64_t at, const float *values,
                          uint64_t count, struct plm_error *error)
{
  struct embed *embed = context;
  const uint32_t i = embed->taken[k];
  PLM_TRY(check_values(embed, i, values, count, error));
  return plm_embed_output_put(embed->output, embed->row_of[i] + at, values, count, error);
}

static plm_status run_maps(struct embed *embed, struct plm_error *error)
{
  const uint32_t count = plm_sequence_batch_count(embed->batch);
  for (uint32_t k = 0; k < count; k++)
    embed->map_tokens[k] = embed->window.lengths[embed->taken[k]];
  return plm_embed_maps_run(embed->maps, embed->batch, embed->map_tokens, put_map, embed, error);
}

static plm_status run_model(struct embed *embed, const struct plm_batch *chunks,
                            struct plm_error *error)
{
  const int32_t *inputs = plm_sequence_batch_inputs(embed->batch);
  const bool logits = embed->request->kind == PLM_EMBED_LOGITS;
  if (embed->layers.count > 0)
    return plm_layer_choice_run(&embed->layers, embed->inference, chunks, inputs, embed->room,
                                embed->values, error);
  return plm_inference_run(embed->inference, chunks, inputs, NULL, 0, logits ? NULL : embed->values,
                           logits ? embed->values : NULL, error);
}

static plm_status run_batch(struct embed *embed, struct plm_error *error)
{
  const size_t columns = columns_of(embed);
  const struct plm_batch *chunks = plm_sequence_batch_finish(embed->batch);
  const uint32_t count = plm_sequence_batch_count(embed->batch);
  PLM_TRY(embed->maps != NULL ? run_maps(embed, error) : run_model(embed, chunks, error));
  for (uint32_t k = 0; k < count && embed->maps == NULL; k++) {
    const size_t row = plm_sequence_batch_row(embed->batch, k);
    PLM_TRY(put_sequence(embed, embed->taken[k], embed->values + row * columns, error));
  }
  embed->report.positions += (uint64_t)chunks->chunks * chunks->max_length;
  return PLM_OK;
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The tokens of the sequences in a filled batch. */
static uint64_t batch_tokens(const struct embed *embed)
{
  uint64_t tokens = 0;
  for (uint32_t k = 0; k < plm_sequence_batch_count(embed->batch); k++)
    tokens += embed->window.lengths[embed->taken[k]];
  return tokens;
}

static plm_status stopped(struct embed *embed, struct plm_error *error)
{
  const plm_status status = plm_stop_check("", NULL);
  if (status == PLM_OK) return PLM_OK;
  char done[32], all[32], what[128];
  PLM_TRY(plm_embed_output_save(embed->output, &embed->journal, false, error));
  snprintf(what, sizeof what, " after %s of %s sequences",
           plm_format_count(embed->journal.sequences, done),
           plm_format_count(plm_sequence_spool_count(embed->spool), all));
  plm_stop_check(what, error);
  if (plm_output_is_stream(embed->request->output)) return status;
  plm_error_hint(error, "the same command continues from there");
  return status;
}

static plm_status run_window(struct embed *embed, uint64_t batches_done, struct plm_error *error)
{
  struct plm_embed_journal *journal = &embed->journal;
  place_window(embed);
  sort_window(embed);
  for (uint64_t batch = 0; embed->queue.count > 0; batch++) {
    (void)plm_sequence_batch_fill(embed->batch, &embed->queue, embed->taken);
    const uint64_t tokens = batch_tokens(embed);
    embed->tokens_at += tokens;
    if (batch < batches_done) {
      embed->progress.done_before = embed->tokens_at;
      continue;
    }
    PLM_TRY(run_batch(embed, error));
    embed->report.tokens += tokens;
    journal->windows = embed->windows;
    journal->batches = batch + 1;
    journal->sequences += plm_sequence_batch_count(embed->batch);
    plm_progress_update(&embed->progress, embed->tokens_at, plm_sequence_spool_tokens(embed->spool),
                        embed->report.tokens, journal->sequences, "sequence");
    PLM_TRY(stopped(embed, error));
    PLM_TRY(plm_embed_output_save(embed->output, journal, true, error));
  }
  return PLM_OK;
}

static plm_status embed_run_all(struct embed *embed, struct plm_error *error)
{
  const uint64_t windows_done = embed->journal.windows, batches_done = embed->journal.batches;
  plm_progress_begin(&embed->progress, "embed");
  embed->progress.rate_unit = "tokens";
  for (;; embed->windows++) {
    PLM_TRY(plm_sequence_spool_next(embed->spool, &embed->window, error));
    if (embed->window.count == 0) return PLM_OK;
    if (embed->windows < windows_done) {
      embed->tokens_at += embed->window.tokens;
      embed->progress.done_before = embed->tokens_at;
      place_window(embed);
      continue;
    }
    PLM_TRY(run_window(embed, embed->windows == windows_done ? batches_done : 0, error));
  }
}

/* ---- running --------------------------------------------------------------------------------- */

static plm_status embed_run(struct embed *embed, struct plm_ops *ops, struct plm_error *error)
{
  const uint64_t started = plm_clock_ns();
  PLM_TRY(plm_embed_format_of(embed->request->output, embed->request->kind, &embed->layout.format,
                              error)); /* before anything that takes long */
  PLM_TRY(plm_output_check_inputs("--output", embed->request->output, embed->request->inputs,
                                  embed->request->input_count, error));
  PLM_TRY(open_model(embed, ops, error));
  PLM_TRY(read_inputs(embed, error));
  PLM_TRY(embed_open_output(embed, error));
  PLM_TRY(embed_allocate_buffers(embed, error));
  embed->report.resumed = embed->journal.sequences;
  if (embed->report.resumed > 0) {
    char done[32], all[32];
    plm_info("%s: continuing after %s of %s sequences", embed->request->output,
             plm_format_count(embed->report.resumed, done),
             plm_format_count(plm_sequence_spool_count(embed->spool), all));
  }
  plm_status status = embed_run_all(embed, error);
  if (status == PLM_OK) status = plm_embed_output_finish(embed->output, embed->spool, error);
  plm_progress_clear(&embed->progress);
  if (status == PLM_NO_SPACE && !plm_output_is_stream(embed->request->output))
    plm_error_hint(error,
                   "finished work is kept; free some space and run the same command to continue");
  if (status != PLM_OK) return status;
  embed->report.seconds = plm_clock_seconds_since(started);
  return PLM_OK;
}

plm_status plm_embed(const struct plm_embed_request *request, struct plm_ops *ops,
                     struct plm_error *error)
{
  struct embed embed = {.request = request};
  plm_status status = embed_run(&embed, ops, error);
  if (status == PLM_OK)
    status = plm_embed_report_print(&embed.report, request, &embed.layout, embed.inference,
                                    plm_sequence_spool_count(embed.spool),
                                    plm_sequence_spool_tokens(embed.spool), error);
  plm_embed_maps_close(embed.maps);
  plm_contact_head_deinit(&embed.head);
  plm_sequence_batch_close(embed.batch);
  plm_spool_window_deinit(&embed.window);
  plm_embed_output_close(embed.output);
  plm_sequence_spool_close(embed.spool);
  plm_inference_close(embed.inference);
  free(embed.queue.waiting);
  free(embed.taken);
  free(embed.row_of);
  free(embed.map_tokens);
  free(embed.tokens);
  free(embed.values);
  free(embed.room);
  free(embed.pooled);
  free(embed.scratch);
  return status;
}
