/* The memory behind the batches that a feed hands out. */
#ifndef PLM_COMMON_FEED_FEED_BATCH_H
#define PLM_COMMON_FEED_FEED_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/feed/feed_machine.h"

/* The memory of one batch. */
struct feed_batch {
  struct feed_batch *next;
  uint32_t max_length, token_bytes;
  void *tokens;
  size_t token_capacity;
  uint32_t *begin;
  struct plm_chunk_document *documents;
  uint8_t *labels; /* records of the documents, one after another */
  uint64_t *label_at;
  size_t begin_capacity, document_capacity, label_capacity, label_at_capacity; /* in bytes */
  size_t document_count, label_bytes;
  bool labelled; /* all chunks have label records */
};

/* Initialise it with {0}. */
struct feed_batches {
  struct feed_batch *free, *used;
};
void feed_batches_deinit(struct feed_batches *batches);

/* Takes a free batch with room for the tokens. Its table of documents grows as chunks are copied.
 * PLM_NO_MEMORY; *taken is set all the same, and is given back by feed_batch_give. */
plm_status feed_batch_acquire(struct feed_batches *batches, uint32_t chunks, uint32_t max_length,
                              uint32_t token_bytes, struct feed_batch **taken,
                              struct plm_error *error);
/* Gives back the batch with these tokens, if there is one. */
void feed_batch_give(struct feed_batches *batches, const void *tokens);

/* Fills chunks [got, got + ready->chunks) of the batch. */
plm_status feed_batch_copy(struct feed_batch *batch, uint32_t got, const struct feed_ready *ready,
                           struct plm_error *error);
/* The batch as the user gets it, once all its chunks are copied. first_chunk is as in plm_batch. */
struct plm_batch feed_batch_view(struct feed_batch *batch, uint32_t chunks, uint64_t first_chunk);

#endif
