/* What `predict` computes for a batch, and the writing of the result. */
#include "evaluator/predict/predict.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/cli/output_file.h"
#include "common/inference/finite_output.h"
#include "common/metrics/metrics.h"
#include "common/model/labelled_rows.h"
#include "common/run/stop.h"
#include "evaluator/embed/sequence_run.h"
#include "evaluator/predict/predict_text.h"

struct predict {
  const struct plm_predict_request *request;
  struct plm_sequence_run run; /* its rows are outputs, of each sequence or token */
  struct plm_label_names names;
  struct plm_predict_text form;
  uint32_t *order;      /* (window) the sequences of the batch by their places in it */
  int32_t *begin, *end; /* (most rows) what the head reads */
  float *outputs;       /* (most rows, outputs) */
  char *letters;        /* (max_length) of one sequence */
};

static bool of_residues(const struct predict *predict)
{
  return predict->run.inference->config.head.kind == PLM_PREDICTS_RESIDUES;
}

/* ---- opening --------------------------------------------------------------------------------- */

static plm_status choose_format(struct predict *predict, struct plm_error *error)
{
  static const char *const endings[] = {".csv", ".tsv", ".jsonl"};
  const char *output = predict->request->of.output;
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
  const struct plm_sequence_request *of = &request->of;
  struct plm_sequence_run *run = &predict->run;
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_inference_open_predictor(of->checkpoint, of->weights, ops, of->batch_tokens,
                                       &run->inference, &run->journal.checkpoint, error));
  PLM_TRY(plm_inference_set_limit(run->inference, of->max_length, error));
  const struct plm_model_config *model = &run->inference->config;
  if (request->per_residue && !of_residues(predict))
    return plm_error_set(error, PLM_USAGE,
                         "--per-residue: the model predicts labels of whole sequences");
  const char *folder = run->inference->folder.directory;
  PLM_TRY(plm_label_names_read(folder, model, &predict->names, error));
  predict->form.head = &model->head;
  predict->form.names = &predict->names;
  predict->form.per_residue = request->per_residue;
  predict->form.logits = request->logits;
  PLM_TRY(plm_path_join(path, folder, "config.json", error));
  return plm_hash_file(path, &run->journal.config, NULL, NULL, error);
}

static plm_status open_rows(struct predict *predict, struct plm_error *error)
{
  const struct plm_predict_request *request = predict->request;
  struct plm_sequence_run *run = &predict->run;
  struct plm_intake_options options = {0};
  options.choices.columns = true;
  options.trained = run->inference->config.max_length; /* before there is room for longer ones */
  PLM_TRY(plm_sequence_run_read(run, &options, error));
  if (run->intake.columns != NULL) plm_predict_take_columns(&predict->form, run->intake.columns);
  run->layout = (struct plm_embed_layout){.kind = of_residues(predict) ? PLM_EMBED_PER_TOKEN
                                                                       : PLM_EMBED_POOLED,
                                          .format = PLM_EMBED_ROWS,
                                          .width = run->inference->config.head.outputs};
  (void)snprintf(run->journal.options, sizeof run->journal.options,
                 "predict %s --batch-tokens %u%s%s", plm_ops_precision(run->inference->ops),
                 request->of.batch_tokens, request->per_residue ? " --per-residue" : "",
                 request->logits ? " --logits" : "");
  return plm_sequence_run_begin(run, error);
}

static plm_status predict_allocate(struct predict *predict, struct plm_error *error)
{
  const struct plm_inference *inference = predict->run.inference;
  const struct plm_model_config *model = &inference->config;
  const uint64_t positions = (uint64_t)inference->max_chunks * model->max_length;
  const size_t most = plm_model_most_label_rows(model, positions);
  const size_t longest = model->max_length > most ? model->max_length : most;
  predict->order = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *predict->order);
  predict->letters = calloc(model->max_length, sizeof *predict->letters);
  predict->begin = calloc(most, sizeof *predict->begin);
  predict->end = calloc(most, sizeof *predict->end);
  predict->outputs = calloc(longest * model->head.outputs, sizeof *predict->outputs);
  if (predict->letters == NULL || predict->begin == NULL || predict->end == NULL ||
      predict->outputs == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the outputs of %zu rows", most);
  return PLM_OK;
}

