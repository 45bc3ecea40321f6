/* The loop of `predict` over windows and batches, and the writing of the result. */
#include "evaluator/predict/predict.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/numbers/finite.h"
#include "common/base/text/json.h"
#include "common/cli/output_file.h"
#include "common/inference/finite_output.h"
#include "common/inference/inference.h"
#include "common/inference/sequence_batch.h"
#include "common/metrics/metrics.h"
#include "common/run/stop.h"
#include "evaluator/embed/embed_output.h"
#include "evaluator/embed/sequence_intake.h"
#include "evaluator/predict/predict_text.h"

struct predict {
  const struct plm_predict_request *request;
  struct plm_inference *inference;
  struct plm_label_names names;
  struct plm_predict_text form;
  struct plm_sequence_spool *spool;
  struct plm_intake_counts intake;
  struct plm_embed_layout layout; /* of the outputs: a row for each sequence or token */
  struct plm_embed_journal journal;
  struct plm_embed_output *rows;
  struct plm_spool_window window;
  struct plm_sequence_batch *batch;
  struct plm_sequence_queue queue;
  uint32_t *taken;          /* (window) the sequences of the batch, in the order they were added */
  uint32_t *order;          /* (window) the same by their places in the batch */
  uint64_t *row_of;         /* (window) the first row of each */
  uint64_t rows_before;     /* of the sequences before the window */
  int32_t *tokens;          /* (max_length) of one sequence */
  int32_t *begin, *end;     /* (most rows) what the head reads */
  float *outputs;           /* (most rows, outputs) */
  char *letters;            /* (max_length) of one sequence */
  uint64_t windows;         /* before this one */
  uint64_t tokens_at, done; /* tokens of the finished sequences; those of this run */
  struct plm_progress progress;
};

static bool of_residues(const struct predict *predict)
{
  return predict->inference->config.head.kind == PLM_PREDICTS_RESIDUES;
}

/* ---- opening --------------------------------------------------------------------------------- */

static plm_status choose_format(struct predict *predict, struct plm_error *error)
{
  static const char *const endings[] = {".csv", ".tsv", ".jsonl"};
  const char *output = predict->request->output;
  for (int i = 0; i < 3; i++)
    if (plm_text_ends_with(output, endings[i])) {
      predict->form.format = (enum plm_predict_format)i;
      return PLM_OK;
    }
  if (plm_output_is_stream(output)) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "--output %.200s: the name does not say which format to write",
                output);
  return plm_error_hint(error, "end the name in .csv, .tsv or .jsonl");
}

static plm_status open_predictor(struct predict *predict, struct plm_ops *ops,
                                 struct plm_error *error)
{
  const struct plm_predict_request *request = predict->request;
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_inference_open_predictor(request->checkpoint, request->weights, ops,
                                       request->batch_tokens, &predict->inference,
                                       &predict->journal.checkpoint, error));
  PLM_TRY(plm_inference_set_limit(predict->inference, request->max_length, error));
  const struct plm_model_config *model = &predict->inference->config;
  if (request->per_residue && !of_residues(predict))
    return plm_error_set(error, PLM_USAGE,
                         "--per-residue: the model predicts labels of whole sequences");
  const char *folder = predict->inference->folder.directory;
  PLM_TRY(plm_label_names_read(folder, model, &predict->names, error));
  predict->form.head = &model->head;
  predict->form.names = &predict->names;
  predict->form.per_residue = request->per_residue;
  predict->form.logits = request->logits;
  PLM_TRY(plm_path_join(path, folder, "config.json", error));
  return plm_hash_file(path, &predict->journal.config, NULL, NULL, error);
}

