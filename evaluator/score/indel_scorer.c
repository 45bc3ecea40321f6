/* Likelihoods of whole sequences, less that of the wild type. */
#include "evaluator/score/indel_scorer.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/inference/finite_output.h"
#include "common/inference/pseudo_likelihood.h"
#include "common/inference/sequence_batch.h"
#include "common/run/stop.h"

struct plm_indel_scorer {
  struct plm_inference *inference;
  const struct plm_wild_type *wild_type;
  struct plm_pseudo_likelihood *likelihood; /* masked models; NULL: one pass for a sequence */
  bool causal;
  struct plm_sequence_batch *batch; /* of one pass */
  float *logits;                    /* (max_length, V) of one pass */
  int32_t *window;                  /* (max_length) */
  double *wild;                     /* (length) L of the wild type's window; NaN: unknown */
};

plm_status plm_indel_scorer_open(struct plm_inference *inference,
                                 const struct plm_wild_type *wild_type,
                                 enum plm_score_masking masking, struct plm_indel_scorer **scorer,
                                 struct plm_error *error)
{
  struct plm_indel_scorer *opened = plm_alloc_zeroed(1, sizeof *opened);
  const struct plm_model_config *config = &inference->config;
  opened->causal = inference->objective == PLM_OBJECTIVE_CAUSAL;
  const bool one_pass = opened->causal || masking == PLM_SCORE_UNMASKED;
  opened->inference = inference;
  opened->wild_type = wild_type;
  opened->window = calloc(config->max_length, sizeof *opened->window);
  opened->wild = calloc(wild_type->length, sizeof *opened->wild);
  if (one_pass)
    opened->logits = calloc((size_t)config->max_length * config->vocab_size, sizeof(float));
  plm_status status = PLM_OK;
  if (opened->window == NULL || opened->wild == NULL || (one_pass && opened->logits == NULL))
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory for a wild type of %u residues",
                           wild_type->length);
  for (uint32_t i = 0; i < wild_type->length && status == PLM_OK; i++) opened->wild[i] = NAN;
  if (status == PLM_OK && one_pass)
    status = plm_sequence_batch_open(config, (uint16_t)inference->tokenizer->pad,
                                     inference->max_chunks, &opened->batch, error);
  else if (status == PLM_OK)
    status = plm_pseudo_likelihood_open(inference, &opened->likelihood, error);
  if (status != PLM_OK) {
    plm_indel_scorer_close(opened);
    return status;
  }
  *scorer = opened;
  return PLM_OK;
}

void plm_indel_scorer_close(struct plm_indel_scorer *scorer)
{
  if (scorer == NULL) return;
  plm_pseudo_likelihood_close(scorer->likelihood);
  plm_sequence_batch_close(scorer->batch);
  free(scorer->logits);
  free(scorer->window);
  free(scorer->wild);
  free(scorer);
}

static plm_status stop_check(void *context, struct plm_error *error)
{
  (void)context;
  return plm_stop_check("", error);
}

/* The sum of the log-probabilities of all tokens after the first (causal), or of all residues. */
static plm_status likelihood_of_pass(struct plm_indel_scorer *scorer, uint32_t count, double *sum,
                                     struct plm_error *error)
{
  const uint32_t V = scorer->inference->config.vocab_size;
  plm_sequence_batch_reset(scorer->batch);
  const bool added = plm_sequence_batch_add(scorer->batch, scorer->window, count);
  PLM_ASSERT(added);
  const struct plm_batch *chunks = plm_sequence_batch_finish(scorer->batch);
  int32_t *positions = plm_alloc_zeroed(count, sizeof *positions);
  for (uint32_t i = 0; i < count; i++) positions[i] = (int32_t)i; /* of the only sequence */
  plm_status status =
      plm_inference_run(scorer->inference, chunks, plm_sequence_batch_inputs(scorer->batch),
                        positions, count, NULL, scorer->logits, error);
  free(positions);
  if (status == PLM_OK)
    status = plm_finite_output(scorer->logits, (size_t)count * V, error, "a token of a sequence");
  *sum = 0;
  for (uint32_t i = scorer->causal; i < count && status == PLM_OK; i++) {
    const float *logits = scorer->logits + (size_t)(i - scorer->causal) * V;
    if (scorer->causal || plm_token_is_residue(scorer->inference->tokenizer, scorer->window[i]))
      *sum += plm_log_probability(logits, V, scorer->window[i]);
  }
  return status;
}

/* L of the window of at most max_length tokens of a sequence that begins at its token `begin`. */
static plm_status likelihood_of(struct plm_indel_scorer *scorer, const uint8_t *residues,
                                uint32_t length, uint32_t begin, double *sum,
                                struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = scorer->inference->tokenizer;
  const uint32_t T = length + 2, most = plm_inference_slice(scorer->inference);
  const uint32_t count = T < most ? T : most; /* no window ends behind the sequence */
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t token = begin + i;
    scorer->window[i] = token == 0       ? tokenizer->cls
                        : token == T - 1 ? tokenizer->eos
                                         : plm_tokenizer_encode(tokenizer, residues[token - 1]);
  }
  uint32_t terms;
  PLM_TRY(plm_stop_check("", error));
  if (scorer->likelihood == NULL) return likelihood_of_pass(scorer, count, sum, error);
  return plm_pseudo_likelihood_run(scorer->likelihood, scorer->window, count, stop_check, NULL, sum,
                                   &terms, error);
}

/* The first token of the window of a sequence of T > max_length tokens. */
static uint32_t window_begin(const struct plm_indel_scorer *scorer, const uint8_t *residues,
                             uint32_t length)
{
  const struct plm_wild_type *wild_type = scorer->wild_type;
  const uint32_t shorter = length < wild_type->length ? length : wild_type->length;
  const uint32_t most = plm_inference_slice(scorer->inference), last = length + 2 - most;
  uint32_t head = 0, tail = 0;
  while (head < shorter && residues[head] == wild_type->residues[head]) head++;
  while (tail < shorter - head &&
         residues[length - 1 - tail] == wild_type->residues[wild_type->length - 1 - tail])
    tail++;
  const uint32_t a = head + 1, b = length - tail > head ? length - tail : a;
  const uint32_t centre = (a + b + 1) / 2, begin = centre > most / 2 ? centre - most / 2 : 0;
  return begin < last ? begin : last;
}

plm_status plm_indel_scorer_run(struct plm_indel_scorer *scorer, const char *residues,
                                uint32_t length, double *score, struct plm_error *error)
{
  const struct plm_wild_type *wild_type = scorer->wild_type;
  const uint8_t *letters = (const uint8_t *)residues;
  const uint32_t most = plm_inference_slice(scorer->inference);
  const uint32_t begin = length + 2 > most ? window_begin(scorer, letters, length) : 0;
  const uint32_t latest = wild_type->length + 2 > most ? wild_type->length + 2 - most : 0;
  const uint32_t wild_begin = begin < latest ? begin : latest;
  double *wild = &scorer->wild[wild_begin];
  if (isnan(*wild)) {
    const plm_status status =
        likelihood_of(scorer, wild_type->residues, wild_type->length, wild_begin, wild, error);
    if (status == PLM_NOT_FINITE) plm_error_where(error, "wild type %.200s", wild_type->name);
    PLM_TRY(status);
  }
  PLM_TRY(likelihood_of(scorer, letters, length, begin, score, error));
  *score -= *wild;
  return PLM_OK;
}
