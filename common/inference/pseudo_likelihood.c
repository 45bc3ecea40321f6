/* Runs copies of a sequence, each with one masked position, in batches. */
#include "common/inference/pseudo_likelihood.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/inference/finite_output.h"
#include "common/inference/sequence_batch.h"

struct plm_pseudo_likelihood {
  struct plm_inference *inference;
  struct plm_sequence_batch *batch;
  uint32_t most;    /* copies in a batch */
  int32_t *tokens;  /* (max_length) a copy */
  double *terms;    /* (max_length) log-probability of each token */
  uint32_t *places; /* (most) of the masked token of each copy */
  int32_t *rows;    /* (most) of it in the batch */
  float *logits;    /* (most, V) */
};

double plm_log_probability(const float *logits, uint32_t V, int32_t token)
{
  double highest = logits[0], sum = 0;
  for (uint32_t v = 1; v < V; v++) highest = fmax(highest, (double)logits[v]);
  for (uint32_t v = 0; v < V; v++) sum += exp((double)logits[v] - highest);
  return (double)logits[token] - highest - log(sum);
}

plm_status plm_pseudo_likelihood_open(struct plm_inference *inference,
                                      struct plm_pseudo_likelihood **likelihood,
                                      struct plm_error *error)
{
  const struct plm_model_config *config = &inference->config;
  struct plm_pseudo_likelihood *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->inference = inference;
  opened->most = 512;
  opened->tokens = calloc(config->max_length, sizeof *opened->tokens);
  opened->terms = calloc(config->max_length, sizeof *opened->terms);
  opened->places = plm_alloc_zeroed(opened->most, sizeof *opened->places);
  opened->rows = plm_alloc_zeroed(opened->most, sizeof *opened->rows);
  opened->logits = calloc((size_t)opened->most * config->vocab_size, sizeof *opened->logits);
  plm_status status = plm_sequence_batch_open(config, (uint16_t)inference->tokenizer->pad,
                                              inference->max_chunks, &opened->batch, error);
  if (status == PLM_OK &&
      (opened->tokens == NULL || opened->terms == NULL || opened->logits == NULL))
    status =
        plm_error_set(error, PLM_NO_MEMORY, "no memory for a batch of %u chunks", opened->most);
  if (status != PLM_OK) {
    plm_pseudo_likelihood_close(opened);
    return status;
  }
  *likelihood = opened;
  return PLM_OK;
}

void plm_pseudo_likelihood_close(struct plm_pseudo_likelihood *likelihood)
{
  if (likelihood == NULL) return;
  plm_sequence_batch_close(likelihood->batch);
  free(likelihood->tokens);
  free(likelihood->terms);
  free(likelihood->places);
  free(likelihood->rows);
  free(likelihood->logits);
  free(likelihood);
}

/* Runs the copies of the batch and takes the log-probabilities of their masked tokens. The rows
 * ascend, because copies of one length are placed in the order in which they were added. */
static plm_status run_batch(struct plm_pseudo_likelihood *likelihood, const int32_t *tokens,
                            uint32_t count, struct plm_error *error)
{
  struct plm_inference *inference = likelihood->inference;
  const uint32_t V = inference->config.vocab_size;
  const struct plm_batch *chunks = plm_sequence_batch_finish(likelihood->batch);
  for (uint32_t i = 0; i < count; i++)
    likelihood->rows[i] =
        (int32_t)(plm_sequence_batch_row(likelihood->batch, i) + likelihood->places[i]);
  PLM_TRY(plm_inference_run(inference, chunks, plm_sequence_batch_inputs(likelihood->batch),
                            likelihood->rows, count, NULL, likelihood->logits, error));
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t place = likelihood->places[i];
    const float *logits = likelihood->logits + (size_t)i * V;
    PLM_TRY(plm_finite_output(logits, V, error, "token %u of a sequence", place));
    likelihood->terms[place] = plm_log_probability(logits, V, tokens[place]);
  }
  return PLM_OK;
}

plm_status plm_pseudo_likelihood_run(struct plm_pseudo_likelihood *likelihood,
                                     const int32_t *tokens, uint32_t count,
                                     plm_pseudo_likelihood_stop *stop, void *context, double *sum,
                                     uint32_t *terms, struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = likelihood->inference->tokenizer;
  PLM_ASSERT(count <= likelihood->inference->config.max_length);
  uint32_t held = 0;
  plm_sequence_batch_reset(likelihood->batch);
  memcpy(likelihood->tokens, tokens, count * sizeof *tokens);
  *sum = 0;
  *terms = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (!plm_token_is_residue(tokenizer, tokens[i])) continue;
    if (held == likelihood->most || !plm_sequence_batch_has_room(likelihood->batch, count)) {
      if (stop != NULL) PLM_TRY(stop(context, error));
      PLM_TRY(run_batch(likelihood, tokens, held, error));
      plm_sequence_batch_reset(likelihood->batch);
      held = 0;
    }
    likelihood->tokens[i] = tokenizer->mask;
    const bool added = plm_sequence_batch_add(likelihood->batch, likelihood->tokens, count);
    PLM_ASSERT(added);
    likelihood->tokens[i] = tokens[i];
    likelihood->places[held++] = i;
  }
  if (held > 0) PLM_TRY(run_batch(likelihood, tokens, held, error));
  for (uint32_t i = 0; i < count; i++) {
    if (!plm_token_is_residue(tokenizer, tokens[i])) continue;
    *sum += likelihood->terms[i];
    ++*terms;
  }
  return PLM_OK;
}
