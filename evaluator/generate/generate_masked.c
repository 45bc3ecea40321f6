/* Fills masks: sequences are packed into one batch, and each pass runs that batch with what earlier
 * passes have filled. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/inference/finite_output.h"
#include "common/inference/sequence_batch.h"
#include "common/run/stop.h"
#include "evaluator/generate/generate_work.h"

enum {
  GROUP_SEQUENCES = 4096
}; /* at most; this includes sequences without masks, which are not in the batch */

struct group {
  struct plm_generate_work *work;
  struct plm_sequence_batch *batch;
  struct plm_generation *all[GROUP_SEQUENCES]; /* in the order of the output */
  struct plm_generation *masked[GROUP_SEQUENCES];
  uint32_t count, masked_count;
  int32_t *inputs;    /* (B, L) tokens, filled so far */
  double *certainty;  /* (B, L) p of the tokens that were filled; NaN: not filled */
  int32_t *positions; /* (rows) of the masks, sequence by sequence */
  float *logits;      /* (rows, V) */
  struct filling *fillings;
};

/* A mask of one sequence, and the token that was chosen for it. */
struct filling {
  uint32_t t;
  struct plm_sampled sampled;
};

/* The most confident first, the lower position on a tie. */
static int by_confidence(const void *left, const void *right)
{
  const struct filling *a = left, *b = right;
  if (a->sampled.probability != b->sampled.probability)
    return a->sampled.probability > b->sampled.probability ? -1 : 1;
  return (a->t > b->t) - (a->t < b->t);
}

/* Lists the rows of all masks that are left, sequence by sequence, and returns their number. */
static uint32_t list_masks(struct group *group)
{
  const int32_t mask = group->work->inference->tokenizer->mask;
  uint32_t rows = 0;
  for (uint32_t i = 0; i < group->masked_count; i++) {
    const struct plm_generation *generation = group->masked[i];
    const uint32_t first = plm_sequence_batch_row(group->batch, i);
    for (uint32_t t = 0; t < generation->count; t++)
      if (generation->tokens[t] == mask) group->positions[rows++] = (int32_t)(first + t);
  }
  return rows;
}

/* Fills ceil(remaining / passes left) masks of one sequence, the most confident ones. logits (masks
 * left, V). */
static void generate_masked_fill(struct group *group, uint32_t i, const float *logits,
                                 uint32_t pass, uint32_t passes_left)
{
  struct plm_generate_work *work = group->work;
  const struct plm_tokenizer *tokenizer = work->inference->tokenizer;
  struct plm_generation *generation = group->masked[i];
  const uint32_t first = plm_sequence_batch_row(group->batch, i), remaining = generation->masks;
  const uint32_t now = (remaining + passes_left - 1) / passes_left;
  uint32_t found = 0;
  for (uint32_t t = 0; t < generation->count; t++) {
    if (generation->tokens[t] != tokenizer->mask) continue;
    const float *row = logits + (size_t)found * work->inference->config.vocab_size;
    group->fillings[found++] =
        (struct filling){t, plm_sampler_choose(&work->sampler, row, t, generation->number, pass)};
  }
  qsort(group->fillings, found, sizeof *group->fillings, by_confidence);
  for (uint32_t f = 0; f < now; f++) {
    const struct filling *filling = &group->fillings[f];
    plm_generation_set(generation, tokenizer, filling->t, filling->sampled.token);
    group->inputs[first + filling->t] = filling->sampled.token;
    group->certainty[first + filling->t] = filling->sampled.probability;
    plm_step_trace_add(work->trace, tokenizer, generation, pass, filling->t, filling->sampled,
                       false);
  }
  work->residues += now;
}

/* The least certain first, the higher position on a tie. */
static int by_doubt(const void *left, const void *right)
{
  return -by_confidence(left, right);
}

/* Masks floor(share * filled) of the filled residues of one sequence again. */
static void mask_again(struct group *group, uint32_t i, uint32_t pass, double share)
{
  struct plm_generate_work *work = group->work;
  const struct plm_tokenizer *tokenizer = work->inference->tokenizer;
  struct plm_generation *generation = group->masked[i];
  const uint32_t first = plm_sequence_batch_row(group->batch, i);
  uint32_t filled = 0;
  for (uint32_t t = 0; t < generation->count; t++) {
    if (isnan(group->certainty[first + t])) continue;
    group->fillings[filled++] =
        (struct filling){t, {generation->tokens[t], group->certainty[first + t]}};
  }
  const uint32_t again = (uint32_t)(share * filled);
  if (again == 0) return;
  qsort(group->fillings, filled, sizeof *group->fillings, by_doubt);
  for (uint32_t f = 0; f < again; f++) {
    const struct filling *filling = &group->fillings[f];
    plm_step_trace_add(work->trace, tokenizer, generation, pass, filling->t, filling->sampled,
                       true);
    plm_generation_mask(generation, tokenizer, filling->t);
    group->inputs[first + filling->t] = tokenizer->mask;
    group->certainty[first + filling->t] = NAN;
  }
  work->residues -= again;
}

