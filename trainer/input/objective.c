/* Objectives: masked language modelling, masked diffusion and next-token prediction. */
#include "trainer/input/objective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "trainer/optimizer/schedule.h"

/* A random word is below the rate if its upper 24 bits are below this integer. Comparing integers
 * gives the same result on every machine. */
static uint32_t threshold(double rate)
{
  return (uint32_t)ceil(fmin(fmax(rate, 0), 1) * 0x1p24);
}

/* Allocates the host memory of plm_objective_targets. */
static plm_status objective_allocate_buffers(struct plm_objective_state *objective,
                                             struct plm_error *error)
{
  const uint32_t chunks = objective->max_chunks;
  const size_t tokens = (size_t)chunks * objective->max_length;
  objective->inputs = calloc(tokens, sizeof(int32_t));
  objective->positions = calloc(tokens, sizeof(int32_t));
  objective->labels = calloc(tokens, sizeof(int32_t));
  objective->weights = calloc(tokens, sizeof(float));
  objective->draws = calloc(chunks, sizeof *objective->draws);
  objective->ends =
      calloc(plm_objective_end_words(chunks, objective->max_length), sizeof *objective->ends);
  objective->totals = calloc(chunks, sizeof *objective->totals);
  if (objective->inputs != NULL && objective->positions != NULL && objective->labels != NULL &&
      objective->weights != NULL && objective->draws != NULL && objective->ends != NULL &&
      objective->totals != NULL)
    return PLM_OK;
  plm_objective_deinit(objective);
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for the targets of %u chunks", chunks);
}

plm_status plm_objective_init(struct plm_objective_state *objective,
                              const struct plm_objective_options *options, uint32_t step_chunks,
                              uint32_t max_chunks, struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(options->tokenizer);
  *objective = (struct plm_objective_state){
      .trainer = options->trainer,
      .tokenizer = tokenizer,
      .max_length = options->max_length,
      .step_chunks = step_chunks,
      .max_chunks = max_chunks,
  };
  const struct plm_config_masking *masking = &options->trainer->masking;
  objective->masking = (struct plm_masking){
      .seed = options->seed,
      .token_bytes = tokenizer->token_bytes,
      .causal = options->trainer->objective == PLM_OBJECTIVE_CAUSAL,
      .to_mask = threshold(1 - masking->random_fraction - masking->keep_fraction),
      .to_random = threshold(1 - masking->keep_fraction),
      .cls = tokenizer->cls,
      .eos = tokenizer->eos,
      .pad = tokenizer->pad,
      .mask = tokenizer->mask,
      .first_random = (uint32_t)tokenizer->first_random,
      .random_count = (uint32_t)tokenizer->random_count,
  };
  return max_chunks == 0 ? PLM_OK : objective_allocate_buffers(objective, error);
}

void plm_objective_deinit(struct plm_objective_state *objective)
{
  free(objective->inputs);
  free(objective->positions);
  free(objective->labels);
  free(objective->weights);
  free(objective->draws);
  free(objective->ends);
  free(objective->totals);
  *objective = (struct plm_objective_state){0};
}

/* t_i = 1e-3 + 0.999 frac(u + i/B): u is drawn once a step and stratified over its chunks. */
static double diffusion_rate(const struct plm_objective_state *objective, uint64_t s, uint32_t i)
{
  if (objective->trainer->masking.rate_scope == PLM_RATE_BATCH) i = 0;
  const double u =
      plm_philox_unit(plm_philox(objective->masking.seed, 0, s, PLM_PURPOSE_DIFFUSION_RATE).w[0]);
  const double place = u + (double)i / (double)objective->step_chunks;
  return 1e-3 + 0.999 * (place - floor(place));
}

double plm_objective_rate(const struct plm_objective_state *objective, uint64_t s, uint32_t i)
{
  if (objective->trainer->objective == PLM_OBJECTIVE_CAUSAL ||
      plm_objective_is_labels(objective->trainer->objective))
    return 0;
  if (plm_schedule_is_mlm(objective->trainer, s))
    return plm_schedule_mask_rate(&objective->trainer->masking, s);
  return diffusion_rate(objective, s, i);
}

double plm_objective_mean_rate(const struct plm_objective_state *objective, uint64_t s)
{
  if (objective->trainer->objective == PLM_OBJECTIVE_CAUSAL ||
      plm_objective_is_labels(objective->trainer->objective) ||
      plm_schedule_is_mlm(objective->trainer, s))
    return plm_objective_rate(objective, s, 0);
  double sum = 0;
  for (uint32_t i = 0; i < objective->step_chunks; i++) sum += diffusion_rate(objective, s, i);
  return sum / objective->step_chunks;
}

/* Sets a chunk's bits, except those of positions whose next token belongs to the same document. */
static void mark_ends(const struct plm_batch *batch, uint32_t chunk, uint32_t *ends)
{
  const size_t base = (size_t)chunk * batch->max_length;
  for (size_t i = base; i < base + batch->max_length; i++) ends[i / 32] |= 1u << (i % 32);
  for (uint32_t d = batch->document_begin[chunk]; d < batch->document_begin[chunk + 1]; d++) {
    const struct plm_chunk_document *document = &batch->documents[d];
    const size_t begin = base + document->start;
    for (size_t i = begin; i + 1 < begin + document->tokens; i++) ends[i / 32] &= ~(1u << (i % 32));
  }
}

