/* tool_states FOLDER BATCH OUTPUT: what a model computes from sequences of any tokens, as `embed`
 * does it, which reads no <mask>. test_published_masks.py compares it with transformers.
 *
 * BATCH is a safetensors file:
 *   tokens   U8 (n), of all sequences, with <cls> and <eos>
 *   lengths  I32 (sequences), in tokens; together they fit into one batch
 * OUTPUT is another one:
 *   states   F32 (n, layers + 1, width): the embeddings, and what each block computes
 *   logits   F32 (n, vocabulary)
 *   pooled   F32 (sequences, 4, width): mean, cls, max and std of the last state
 *   chunks   I32 (sequences): the chunk that has the sequence
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"
#include "common/cli/program.h"
#include "common/inference/inference.h"
#include "common/inference/sequence_batch.h"
#include "evaluator/embed/layer_choice.h"
#include "evaluator/embed/pooling.h"
#include "tests/support/harness/must.h"

static struct plm_error error;
static struct plm_inference *inference;
static struct plm_sequence_batch *batch;
static const struct plm_batch *chunks;
static uint32_t sequences, tokens;
static const int32_t *lengths;

static const struct plm_tensor_info *tensor(const struct plm_safetensors *file, const char *name,
                                            enum plm_dtype dtype)
{
  const struct plm_tensor_info *info = plm_safetensors_find(file, name);
  PLM_ASSERT(info != NULL && info->dtype == dtype && info->rank == 1);
  return info;
}

static void fill_batch(const struct plm_safetensors *file)
{
  const struct plm_tensor_info *given = tensor(file, "tokens", PLM_U8);
  const struct plm_tensor_info *counts = tensor(file, "lengths", PLM_I32);
  const uint8_t *from = given->data;
  int32_t *sequence = must(calloc(given->shape[0], sizeof *sequence));
  lengths = counts->data;
  sequences = (uint32_t)counts->shape[0];
  must_work(plm_sequence_batch_open(&inference->config, inference->tokenizer->pad,
                                    inference->max_chunks, &batch, &error),
            &error);
  for (uint32_t i = 0; i < sequences; i++) {
    const uint32_t length = (uint32_t)lengths[i];
    for (uint32_t t = 0; t < length; t++) sequence[t] = from[tokens + t];
    const bool fits = plm_sequence_batch_add(batch, sequence, length);
    PLM_ASSERT(fits);
    tokens += length;
  }
  PLM_ASSERT(tokens == given->shape[0]);
  chunks = plm_sequence_batch_finish(batch);
  free(sequence);
}

/* Rows of `width` floats, chunk by chunk, as rows of the sequences in their order. */
static float *in_order(const float *rows, size_t width)
{
  float *result = must(calloc(tokens * width, sizeof *result)), *to = result;
  for (uint32_t i = 0; i < sequences; i++) {
    const size_t count = (size_t)lengths[i] * width;
    memcpy(to, rows + plm_sequence_batch_row(batch, i) * width, count * sizeof *to);
    to += count;
  }
  return result;
}

static float *run_states(size_t rows, uint32_t *count)
{
  struct plm_layer_choice choice;
  char text[PLM_LAYERS_NAME_SIZE] = "0";
  const uint32_t layers = inference->config.num_hidden_layers;
  for (uint32_t i = 1; i <= layers; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), ",%u", i);
  must_work(plm_layer_choice_parse(text, &inference->config, &choice, &error), &error);
  float *room = must(calloc(rows * inference->config.hidden_size, sizeof *room));
  float *values = must(calloc(rows * choice.width, sizeof *values));
  must_work(plm_layer_choice_run(&choice, inference, chunks, plm_sequence_batch_inputs(batch), room,
                                 values, &error),
            &error);
  float *states = in_order(values, choice.width);
  free(room);
  free(values);
  *count = choice.count;
  return states;
}

static float *run_logits(size_t rows)
{
  const uint32_t V = inference->config.vocab_size;
  float *values = must(calloc(rows * V, sizeof *values));
  must_work(plm_inference_run(inference, chunks, plm_sequence_batch_inputs(batch), NULL, 0, NULL,
                              values, &error),
            &error);
  float *logits = in_order(values, V);
  free(values);
  return logits;
}

static float *run_pooled(size_t rows)
{
  struct plm_pooling pooling;
  const uint32_t D = inference->config.hidden_size;
  must_work(plm_pooling_parse("mean,cls,max,std", &pooling, &error), &error);
  float *values = must(calloc(rows * D, sizeof *values));
  double *scratch = must(calloc(2 * (size_t)D, sizeof *scratch));
  float *pooled = must(calloc((size_t)sequences * pooling.count * D, sizeof *pooled));
  must_work(plm_inference_run(inference, chunks, plm_sequence_batch_inputs(batch), NULL, 0, values,
                              NULL, &error),
            &error);
  for (uint32_t i = 0; i < sequences; i++)
    plm_pooling_run(&pooling, values + (size_t)plm_sequence_batch_row(batch, i) * D,
                    (uint32_t)lengths[i] - 2, D, scratch, pooled + (size_t)i * pooling.count * D);
  free(values);
  free(scratch);
  return pooled;
}

static void run(const char *output)
{
  const size_t rows = (size_t)chunks->chunks * chunks->max_length;
  const uint64_t n = tokens, D = inference->config.hidden_size, V = inference->config.vocab_size;
  uint32_t count;
  float *states = run_states(rows, &count), *logits = run_logits(rows), *pooled = run_pooled(rows);
  int32_t *places = must(calloc(sequences, sizeof *places));
  for (uint32_t i = 0; i < sequences; i++)
    places[i] = (int32_t)(plm_sequence_batch_row(batch, i) / chunks->max_length);
  const struct plm_tensor_info tensors[] = {
      {"states", PLM_F32, 3, {n, count, D}, n * count * D * sizeof *states, states},
      {"logits", PLM_F32, 2, {n, V}, n * V * sizeof *logits, logits},
      {"pooled", PLM_F32, 3, {sequences, 4, D}, sequences * 4 * D * sizeof *pooled, pooled},
      {"chunks", PLM_I32, 1, {sequences}, sequences * sizeof *places, places},
  };
  must_work(
      plm_safetensors_write(output, tensors, sizeof tensors / sizeof *tensors, NULL, 0, &error),
      &error);
  free(states);
  free(logits);
  free(pooled);
  free(places);
}

int main(int argc, char **argv)
{
  struct plm_ops *ops;
  struct plm_safetensors *file;
  plm_program_begin();
  if (argc != 4) {
    fputs("usage: tool_states FOLDER BATCH OUTPUT\n", stderr);
    return 2;
  }
  must_work(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, &error), &error);
  must_work(plm_inference_open_verified(argv[1], NULL, ops, PLM_INFERENCE_BATCH_TOKENS, &inference,
                                        NULL, &error),
            &error);
  must_work(plm_safetensors_open(argv[2], &file, &error), &error);
  fill_batch(file);
  run(argv[3]);
  plm_safetensors_close(file);
  plm_sequence_batch_close(batch);
  plm_inference_close(inference);
  ops->close(ops);
  return 0;
}
