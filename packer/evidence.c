/* Writing the evidence of pieces. A long document is translated and hashed once for all its pieces,
 * and not where the piece itself is what a consumer hashes.
 */
#include "packer/evidence.h"

#include <stdlib.h>

#include "common/wire/data.h"
#include "common/wire/token_bits.h"

void evidence_begin(struct evidence *evidence, const struct evidence_places *places)
{
  plm_translator_init(&evidence->translator, places->plan->tokenizer);
  evidence->places = *places;
  evidence->held = false; /* the same number may be another split's */
}

void evidence_deinit(struct evidence *evidence)
{
  plm_proof_tree_close(evidence->tree);
  free(evidence->tokens);
  *evidence = (struct evidence){0};
}

/* Makes the tree over the document's blocks, without blocks [begin, end) if that is not empty. */
static plm_status make_tree(struct evidence *evidence, uint64_t residues, uint64_t begin,
                            uint64_t end, struct plm_error *error)
{
  const uint32_t token_bytes = evidence->translator.tokenizer->token_bytes;
  const uint64_t blocks = plm_proof_block_count(residues);
  struct plm_proof_node *nodes = calloc(blocks, sizeof *nodes);
  if (nodes == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %llu blocks",
                         (unsigned long long)blocks);
  if (begin > 0)
    plm_proof_block_nodes(token_bytes, evidence->tokens, begin * PLM_PROOF_BLOCK, nodes);
  if (end < blocks)
    plm_proof_block_nodes(token_bytes, evidence->tokens + end * PLM_PROOF_BLOCK * token_bytes,
                          residues - end * PLM_PROOF_BLOCK, nodes + end);
  const struct plm_proof_range without = {begin, end, blocks};
  const plm_status status =
      begin < end ? plm_proof_tree_open_without(nodes, &without, &evidence->tree, error)
                  : plm_proof_tree_open(PLM_PROOF_PLAIN, nodes, blocks, &evidence->tree, error);
  free(nodes);
  return status;
}

/* Translates and hashes a document. */
static plm_status evidence_hold(struct evidence *evidence,
                                const struct plm_chunk_document *document, const uint8_t *residues,
                                struct plm_error *error)
{
  const size_t size = (size_t)document->residues * evidence->translator.tokenizer->token_bytes;
  struct plm_data_piece piece = {0}; /* all blocks are hashed for a document with several pieces */
  if (evidence->held && evidence->number == document->number) return PLM_OK;
  evidence->held = false;
  plm_proof_tree_close(evidence->tree);
  evidence->tree = NULL;
  if (size > evidence->capacity) {
    free(evidence->tokens);
    evidence->capacity = 0;
    evidence->tokens = malloc(size);
    if (evidence->tokens == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for a document of %u residues",
                           document->residues);
    evidence->capacity = size;
  }
  evidence->translator.residues(&evidence->translator, residues, document->residues,
                                evidence->tokens);
  if (evidence->places.plan->truncate != PLM_TRUNCATE_SPLIT) plm_data_piece(document, &piece);
  PLM_TRY(make_tree(evidence, document->residues, piece.block_begin, piece.block_end, error));
  evidence->number = document->number;
  evidence->held = true;
  return PLM_OK;
}

plm_status evidence_write(void *context, struct plm_window_place piece, const uint8_t *residues,
                          struct plm_error *error)
{
  struct evidence *evidence = context;
  const struct evidence_places *places = &evidence->places;
  const struct plm_tokenizer *tokenizer = evidence->translator.tokenizer;
  const struct plm_window *window = places->window;
  const uint64_t begin = places->chunk_at[piece.chunk];
  const uint64_t tokens = places->chunk_at[piece.chunk + 1] - begin;
  struct plm_data_evidence at = {
      .tokens = places->tokens + (begin + places->plan->max_length) * tokenizer->token_bytes,
      .path =
          places->payload + places->offset[piece.chunk] + plm_token_bits_size(tokenizer, tokens)};
  for (uint32_t i = window->chunk_begin[piece.chunk]; i < piece.document; i++) {
    struct plm_data_piece before;
    plm_data_piece(&window->documents[i], &before);
    at.tokens += (before.before + before.after) * tokenizer->token_bytes;
    at.path += (size_t)before.path * PLM_PROOF_HASH_BYTES;
  }
  PLM_TRY(evidence_hold(evidence, &window->documents[piece.document], residues, error));
  plm_data_write_evidence(tokenizer, &window->documents[piece.document], evidence->tokens,
                          evidence->tree, &at);
  return PLM_OK;
}
