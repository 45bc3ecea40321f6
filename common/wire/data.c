/* DATA's payload: where everything in it is, what proves the pieces of long documents, and checking
 * what a packer sent. */
#include "common/wire/data.h"

#include <endian.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/message.h"
#include "common/wire/token_bits.h"

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

struct plm_data_extent plm_data_extent(uint32_t max_length, const struct plm_window *window,
                                       uint32_t chunk)
{
  struct plm_data_extent extent = {.tokens = max_length};
  for (uint32_t i = window->chunk_begin[chunk]; i < window->chunk_begin[chunk + 1]; i++) {
    const struct plm_chunk_document *document = &window->documents[i];
    struct plm_data_piece piece;
    if (document->tokens == (uint64_t)document->residues + 2) continue; /* most are whole */
    plm_data_piece(document, &piece);
    extent.tokens += piece.before + piece.after;
    extent.block_tokens += piece.end - piece.begin + piece.before + piece.after;
    extent.path_bytes += (uint64_t)piece.path * PLM_PROOF_HASH_BYTES;
  }
  return extent;
}

uint64_t plm_data_labels_at(const struct plm_tokenizer *tokenizer, uint32_t max_length,
                            const struct plm_window *window, uint32_t chunk)
{
  const struct plm_data_extent extent = plm_data_extent(max_length, window, chunk);
  return plm_token_bits_size(tokenizer, extent.tokens) + extent.path_bytes;
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
  }
  offset[window->chunks] = at;
}

size_t plm_data_chunk_most(const struct plm_plan_parameters *plan)
{
  const struct plm_proof_range middle = {1, 2, plm_proof_block_count(PLM_DOCUMENT_LIMIT)};
  /* Only the last pieces of split documents leave room for others. */
  const size_t pieces =
      plan->truncate == PLM_TRUNCATE_SPLIT ? plan->max_length / plan->alignment : 1;
  const size_t tokens = plan->max_length + pieces * 2 * (PLM_PROOF_BLOCK - 1);
  /* A path has fewer nodes than one from each side of the tree, of which `middle` has one. */
  const size_t most = plm_token_bits_size(plm_tokenizer_of(plan->tokenizer), tokens) +
                      pieces * 2 * plm_proof_path_size(&middle) * PLM_PROOF_HASH_BYTES;
  return most < PLM_WIRE_DATA_LIMIT ? most : PLM_WIRE_DATA_LIMIT;
}

/* ---- writing ------------------------------------------------------------------------------ */

static uint8_t *put(uint8_t *at, const uint8_t *bytes, size_t size)
{
  memcpy(at, bytes, size);
  return at + size;
}

void plm_data_write_evidence(const struct plm_tokenizer *tokenizer,
                             const struct plm_chunk_document *document, const void *residues,
                             const struct plm_proof_tree *tree, struct plm_data_evidence *to)
{
  const uint8_t *tokens = residues;
  const size_t token_bytes = tokenizer->token_bytes;
  struct plm_proof_node path[PLM_PROOF_PATH];
  struct plm_data_piece piece;
  plm_data_piece(document, &piece);
  PLM_ASSERT(!piece.whole);
  if (piece.begin == piece.end) return;
  plm_token_bits_pack(tokenizer, tokens + (piece.begin - piece.before) * token_bytes, to->at,
                      piece.before, to->chunk);
  to->at += piece.before;
  plm_token_bits_pack(tokenizer, tokens + piece.end * token_bytes, to->at, piece.after, to->chunk);
  to->at += piece.after;
  const size_t nodes = plm_proof_tree_path(tree, piece.block_begin, piece.block_end, path);
  PLM_ASSERT(nodes == piece.path);
  for (size_t i = 0; i < nodes; i++) to->path = put(to->path, path[i].hash, sizeof path[i].hash);
}

/* ---- checking ----------------------------------------------------------------------------- */