static plm_status predict_read_inputs(struct predict *predict, struct plm_error *error)
{
  const struct plm_predict_request *request = predict->request;
  const struct plm_tokenizer *tokenizer = predict->inference->tokenizer;
  const struct plm_intake_options options = {.inputs = request->inputs,
                                             .input_count = request->input_count,
                                             .tokenizer = tokenizer,
                                             .max_length = plm_inference_most(predict->inference),
                                             .strict = request->strict,
                                             .choices = request->choices};
  char folder[PLM_PATH_SIZE];
  PLM_TRY(plm_output_folder(request->output, folder, error));
  PLM_TRY(plm_sequence_spool_open(folder, tokenizer->token_bytes, &predict->spool, error));
  PLM_TRY(plm_sequence_intake(&options, predict->spool, &predict->intake, error));
  predict->journal.input = plm_sequence_spool_fingerprint(predict->spool);
  return plm_inference_make_room(predict->inference, predict->intake.longest, error);
}

static plm_status open_rows(struct predict *predict, struct plm_error *error)
{
  const struct plm_predict_request *request = predict->request;
  const struct plm_inference *inference = predict->inference;
  predict->layout = (struct plm_embed_layout){.kind = of_residues(predict) ? PLM_EMBED_PER_TOKEN
                                                                           : PLM_EMBED_POOLED,
                                              .format = PLM_EMBED_ROWS,
                                              .width = inference->config.head.outputs};
  PLM_TRY(plm_embed_layout_compute(&predict->layout, predict->spool, error));
  predict->journal.bytes = predict->layout.bytes;
  (void)snprintf(predict->journal.options, sizeof predict->journal.options,
                 "predict %s --batch-tokens %u%s%s",
                 inference->ops->act_bytes < sizeof(float) ? "bf16" : "fp32", request->batch_tokens,
                 request->per_residue ? " --per-residue" : "", request->logits ? " --logits" : "");
  return plm_embed_output_open(request->output, &predict->layout, predict->spool, request->fresh,
                               &predict->journal, &predict->rows, error);
}

static plm_status predict_allocate(struct predict *predict, struct plm_error *error)
{
  const struct plm_inference *inference = predict->inference;
  const struct plm_model_config *model = &inference->config;
  const uint64_t positions = (uint64_t)inference->max_chunks * model->max_length;
  const size_t most = plm_model_most_label_rows(model, positions);
  const size_t longest = model->max_length > most ? model->max_length : most;
  predict->queue.waiting =
      plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *predict->queue.waiting);
  predict->taken = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *predict->taken);
  predict->order = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *predict->order);
  predict->row_of = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *predict->row_of);
  predict->tokens = calloc(model->max_length, sizeof *predict->tokens);
  predict->letters = calloc(model->max_length, sizeof *predict->letters);
  predict->begin = calloc(most, sizeof *predict->begin);
  predict->end = calloc(most, sizeof *predict->end);
  predict->outputs = calloc(longest * model->head.outputs, sizeof *predict->outputs);
  if (predict->tokens == NULL || predict->letters == NULL || predict->begin == NULL ||
      predict->end == NULL || predict->outputs == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the outputs of %zu rows", most);
  return plm_sequence_batch_open(model, inference->tokenizer->pad, inference->max_chunks,
                                 &predict->batch, error);
}

/* ---- batches --------------------------------------------------------------------------------- */

static uint32_t predict_length(void *context, uint32_t i)
{
  const struct predict *predict = context;
  return predict->window.lengths[i];
}

static const int32_t *predict_tokens(void *context, uint32_t i)
{
  struct predict *predict = context;
  const struct plm_spool_window *window = &predict->window;
  const uint32_t bytes = predict->inference->tokenizer->token_bytes;
  const uint8_t *narrow = (const uint8_t *)window->token_data + window->starts[i] * bytes;
  for (uint32_t t = 0; t < window->lengths[i]; t++)
    predict->tokens[t] = bytes == 1 ? narrow[t] : ((const uint16_t *)(const void *)narrow)[t];
  return predict->tokens;
}

/* The residues of sequence i of the window: its tokens but <cls> and, unless it was cut, <eos>. */
static uint32_t residues_of(struct predict *predict, uint32_t i)
{
  const uint32_t tokens = predict->window.lengths[i];
  const int32_t last = predict_tokens(predict, i)[tokens - 1];
  return tokens - 1 - (last == predict->inference->tokenizer->eos);
}

