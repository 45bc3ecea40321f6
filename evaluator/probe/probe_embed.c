/* Runs a model over the sequences of a table, the longest first. */
#include "evaluator/probe/probe_embed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/progress.h"
#include "common/inference/finite_output.h"
#include "common/inference/sequence_batch.h"
#include "common/run/stop.h"

struct probe_run {
  const struct plm_probe_embedding *embedding;
  struct plm_inference *inference;
  float *const *out;
  struct plm_sequence_batch *batch;
  struct plm_sequence_queue queue; /* rows of the table */
  uint32_t *taken;                 /* (rows) of the batch */
  uint32_t columns;                /* floats of a token */
  int32_t *tokens;                 /* (max_length) of one sequence */
  float *values;                   /* (max_chunks * max_length, columns) */
  float *room;                     /* the same with hidden_size columns, for states of layers */
  float *pooled;                   /* (kinds * columns) */
  double *scratch;                 /* (2 * columns) */
  struct plm_progress progress;
  uint64_t tokens_done, tokens_all;
  uint32_t rows_done;
};

uint32_t plm_probe_width(const struct plm_probe_embedding *embedding, uint32_t width)
{
  return embedding->items->positions != NULL ? width : embedding->pooling->count * width;
}

static uint32_t token_count(void *context, uint32_t row)
{
  const struct probe_run *run = context;
  const struct plm_probe_items *items = run->embedding->items;
  const uint32_t length = items->table->rows[row].length;
  const uint32_t seen = plm_residues_seen(length, items->max_length);
  return seen + 1 + (length + 2 <= items->max_length);
}

static plm_status allocate_run(struct probe_run *run, struct plm_error *error)
{
  const struct plm_probe_embedding *embedding = run->embedding;
  const struct plm_inference *inference = run->inference;
  const struct plm_model_config *model = &inference->config;
  const size_t positions = (size_t)inference->max_chunks * model->max_length;
  const size_t rows = embedding->items->table->count;
  const size_t kinds = embedding->pooling != NULL ? embedding->pooling->count : 1;
  run->columns = embedding->layers != NULL ? embedding->layers->width : model->hidden_size;
  run->queue.waiting = malloc((rows + 1) * sizeof *run->queue.waiting);
  run->taken = malloc((rows + 1) * sizeof *run->taken);
  run->tokens = malloc(model->max_length * sizeof *run->tokens);
  run->values = malloc(positions * run->columns * sizeof *run->values);
  run->room = malloc(positions * model->hidden_size * sizeof *run->room);
  run->pooled = malloc(kinds * run->columns * sizeof *run->pooled);
  run->scratch = malloc(2 * (size_t)run->columns * sizeof *run->scratch);
  if (run->queue.waiting == NULL || run->taken == NULL || run->tokens == NULL ||
      run->values == NULL || run->room == NULL || run->pooled == NULL || run->scratch == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a batch of %zu tokens",
                         positions);
  return plm_sequence_batch_open(model, inference->tokenizer->pad, inference->max_chunks,
                                 &run->batch, error);
}

/* Sequences without an item are left out. */
static void sort_rows(struct probe_run *run)
{
  const struct plm_probe_items *items = run->embedding->items;
  for (uint32_t row = 0; row < items->table->count; row++) {
    if (items->firsts[row + 1] == items->firsts[row]) continue;
    run->queue.waiting[run->queue.count++] = row;
    run->tokens_all += token_count(run, row);
  }
  plm_sequence_queue_sort(&run->queue);
}

static const int32_t *encode(void *context, uint32_t row)
{
  struct probe_run *run = context;
  const struct plm_tokenizer *tokenizer = run->inference->tokenizer;
  const struct plm_labelled_row *source = &run->embedding->items->table->rows[row];
  const uint32_t seen = plm_residues_seen(source->length, run->embedding->items->max_length);
  const uint32_t count = token_count(run, row);
  run->tokens[0] = tokenizer->cls;
  for (uint32_t t = 0; t < seen; t++)
    run->tokens[1 + t] = plm_tokenizer_encode(tokenizer, source->residues[t]);
  if (count > seen + 1) run->tokens[count - 1] = tokenizer->eos;
  return run->tokens;
}

/* Copies the part of each layer from a row of all states to its matrix. values has `kinds` such
 * rows, one for each kind of pooling. */
static void put_item(const struct probe_run *run, uint32_t item, const float *values,
                     uint32_t kinds)
{
  const struct plm_layer_choice *layers =
      run->embedding->joined ? NULL : run->embedding->layers; /* NULL: one matrix */
  const uint32_t count = layers != NULL ? layers->count : 1;
  uint32_t offset = 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t width = layers != NULL ? layers->widths[i] : run->columns;
    for (uint32_t kind = 0; kind < kinds; kind++)
      memcpy(run->out[i] + ((size_t)item * kinds + kind) * width,
             values + (size_t)kind * run->columns + offset, width * sizeof *values);
    offset += width;
  }
}

