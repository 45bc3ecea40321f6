/* The number of chunks in a step and in a micro-batch. */
#ifndef PLM_TRAINER_INPUT_STEP_CHUNKS_H
#define PLM_TRAINER_INPUT_STEP_CHUNKS_H

#include <stdint.h>

#include "common/config/config.h"

/* Chunks of a step: whole chunks of data.max_length in trainer.batch_tokens. 0 if not even one
 * fits, which the trainer refuses. */
uint32_t plm_trainer_step_chunks(const struct plm_config *config);

/* Chunks of a micro-batch of a step of `shares` shares: the largest number that divides those of a
 * share and is at most trainer.micro_batch_tokens. */
uint32_t plm_trainer_micro_chunks(const struct plm_config *config, uint32_t shares);

#endif
