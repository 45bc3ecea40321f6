/* DATA's payload: where everything in it is, what proves the pieces of long documents, and checking
 * what a packer sent. */
#include "common/wire/data.h"

#include <endian.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/message.h"

/* ---- layout ------------------------------------------------------------------------------- */

void plm_data_piece(const struct plm_chunk_document *document, struct plm_data_piece *piece)
{
  const uint64_t begin = plm_piece_begin(document), residues = document->residues;
  *piece = (struct plm_data_piece){.has_cls = begin == 0,
                                   .has_eos = begin + document->tokens == residues + 2,
                                   .begin = document->offset};
  piece->end = piece->begin + document->tokens - piece->has_cls - piece->has_eos;
  piece->whole = piece->has_cls && piece->has_eos;
  if (piece->whole || piece->begin == piece->end) return;
  piece->block_begin = piece->begin / PLM_PROOF_BLOCK;
  piece->block_end = (piece->end - 1) / PLM_PROOF_BLOCK + 1;
  const uint64_t first = piece->block_begin * PLM_PROOF_BLOCK;
  const uint64_t last = piece->block_end * PLM_PROOF_BLOCK;
  const struct plm_proof_range blocks = {piece->block_begin, piece->block_end,
                                         plm_proof_block_count(residues)};
  piece->before = piece->begin - first;
  piece->after = (last < residues ? last : residues) - piece->end;
  piece->path = (uint32_t)plm_proof_path_size(&blocks);
}

static bool is_whole(const struct plm_chunk_document *document)
{
  return document->tokens == (uint64_t)document->residues + 2;
}

size_t plm_data_evidence_bytes(const struct plm_tokenizer *tokenizer,
                               const struct plm_chunk_document *document)
{
  struct plm_data_piece piece;
  if (is_whole(document)) return 0;
  plm_data_piece(document, &piece);
  return (size_t)(piece.before + piece.after) * tokenizer->token_bytes +
         (size_t)piece.path * PLM_PROOF_HASH_BYTES;
}

uint64_t plm_data_labels_at(const struct plm_tokenizer *tokenizer, uint32_t max_length,
                            const struct plm_window *window, uint32_t chunk)
{
  uint64_t at = (uint64_t)max_length * tokenizer->token_bytes;
  for (uint32_t i = window->chunk_begin[chunk]; i < window->chunk_begin[chunk + 1]; i++)
    at += plm_data_evidence_bytes(tokenizer, &window->documents[i]);
  return at;
}

void plm_data_layout(const struct plm_tokenizer *tokenizer, uint32_t max_length,
                     const struct plm_label_schema *schema, const struct plm_window *window,
                     uint64_t *offset)
{
  uint64_t at = 0;
  for (uint32_t c = 0; c < window->chunks; c++) {
    offset[c] = at;
    at += plm_data_labels_at(tokenizer, max_length, window, c);
    for (uint32_t i = window->chunk_begin[c]; i < window->chunk_begin[c + 1] && schema != NULL; i++)
      at += plm_label_record_size(schema, window->documents[i].residues);
    at = (at + tokenizer->token_bytes - 1) / tokenizer->token_bytes * tokenizer->token_bytes;
  }
  offset[window->chunks] = at;
}

size_t plm_data_chunk_most(const struct plm_plan_parameters *plan)
{
  const size_t token_bytes = plm_tokenizer_of(plan->tokenizer)->token_bytes;
  const struct plm_proof_range middle = {1, 2, plm_proof_block_count(PLM_DOCUMENT_LIMIT)};
  /* A path has fewer nodes than one from each side of the tree, of which `middle` has one. */
  const size_t evidence = 2 * (size_t)(PLM_PROOF_BLOCK - 1) * token_bytes +
                          2 * plm_proof_path_size(&middle) * PLM_PROOF_HASH_BYTES;
  /* Only the last pieces of split documents leave room for others. */
  const size_t pieces =
      plan->truncate == PLM_TRUNCATE_SPLIT ? plan->max_length / plan->alignment : 1;
  const size_t most = plan->max_length * token_bytes + pieces * evidence;
  return most < PLM_WIRE_DATA_LIMIT ? most : PLM_WIRE_DATA_LIMIT;
}

