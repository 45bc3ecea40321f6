/* Chooses the tokens that a model is asked about. */
#include "evaluator/evaluate/masking.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/finite.h"
#include "common/base/numbers/philox.h"
#include "common/inference/finite_output.h"

plm_status plm_question_init(struct plm_question *question, uint32_t max_tokens,
                             struct plm_error *error)
{
  *question = (struct plm_question){
      .inputs = calloc(max_tokens, sizeof *question->inputs),
      .positions = calloc(max_tokens, sizeof *question->positions),
      .labels = calloc(max_tokens, sizeof *question->labels),
      .residues = calloc(max_tokens, sizeof *question->residues),
  };
  if (question->inputs != NULL && question->positions != NULL && question->labels != NULL &&
      question->residues != NULL)
    return PLM_OK;
  plm_question_deinit(question);
  return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a batch of %u tokens", max_tokens);
}

void plm_question_deinit(struct plm_question *question)
{
  free(question->inputs);
  free(question->positions);
  free(question->labels);
  free(question->residues);
  *question = (struct plm_question){0};
}

uint32_t plm_mask_threshold(double rate)
{
  return (uint32_t)ceil(rate * 0x1p24);
}

static int32_t token_at(const struct plm_batch *batch, size_t position)
{
  return batch->token_bytes == 1 ? ((const uint8_t *)batch->tokens)[position]
                                 : ((const uint16_t *)batch->tokens)[position];
}

void plm_question_ask(struct plm_question *question, size_t position, int32_t label, uint32_t about)
{
  question->positions[question->rows] = (int32_t)position;
  question->labels[question->rows] = label;
  question->residues[question->rows] = about;
  question->rows++;
}

void plm_question_copy(struct plm_question *question, const struct plm_batch *batch)
{
  const size_t tokens = (size_t)batch->chunks * batch->max_length;
  for (size_t i = 0; i < tokens; i++) question->inputs[i] = token_at(batch, i);
  question->rows = 0;
}

void plm_question_masked(struct plm_question *question, const struct plm_batch *batch,
                         const struct plm_tokenizer *tokenizer, uint64_t seed, double rate)
{
  const uint32_t threshold = plm_mask_threshold(rate);
  plm_question_copy(question, batch);
  for (uint32_t chunk = 0; chunk < batch->chunks; chunk++) {
    for (uint32_t d = batch->document_begin[chunk]; d < batch->document_begin[chunk + 1]; d++) {
      const struct plm_chunk_document *document = &batch->documents[d];
      const size_t first = (size_t)chunk * batch->max_length + document->start;
      for (uint32_t x = 0; x < document->tokens; x++) {
        const int32_t token = question->inputs[first + x];
        if (!plm_token_is_residue(tokenizer, token)) continue;
        const struct plm_philox_words draw =
            plm_philox(seed, x, document->number, PLM_PURPOSE_EVALUATION_MASK);
        if (draw.w[0] >> 8 >= threshold) continue;
        plm_question_ask(question, first + x, token, document->residues);
        question->inputs[first + x] = tokenizer->mask;
      }
    }
  }
}

void plm_question_causal(struct plm_question *question, const struct plm_batch *batch)
{
  plm_question_copy(question, batch);
  for (uint32_t chunk = 0; chunk < batch->chunks; chunk++) {
    for (uint32_t d = batch->document_begin[chunk]; d < batch->document_begin[chunk + 1]; d++) {
      const struct plm_chunk_document *document = &batch->documents[d];
      const size_t first = (size_t)chunk * batch->max_length + document->start;
      for (uint32_t x = 0; x + 1 < document->tokens; x++)
        plm_question_ask(question, first + x, question->inputs[first + x + 1], document->residues);
    }
  }
}

/* The document of a batch that has a position of B * L. */
static const struct plm_chunk_document *document_at(const struct plm_batch *batch, size_t position)
{
  const size_t chunk = position / batch->max_length, place = position % batch->max_length;
  uint32_t d = batch->document_begin[chunk + 1] - 1;
  while (d > batch->document_begin[chunk] && batch->documents[d].start > place) d--;
  return &batch->documents[d];
}

plm_status plm_question_check(const struct plm_question *question, const struct plm_batch *batch,
                              const float *logits, uint32_t V, struct plm_error *error)
{
  const size_t count = (size_t)question->rows * V, found = plm_first_not_finite(logits, count);
  if (found == count) return PLM_OK;
  const size_t position = (size_t)question->positions[found / V];
  return plm_finite_output(&logits[found], 1, error, "sequence %" PRIu64 " (from 0) of its split",
                           document_at(batch, position)->number);
}
