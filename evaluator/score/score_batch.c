/* Packs windows, runs the model on them, and hands out the logits. */
#include "evaluator/score/score_batch.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/inference/pseudo_likelihood.h"
#include "common/inference/sequence_batch.h"

struct plm_score_batch {
  struct plm_inference *inference;
  uint32_t length; /* of a window */
  struct plm_sequence_batch *packed;
  struct plm_score_job *jobs; /* (tokens of a batch) */
  uint32_t job_count;
  uint32_t *places; /* (tokens of a batch and of a window) of all jobs */
  uint32_t place_count;
  int32_t *rows; /* (tokens of a batch) */
  float *logits; /* (tokens of a batch, V) */
};

plm_status plm_score_batch_open(struct plm_inference *inference, uint32_t length,
                                struct plm_score_batch **batch, struct plm_error *error)
{
  const struct plm_model_config *config = &inference->config;
  const size_t tokens = (size_t)inference->max_chunks * config->max_length;
  struct plm_score_batch *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->inference = inference;
  opened->length = length;
  opened->jobs = calloc(tokens, sizeof *opened->jobs);
  opened->places = calloc(tokens + length, sizeof *opened->places);
  opened->rows = calloc(tokens, sizeof *opened->rows);
  opened->logits = calloc(tokens * config->vocab_size, sizeof *opened->logits);
  plm_status status = plm_sequence_batch_open(config, inference->tokenizer->pad,
                                              inference->max_chunks, &opened->packed, error);
  if (status == PLM_OK && (opened->jobs == NULL || opened->places == NULL || opened->rows == NULL ||
                           opened->logits == NULL))
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory for a batch of %zu tokens", tokens);
  if (status != PLM_OK) {
    plm_score_batch_close(opened);
    return status;
  }
  *batch = opened;
  return PLM_OK;
}

void plm_score_batch_close(struct plm_score_batch *batch)
{
  if (batch == NULL) return;
  plm_sequence_batch_close(batch->packed);
  free(batch->jobs);
  free(batch->places);
  free(batch->rows);
  free(batch->logits);
  free(batch);
}

void plm_score_batch_reset(struct plm_score_batch *batch)
{
  batch->job_count = batch->place_count = 0;
  plm_sequence_batch_reset(batch->packed);
}

/* There is room, because a batch has no more rows than tokens. */
uint32_t *plm_score_batch_places(struct plm_score_batch *batch)
{
  return batch->places + batch->place_count;
}

bool plm_score_batch_add(struct plm_score_batch *batch, const int32_t *window,
                         const struct plm_score_job *job)
{
  if (!plm_sequence_batch_add(batch->packed, window, batch->length)) return false;
  struct plm_score_job *added = &batch->jobs[batch->job_count++];
  *added = *job;
  added->places = plm_score_batch_places(batch);
  batch->place_count += job->row_count;
  return true;
}

/* The rows ascend, because windows of one length are placed in the order in which they were added.
 */
plm_status plm_score_batch_run(struct plm_score_batch *batch, struct plm_error *error)
{
  const struct plm_batch *chunks = plm_sequence_batch_finish(batch->packed);
  const uint32_t V = batch->inference->config.vocab_size;
  uint32_t rows = 0;
  for (uint32_t j = 0; j < batch->job_count; j++) {
    struct plm_score_job *job = &batch->jobs[j];
    job->row = plm_sequence_batch_row(batch->packed, j);
    job->logits = batch->logits + (size_t)rows * V;
    for (uint32_t k = 0; k < job->row_count; k++)
      batch->rows[rows++] = (int32_t)(job->row + job->places[k]);
  }
  return plm_inference_run(batch->inference, chunks, plm_sequence_batch_inputs(batch->packed),
                           batch->rows, rows, NULL, batch->logits, error);
}

const struct plm_score_job *plm_score_batch_jobs(const struct plm_score_batch *batch,
                                                 uint32_t *count)
{
  *count = batch->job_count;
  return batch->jobs;
}

double plm_score_batch_next_token(const struct plm_score_batch *batch,
                                  const struct plm_score_job *job, uint32_t k)
{
  const uint32_t V = batch->inference->config.vocab_size;
  const int32_t *inputs = plm_sequence_batch_inputs(batch->packed);
  return plm_log_probability(job->logits + (size_t)k * V, V,
                             inputs[job->row + job->places[0] + k + 1]);
}
