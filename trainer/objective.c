/* Objectives: masked language modelling, masked diffusion and next-token prediction. */
#include "trainer/objective.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/philox.h"
#include "trainer/schedule.h"

plm_status plm_objective_check(const struct plm_config *config, struct plm_error *error)
{
  if (config->trainer.objective != PLM_OBJECTIVE_CAUSAL) return PLM_OK;
  if (config->model.architecture == PLM_PATCH_UNET) {
    plm_error_set(error, PLM_CONFIG,
                  "objective causal cannot train a patch_unet: a merged pair shows a position its "
                  "own label");
    return plm_error_hint(error, "use model.architecture: transformer or unet");
  }
  for (uint32_t i = 0; i < config->model.pattern_count; i++)
    if ((config->model.pattern[i] & PLM_ATTENTION_CAUSAL) == 0) {
      plm_error_set(error, PLM_CONFIG,
                    "objective causal, but entry %u of model.attention.pattern is not causal",
                    i + 1);
      return plm_error_hint(error, "write document+causal for every entry");
    }
  return PLM_OK;
}

uint64_t plm_objective_bytes(uint32_t max_length, uint32_t max_chunks)
{
  return (uint64_t)max_length * max_chunks * (3 * sizeof(int32_t) + sizeof(float));
}

plm_status plm_objective_init(struct plm_objective_state *objective,
                              const struct plm_config *config, uint32_t step_chunks,
                              uint32_t max_chunks, struct plm_error *error)
{
  PLM_TRY(plm_objective_check(config, error));
  const size_t tokens = (size_t)max_chunks * config->data.max_length;
  *objective = (struct plm_objective_state){
      .trainer = &config->trainer,
      .tokenizer = plm_tokenizer_of(config->data.tokenizer),
      .seed = config->seed,
      .max_length = config->data.max_length,
      .step_chunks = step_chunks,
      .max_chunks = max_chunks,
      .inputs = calloc(tokens, sizeof(int32_t)),
      .positions = calloc(tokens, sizeof(int32_t)),
      .labels = calloc(tokens, sizeof(int32_t)),
      .weights = calloc(tokens, sizeof(float)),
  };
  if (objective->inputs == NULL || objective->positions == NULL || objective->labels == NULL ||
      objective->weights == NULL) {
    plm_objective_deinit(objective);
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the targets of %u chunks",
                         max_chunks);
  }
  return PLM_OK;
}

void plm_objective_deinit(struct plm_objective_state *objective)
{
  free(objective->inputs);
  free(objective->positions);
  free(objective->labels);
  free(objective->weights);
  *objective = (struct plm_objective_state){0};
}

/* t_i = 1e-3 + 0.999 frac(u + i/B): one draw a step, stratified over its chunks. */
static double diffusion_rate(const struct plm_objective_state *objective, uint64_t s, uint32_t i)
{
  if (objective->trainer->masking.rate_scope == PLM_RATE_BATCH) i = 0;
  const double u =
      plm_philox_unit(plm_philox(objective->seed, 0, s, PLM_PURPOSE_DIFFUSION_RATE).w[0]);
  const double place = u + (double)i / (double)objective->step_chunks;
  return 1e-3 + 0.999 * (place - floor(place));
}

double plm_objective_rate(const struct plm_objective_state *objective, uint64_t s, uint32_t i)
{
  if (objective->trainer->objective == PLM_OBJECTIVE_CAUSAL) return 0;
  if (plm_schedule_is_mlm(objective->trainer, s))
    return plm_schedule_mask_rate(&objective->trainer->masking, s);
  return diffusion_rate(objective, s, i);
}

double plm_objective_mean_rate(const struct plm_objective_state *objective, uint64_t s)
{
  if (objective->trainer->objective == PLM_OBJECTIVE_CAUSAL ||
      plm_schedule_is_mlm(objective->trainer, s))
    return plm_objective_rate(objective, s, 0);
  double sum = 0;
  for (uint32_t i = 0; i < objective->step_chunks; i++) sum += diffusion_rate(objective, s, i);
  return sum / objective->step_chunks;
}

/* 24-bit thresholds against (word >> 8): exact, the same on every machine. */
static uint32_t threshold(double rate)
{
  return (uint32_t)ceil(fmin(fmax(rate, 0), 1) * 0x1p24);
}

static plm_status widen(struct plm_objective_state *objective, const struct plm_batch *batch,
                        struct plm_error *error)
{
  const size_t tokens = (size_t)batch->chunks * batch->max_length;
  const uint32_t vocabulary = objective->tokenizer->vocab_size;
  for (size_t i = 0; i < tokens; i++) {
    const uint32_t id = batch->token_bytes == 1 ? ((const uint8_t *)batch->tokens)[i]
                                                : ((const uint16_t *)batch->tokens)[i];
    if (id >= vocabulary)
      return plm_error_set(error, PLM_CORRUPT,
                           "token %u at place %zu of chunk %zu is outside the vocabulary of %u", id,
                           i % batch->max_length, i / batch->max_length, vocabulary);
    objective->inputs[i] = (int32_t)id;
  }
  return PLM_OK;
}

