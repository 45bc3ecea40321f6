/* The chain of a run: a hash over everything that it has consumed, which each step extends. Two
 * runs with the same chain have trained on the same tokens in the same order.
 *
 *   chain' = XXH3-128(chain, g, number of chunks, and of each chunk: its source if the run is a
 *            mixture (u8), number of documents (u32), table of documents, tokens)
 *
 * g (u64) is the number of chunks that the run consumed before the step, and the number of chunks
 * is u64; all integers are little-endian, and the chain begins with zeros. */
#ifndef PLM_COMMON_PLAN_CHAIN_H
#define PLM_COMMON_PLAN_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/plan/chunk.h"

/* Begins a step of `chunks` chunks. The new chain is the hasher's digest once all of them were
 * added. */
void plm_chain_begin(struct plm_hasher *hasher, struct plm_hash chain, uint64_t g, uint32_t chunks);
/* source: NULL if the run is no mixture. tokens: `bytes` bytes, those of a whole chunk. */
void plm_chain_add(struct plm_hasher *hasher, const uint8_t *source,
                   const struct plm_chunk_document *documents, uint32_t count, const void *tokens,
                   size_t bytes);

#endif
