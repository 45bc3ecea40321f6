/* DATA's payload. One chunk follows another:
 *
 *   u32 documents
 *   for each: u64 number, u32 first token in the chunk, u32 tokens, u32 first residue of this piece
 *             in the whole document, u32 residues of the whole document
 *   max_length tokens of dtype bytes; <pad> between and after the documents
 *
 * Integers are little-endian, and nothing is padded to an alignment.
 */
#ifndef PLM_COMMON_WIRE_DATA_H
#define PLM_COMMON_WIRE_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/plan/chunk.h"

enum { PLM_DATA_DOCUMENT_BYTES = 24 };

/* What a consumer knows about the chunks that it asked for. */
struct plm_data_shape {
  const struct plm_tokenizer *tokenizer;
  uint32_t max_length, alignment;
  uint32_t chunks;
};

/* Bytes of a chunk with that many documents. */
static inline size_t plm_data_chunk_bytes(const struct plm_tokenizer *tokenizer,
                                          uint32_t max_length, uint32_t documents)
{
  return 4 + (size_t)documents * PLM_DATA_DOCUMENT_BYTES +
         (size_t)max_length * tokenizer->token_bytes;
}

/* Bytes of the greatest chunk: a document at every place where one may begin. */
static inline size_t plm_data_chunk_most(const struct plm_tokenizer *tokenizer, uint32_t max_length,
                                         uint32_t alignment)
{
  return plm_data_chunk_bytes(tokenizer, max_length, (max_length + alignment - 1) / alignment);
}

void plm_data_write_document(const struct plm_chunk_document *document, uint8_t *bytes);
void plm_data_read_document(const uint8_t *bytes, struct plm_chunk_document *document);
uint32_t plm_data_read_count(const uint8_t *bytes);
void plm_data_write_count(uint32_t documents, uint8_t *bytes);

/* Checks a payload: every chunk is complete; documents ascend without overlap, are aligned, lie
 * within the chunk and are consistent with their whole documents; every token is in the vocabulary;
 * there is <pad> between and after documents; nothing is left over. Sums the real tokens.
 * PLM_PROTOCOL names the chunk and what is wrong. */
plm_status plm_data_check(const struct plm_data_shape *shape, const void *payload, size_t size,
                          uint64_t *real_tokens, struct plm_error *error);

#endif
