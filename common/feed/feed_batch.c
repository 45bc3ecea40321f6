/* Batches: taken, filled from DATA, and given back for the next one. */
#include "common/feed/feed_batch.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/token_bits.h"

static plm_status no_memory(struct plm_error *error)
{
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for a batch");
}

/* Makes room for as many bytes, and for more later, and keeps what is there. */
static plm_status grow(void **memory, size_t *capacity, size_t bytes, struct plm_error *error)
{
  if (bytes <= *capacity) return PLM_OK;
  void *grown = realloc(*memory, 2 * bytes);
  if (grown == NULL) return no_memory(error);
  *memory = grown;
  *capacity = 2 * bytes;
  return PLM_OK;
}

plm_status feed_batch_acquire(struct feed_batches *batches, uint32_t chunks, uint32_t max_length,
                              uint32_t token_bytes, struct feed_batch **taken,
                              struct plm_error *error)
{
  const size_t bytes = (size_t)chunks * max_length * token_bytes;
  struct feed_batch *batch = batches->free;
  if (batch != NULL)
    batches->free = batch->next;
  else
    batch = plm_alloc_zeroed(1, sizeof *batch);
  batch->next = batches->used;
  batches->used = batch;
  batch->max_length = max_length;
  batch->token_bytes = token_bytes;
  batch->document_count = 0;
  batch->label_bytes = 0;
  batch->labelled = true;
  *taken = batch;
  if (bytes > batch->token_capacity) {
    free(batch->tokens);
    batch->token_capacity = 0;
    const size_t rounded = (bytes + 63) & ~(size_t)63;
    if ((batch->tokens = aligned_alloc(64, rounded)) == NULL) return no_memory(error);
    batch->token_capacity = rounded;
  }
  return grow((void **)&batch->begin, &batch->begin_capacity, (chunks + 1) * sizeof *batch->begin,
              error);
}

static plm_status grow_documents(struct feed_batch *batch, size_t more, struct plm_error *error)
{
  const size_t count = batch->document_count + more;
  PLM_TRY(grow((void **)&batch->documents, &batch->document_capacity,
               count * sizeof *batch->documents, error));
  return grow((void **)&batch->label_at, &batch->label_at_capacity,
              (count + 1) * sizeof *batch->label_at, error);
}

/* Copies the label records of a chunk, which begin at `from`. Its documents are numbers
 * [document, document + count) of the batch. */
static plm_status copy_labels(struct feed_batch *batch, const struct plm_label_schema *schema,
                              const struct plm_chunk_document *documents, uint32_t count,
                              size_t document, const uint8_t *from, struct plm_error *error)
{
  size_t bytes = 0;
  for (uint32_t i = 0; i < count; i++) {
    batch->label_at[document + i] = batch->label_bytes + bytes;
    bytes += plm_label_record_size(schema, documents[i].residues);
  }
  PLM_TRY(grow((void **)&batch->labels, &batch->label_capacity, batch->label_bytes + bytes, error));
  memcpy(batch->labels + batch->label_bytes, from, bytes);
  batch->label_bytes += bytes;
  return PLM_OK;
}

plm_status feed_batch_copy(struct feed_batch *batch, uint32_t got, const struct feed_ready *ready,
                           struct plm_error *error)
{
  const size_t token_bytes = (size_t)batch->max_length * batch->token_bytes;
  const struct plm_window *window = &ready->planned->window;
  const uint32_t *begin = window->chunk_begin + ready->first;
  const uint64_t *offset = ready->planned->offset + ready->first;
  const struct plm_label_schema *schema = ready->planned->schema;
  PLM_TRY(grow_documents(batch, begin[ready->chunks] - begin[0], error));
  for (uint32_t i = 0; i < ready->chunks; i++) {
    batch->begin[got + i] = (uint32_t)batch->document_count + begin[i] - begin[0];
    const uint8_t *chunk = ready->payload + (offset[i] - offset[0]);
    plm_token_bits_unpack(ready->planned->tokenizer, chunk, batch->max_length,
                          (uint8_t *)batch->tokens + (got + i) * token_bytes);
    if (schema == NULL) continue;
    const uint64_t at =
        plm_data_labels_at(ready->planned->tokenizer, batch->max_length, window, ready->first + i);
    PLM_TRY(copy_labels(batch, schema, window->documents + begin[i], begin[i + 1] - begin[i],
                        batch->begin[got + i], chunk + at, error));
  }
  batch->labelled &= schema != NULL;
  memcpy(batch->documents + batch->document_count, window->documents + begin[0],
         (begin[ready->chunks] - begin[0]) * sizeof *batch->documents);
  batch->document_count += begin[ready->chunks] - begin[0];
  return PLM_OK;
}

struct plm_batch feed_batch_view(struct feed_batch *batch, uint32_t chunks, uint64_t first_chunk)
{
  batch->begin[chunks] = (uint32_t)batch->document_count;
  if (batch->label_at != NULL) batch->label_at[batch->document_count] = batch->label_bytes;
  return (struct plm_batch){.chunks = chunks,
                            .max_length = batch->max_length,
                            .token_bytes = batch->token_bytes,
                            .tokens = batch->tokens,
                            .document_begin = batch->begin,
                            .documents = batch->documents,
                            .first_chunk = first_chunk,
                            .labels = batch->labelled ? batch->labels : NULL,
                            .label_at = batch->labelled ? batch->label_at : NULL};
}

void feed_batch_give(struct feed_batches *batches, const void *tokens)
{
  for (struct feed_batch **at = &batches->used; *at != NULL; at = &(*at)->next) {
    struct feed_batch *found = *at;
    if (found->tokens != tokens) continue;
    *at = found->next;
    found->next = batches->free;
    batches->free = found;
    return;
  }
}

static void free_list(struct feed_batch *batch)
{
  while (batch != NULL) {
    struct feed_batch *next = batch->next;
    free(batch->tokens);
    free(batch->begin);
    free(batch->documents);
    free(batch->labels);
    free(batch->label_at);
    free(batch);
    batch = next;
  }
}

void feed_batches_deinit(struct feed_batches *batches)
{
  free_list(batches->free);
  free_list(batches->used);
}
