/* Writing the evidence of pieces. A long document is translated and hashed once for all its pieces,
 * several documents at once, and not where the piece itself is what a consumer hashes.
 */
#include "packer/evidence.h"

#include <stdlib.h>

#include "common/wire/data.h"
#include "common/wire/token_bits.h"

/* That wait, so that they stay in the cache, unless a document has more. */
enum { TOKENS = 64 << 10 };

void evidence_begin(struct evidence *evidence, const struct evidence_places *places)
{
  plm_translator_init(&evidence->translator, places->plan->tokenizer);
  evidence->places = *places;
  evidence->document_count = 0;
  evidence->piece_count = evidence->token_count = evidence->node_count = 0;
}

void evidence_deinit(struct evidence *evidence)
{
  free(evidence->pieces);
  free(evidence->tokens);
  free(evidence->nodes);
  *evidence = (struct evidence){0};
}

/* Makes room, and keeps what is there. */
static plm_status make_room(void **memory, size_t *capacity, size_t bytes, struct plm_error *error)
{
  if (bytes <= *capacity) return PLM_OK;
  const size_t wanted = bytes + bytes / 2;
  void *grown = realloc(*memory, wanted);
  if (grown == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory to prove pieces of documents");
  *memory = grown;
  *capacity = wanted;
  return PLM_OK;
}

/* ---- writing ------------------------------------------------------------------------------ */

/* Hashes the blocks of all documents, except those that a piece has itself: no path of it has a
 * node that depends on them. */
static void hash_blocks(const struct evidence *evidence)
{
  const uint32_t token_bytes = evidence->translator.tokenizer->token_bytes;
  struct plm_proof_run runs[2 * EVIDENCE_DOCUMENTS];
  size_t count = 0;
  for (uint32_t i = 0; i < evidence->document_count; i++) {
    const struct evidence_document *document = &evidence->documents[i];
    const uint8_t *tokens = evidence->tokens + document->first_token * token_bytes;
    struct plm_proof_node *nodes = evidence->nodes + document->first_node;
    const size_t before = (size_t)document->begin * PLM_PROOF_BLOCK;
    const size_t after = (size_t)document->end * PLM_PROOF_BLOCK;
    if (document->begin > 0) runs[count++] = (struct plm_proof_run){tokens, before, nodes};
    if (document->end < plm_proof_block_count(document->residues))
      runs[count++] = (struct plm_proof_run){tokens + after * token_bytes,
                                             document->residues - after, nodes + document->end};
  }
  plm_proof_block_nodes(token_bytes, runs, count);
}

static void write_piece(const struct evidence *evidence, const struct evidence_document *document,
                        struct plm_window_place piece, const struct plm_proof_tree *tree)
{
  const struct evidence_places *places = &evidence->places;
  const struct plm_tokenizer *tokenizer = evidence->translator.tokenizer;
  const struct plm_window *window = places->window;
  const uint32_t max_length = places->plan->max_length;
  uint8_t *chunk = places->payload + places->offset[piece.chunk];
  struct plm_data_evidence to = {
      .chunk = chunk,
      .at = max_length,
      .path = chunk + plm_token_bits_size(tokenizer,
                                          plm_data_extent(max_length, window, piece.chunk).tokens)};
  for (uint32_t i = window->chunk_begin[piece.chunk]; i < piece.document; i++) {
    struct plm_data_piece before;
    plm_data_piece(&window->documents[i], &before);
    to.at += before.before + before.after;
    to.path += (size_t)before.path * PLM_PROOF_HASH_BYTES;
  }
  plm_data_write_evidence(tokenizer, &window->documents[piece.document],
                          evidence->tokens + document->first_token * tokenizer->token_bytes, tree,
                          &to);
}

plm_status evidence_end(struct evidence *evidence, struct plm_error *error)
{
  hash_blocks(evidence);
  for (uint32_t i = 0; i < evidence->document_count; i++) {
    const struct evidence_document *document = &evidence->documents[i];
    const struct plm_proof_node *nodes = evidence->nodes + document->first_node;
    const struct plm_proof_range without = {document->begin, document->end,
                                            plm_proof_block_count(document->residues)};
    struct plm_proof_tree *tree;
    PLM_TRY(document->begin < document->end
                ? plm_proof_tree_open_without(nodes, &without, &tree, error)
                : plm_proof_tree_open(PLM_PROOF_PLAIN, nodes, without.count, &tree, error));
    for (uint32_t p = 0; p < document->pieces; p++)
      write_piece(evidence, document, evidence->pieces[document->first_piece + p], tree);
    plm_proof_tree_close(tree);
  }
  evidence->document_count = 0;
  evidence->piece_count = evidence->token_count = evidence->node_count = 0;
  return PLM_OK;
}

/* ---- taking ------------------------------------------------------------------------------- */

/* Translates a document. */
static plm_status add_document(struct evidence *evidence, const struct plm_chunk_document *of,
                               const uint8_t *residues, struct plm_error *error)
{
  const uint32_t token_bytes = evidence->translator.tokenizer->token_bytes;
  struct plm_data_piece piece = {0}; /* all blocks are hashed for a document with several pieces */
  if (evidence->document_count == EVIDENCE_DOCUMENTS || evidence->token_count >= TOKENS)
    PLM_TRY(evidence_end(evidence, error));
  if (evidence->places.plan->truncate != PLM_TRUNCATE_SPLIT) plm_data_piece(of, &piece);
  struct evidence_document *document = &evidence->documents[evidence->document_count];
  *document = (struct evidence_document){.number = of->number,
                                         .residues = of->residues,
                                         .begin = piece.block_begin,
                                         .end = piece.block_end,
                                         .first_token = evidence->token_count,
                                         .first_node = evidence->node_count,
                                         .first_piece = (uint32_t)evidence->piece_count};
  const size_t tokens = evidence->token_count + of->residues;
  const size_t nodes = evidence->node_count + plm_proof_block_count(of->residues);
  PLM_TRY(make_room((void **)&evidence->tokens, &evidence->token_capacity, tokens * token_bytes,
                    error));
  PLM_TRY(make_room((void **)&evidence->nodes, &evidence->node_capacity,
                    nodes * sizeof *evidence->nodes, error));
  evidence->translator.residues(&evidence->translator, residues, of->residues,
                                evidence->tokens + document->first_token * token_bytes);
  evidence->document_count++;
  evidence->token_count = tokens;
  evidence->node_count = nodes;
  return PLM_OK;
}

plm_status evidence_take(struct evidence *evidence, struct plm_window_place piece,
                         const uint8_t *residues, struct plm_error *error)
{
  const struct plm_chunk_document *of = &evidence->places.window->documents[piece.document];
  const uint32_t count = evidence->document_count;
  if (count == 0 || evidence->documents[count - 1].number != of->number)
    PLM_TRY(add_document(evidence, of, residues, error));
  PLM_TRY(make_room((void **)&evidence->pieces, &evidence->piece_capacity,
                    (evidence->piece_count + 1) * sizeof *evidence->pieces, error));
  evidence->pieces[evidence->piece_count++] = piece;
  evidence->documents[evidence->document_count - 1].pieces++;
  return PLM_OK;
}