static struct plm_chunk_draw draw_of(const struct plm_objective_state *objective, uint64_t s,
                                     uint32_t batch_index, const struct plm_batch *batch,
                                     uint32_t chunk)
{
  const double rate = plm_objective_rate(objective, s, batch_index + chunk);
  const bool weighted = !objective->masking.causal && !plm_schedule_is_mlm(objective->trainer, s);
  return (struct plm_chunk_draw){
      .g = batch->chunk_ids != NULL ? batch->chunk_ids[chunk] : batch->first_chunk + chunk,
      .choose = threshold(rate),
      .weight = weighted ? (float)(1 / rate) : 1,
  };
}

void plm_objective_totals_add(struct plm_objective_totals *to,
                              const struct plm_objective_totals *more)
{
  to->rows += more->rows;
  to->count += more->count;
}

/* Returns the rows of a chunk and adds its maskable tokens to *maskable. Where documents and tokens
 * are was checked when the chunk came (common/wire/data.h); here it is asserted. */
static uint64_t count_rows(const struct plm_objective_state *objective,
                           const struct plm_batch *batch, uint32_t chunk,
                           const struct plm_chunk_draw *draw, uint64_t *maskable)
{
  const struct plm_masking *masking = &objective->masking;
  uint64_t rows = 0;
  uint32_t end = 0; /* of the previous document */
  for (uint32_t d = batch->document_begin[chunk]; d < batch->document_begin[chunk + 1]; d++) {
    const struct plm_chunk_document *document = &batch->documents[d];
    PLM_ASSERT(document->start >= end && document->tokens <= batch->max_length &&
               document->start <= batch->max_length - document->tokens);
    end = document->start + document->tokens;
    if (masking->causal) {
      rows += document->tokens == 0 ? 0 : document->tokens - 1;
      continue;
    }
    for (uint32_t x = document->start; x < document->start + document->tokens; x++) {
      const int32_t id =
          plm_masking_token(masking, batch->tokens, (size_t)chunk * batch->max_length + x);
      PLM_ASSERT(id < (int32_t)objective->tokenizer->vocab_size);
      *maskable += plm_masking_may_choose(masking, id);
      rows += plm_masking_apply(masking, draw, x, id, -1).label >= 0;
    }
  }
  return rows;
}

size_t plm_objective_end_words(uint32_t chunks, uint32_t max_length)
{
  return ((size_t)chunks * max_length + 31) / 32;
}

void plm_objective_describe(const struct plm_objective_state *objective, uint64_t s,
                            uint32_t batch_index, const struct plm_batch *batch,
                            struct plm_chunk_draw *draws, uint32_t *ends,
                            struct plm_objective_totals *totals)
{
  PLM_ASSERT(batch->max_length <= objective->max_length &&
             batch->token_bytes == objective->masking.token_bytes);
  const bool by_rows = objective->masking.causal || plm_schedule_is_mlm(objective->trainer, s);
  memset(ends, 0, plm_objective_end_words(batch->chunks, batch->max_length) * sizeof *ends);
  for (uint32_t c = 0; c < batch->chunks; c++) {
    draws[c] = draw_of(objective, s, batch_index, batch, c);
    uint64_t maskable = 0;
    const uint64_t rows = count_rows(objective, batch, c, &draws[c], &maskable);
    totals[c] = (struct plm_objective_totals){.rows = rows, .count = by_rows ? rows : maskable};
    if (objective->masking.causal) mark_ends(batch, c, ends);
  }
}

void plm_objective_targets(struct plm_objective_state *objective, uint64_t s, uint32_t batch_index,
                           const struct plm_batch *batch, struct plm_targets *targets,
                           uint64_t *count)
{
  PLM_ASSERT(batch->chunks <= objective->max_chunks);
  struct plm_objective_totals totals = {0};
  plm_objective_describe(objective, s, batch_index, batch, objective->draws, objective->ends,
                         objective->totals);
  for (uint32_t c = 0; c < batch->chunks; c++)
    plm_objective_totals_add(&totals, &objective->totals[c]);
  *count = totals.count;
  const struct plm_target_tokens from = {.tokens = batch->tokens,
                                         .ends = objective->ends,
                                         .draws = objective->draws,
                                         .B = batch->chunks,
                                         .L = batch->max_length};
  const struct plm_target_rows to = {.inputs = objective->inputs,
                                     .positions = objective->positions,
                                     .labels = objective->labels,
                                     .weights = objective->weights,
                                     .capacity = (int64_t)totals.rows};
  const uint32_t rows = (uint32_t)plm_masking_targets(&objective->masking, &from, &to);
  PLM_ASSERT(rows == totals.rows);
  *targets = (struct plm_targets){.inputs = objective->inputs,
                                  .rows = rows,
                                  .positions = objective->positions,
                                  .labels = objective->labels,
                                  .weights = objective->weights};
}
