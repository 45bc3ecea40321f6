/* ELBO and pseudo-perplexity. */
#include "evaluator/evaluate/measures.h"

#include <inttypes.h>
#include <math.h>

#include "common/base/numbers/philox.h"
#include "common/inference/pseudo_likelihood.h"

enum { PASS_SHIFT = 20 }; /* a document has at most 2^20 tokens */

/* What is added up over the batches of a split. */
struct sums {
  const struct plm_measure_buffers *buffers;
  const struct plm_batch_walk *walk;
  uint64_t seed;
  uint32_t pass, passes; /* of the ELBO; else 0 */
  double a, b;           /* of the fast estimate */
  struct plm_pseudo_likelihood *likelihood;
  double loss;
  uint64_t tokens;
};

/* ---- the ELBO ---- */

/* The bits of n (32) reversed behind the point. */
static double van_der_corput(uint64_t n)
{
  uint32_t reversed = 0;
  for (int bit = 0; bit < 32; bit++) reversed |= (uint32_t)(n >> bit & 1) << (31 - bit);
  return (double)reversed * 0x1p-32;
}

static double rate_of(const struct sums *sums, uint64_t document)
{
  const double u = plm_philox_unit(plm_philox(sums->seed, 0, 0, PLM_PURPOSE_ELBO_MASK).w[0]);
  const double place = u + van_der_corput(document) + (double)sums->pass / sums->passes;
  return 1e-3 + 0.999 * (place - floor(place));
}

static bool is_chosen(const struct sums *sums, uint64_t document, uint32_t x, uint32_t threshold)
{
  const uint32_t place = x + (sums->pass << PASS_SHIFT);
  return plm_philox(sums->seed, place, document, PLM_PURPOSE_ELBO_MASK).w[0] >> 8 < threshold;
}

/* Asks for the residues of a batch, document by document, and runs the model: for those that this
 * pass of the ELBO chooses, which are masked, or else (no passes) for all, and masks none. */
static plm_status measures_ask(struct sums *sums, const struct plm_batch *batch,
                               struct plm_error *error)
{
  struct plm_inference *inference = sums->buffers->inference;
  struct plm_question *question = sums->buffers->question;
  const bool masks = sums->passes > 0;
  plm_question_copy(question, batch);
  for (uint32_t chunk = 0; chunk < batch->chunks; chunk++) {
    for (uint32_t d = batch->document_begin[chunk]; d < batch->document_begin[chunk + 1]; d++) {
      const struct plm_chunk_document *document = &batch->documents[d];
      const uint32_t threshold = masks ? plm_mask_threshold(rate_of(sums, document->number)) : 0;
      const size_t first = (size_t)chunk * batch->max_length + document->start;
      for (uint32_t x = 0; x < document->tokens; x++) {
        int32_t *input = &question->inputs[first + x];
        if (!plm_token_is_residue(inference->tokenizer, *input)) continue;
        sums->tokens++;
        if (masks && !is_chosen(sums, document->number, x, threshold)) continue;
        plm_question_ask(question, first + x, *input, d);
        if (masks) *input = inference->tokenizer->mask;
      }
    }
  }
  if (question->rows == 0) return PLM_OK;
  PLM_TRY(plm_inference_run(inference, batch, question->inputs, question->positions, question->rows,
                            NULL, sums->buffers->logits, error));
  return plm_question_check(question, batch, sums->buffers->logits, inference->config.vocab_size,
                            error);
}

/* The log-probability of the row's true token. */
static double log_probability(const struct sums *sums, uint32_t row)
{
  const uint32_t V = sums->buffers->inference->config.vocab_size;
  return plm_log_probability(sums->buffers->logits + (size_t)row * V, V,
                             sums->buffers->question->labels[row]);
}

/* Adds the weighted losses of the chosen tokens of the batch. */
static plm_status add_elbo(void *context, const struct plm_batch *batch, struct plm_error *error)
{
  struct sums *sums = context;
  const struct plm_question *question = sums->buffers->question;
  PLM_TRY(measures_ask(sums, batch, error));
  for (uint32_t row = 0; row < question->rows; row++) {
    const uint64_t number = batch->documents[question->residues[row]].number;
    sums->loss -= log_probability(sums, row) / rate_of(sums, number);
  }
  return PLM_OK;
}

plm_status plm_measure_elbo(const struct plm_measure_buffers *buffers,
                            const struct plm_batch_walk *walk, uint32_t rates, uint64_t seed,
                            double *elbo, struct plm_error *error)
{
  struct sums sums = {.buffers = buffers, .walk = walk, .seed = seed, .passes = rates};
  for (; sums.pass < rates; sums.pass++) PLM_TRY(plm_each_batch(walk, add_elbo, &sums, error));
  *elbo = sums.loss / (double)sums.tokens; /* NaN if there are no tokens */
  return PLM_OK;
}

/* ---- pseudo-perplexity ---- */

static plm_status add_documents(void *context, const struct plm_batch *batch,
                                struct plm_error *error)
{
  struct sums *sums = context;
  struct plm_question *question = sums->buffers->question;
  plm_question_copy(question, batch);
  for (uint32_t chunk = 0; chunk < batch->chunks; chunk++) {
    for (uint32_t d = batch->document_begin[chunk]; d < batch->document_begin[chunk + 1]; d++) {
      const struct plm_chunk_document *document = &batch->documents[d];
      const size_t first = (size_t)chunk * batch->max_length + document->start;
      double sum;
      uint32_t terms;
      const plm_status status = plm_pseudo_likelihood_run(
          sums->likelihood, question->inputs + first, document->tokens, sums->walk->stop,
          sums->walk->stop_context, &sum, &terms, error);
      if (status == PLM_NOT_FINITE)
        plm_error_where(error, "sequence %" PRIu64 " (from 0) of its split", document->number);
      PLM_TRY(status);
      sums->loss -= sum;
      sums->tokens += terms;
    }
  }
  return PLM_OK;
}

plm_status plm_measure_pseudo_perplexity(const struct plm_measure_buffers *buffers,
                                         const struct plm_batch_walk *walk, double *perplexity,
                                         struct plm_error *error)
{
  struct sums sums = {.buffers = buffers, .walk = walk};
  PLM_TRY(plm_pseudo_likelihood_open(buffers->inference, &sums.likelihood, error));
  const plm_status status = plm_each_batch(walk, add_documents, &sums, error);
  plm_pseudo_likelihood_close(sums.likelihood);
  *perplexity = exp(sums.loss / (double)sums.tokens);
  return status;
}

static plm_status add_unmasked(void *context, const struct plm_batch *batch,
                               struct plm_error *error)
{
  struct sums *sums = context;
  PLM_TRY(measures_ask(sums, batch, error));
  for (uint32_t row = 0; row < sums->buffers->question->rows; row++) {
    const double log_q = log_probability(sums, row);
    sums->loss -= log_q + log(sums->a) - log(sums->a - sums->b * expm1(log_q));
  }
  return PLM_OK;
}

plm_status plm_measure_pseudo_perplexity_fast(const struct plm_measure_buffers *buffers,
                                              const struct plm_batch_walk *walk,
                                              double random_fraction, double keep_fraction,
                                              double *perplexity, struct plm_error *error)
{
  struct sums sums = {.buffers = buffers,
                      .walk = walk,
                      .a = random_fraction / buffers->inference->tokenizer->random_count,
                      .b = keep_fraction};
  PLM_TRY(plm_each_batch(walk, add_unmasked, &sums, error));
  *perplexity = exp(sums.loss / (double)sums.tokens);
  return PLM_OK;
}