/* ---- batches --------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b, void *context)
{
  const struct predict *predict = context;
  const uint32_t x = plm_sequence_batch_row(predict->run.batch, *(const uint32_t *)a);
  const uint32_t y = plm_sequence_batch_row(predict->run.batch, *(const uint32_t *)b);
  return x < y ? -1 : x > y;
}

static void add_row(struct predict *predict, uint32_t row, uint32_t begin, uint32_t end)
{
  predict->begin[row] = (int32_t)begin;
  predict->end[row] = (int32_t)end;
}

/* Lists what the head reads of the batch, in the order of its rows. Returns how many there are. */
static uint32_t list_rows(struct predict *predict)
{
  const struct plm_head_config *head = &predict->run.inference->config.head;
  const uint32_t count = plm_sequence_batch_count(predict->run.batch);
  uint32_t rows = 0;
  for (uint32_t k = 0; k < count; k++) predict->order[k] = k;
  qsort_r(predict->order, count, sizeof *predict->order, by_place, predict);
  for (uint32_t k = 0; k < count; k++) {
    const uint32_t added = predict->order[k];
    const uint32_t cls = plm_sequence_batch_row(predict->run.batch, added);
    const struct plm_label_span span = {
        .start = cls,
        .first_residue = cls + 1,
        .residues = plm_sequence_run_residues(&predict->run, predict->run.taken[added])};
    uint32_t begin, end;
    for (uint32_t i = 0; of_residues(predict) && i < span.residues; i++)
      add_row(predict, rows++, span.first_residue + i, span.first_residue + i + 1);
    if (of_residues(predict)) continue;
    const bool reads = plm_labelled_span(head, &span, &begin, &end);
    PLM_ASSERT(reads);
    add_row(predict, rows++, begin, end);
  }
  return rows;
}

/* Writes the outputs of the batch to their rows. */
static plm_status put_outputs(struct predict *predict, struct plm_error *error)
{
  const uint32_t outputs = predict->run.inference->config.head.outputs;
  const float *next = predict->outputs;
  for (uint32_t k = 0; k < plm_sequence_batch_count(predict->run.batch); k++) {
    const uint32_t i = predict->run.taken[predict->order[k]];
    const uint32_t rows = of_residues(predict) ? plm_sequence_run_residues(&predict->run, i) : 1;
    PLM_TRY(plm_finite_output(next, (size_t)rows * outputs, error, "sequence %llu of the input",
                              (unsigned long long)(predict->run.window.first + i + 1)));
    /* with a row for each token, the first one is that of <cls> */
    const uint64_t row = predict->run.row_of[i] + of_residues(predict);
    PLM_TRY(plm_embed_output_put(predict->run.output, row, next, rows, error));
    next += (size_t)rows * outputs;
  }
  return PLM_OK;
}

