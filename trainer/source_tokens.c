/* Counts tokens by source. */
#include "trainer/source_tokens.h"

#include <string.h>

#include "trainer/step_input.h"

void plm_source_tokens_init(struct plm_source_tokens *tokens, const struct plm_config *config,
                            uint32_t count)
{
  *tokens = (struct plm_source_tokens){.count = count};
  for (uint32_t k = 0; k < count; k++) plm_config_source_name(config, k, tokens->names[k]);
}

void plm_source_tokens_count(struct plm_source_tokens *tokens, const struct plm_batch *batch)
{
  if (tokens->count == 0) return;
  memset(tokens->tokens, 0, sizeof tokens->tokens);
  for (uint32_t c = 0; c < batch->chunks; c++) {
    const struct plm_batch chunk = plm_batch_slice(batch, c, 1);
    tokens->tokens[batch->sources != NULL ? batch->sources[c] : 0] += plm_batch_real_tokens(&chunk);
  }
}
