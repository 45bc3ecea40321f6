/* Documents of drawn residues, packed into the chunks of valid and test (train has none), and a
 * stream that hands them out (evaluator/evaluate/evaluate.h). */
#ifndef PLM_TESTS_SUPPORT_CORPORA_PACKED_DOCUMENTS_H
#define PLM_TESTS_SUPPORT_CORPORA_PACKED_DOCUMENTS_H

#include "common/corpus/tokenizer.h"
#include "evaluator/evaluate/evaluate.h"

enum { PACKED_MOST_CHUNKS = 80, PACKED_MOST_DOCUMENTS = 160, PACKED_MOST_LENGTH = 4096 };

struct packed_documents {
  uint32_t chunks, max_length, token_bytes;
  uint8_t *tokens; /* (chunks, max_length) of token_bytes */
  uint32_t begin[PACKED_MOST_CHUNKS + 1];
  struct plm_chunk_document documents[PACKED_MOST_DOCUMENTS];
  uint32_t next;   /* the next chunk that the stream hands out */
  uint32_t begins; /* how often it went to the beginning */
  uint32_t totals; /* how often it was asked for the number of chunks there */
  uint32_t held;   /* batches that were not released */
};

/* Two documents in each chunk, the second from token `second` on. Every third one is cut, so that
 * it has no <eos>. Each is said to be of 40 times its number residues. */
void packed_documents_make(struct packed_documents *packed, enum plm_tokenizer_kind tokenizer,
                           uint32_t chunks, uint32_t max_length, uint32_t second);
void packed_documents_free(struct packed_documents *packed);
/* Document n as it is packed: its tokens (at most max_length). Returns their number. */
uint32_t packed_documents_tokens(const struct packed_documents *packed, uint32_t n,
                                 int32_t *tokens);
struct plm_chunk_stream packed_documents_stream(struct packed_documents *packed);

#endif
