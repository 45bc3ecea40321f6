/* What one step takes from the host: tokens, draws of the masks, attention masks, micro-batch by
 * micro-batch in one block of memory, which then travels to the device in one piece.
 *
 * Filling is a pure function of (configuration, step, batch) and touches nothing but the input: it
 * runs ahead, beside the step before.
 */
#ifndef PLM_TRAINER_STEP_INPUT_H
#define PLM_TRAINER_STEP_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/masks.h"
#include "common/plan/chunk.h"
#include "trainer/objective.h"

/* Sizes and who fills; borrowed: objective, masks (as plm_masks_build uses them) and the model's
 * configuration. */
struct plm_step_shape {
  const struct plm_model_config *model;
  const struct plm_objective_state *objective;
  const struct plm_masks *masks;
  uint32_t step_chunks, micro_chunks, max_length; /* the last micro-batch may be smaller */
};

/* Places in the block of one micro-batch, bytes; the same for all, so that the device has one such
 * block at fixed addresses. */
struct plm_micro_layout {
  size_t tokens, draws, ends, masks;
  size_t bytes; /* of the block */
};

/* What the host knows of a micro-batch. */
struct plm_micro_input {
  uint32_t chunks;
  uint64_t rows;  /* positions with a label */
  uint64_t count; /* its part of the divisor */
  uint64_t real_tokens;
  struct plm_mask_pairs pairs;
};

struct plm_step_input {
  uint64_t step;   /* s, from 0 */
  uint32_t window; /* in force */
  void *block;     /* plm_step_input_bytes, the caller's */
  uint32_t micro_count;
  struct plm_micro_input *micro; /* plm_step_micros, owned */
};

uint32_t plm_step_micros(const struct plm_step_shape *shape);
struct plm_micro_layout plm_step_micro_layout(const struct plm_step_shape *shape);
size_t plm_step_input_bytes(const struct plm_step_shape *shape); /* of a block */

/* block: plm_step_input_bytes, aligned to 64, borrowed. */
plm_status plm_step_input_init(struct plm_step_input *input, const struct plm_step_shape *shape,
                               void *block, struct plm_error *error);
void plm_step_input_deinit(struct plm_step_input *input);

/* Of step s (from 0), on a batch of step_chunks chunks (fewer are fine) whose chunk 0 is
 * batch->first_chunk of the run. PLM_CORRUPT as plm_objective_describe. */
plm_status plm_step_input_fill(struct plm_step_input *input, const struct plm_step_shape *shape,
                               uint64_t s, const struct plm_batch *batch, struct plm_error *error);

/* Chunks [first, first + count) of a batch, as a batch of their own over the same memory. */
struct plm_batch plm_batch_slice(const struct plm_batch *batch, uint32_t first, uint32_t count);
uint64_t plm_batch_real_tokens(const struct plm_batch *batch);

#endif
