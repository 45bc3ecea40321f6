/* The hash over what a run consumed. */
#include "common/plan/chain.h"

_Static_assert(sizeof(struct plm_chunk_document) == 24, "tables are hashed as they are in memory");

void plm_chain_begin(struct plm_hasher *hasher, struct plm_hash chain, uint64_t g, uint32_t chunks)
{
  const uint64_t head[] = {chain.low, chain.high, g, chunks};
  plm_hasher_reset(hasher);
  plm_hasher_update(hasher, head, sizeof head);
}

void plm_chain_add(struct plm_hasher *hasher, const uint8_t *source,
                   const struct plm_chunk_document *documents, uint32_t count, const void *tokens,
                   size_t bytes)
{
  if (source != NULL) plm_hasher_update(hasher, source, 1);
  plm_hasher_update(hasher, &count, sizeof count);
  plm_hasher_update(hasher, documents, count * sizeof *documents);
  plm_hasher_update(hasher, tokens, bytes);
}