/* Documents lie inside their chunk, one after another; *end is where the one before ended. */
static plm_status check_document(const struct plm_batch *batch,
                                 const struct plm_chunk_document *document, uint32_t *end,
                                 struct plm_error *error)
{
  if (document->start < *end || document->tokens > batch->max_length ||
      document->start > batch->max_length - document->tokens)
    return plm_error_set(error, PLM_CORRUPT,
                         "document %llu (%u tokens at %u) overlaps another or leaves its chunk "
                         "of %u",
                         (unsigned long long)document->number, document->tokens, document->start,
                         batch->max_length);
  *end = document->start + document->tokens;
  return PLM_OK;
}

struct mask_draw {
  uint64_t seed, g;
  uint32_t choose, to_mask, to_random; /* thresholds */
  float weight;
};

static bool maskable(const struct plm_tokenizer *tokenizer, int32_t id)
{
  return id != tokenizer->cls && id != tokenizer->eos && id != tokenizer->pad;
}

/* One document: draws at each maskable place; appends the chosen ones to the targets. Returns its
 * maskable tokens. */
static uint64_t mask_document(struct plm_objective_state *objective, const struct mask_draw *draw,
                              const struct plm_chunk_document *document, uint32_t base,
                              uint32_t *rows)
{
  const struct plm_tokenizer *tokenizer = objective->tokenizer;
  uint64_t count = 0;
  for (uint32_t x = document->start; x < document->start + document->tokens; x++) {
    int32_t *input = &objective->inputs[base + x];
    if (!maskable(tokenizer, *input)) continue;
    count++;
    const struct plm_philox_words words =
        plm_philox(draw->seed, x, draw->g, PLM_PURPOSE_TRAINING_MASK);
    if ((words.w[0] >> 8) >= draw->choose) continue;
    objective->positions[*rows] = (int32_t)(base + x);
    objective->labels[*rows] = *input;
    objective->weights[*rows] = draw->weight;
    ++*rows;
    const uint32_t fate = words.w[1] >> 8;
    if (fate < draw->to_mask)
      *input = tokenizer->mask;
    else if (fate < draw->to_random)
      *input = (int32_t)(tokenizer->first_random +
                         (((uint64_t)words.w[2] * tokenizer->random_count) >> 32));
  }
  return count;
}

/* One document of a causal model: each position but the last predicts the next token. */
static uint64_t shift_document(struct plm_objective_state *objective,
                               const struct plm_chunk_document *document, uint32_t base,
                               uint32_t *rows)
{
  for (uint32_t x = document->start; x + 1 < document->start + document->tokens; x++) {
    objective->positions[*rows] = (int32_t)(base + x);
    objective->labels[*rows] = objective->inputs[base + x + 1];
    objective->weights[*rows] = 1;
    ++*rows;
  }
  return document->tokens == 0 ? 0 : document->tokens - 1;
}

plm_status plm_objective_targets(struct plm_objective_state *objective, uint64_t s,
                                 uint32_t batch_index, const struct plm_batch *batch,
                                 struct plm_targets *targets, uint64_t *count,
                                 struct plm_error *error)
{
  PLM_ASSERT(batch->chunks <= objective->max_chunks && batch->max_length == objective->max_length);
  const struct plm_config_masking *masking = &objective->trainer->masking;
  const bool causal = objective->trainer->objective == PLM_OBJECTIVE_CAUSAL;
  const bool mlm = plm_schedule_is_mlm(objective->trainer, s);
  uint32_t rows = 0;
  uint64_t maskable_tokens = 0;
  PLM_TRY(widen(objective, batch, error));
  for (uint32_t c = 0; c < batch->chunks; c++) {
    const double rate = plm_objective_rate(objective, s, batch_index + c);
    const struct mask_draw draw = {
        .seed = objective->seed,
        .g = batch->chunk_ids != NULL ? batch->chunk_ids[c] : batch->first_chunk + c,
        .choose = threshold(rate),
        .to_mask = threshold(1 - masking->random_fraction - masking->keep_fraction),
        .to_random = threshold(1 - masking->keep_fraction),
        .weight = mlm ? 1 : (float)(1 / rate),
    };
    const uint32_t base = c * batch->max_length;
    uint32_t end = 0;
    for (uint32_t d = batch->document_begin[c]; d < batch->document_begin[c + 1]; d++) {
      const struct plm_chunk_document *document = &batch->documents[d];
      PLM_TRY(check_document(batch, document, &end, error));
      maskable_tokens += causal ? shift_document(objective, document, base, &rows)
                                : mask_document(objective, &draw, document, base, &rows);
    }
  }
  *count = mlm ? rows : maskable_tokens;
  *targets = (struct plm_targets){.inputs = objective->inputs,
                                  .rows = rows,
                                  .positions = objective->positions,
                                  .labels = objective->labels,
                                  .weights = objective->weights};
  return PLM_OK;
}
