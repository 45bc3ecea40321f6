/* Objectives: from a batch of chunks to what the model shall predict (struct plm_targets).
 *
 * Masks are drawn from Philox keyed by (seed, chunk of the run, position), so they do not depend on
 * micro-batches, packers or restarts. Source: model.md, "Objectives".
 */
#ifndef PLM_TRAINER_OBJECTIVE_H
#define PLM_TRAINER_OBJECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/corpus/tokenizer.h"
#include "common/model/model.h"
#include "common/plan/chunk.h"

/* Caller-owned, {0} to begin. max_chunks: of plm_objective_targets, whose buffers are taken once; 0
 * where it is not called. */
struct plm_objective_state {
  const struct plm_config_trainer *trainer; /* borrowed */
  const struct plm_tokenizer *tokenizer;
  struct plm_masking masking;
  uint32_t max_length;
  uint32_t step_chunks; /* B of masked diffusion: chunks of a step */
  uint32_t max_chunks;
  /* of plm_objective_targets */
  int32_t *inputs, *positions, *labels;
  float *weights;
  struct plm_chunk_draw *draws;
  uint32_t *ends;
};

plm_status plm_objective_init(struct plm_objective_state *objective,
                              const struct plm_config *config, uint32_t step_chunks,
                              uint32_t max_chunks, struct plm_error *error);
void plm_objective_deinit(struct plm_objective_state *objective);

/* PLM_CONFIG where the objective cannot train this model: causal needs `causal` in every entry of
 * attention.pattern, and an architecture that does not merge positions. */
plm_status plm_objective_check(const struct plm_config *config, struct plm_error *error);

/* Rate of chunk i of step s (from 0): the schedule's for mlm, t_i for masked diffusion, 0 for
 * causal. */
double plm_objective_rate(const struct plm_objective_state *objective, uint64_t s, uint32_t i);
/* The step's: mean over its chunks. */
double plm_objective_mean_rate(const struct plm_objective_state *objective, uint64_t s);

/* What ops->choose_targets needs of one micro-batch, chunks [batch_index, batch_index +
 * batch->chunks) of step s: draws (chunks), ends (plm_objective_end_words), both written; and what
 * it will find: rows, and what they add to the divisor of the step's loss: chosen tokens (mlm),
 * maskable tokens (masked diffusion), predicted tokens (causal). A token outside the vocabulary or
 * outside every document, or a document outside its chunk, is PLM_CORRUPT. */
plm_status plm_objective_describe(const struct plm_objective_state *objective, uint64_t s,
                                  uint32_t batch_index, const struct plm_batch *batch,
                                  struct plm_chunk_draw *draws, uint32_t *ends, uint64_t *rows,
                                  uint64_t *count, struct plm_error *error);
size_t plm_objective_end_words(uint32_t chunks, uint32_t max_length);

/* The targets themselves, on the host. They point into the objective's buffers and hold until the
 * next call. batch->chunks is at most max_chunks. count and errors as above. */
plm_status plm_objective_targets(struct plm_objective_state *objective, uint64_t s,
                                 uint32_t batch_index, const struct plm_batch *batch,
                                 struct plm_targets *targets, uint64_t *count,
                                 struct plm_error *error);

#endif
