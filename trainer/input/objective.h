/* Objectives: what the model has to predict for a batch of chunks (struct plm_targets).
 *
 * Masks are drawn from Philox keyed by (seed, chunk of the run, position), so they do not depend on
 * micro-batches, packers or restarts. See doc/training.md#masks-and-objectives.
 */
#ifndef PLM_TRAINER_INPUT_OBJECTIVE_H
#define PLM_TRAINER_INPUT_OBJECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/corpus/tokenizer.h"
#include "common/model/model.h"
#include "common/plan/chunk.h"

/* Totals of a chunk or of several, counted on the host before the device chooses the targets. */
struct plm_objective_totals {
  uint64_t rows;  /* positions with a label */
  uint64_t count; /* what they add to the divisor of the step's loss: chosen tokens (mlm), maskable
                   * tokens (masked diffusion), predicted tokens (causal) */
};

void plm_objective_totals_add(struct plm_objective_totals *to,
                              const struct plm_objective_totals *more);

/* Caller-owned; {0} before plm_objective_init. */
struct plm_objective_state {
  const struct plm_config_trainer *trainer; /* borrowed */
  const struct plm_tokenizer *tokenizer;
  struct plm_masking masking;
  uint32_t max_length;
  uint32_t step_chunks; /* chunks of a step: B of masked diffusion */
  uint32_t max_chunks;  /* largest batch of plm_objective_targets */
  /* buffers of plm_objective_targets; NULL if max_chunks is 0 */
  int32_t *inputs, *positions, *labels;
  float *weights;
  struct plm_chunk_draw *draws;
  uint32_t *ends;
  struct plm_objective_totals *totals;
};

/* What the configuration says about the objective. The pointers are borrowed. */
struct plm_objective_options {
  const struct plm_config_trainer *trainer;
  enum plm_tokenizer_kind tokenizer;
  uint64_t seed;
  uint32_t max_length;
};

/* Borrows options->trainer. max_chunks: the largest batch for plm_objective_targets, whose buffers
 * are allocated here; 0 if that is never called. The configuration was checked when it was loaded
 * (config_check.c): a causal objective has a model for it. PLM_NO_MEMORY. */
plm_status plm_objective_init(struct plm_objective_state *objective,
                              const struct plm_objective_options *options, uint32_t step_chunks,
                              uint32_t max_chunks, struct plm_error *error);
void plm_objective_deinit(struct plm_objective_state *objective);

/* Mask rate of chunk i of step s (from 0): the schedule's for mlm, t_i for masked diffusion, 0 for
 * causal. */
double plm_objective_rate(const struct plm_objective_state *objective, uint64_t s, uint32_t i);
/* Mean mask rate over the chunks of step s. */
double plm_objective_mean_rate(const struct plm_objective_state *objective, uint64_t s);

/* Describes one micro-batch for ops->choose_targets: chunks [batch_index, batch_index +
 * batch->chunks) of step s (from 0). Writes draws and the totals of each chunk (batch->chunks), and
 * ends (plm_objective_end_words). The chunks are as plm_data_check leaves them: documents lie
 * inside, one after another, with tokens of the vocabulary, and everything else is padding. */
void plm_objective_describe(const struct plm_objective_state *objective, uint64_t s,
                            uint32_t batch_index, const struct plm_batch *batch,
                            struct plm_chunk_draw *draws, uint32_t *ends,
                            struct plm_objective_totals *totals);
size_t plm_objective_end_words(uint32_t chunks, uint32_t max_length);

/* The targets themselves, made on the host. They point into the objective's buffers and are valid
 * until the next call. batch->chunks is at most max_chunks. count is that of
 * plm_objective_totals. */
void plm_objective_targets(struct plm_objective_state *objective, uint64_t s, uint32_t batch_index,
                           const struct plm_batch *batch, struct plm_targets *targets,
                           uint64_t *count);

#endif