/* ---- writing ------------------------------------------------------------------------------ */

uint8_t *plm_data_write_evidence(const struct plm_tokenizer *tokenizer,
                                 const struct plm_chunk_document *document, const void *residues,
                                 const struct plm_proof_tree *tree, uint8_t *at)
{
  const uint8_t *tokens = residues;
  const size_t token_bytes = tokenizer->token_bytes;
  struct plm_proof_node path[PLM_PROOF_PATH];
  struct plm_data_piece piece;
  plm_data_piece(document, &piece);
  PLM_ASSERT(!piece.whole);
  if (piece.begin == piece.end) return at;
  memcpy(at, tokens + (piece.begin - piece.before) * token_bytes, piece.before * token_bytes);
  at += piece.before * token_bytes;
  memcpy(at, tokens + piece.end * token_bytes, piece.after * token_bytes);
  at += piece.after * token_bytes;
  const size_t nodes = plm_proof_tree_path(tree, piece.block_begin, piece.block_end, path);
  PLM_ASSERT(nodes == piece.path);
  for (size_t i = 0; i < nodes; i++, at += PLM_PROOF_HASH_BYTES)
    memcpy(at, path[i].hash, PLM_PROOF_HASH_BYTES);
  return at;
}

/* ---- checking ----------------------------------------------------------------------------- */

void plm_data_scratch_deinit(struct plm_data_scratch *scratch)
{
  free(scratch->pieces);
  free(scratch->parts);
  free(scratch->found);
  *scratch = (struct plm_data_scratch){0};
}