/* values (tokens, columns) begin at <cls>. */
static plm_status put_row(struct probe_run *run, uint32_t row, const float *values,
                          struct plm_error *error)
{
  const struct plm_probe_items *items = run->embedding->items;
  const struct plm_labelled_row *source = &items->table->rows[row];
  const uint32_t seen = plm_residues_seen(source->length, items->max_length);
  const struct plm_pooling *pooling = run->embedding->pooling;
  PLM_TRY(plm_finite_output(values, (size_t)token_count(run, row) * run->columns, error,
                            "line %llu of %s", (unsigned long long)source->line,
                            items->table->path));
  if (items->positions == NULL) {
    plm_pooling_run(pooling, values, seen, run->columns, run->scratch, run->pooled);
    put_item(run, items->firsts[row], run->pooled, pooling->count);
    return PLM_OK;
  }
  for (uint32_t item = items->firsts[row]; item < items->firsts[row + 1]; item++)
    put_item(run, item, values + (1 + (size_t)items->positions[item]) * run->columns, 1);
  return PLM_OK;
}

static plm_status run_batch(struct probe_run *run, struct plm_error *error)
{
  const uint32_t count = plm_sequence_batch_fill(run->batch, &run->queue, run->taken);
  const struct plm_layer_choice *layers = run->embedding->layers;
  const struct plm_batch *chunks = plm_sequence_batch_finish(run->batch);
  const int32_t *inputs = plm_sequence_batch_inputs(run->batch);
  if (layers != NULL)
    PLM_TRY(plm_layer_choice_run(layers, run->inference, chunks, inputs, run->room, run->values,
                                 error));
  else
    PLM_TRY(plm_inference_run(run->inference, chunks, inputs, NULL, 0, run->values, NULL, error));
  for (uint32_t k = 0; k < count; k++) {
    const size_t first = plm_sequence_batch_row(run->batch, k);
    PLM_TRY(put_row(run, run->taken[k], run->values + first * run->columns, error));
    run->tokens_done += token_count(run, run->taken[k]);
  }
  run->rows_done += count;
  return PLM_OK;
}

static plm_status run_all(struct probe_run *run, struct plm_error *error)
{
  const struct plm_probe_embedding *embedding = run->embedding;
  PLM_TRY(allocate_run(run, error));
  sort_rows(run);
  while (run->queue.count > 0) {
    PLM_TRY(embedding->check != NULL ? embedding->check(embedding->context, error)
                                     : plm_stop_check(" while embedding", error));
    PLM_TRY(run_batch(run, error));
    plm_progress_update(&run->progress, run->tokens_done, run->tokens_all, run->tokens_done,
                        run->rows_done, "sequence");
  }
  return PLM_OK;
}

plm_status plm_probe_embed(const struct plm_probe_embedding *embedding,
                           struct plm_inference *inference, float *const *out,
                           struct plm_error *error)
{
  struct probe_run run = {.embedding = embedding, .inference = inference, .out = out};
  run.queue.length = token_count;
  run.queue.tokens = encode;
  run.queue.context = &run;
  plm_progress_begin(&run.progress, "probe");
  run.progress.rate_unit = "tokens";
  const plm_status status = run_all(&run, error);
  plm_progress_clear(&run.progress);
  plm_sequence_batch_close(run.batch);
  free(run.queue.waiting);
  free(run.taken);
  free(run.tokens);
  free(run.values);
  free(run.room);
  free(run.pooled);
  free(run.scratch);
  return status;
}

uint32_t plm_probe_composition_width(const struct plm_probe_items *items,
                                     const struct plm_tokenizer *tokenizer)
{
  return tokenizer->vocab_size + (items->positions == NULL);
}

void plm_probe_composition(const struct plm_probe_items *items,
                           const struct plm_tokenizer *tokenizer, float *out)
{
  const size_t vocabulary = tokenizer->vocab_size;
  const size_t width = plm_probe_composition_width(items, tokenizer);
  memset(out, 0, items->count * width * sizeof *out);
  for (uint32_t item = 0; item < items->count; item++) {
    const struct plm_labelled_row *row = &items->table->rows[items->rows[item]];
    const uint32_t seen = plm_residues_seen(row->length, items->max_length);
    const bool all = items->positions == NULL;
    float *features = out + item * width;
    for (uint32_t t = 0; t < (all ? seen : 1); t++) {
      const uint8_t residue = row->residues[all ? t : items->positions[item]];
      features[plm_tokenizer_encode(tokenizer, residue)] += 1;
    }
    for (size_t k = 0; k < vocabulary && all; k++) features[k] /= (float)seen;
    if (all) features[vocabulary] = (float)log((double)row->length);
  }
}
