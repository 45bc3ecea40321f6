/* What one step takes from the host: tokens, draws of the masks and attention masks of each
 * micro-batch, in one block of memory that is copied to the device as a whole.
 *
 * An input is a pure function of (configuration, step, batch), and filling one writes to nothing
 * else, so that it can be filled while an earlier step runs.
 */
#ifndef PLM_TRAINER_INPUT_STEP_INPUT_H
#define PLM_TRAINER_INPUT_STEP_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/masks.h"
#include "common/plan/chunk.h"
#include "trainer/input/label_rows.h"
#include "trainer/input/objective.h"

/* Sizes of a step, and what fills its inputs. All pointers are borrowed. */
struct plm_step_shape {
  const struct plm_model_config *model;
  const struct plm_objective_state *objective;
  const struct plm_masks *masks;         /* for plm_masks_build */
  const struct plm_label_source *labels; /* of a model that predicts labels, else NULL */
  /* Of this process. The last micro-batch of a share may be smaller. shares divides step_chunks. */
  uint32_t step_chunks, micro_chunks, max_length, shares;
  uint32_t first_chunk; /* chunks of the step that lower ranks have */
};

/* Offsets in the block of one micro-batch, in bytes. They are the same for every micro-batch, so
 * that recorded operators find each one at the same addresses on the device. */
struct plm_micro_layout {
  size_t tokens, draws, ends, masks, labels, adapter_keys;
  size_t bytes;                      /* of the whole block */
  struct plm_label_layout of_labels; /* from `labels` on */
};

/* What the host knows about a micro-batch. */
struct plm_micro_input {
  uint32_t first, chunks; /* among those of this process */
  uint32_t share;         /* that it belongs to, from 0 */
  struct plm_objective_totals totals;
  uint64_t real_tokens; /* tokens of documents */
  struct plm_mask_pairs pairs;
};

/* What a step contains, over all ranks. */
struct plm_step_totals {
  uint64_t count; /* divisor of loss and gradient: plm_objective_totals */
  uint64_t rows;  /* positions with a label */
  uint64_t real_tokens, padded_tokens;
};

struct plm_step_input {
  uint64_t step;                       /* s, from 0 */
  uint32_t window;                     /* sliding window of this step, tokens */
  void *block;                         /* borrowed; the micro-batches one after another */
  uint32_t micro_count;                /* in this step */
  struct plm_micro_input *micro;       /* (plm_step_micros), owned */
  struct plm_objective_totals *chunks; /* (step_chunks) of each chunk of the batch, owned */
  struct plm_step_totals totals;       /* of the micro-batches, or of all ranks' */
  struct plm_batch_labels labels;      /* of one micro-batch, owned */
};

/* Micro-batches of a full step. */
uint32_t plm_step_micros(const struct plm_step_shape *shape);
struct plm_micro_layout plm_step_micro_layout(const struct plm_step_shape *shape);
/* Bytes of a full step's block, and of what plm_step_input_init allocates besides. */
size_t plm_step_input_bytes(const struct plm_step_shape *shape);
size_t plm_step_input_description_bytes(const struct plm_step_shape *shape);

/* block: plm_step_input_bytes bytes, borrowed. */
void plm_step_input_init(struct plm_step_input *input, const struct plm_step_shape *shape,
                         void *block);
void plm_step_input_deinit(struct plm_step_input *input);

/* Fills the input of step s (from 0) from a batch of 1 to step_chunks chunks, whose first one is
 * chunk batch->first_chunk of the run. The totals are those of this batch. PLM_NO_MEMORY: there is
 * none for its labels. */
plm_status plm_step_input_fill(struct plm_step_input *input, const struct plm_step_shape *shape,
                               uint64_t s, const struct plm_batch *batch, struct plm_error *error);

/* Chunks [first, first + count) of a batch, as a batch over the same memory. */
struct plm_batch plm_batch_slice(const struct plm_batch *batch, uint32_t first, uint32_t count);
/* Tokens of the batch's documents; the rest is padding. */
uint64_t plm_batch_real_tokens(const struct plm_batch *batch);

#endif