static plm_status run_passes(struct group *group, uint32_t steps, double remask,
                             struct plm_error *error)
{
  struct plm_inference *inference = group->work->inference;
  const struct plm_batch *batch = plm_sequence_batch_finish(group->batch);
  const size_t V = inference->config.vocab_size;
  memcpy(group->inputs, plm_sequence_batch_inputs(group->batch),
         (size_t)batch->chunks * batch->max_length * sizeof *group->inputs);
  for (size_t i = 0; i < (size_t)batch->chunks * batch->max_length; i++) group->certainty[i] = NAN;
  for (uint32_t pass = 0; pass < steps; pass++) {
    const uint32_t rows = list_masks(group);
    if (rows == 0) break;
    PLM_TRY(plm_stop_check("", error));
    PLM_TRY(plm_inference_run(inference, batch, group->inputs, group->positions, rows, NULL,
                              group->logits, error));
    const float *logits = group->logits;
    for (uint32_t i = 0; i < group->masked_count; i++) {
      const uint32_t masks = group->masked[i]->masks;
      PLM_TRY(plm_finite_output(logits, masks * V, error, "sequence %s", group->masked[i]->name));
      generate_masked_fill(group, i, logits, pass, steps - pass);
      logits += masks * V;
    }
    for (uint32_t i = 0; i < group->masked_count && pass + 1 < steps; i++)
      mask_again(group, i, pass, remask);
  }
  return PLM_OK;
}

/* Fills and writes the sequences of the group, in order. Afterwards it is empty, even after an
 * error. */
static plm_status finish_group(struct group *group, uint32_t steps, double remask,
                               struct plm_error *error)
{
  plm_status status = PLM_OK;
  if (group->masked_count > 0) status = run_passes(group, steps, remask, error);
  for (uint32_t i = 0; i < group->count; i++) {
    if (status == PLM_OK)
      status = plm_generate_write(group->work, group->all[i], error);
    else
      plm_generation_free(group->all[i]);
  }
  group->count = group->masked_count = 0;
  plm_sequence_batch_reset(group->batch);
  return status;
}

static void release_buffers(struct group *group)
{
  plm_sequence_batch_close(group->batch);
  free(group->fillings);
  free(group->logits);
  free(group->positions);
  free(group->certainty);
  free(group->inputs);
}

/* Allocates the buffers of an empty group, or replaces them, for sequences of `tokens` tokens. */
static plm_status make_room(struct group *group, uint32_t tokens, struct plm_error *error)
{
  struct plm_inference *inference = group->work->inference;
  PLM_TRY(plm_inference_make_room(inference, tokens, error));
  const struct plm_model_config *config = &inference->config;
  const size_t most = (size_t)inference->max_chunks * config->max_length;
  release_buffers(group);
  group->batch = NULL;
  group->inputs = calloc(most, sizeof *group->inputs);
  group->certainty = calloc(most, sizeof *group->certainty);
  group->positions = calloc(most, sizeof *group->positions);
  group->logits = calloc(most * config->vocab_size, sizeof *group->logits);
  group->fillings = calloc(config->max_length, sizeof *group->fillings);
  if (group->inputs == NULL || group->certainty == NULL || group->positions == NULL ||
      group->logits == NULL || group->fillings == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a batch of %zu tokens", most);
  return plm_sequence_batch_open(config, inference->tokenizer->pad, inference->max_chunks,
                                 &group->batch, error);
}

/* Adds a masked sequence to the batch, which is first run if it has no room for it. */
static plm_status add_masked(struct group *group, const struct plm_generation *generation,
                             uint32_t steps, double remask, struct plm_error *error)
{
  const uint32_t longest = group->work->inference->config.max_length;
  if (generation->count <= longest &&
      plm_sequence_batch_add(group->batch, generation->tokens, generation->count))
    return PLM_OK;
  PLM_TRY(finish_group(group, steps, remask, error));
  if (generation->count > longest) PLM_TRY(make_room(group, generation->count, error));
  PLM_ASSERT(plm_sequence_batch_add(group->batch, generation->tokens, generation->count));
  return PLM_OK;
}

static plm_status generate_masked_run(struct group *group, uint32_t steps, double remask,
                                      struct plm_error *error)
{
  for (;;) {
    struct plm_generation *generation;
    PLM_TRY(plm_generation_next(group->work->queue, &generation, error));
    if (generation == NULL) return finish_group(group, steps, remask, error);
    const bool masked = generation->masks > 0;
    plm_status status = PLM_OK;
    if (group->count == GROUP_SEQUENCES) status = finish_group(group, steps, remask, error);
    if (status == PLM_OK && masked) status = add_masked(group, generation, steps, remask, error);
    if (status != PLM_OK) {
      plm_generation_free(generation);
      return status;
    }
    group->all[group->count++] = generation;
    if (masked) group->masked[group->masked_count++] = generation;
  }
}

plm_status plm_generate_masked(struct plm_generate_work *work, uint32_t steps, double remask,
                               struct plm_error *error)
{
  struct group *group = plm_alloc_zeroed(1, sizeof *group);
  group->work = work;
  plm_status status = make_room(group, 1, error);
  if (status == PLM_OK) status = generate_masked_run(group, steps, remask, error);
  for (uint32_t i = 0; i < group->count; i++) plm_generation_free(group->all[i]);
  release_buffers(group);
  free(group);
  return status;
}