static plm_status predict_batch(void *context, struct plm_error *error)
{
  struct predict *predict = context;
  const struct plm_batch *chunks = plm_sequence_batch_finish(predict->run.batch);
  const struct plm_label_targets targets = {.inputs = plm_sequence_batch_inputs(predict->run.batch),
                                            .rows = list_rows(predict),
                                            .begin = predict->begin,
                                            .end = predict->end};
  PLM_TRY(plm_inference_predict(predict->run.inference, chunks, &targets, predict->outputs, error));
  return put_outputs(predict, error);
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
  const int32_t *tokens = plm_sequence_run_tokens(&predict->run, i);
  for (uint32_t t = 0; t < residues; t++) {
    const char *text = plm_token_text(predict->run.inference->tokenizer, (uint32_t)tokens[t + 1]);
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
  if (writing->next == predict->run.window.count) {
    PLM_TRY(plm_sequence_spool_next(predict->run.spool, &predict->run.window, error));
    writing->next = 0;
  }
  const uint32_t i = writing->next++, each = of_residues(predict);
  const uint32_t rows = each ? plm_sequence_run_residues(&predict->run, i) : 1;
  PLM_TRY(plm_embed_output_get(predict->run.output, writing->row + each, predict->outputs, rows,
                               error));
  writing->row += plm_embed_layout_rows_of(&predict->run.layout, predict->run.window.lengths[i]);
  if (each) spell(predict, i, rows);
  const char *given = memchr(name, '\t', size);
  const struct plm_predicted predicted = {.name = name,
                                          .name_size =
                                              given != NULL ? (size_t)(given - name) : size,
                                          .given = given != NULL ? given + 1 : NULL,
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
  PLM_TRY(plm_output_open(predict->request->of.output, &writing.file, error));
  predict->run.window.count = 0; /* begins again with the first one */
  predict->run.window.first = predict->run.window.tokens_before = predict->run.window.tokens = 0;
  plm_predict_put_header(&predict->form, &writing.text);
  plm_status status =
      plm_sequence_spool_each_name(predict->run.spool, write_sequence, &writing, error);
  if (status == PLM_OK) status = flush_text(&writing, error);
  if (status == PLM_OK) status = plm_output_finish(writing.file, error);
  plm_output_close(writing.file);
  plm_text_deinit(&writing.text);
  if (status == PLM_OK) plm_embed_output_remove(predict->run.output);
  return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static plm_status predict_report(const struct plm_sequence_run *run, double seconds,
                                 struct plm_error *error)
{
  const struct plm_sequence_request *request = run->request;
  const uint64_t sequences = plm_sequence_spool_count(run->spool);
  const double rate = (double)run->computed / seconds;
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
  plm_metrics_string(line, "weights", run->inference->weights);
  plm_metrics_integer(line, "sequences", sequences);
  plm_metrics_integer(line, "tokens", plm_sequence_spool_tokens(run->spool));
  plm_metrics_integer(line, "bad_records", run->intake.bad);
  plm_metrics_integer(line, "cut", run->intake.cut);
  plm_metrics_integer(line, "longer", run->intake.longer);
  plm_metrics_integer(line, "unknown_residues", run->intake.unknown_residues);
  plm_metrics_integer(line, "resumed_sequences", run->resumed);
  plm_metrics_number(line, "seconds", seconds);
  plm_metrics_number(line, "tokens_per_second", rate);
  return plm_json_print(line, error);
}

static plm_status predict_run(struct predict *predict, struct plm_ops *ops, struct plm_error *error)
{
  const uint64_t started = plm_clock_ns();
  const struct plm_sequence_request *of = &predict->request->of;
  struct plm_sequence_run *run = &predict->run;
  PLM_TRY(choose_format(predict, error)); /* before anything that takes long */
  PLM_TRY(plm_output_check_inputs("--output", of->output, of->inputs, of->input_count, error));
  PLM_TRY(open_predictor(predict, ops, error));
  PLM_TRY(open_rows(predict, error));
  PLM_TRY(predict_allocate(predict, error));
  plm_status status = plm_sequence_run_all(run, "predict", predict_batch, predict, error);
  if (status == PLM_OK) status = write_result(predict, error);
  PLM_TRY(plm_sequence_run_end(run, status, error));
  return predict_report(run, plm_clock_seconds_since(started), error);
}

plm_status plm_predict(const struct plm_predict_request *request, struct plm_ops *ops,
                       struct plm_error *error)
{
  struct predict predict = {.request = request, .run.request = &request->of};
  const plm_status status = predict_run(&predict, ops, error);
  plm_sequence_run_close(&predict.run);
  plm_predict_release(&predict.form);
  plm_label_names_deinit(&predict.names);
  plm_inference_close(predict.run.inference);
  free(predict.order);
  free(predict.letters);
  free(predict.begin);
  free(predict.end);
  free(predict.outputs);
  return status;
}
