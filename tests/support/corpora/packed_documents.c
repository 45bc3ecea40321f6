/* Draws and packs the documents. */
#include "tests/support/corpora/packed_documents.h"

#include <stdlib.h>

#include "common/base/numbers/philox.h"
#include "tests/support/harness/must.h"

static void put(struct packed_documents *packed, size_t place, uint16_t token)
{
  if (packed->token_bytes == 1)
    packed->tokens[place] = (uint8_t)token;
  else
    ((uint16_t *)(void *)packed->tokens)[place] = token;
}

void packed_documents_make(struct packed_documents *packed, enum plm_tokenizer_kind tokenizer,
                           uint32_t chunks, uint32_t max_length, uint32_t second)
{
  const struct plm_tokenizer *words = plm_tokenizer_of(tokenizer);
  PLM_ASSERT(chunks <= PACKED_MOST_CHUNKS && max_length <= PACKED_MOST_LENGTH);
  *packed = (struct packed_documents){
      .chunks = chunks, .max_length = max_length, .token_bytes = words->token_bytes};
  packed->tokens = must(calloc((size_t)chunks * max_length, words->token_bytes));
  for (size_t i = 0; i < (size_t)chunks * max_length; i++) put(packed, i, words->pad);
  for (uint32_t n = 0; n < 2 * chunks; n++) {
    const uint32_t start = n % 2 == 0 ? 0 : second;
    const uint32_t room = n % 2 == 0 ? second : max_length - second;
    const struct plm_philox_words draw = plm_philox(3, n, 0, 0);
    const uint32_t tokens = 3 + draw.w[0] % (room - 2);
    const size_t first = (size_t)(n / 2) * max_length + start;
    packed->documents[n] = (struct plm_chunk_document){
        .number = n, .start = start, .tokens = tokens, .residues = 40 * n};
    put(packed, first, words->cls);
    for (uint32_t t = 1; t < tokens; t++)
      put(packed, first + t,
          (uint16_t)(words->first_random +
                     plm_philox(4, t, n, 0).w[0] % (uint32_t)words->random_count));
    if (n % 3 != 2) put(packed, first + tokens - 1, words->eos);
  }
  for (uint32_t c = 0; c <= chunks; c++) packed->begin[c] = 2 * c;
}

void packed_documents_free(struct packed_documents *packed)
{
  free(packed->tokens);
}

uint32_t packed_documents_tokens(const struct packed_documents *packed, uint32_t n, int32_t *tokens)
{
  const struct plm_chunk_document *document = &packed->documents[n];
  const size_t first = (size_t)(n / 2) * packed->max_length + document->start;
  for (uint32_t t = 0; t < document->tokens; t++)
    tokens[t] = packed->token_bytes == 1
                    ? packed->tokens[first + t]
                    : ((const uint16_t *)(const void *)packed->tokens)[first + t];
  return document->tokens;
}

static plm_status begin(void *context, enum plm_split split, uint64_t *total,
                        struct plm_error *error)
{
  struct packed_documents *packed = context;
  (void)error;
  packed->next = split == PLM_SPLIT_TRAIN ? packed->chunks : 0;
  packed->begins++;
  packed->totals += total != NULL;
  if (total != NULL) *total = packed->chunks - packed->next;
  return PLM_OK;
}

static plm_status next(void *context, uint32_t most, struct plm_batch *batch,
                       struct plm_error *error)
{
  struct packed_documents *packed = context;
  const uint32_t left = packed->chunks - packed->next, count = left < most ? left : most;
  (void)error;
  PLM_ASSERT(most > 0 && packed->held == 0);
  *batch = (struct plm_batch){0};
  if (count == 0) return PLM_OK;
  const size_t bytes = (size_t)packed->max_length * packed->token_bytes;
  *batch = (struct plm_batch){.chunks = count,
                              .max_length = packed->max_length,
                              .token_bytes = packed->token_bytes,
                              .tokens = packed->tokens + packed->next * bytes,
                              .document_begin = packed->begin,
                              .documents = packed->documents + packed->begin[packed->next]};
  packed->next += count;
  packed->held++;
  return PLM_OK;
}

static void release(void *context, struct plm_batch *batch)
{
  struct packed_documents *packed = context;
  (void)batch;
  packed->held--;
}

static plm_status labels(void *context, const struct plm_label_schema **schema,
                         struct plm_error *error)
{
  (void)context;
  (void)error;
  *schema = NULL;
  return PLM_OK;
}

struct plm_chunk_stream packed_documents_stream(struct packed_documents *packed)
{
  return (struct plm_chunk_stream){packed, begin, next, release, labels};
}