static int by_place(const void *a, const void *b, void *context)
{
  const struct predict *predict = context;
  const uint32_t x = plm_sequence_batch_row(predict->batch, *(const uint32_t *)a);
  const uint32_t y = plm_sequence_batch_row(predict->batch, *(const uint32_t *)b);
  return x < y ? -1 : x > y;
}

/* Lists what the head reads of the batch, in the order of its rows. Returns how many there are. */
static uint32_t list_rows(struct predict *predict)
{
  const struct plm_head_config *head = &predict->inference->config.head;
  const uint32_t count = plm_sequence_batch_count(predict->batch);
  uint32_t rows = 0;
  for (uint32_t k = 0; k < count; k++) predict->order[k] = k;
  qsort_r(predict->order, count, sizeof *predict->order, by_place, predict);
  for (uint32_t k = 0; k < count; k++) {
    const uint32_t added = predict->order[k];
    const uint32_t residues = residues_of(predict, predict->taken[added]);
    const int32_t cls = (int32_t)plm_sequence_batch_row(predict->batch, added);
    const bool each = of_residues(predict), first = head->pooling == PLM_HEAD_CLS;
    for (uint32_t i = 0; i < (each ? residues : 1); i++, rows++) {
      predict->begin[rows] = cls + (!each && first ? 0 : 1 + (int32_t)i);
      predict->end[rows] = each    ? cls + 2 + (int32_t)i
                           : first ? cls + 1
                                   : cls + 1 + (int32_t)residues;
    }
  }
  return rows;
}

/* Writes the outputs of the batch to their rows. */
static plm_status put_outputs(struct predict *predict, struct plm_error *error)
{
  const uint32_t outputs = predict->inference->config.head.outputs;
  const float *next = predict->outputs;
  for (uint32_t k = 0; k < plm_sequence_batch_count(predict->batch); k++) {
    const uint32_t i = predict->taken[predict->order[k]];
    const uint32_t rows = of_residues(predict) ? residues_of(predict, i) : 1;
    PLM_TRY(plm_finite_output(next, (size_t)rows * outputs, error, "sequence %llu of the input",
                              (unsigned long long)(predict->window.first + i + 1)));
    /* with a row for each token, the first one is that of <cls> */
    const uint64_t row = predict->row_of[i] + of_residues(predict);
    PLM_TRY(plm_embed_output_put(predict->rows, row, next, rows, error));
    next += (size_t)rows * outputs;
  }
  return PLM_OK;
}

static plm_status predict_batch(struct predict *predict, struct plm_error *error)
{
  const struct plm_batch *chunks = plm_sequence_batch_finish(predict->batch);
  const struct plm_label_targets targets = {.inputs = plm_sequence_batch_inputs(predict->batch),
                                            .rows = list_rows(predict),
                                            .begin = predict->begin,
                                            .end = predict->end};
  PLM_TRY(plm_inference_predict(predict->inference, chunks, &targets, predict->outputs, error));
  return put_outputs(predict, error);
}

