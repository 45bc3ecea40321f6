/* DATA's payload: writing its tables, and checking what a packer sent. */
#include "common/wire/data.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

static uint32_t read_u32(const uint8_t *bytes)
{
  uint32_t value;
  memcpy(&value, bytes, 4);
  return le32toh(value);
}

static void write_u32(uint32_t value, uint8_t *bytes)
{
  value = htole32(value);
  memcpy(bytes, &value, 4);
}

void plm_data_write_document(const struct plm_chunk_document *document, uint8_t *bytes)
{
  const uint64_t number = htole64(document->number);
  memcpy(bytes, &number, 8);
  write_u32(document->start, bytes + 8);
  write_u32(document->tokens, bytes + 12);
  write_u32(document->offset, bytes + 16);
  write_u32(document->residues, bytes + 20);
}

void plm_data_read_document(const uint8_t *bytes, struct plm_chunk_document *document)
{
  uint64_t number;
  memcpy(&number, bytes, 8);
  document->number = le64toh(number);
  document->start = read_u32(bytes + 8);
  document->tokens = read_u32(bytes + 12);
  document->offset = read_u32(bytes + 16);
  document->residues = read_u32(bytes + 20);
}

uint32_t plm_data_read_count(const uint8_t *bytes)
{
  return read_u32(bytes);
}

void plm_data_write_count(uint32_t documents, uint8_t *bytes)
{
  write_u32(documents, bytes);
}

/* The loops have no early exit, so the compiler vectorises them. */
static bool tokens_valid(const struct plm_tokenizer *tokenizer, const uint8_t *tokens, size_t count)
{
  if (tokenizer->token_bytes == 1) {
    uint8_t most = 0;
    for (size_t i = 0; i < count; i++) most = tokens[i] > most ? tokens[i] : most;
    return most < tokenizer->vocab_size;
  }
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++) {
    uint16_t token;
    memcpy(&token, tokens + 2 * i, 2);
    token = le16toh(token);
    most = token > most ? token : most;
  }
  return most < tokenizer->vocab_size;
}

static bool padding_valid(const struct plm_tokenizer *tokenizer, const uint8_t *tokens,
                          size_t begin, size_t end)
{
  if (tokenizer->token_bytes == 1) {
    uint8_t wrong = 0;
    for (size_t i = begin; i < end; i++) wrong |= (uint8_t)(tokens[i] ^ tokenizer->pad);
    return wrong == 0;
  }
  uint32_t wrong = 0;
  for (size_t i = begin; i < end; i++) {
    uint16_t token;
    memcpy(&token, tokens + 2 * i, 2);
    wrong |= (uint32_t)(le16toh(token) ^ tokenizer->pad);
  }
  return wrong == 0;
}

static const char *check_chunk(const struct plm_data_shape *shape, const uint8_t *table,
                               uint32_t documents, uint64_t *real_tokens)
{
  const uint8_t *tokens = table + (size_t)documents * PLM_DATA_DOCUMENT_BYTES;
  uint32_t end = 0; /* of the previous document */
  for (uint32_t i = 0; i < documents; i++) {
    struct plm_chunk_document document;
    plm_data_read_document(table + (size_t)i * PLM_DATA_DOCUMENT_BYTES, &document);
    if (document.start < end) return "documents overlap or are out of order";
    if (document.tokens == 0 || document.tokens > shape->max_length ||
        document.start > shape->max_length - document.tokens)
      return "a document extends beyond the chunk";
    if (document.start % shape->alignment != 0) return "a document is not aligned";
    if (document.offset > document.residues ||
        document.tokens > (uint64_t)document.residues - document.offset + 2)
      return "a document has more tokens than its residues allow";
    if (!padding_valid(shape->tokenizer, tokens, end, document.start))
      return "something other than <pad> between documents";
    end = document.start + document.tokens;
    *real_tokens += document.tokens;
  }
  if (!padding_valid(shape->tokenizer, tokens, end, shape->max_length))
    return "something other than <pad> after the last document";
  if (!tokens_valid(shape->tokenizer, tokens, shape->max_length)) return "token out of range";
  return NULL;
}

plm_status plm_data_check(const struct plm_data_shape *shape, const void *payload, size_t size,
                          uint64_t *real_tokens, struct plm_error *error)
{
  const uint8_t *bytes = payload;
  size_t left = size;
  *real_tokens = 0;
  for (uint32_t chunk = 0; chunk < shape->chunks; chunk++) {
    const char *wrong = NULL;
    size_t chunk_bytes = 0;
    uint32_t documents = 0;
    if (left >= 4) documents = read_u32(bytes);
    if (documents == 0 || documents > shape->max_length) {
      wrong = "impossible number of documents";
    } else {
      chunk_bytes = plm_data_chunk_bytes(shape->tokenizer, shape->max_length, documents);
      wrong = left < chunk_bytes ? "payload ends early"
                                 : check_chunk(shape, bytes + 4, documents, real_tokens);
    }
    if (wrong != NULL)
      return plm_error_set(error, PLM_PROTOCOL, "chunk %u of DATA: %s", chunk, wrong);
    bytes += chunk_bytes;
    left -= chunk_bytes;
  }
  if (left != 0) return plm_error_set(error, PLM_PROTOCOL, "DATA has %zu bytes too many", left);
  return PLM_OK;
}