/* Makes room, without keeping what is there. */
static plm_status data_reserve(void **memory, size_t *capacity, size_t bytes,
                               struct plm_error *error)
{
  if (bytes <= *capacity) return PLM_OK;
  free(*memory);
  *capacity = 0;
  *memory = malloc(bytes);
  if (*memory == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory to check %zu bytes", bytes);
  *capacity = bytes;
  return PLM_OK;
}

static uint32_t token_at(const struct plm_tokenizer *tokenizer, const uint8_t *tokens, uint64_t i)
{
  uint16_t token;
  if (tokenizer->token_bytes == 1) return tokens[i];
  memcpy(&token, tokens + 2 * i, 2);
  return le16toh(token);
}

/* The loops have no early exit, so the compiler vectorises them. */
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

static uint32_t greatest_token(const struct plm_tokenizer *tokenizer, const uint8_t *tokens,
                               uint64_t count)
{
  if (tokenizer->token_bytes == 1) {
    uint8_t greatest = 0;
    for (uint64_t i = 0; i < count; i++) greatest = tokens[i] > greatest ? tokens[i] : greatest;
    return greatest;
  }
  uint32_t greatest = 0;
  for (uint64_t i = 0; i < count; i++) {
    const uint32_t token = token_at(tokenizer, tokens, i);
    greatest = token > greatest ? token : greatest;
  }
  return greatest;
}

/* The blocks of a piece, whose own residues begin at `tokens`, are put together at `at`. Returns
 * the end. */
static uint8_t *join_piece(const struct plm_tokenizer *tokenizer, uint64_t residues,
                           const struct plm_data_piece *piece, const uint8_t *tokens,
                           const uint8_t *evidence, uint8_t *at, struct plm_proof_part *part)
{
  const size_t before = (size_t)piece->before * tokenizer->token_bytes;
  const size_t own = (size_t)(piece->end - piece->begin) * tokenizer->token_bytes;
  const size_t after = (size_t)piece->after * tokenizer->token_bytes;
  memcpy(at, evidence, before);
  memcpy(at + before, tokens, own);
  memcpy(at + before + own, evidence + before, after);
  *part = (struct plm_proof_part){at, residues, piece->block_begin, piece->block_end,
                                  evidence + before + after};
  return at + before + own + after;
}

/* Fills in what is to be hashed for each document of a chunk. Returns the end of the pieces. */
static uint8_t *chunk_parts(const struct plm_data_known *known, uint32_t c, const uint8_t *chunk,
                            uint8_t *pieces, struct plm_proof_part *parts)
{
  const struct plm_tokenizer *tokenizer = known->tokenizer;
  const struct plm_window *window = known->window;
  const uint8_t *evidence = chunk + (size_t)known->max_length * tokenizer->token_bytes;
  for (uint32_t i = window->chunk_begin[c]; i < window->chunk_begin[c + 1]; i++, parts++) {
    const struct plm_chunk_document *document = &window->documents[i];
    struct plm_data_piece piece;
    plm_data_piece(document, &piece);
    const uint8_t *tokens =
        chunk + (document->start + (size_t)piece.has_cls) * tokenizer->token_bytes;
    if (piece.whole || piece.begin == piece.end)
      *parts = plm_proof_whole(tokens, piece.end - piece.begin);
    else
      pieces = join_piece(tokenizer, document->residues, &piece, tokens, evidence, pieces, parts);
    evidence += plm_data_evidence_bytes(tokenizer, document);
  }
  return pieces;
}

/* Hashes the documents of chunks [first, first + count), many at once, into scratch->found. */
static plm_status hash_documents(const struct plm_data_known *known, uint32_t first, uint32_t count,
                                 const uint8_t *payload, size_t size,
                                 struct plm_data_scratch *scratch, struct plm_error *error)
{
  const uint32_t *begin = known->window->chunk_begin + first;
  const size_t documents = begin[count] - begin[0];
  PLM_TRY(data_reserve((void **)&scratch->found, &scratch->found_bytes,
                       documents * sizeof *scratch->found, error));
  PLM_TRY(data_reserve((void **)&scratch->parts, &scratch->parts_bytes,
                       documents * sizeof *scratch->parts, error));
  PLM_TRY(data_reserve((void **)&scratch->pieces, &scratch->pieces_bytes, size, error));
  uint8_t *pieces = scratch->pieces;
  for (uint32_t c = 0; c < count; c++)
    pieces =
        chunk_parts(known, first + c, payload + (known->offset[first + c] - known->offset[first]),
                    pieces, scratch->parts + (begin[c] - begin[0]));
  plm_proof_parts(known->tokenizer->token_bytes, documents, scratch->parts, scratch->found);
  return PLM_OK;
}

/* Checks the tokens of one document. found: the hash of its sequence that follows from them. */
static plm_status check_document(const struct plm_data_known *known, uint32_t document,
                                 const uint8_t *chunk, const struct plm_proof_digest *found,
                                 struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = known->tokenizer;
  const struct plm_chunk_document *of = &known->window->documents[document];
  const uint64_t end = (uint64_t)of->start + of->tokens;
  struct plm_data_piece piece;
  plm_data_piece(of, &piece);
  const uint8_t *tokens = chunk + (of->start + (uint64_t)piece.has_cls) * tokenizer->token_bytes;
  const bool proven = !piece.whole && piece.begin == piece.end; /* it has no residues */
  if ((piece.has_cls && token_at(tokenizer, chunk, of->start) != tokenizer->cls) ||
      (piece.has_eos && token_at(tokenizer, chunk, end - 1) != tokenizer->eos) ||
      (!proven && memcmp(found->bytes, known->digests[document].bytes, sizeof found->bytes) != 0))
    return plm_error_set(error, PLM_CORRUPT,
                         "the tokens of document %llu are not those that the corpus's fingerprint "
                         "proves",
                         (unsigned long long)of->number);
  const uint32_t greatest = greatest_token(tokenizer, tokens, piece.end - piece.begin);
  if (greatest < tokenizer->vocab_size) return PLM_OK;
  (void)plm_error_set(error, PLM_FORMAT,
                      "document %llu of the corpus has token %u, outside the vocabulary of %u",
                      (unsigned long long)of->number, greatest, tokenizer->vocab_size);
  return plm_error_hint(error, "ingest the sequences again");
}

/* Checks the label records of a chunk, which begin at `record`, and the zeros up to `end`. */
static plm_status check_labels(const struct plm_data_known *known, uint32_t c,
                               const uint8_t *record, const uint8_t *end, struct plm_error *error)
{
  const struct plm_window *window = known->window;
  for (uint32_t i = window->chunk_begin[c]; i < window->chunk_begin[c + 1]; i++) {
    const struct plm_chunk_document *document = &window->documents[i];
    const size_t size = plm_label_record_size(known->schema, document->residues);
    const struct plm_proof_digest found = plm_proof_label(record, size);
    if (memcmp(found.bytes, known->labels[i].bytes, sizeof found.bytes) != 0)
      return plm_error_set(
          error, PLM_CORRUPT,
          "the labels of document %llu are not those that the corpus's fingerprint "
          "proves",
          (unsigned long long)document->number);
    if (plm_label_record_check(known->schema, document->residues, record, error) != PLM_OK) {
      (void)plm_error_where(error, "document %llu of the corpus",
                            (unsigned long long)document->number);
      return plm_error_hint(error, "ingest the table again");
    }
    record += size;
  }
  for (; record < end; record++)
    if (*record != 0)
      return plm_error_set(error, PLM_CORRUPT,
                           "chunk %u of window %llu has something other than 0 after its labels", c,
                           (unsigned long long)window->window);
  return PLM_OK;
}

/* found: the hashes of its documents. */
static plm_status check_chunk(const struct plm_data_known *known, uint32_t c, const uint8_t *chunk,
                              const struct plm_proof_digest *found, struct plm_error *error)
{
  const struct plm_window *window = known->window;
  const uint8_t *evidence = chunk + (size_t)known->max_length * known->tokenizer->token_bytes;
  uint32_t end = 0; /* of the previous document */
  bool padded = true;
  for (uint32_t i = window->chunk_begin[c]; i < window->chunk_begin[c + 1]; i++) {
    const struct plm_chunk_document *document = &window->documents[i];
    padded &= padding_valid(known->tokenizer, chunk, end, document->start);
    PLM_TRY(check_document(known, i, chunk, found++, error));
    evidence += plm_data_evidence_bytes(known->tokenizer, document);
    end = document->start + document->tokens;
  }
  if (!padded || !padding_valid(known->tokenizer, chunk, end, known->max_length))
    return plm_error_set(error, PLM_CORRUPT,
                         "chunk %u of window %llu has something other than <pad> between documents",
                         c, (unsigned long long)window->window);
  if (known->schema == NULL) return PLM_OK;
  return check_labels(known, c, evidence, chunk + (known->offset[c + 1] - known->offset[c]), error);
}

plm_status plm_data_check(const struct plm_data_known *known, uint32_t first, uint32_t count,
                          const void *payload, size_t size, struct plm_data_scratch *scratch,
                          struct plm_error *error)
{
  const uint64_t *offset = known->offset;
  PLM_ASSERT(first <= known->window->chunks && count <= known->window->chunks - first);
  if (size != offset[first + count] - offset[first])
    return plm_error_set(error, PLM_PROTOCOL, "%u chunks of %zu bytes, where the plan has %llu",
                         count, size, (unsigned long long)(offset[first + count] - offset[first]));
  PLM_TRY(hash_documents(known, first, count, payload, size, scratch, error));
  const uint32_t *begin = known->window->chunk_begin;
  for (uint32_t c = first; c < first + count; c++)
    PLM_TRY(check_chunk(known, c, (const uint8_t *)payload + (offset[c] - offset[first]),
                        scratch->found + (begin[c] - begin[first]), error));
  return PLM_OK;
}
