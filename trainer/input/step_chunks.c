/* Converts trainer.batch_tokens and trainer.micro_batch_tokens into chunks. */
#include "trainer/input/step_chunks.h"

uint32_t plm_trainer_step_chunks(const struct plm_config *config)
{
  return (uint32_t)(config->trainer.batch_tokens / config->data.max_length);
}

uint32_t plm_trainer_micro_chunks(const struct plm_config *config, uint32_t shares)
{
  const uint32_t share = plm_trainer_step_chunks(config) / shares;
  const uint64_t micro = config->trainer.micro_batch_tokens / config->data.max_length;
  uint32_t chunks = micro == 0 ? 1 : micro < share ? (uint32_t)micro : share;
  while (share % chunks != 0) chunks--;
  return chunks;
}
