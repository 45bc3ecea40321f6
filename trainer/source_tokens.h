/* Real tokens of a step by the corpus that they come from, in a run on several corpora. Only rank 0
 * counts, because only it has whole batches. */
#ifndef PLM_TRAINER_SOURCE_TOKENS_H
#define PLM_TRAINER_SOURCE_TOKENS_H

#include <stdint.h>

#include "common/config/config.h"
#include "common/plan/chunk.h"

struct plm_source_tokens {
  uint32_t count; /* sources; 0: there is one corpus, and nothing is counted */
  char names[PLM_MAX_SOURCES][PLM_SOURCE_NAME_SIZE]; /* plm_config_source_name */
  uint64_t tokens[PLM_MAX_SOURCES];                  /* of the last batch */
};

/* count: sources of the run's cursor. */
void plm_source_tokens_init(struct plm_source_tokens *tokens, const struct plm_config *config,
                            uint32_t count);
/* Counts a batch anew. */
void plm_source_tokens_count(struct plm_source_tokens *tokens, const struct plm_batch *batch);

#endif