static plm_status predict_stopped(struct predict *predict, struct plm_error *error)
{
  char done[32], all[32], what[128];
  const plm_status status = plm_stop_check("", NULL);
  if (status == PLM_OK) return PLM_OK;
  PLM_TRY(plm_embed_output_save(predict->rows, &predict->journal, false, error));
  (void)snprintf(what, sizeof what, " after %s of %s sequences",
                 plm_format_count(predict->journal.sequences, done),
                 plm_format_count(plm_sequence_spool_count(predict->spool), all));
  (void)plm_stop_check(what, error);
  if (!plm_output_is_stream(predict->request->output))
    plm_error_hint(error, "the same command continues from there");
  return status;
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Finds the rows of the window's sequences, and sorts them for batches. */
static void begin_window(struct predict *predict)
{
  predict->queue.length = predict_length;
  predict->queue.tokens = predict_tokens;
  predict->queue.context = predict;
  predict->queue.count = predict->window.count;
  for (uint32_t i = 0; i < predict->window.count; i++) {
    predict->queue.waiting[i] = i;
    predict->row_of[i] = predict->rows_before;
    predict->rows_before += plm_embed_layout_rows_of(&predict->layout, predict->window.lengths[i]);
  }
  plm_sequence_queue_sort(&predict->queue);
}

static plm_status predict_window(struct predict *predict, uint64_t batches_done,
                                 struct plm_error *error)
{
  struct plm_embed_journal *journal = &predict->journal;
  for (uint64_t batch = 0; predict->queue.count > 0; batch++) {
    (void)plm_sequence_batch_fill(predict->batch, &predict->queue, predict->taken);
    const uint32_t count = plm_sequence_batch_count(predict->batch);
    uint64_t tokens = 0;
    for (uint32_t k = 0; k < count; k++) tokens += predict->window.lengths[predict->taken[k]];
    predict->tokens_at += tokens;
    if (batch < batches_done) continue;
    PLM_TRY(predict_batch(predict, error));
    predict->done += tokens;
    journal->windows = predict->windows;
    journal->batches = batch + 1;
    journal->sequences += count;
    plm_progress_update(&predict->progress, predict->tokens_at,
                        plm_sequence_spool_tokens(predict->spool), predict->done,
                        journal->sequences, "sequence");
    PLM_TRY(predict_stopped(predict, error));
    PLM_TRY(plm_embed_output_save(predict->rows, journal, true, error));
  }
  return PLM_OK;
}

static plm_status predict_all(struct predict *predict, struct plm_error *error)
{
  const uint64_t windows = predict->journal.windows, batches = predict->journal.batches;
  plm_progress_begin(&predict->progress, "predict");
  predict->progress.rate_unit = "tokens";
  for (;; predict->windows++) {
    PLM_TRY(plm_sequence_spool_next(predict->spool, &predict->window, error));
    if (predict->window.count == 0) return PLM_OK;
    begin_window(predict);
    if (predict->windows < windows)
      predict->tokens_at += predict->window.tokens;
    else
      PLM_TRY(predict_window(predict, predict->windows == windows ? batches : 0, error));
  }
}

/* ---- the result ------------------------------------------------------------------------------ */

struct writing {
  struct predict *predict;
  struct plm_output_file *file;
  struct plm_text text;
  uint64_t row;
  uint32_t next; /* sequence of the window */
};

static plm_status flush_text(struct writing *writing, struct plm_error *error)
{
  FILE *to = plm_output_stream(writing->file);
  const size_t size = writing->text.length;
  if (size > 0 && fwrite(writing->text.data, 1, size, to) != size)
    return plm_output_failed(writing->file, error);
  plm_text_clear(&writing->text);
  return PLM_OK;
}

/* The letters of the residues of sequence i of the window. */
static void spell(struct predict *predict, uint32_t i, uint32_t residues)
{
  const int32_t *tokens = predict_tokens(predict, i);
  for (uint32_t t = 0; t < residues; t++) {
    const char *text = plm_token_text(predict->inference->tokenizer, (uint32_t)tokens[t + 1]);
    predict->letters[t] = '?';
    if (text[0] != '\0' && text[1] == '\0') predict->letters[t] = text[0];
  }
}

static plm_status write_sequence(void *context, uint64_t number, const char *name, size_t size,
                                 struct plm_error *error)
{
  struct writing *writing = context;
  struct predict *predict = writing->predict;
  (void)number;
  if (writing->next == predict->window.count) {
    PLM_TRY(plm_sequence_spool_next(predict->spool, &predict->window, error));
    writing->next = 0;
  }
  const uint32_t i = writing->next++, each = of_residues(predict);
  const uint32_t rows = each ? residues_of(predict, i) : 1;
  PLM_TRY(plm_embed_output_get(predict->rows, writing->row + each, predict->outputs, rows, error));
  writing->row += plm_embed_layout_rows_of(&predict->layout, predict->window.lengths[i]);
  if (each) spell(predict, i, rows);
  const struct plm_predicted predicted = {.name = name,
                                          .name_size = size,
                                          .residues = predict->letters,
                                          .count = rows,
                                          .outputs = predict->outputs};
  plm_predict_put(&predict->form, &predicted, &writing->text);
  PLM_TRY(plm_stop_check("", error));
  return writing->text.length < 1 << 16 ? PLM_OK : flush_text(writing, error);
}

static plm_status write_result(struct predict *predict, struct plm_error *error)
{
  struct writing writing = {.predict = predict};
  PLM_TRY(plm_output_open(predict->request->output, &writing.file, error));
  predict->window.count = 0; /* begins again with the first one */
  predict->window.first = predict->window.tokens_before = predict->window.tokens = 0;
  plm_predict_put_header(&predict->form, &writing.text);
  plm_status status = plm_sequence_spool_each_name(predict->spool, write_sequence, &writing, error);
  if (status == PLM_OK) status = flush_text(&writing, error);
  if (status == PLM_OK) status = plm_output_finish(writing.file, error);
  plm_output_close(writing.file);
  plm_text_deinit(&writing.text);
  if (status == PLM_OK) plm_embed_output_remove(predict->rows);
  return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static plm_status predict_report(const struct predict *predict, uint64_t resumed, double seconds,
                                 struct plm_error *error)
{
  const struct plm_predict_request *request = predict->request;
  const uint64_t sequences = plm_sequence_spool_count(predict->spool);
  const double rate = (double)predict->done / seconds;
  char count[64], speed[32];
  if (!request->json) {
    plm_info("predicted %s in %.2f s, %s tokens/s",
             plm_format_quantity(sequences, "sequence", count), seconds,
             plm_format_count((uint64_t)rate, speed));
    return PLM_OK;
  }
  cJSON *line = cJSON_CreateObject();
  plm_metrics_string(line, "output", request->output);
  plm_metrics_string(line, "checkpoint", request->checkpoint);
  plm_metrics_string(line, "weights", predict->inference->weights);
  plm_metrics_integer(line, "sequences", sequences);
  plm_metrics_integer(line, "tokens", plm_sequence_spool_tokens(predict->spool));
  plm_metrics_integer(line, "bad_records", predict->intake.bad);
  plm_metrics_integer(line, "cut", predict->intake.cut);
  plm_metrics_integer(line, "unknown_residues", predict->intake.unknown_residues);
  plm_metrics_integer(line, "resumed_sequences", resumed);
  plm_metrics_number(line, "seconds", seconds);
  plm_metrics_number(line, "tokens_per_second", rate);
  return plm_json_print(line, error);
}

static plm_status predict_run(struct predict *predict, struct plm_ops *ops, struct plm_error *error)
{
  const uint64_t started = plm_clock_ns();
  char count[64];
  const struct plm_predict_request *request = predict->request;
  PLM_TRY(choose_format(predict, error)); /* before anything that takes long */
  PLM_TRY(plm_output_check_inputs("--output", request->output, request->inputs,
                                  request->input_count, error));
  PLM_TRY(open_predictor(predict, ops, error));
  PLM_TRY(predict_read_inputs(predict, error));
  PLM_TRY(open_rows(predict, error));
  PLM_TRY(predict_allocate(predict, error));
  const uint64_t resumed = predict->journal.sequences;
  if (resumed > 0)
    plm_info("%s: continuing after %s sequences", request->output,
             plm_format_count(resumed, count));
  const plm_status status = predict_all(predict, error);
  plm_progress_clear(&predict->progress);
  if (status != PLM_OK) return status;
  PLM_TRY(write_result(predict, error));
  return predict_report(predict, resumed, plm_clock_seconds_since(started), error);
}

plm_status plm_predict(const struct plm_predict_request *request, struct plm_ops *ops,
                       struct plm_error *error)
{
  struct predict predict = {.request = request};
  const plm_status status = predict_run(&predict, ops, error);
  plm_sequence_batch_close(predict.batch);
  plm_spool_window_deinit(&predict.window);
  plm_embed_output_close(predict.rows);
  plm_sequence_spool_close(predict.spool);
  plm_label_names_deinit(&predict.names);
  plm_inference_close(predict.inference);
  free(predict.queue.waiting);
  free(predict.taken);
  free(predict.order);
  free(predict.row_of);
  free(predict.tokens);
  free(predict.letters);
  free(predict.begin);
  free(predict.end);
  free(predict.outputs);
  return status;
}