void plm_data_scratch_deinit(struct plm_data_scratch *scratch)
{
  free(scratch->tokens);
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

/* Of esm, 5 bits hold only tokens of the vocabulary. */
static uint32_t greatest_token(const struct plm_tokenizer *tokenizer, const uint8_t *tokens,
                               uint64_t count)
{
  uint32_t greatest = 0;
  if (tokenizer->token_bytes == 1) return 0;
  for (uint64_t i = 0; i < count; i++) {
    const uint32_t token = token_at(tokenizer, tokens, i);
    greatest = token > greatest ? token : greatest;
  }
  return greatest;
}

/* A chunk, whose tokens are unpacked. */
struct unpacked {
  const uint8_t *tokens, *evidence;    /* evidence: the tokens that prove pieces */
  const uint8_t *after;                /* the last of these */
  const uint8_t *paths, *labels, *end; /* in the payload */
  bool filled;                         /* zeros follow the packed tokens */
};

static struct unpacked unpack(const struct plm_data_known *known, uint32_t c, const uint8_t *chunk,
                              uint8_t *tokens)
{
  const struct plm_tokenizer *tokenizer = known->tokenizer;
  const struct plm_data_extent extent = plm_data_extent(known->max_length, known->window, c);
  const uint8_t *paths = chunk + plm_token_bits_size(tokenizer, extent.tokens);
  plm_token_bits_unpack(tokenizer, chunk, extent.tokens, tokens);
  return (struct unpacked){
      .tokens = tokens,
      .evidence = tokens + (size_t)known->max_length * tokenizer->token_bytes,
      .after = tokens + (size_t)extent.tokens * tokenizer->token_bytes,
      .paths = paths,
      .labels = paths + extent.path_bytes,
      .end = chunk + (known->offset[c + 1] - known->offset[c]),
      .filled = plm_token_bits_end(tokenizer, chunk, extent.tokens),
  };
}

/* Fills in what is to be hashed for each document of a chunk. The blocks of its pieces are put
 * together at `pieces`, of which the end is returned. */
static uint8_t *chunk_parts(const struct plm_data_known *known, uint32_t c,
                            const struct unpacked *chunk, uint8_t *pieces,
                            struct plm_proof_part *parts)
{
  const size_t token_bytes = known->tokenizer->token_bytes;
  const struct plm_window *window = known->window;
  const uint8_t *evidence = chunk->evidence, *path = chunk->paths;
  for (uint32_t i = window->chunk_begin[c]; i < window->chunk_begin[c + 1]; i++, parts++) {
    const struct plm_chunk_document *document = &window->documents[i];
    struct plm_data_piece piece;
    plm_data_piece(document, &piece);
    const uint8_t *tokens = chunk->tokens + (document->start + (size_t)piece.has_cls) * token_bytes;
    const size_t own = (size_t)(piece.end - piece.begin) * token_bytes;
    *parts = plm_proof_whole(tokens, piece.end - piece.begin);
    if (piece.whole || own == 0) continue;
    *parts = (struct plm_proof_part){pieces, document->residues, piece.block_begin, piece.block_end,
                                     path};
    pieces = put(pieces, evidence, (size_t)piece.before * token_bytes);
    pieces = put(pieces, tokens, own);
    evidence += piece.before * token_bytes;
    pieces = put(pieces, evidence, (size_t)piece.after * token_bytes);
    evidence += piece.after * token_bytes;
    path += (size_t)piece.path * PLM_PROOF_HASH_BYTES;
  }
  return pieces;
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

/* Checks the label records of a chunk, which begin at `record`. */
static plm_status check_labels(const struct plm_data_known *known, uint32_t c,
                               const uint8_t *record, struct plm_error *error)
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
  return PLM_OK;
}

/* found: the hashes of its documents. */
static plm_status check_chunk(const struct plm_data_known *known, uint32_t c,
                              const struct unpacked *chunk, const struct plm_proof_digest *found,
                              struct plm_error *error)
{
  const struct plm_window *window = known->window;
  uint32_t end = 0; /* of the previous document */
  bool padded = true;
  for (uint32_t i = window->chunk_begin[c]; i < window->chunk_begin[c + 1]; i++) {
    const struct plm_chunk_document *document = &window->documents[i];
    padded &= padding_valid(known->tokenizer, chunk->tokens, end, document->start);
    PLM_TRY(check_document(known, i, chunk->tokens, found++, error));
    end = document->start + document->tokens;
  }
  padded &= padding_valid(known->tokenizer, chunk->tokens, end, known->max_length);
  if (!padded || !chunk->filled)
    return plm_error_set(error, PLM_CORRUPT, "chunk %u of window %llu has something other than %s",
                         c, (unsigned long long)window->window,
                         padded ? "0 after its tokens" : "<pad> between documents");
  return known->schema == NULL ? PLM_OK : check_labels(known, c, chunk->labels, error);
}

/* Chunks that are unpacked and checked at once: enough to fill the lanes of the hash, and so few
 * that their tokens stay in the cache. */
enum { CHUNKS_AT_ONCE = 128, TOKENS_AT_ONCE = 128 << 10 };
struct some {
  uint32_t first, count;
  size_t tokens; /* with those of the evidence */
  size_t pieces; /* tokens of the blocks of pieces */
};

static struct some some_chunks(const struct plm_data_known *known, uint32_t first, uint32_t end)
{
  struct some some = {.first = first};
  while (first + some.count < end && some.count < CHUNKS_AT_ONCE && some.tokens < TOKENS_AT_ONCE) {
    const struct plm_data_extent extent =
        plm_data_extent(known->max_length, known->window, first + some.count++);
    some.tokens += extent.tokens;
    some.pieces += extent.block_tokens;
  }
  return some;
}

static plm_status reserve(struct plm_data_scratch *scratch, const struct some *some,
                          uint32_t token_bytes, size_t documents, struct plm_error *error)
{
  PLM_TRY(data_reserve((void **)&scratch->tokens, &scratch->tokens_bytes,
                       some->tokens * token_bytes, error));
  PLM_TRY(data_reserve((void **)&scratch->pieces, &scratch->pieces_bytes,
                       some->pieces * token_bytes, error));
  PLM_TRY(data_reserve((void **)&scratch->found, &scratch->found_bytes,
                       documents * sizeof *scratch->found, error));
  return data_reserve((void **)&scratch->parts, &scratch->parts_bytes,
                      documents * sizeof *scratch->parts, error);
}

static plm_status check_some(const struct plm_data_known *known, const struct some *some,
                             const uint8_t *payload, struct plm_data_scratch *scratch,
                             struct plm_error *error)
{
  const uint32_t token_bytes = known->tokenizer->token_bytes;
  const uint32_t *begin = known->window->chunk_begin + some->first;
  const size_t documents = begin[some->count] - begin[0];
  struct unpacked chunks[CHUNKS_AT_ONCE];
  PLM_TRY(reserve(scratch, some, token_bytes, documents, error));
  uint8_t *tokens = scratch->tokens, *pieces = scratch->pieces;
  for (uint32_t i = 0; i < some->count; i++) {
    const uint32_t c = some->first + i;
    chunks[i] = unpack(known, c, payload, tokens);
    pieces = chunk_parts(known, c, &chunks[i], pieces, scratch->parts + (begin[i] - begin[0]));
    tokens += chunks[i].after - tokens;
    payload = chunks[i].end;
  }
  plm_proof_parts(token_bytes, documents, scratch->parts, scratch->found);
  for (uint32_t i = 0; i < some->count; i++)
    PLM_TRY(check_chunk(known, some->first + i, &chunks[i], scratch->found + (begin[i] - begin[0]),
                        error));
  return PLM_OK;
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
  const uint8_t *bytes = payload;
  for (uint32_t at = first; at < first + count;) {
    const struct some some = some_chunks(known, at, first + count);
    PLM_TRY(check_some(known, &some, bytes + (offset[at] - offset[first]), scratch, error));
    at += some.count;
  }
  return PLM_OK;
}
