/* What proves the pieces of long documents in a window's payload: wire/data.h. */
#ifndef PLM_PACKER_EVIDENCE_H
#define PLM_PACKER_EVIDENCE_H

#include <stdint.h>

#include "common/corpus/translate.h"
#include "common/plan/plan.h"
#include "common/proof/proof.h"

/* Where a window's evidence goes. */
struct evidence_places {
  const struct plm_plan_parameters *plan; /* all is borrowed */
  const struct plm_window *window;
  uint8_t *payload;
  const uint64_t *offset; /* (chunks) the byte of the payload where each chunk begins */
};

enum { EVIDENCE_DOCUMENTS = 64 }; /* that wait at most */

/* A document whose pieces need evidence. */
struct evidence_document {
  uint64_t number, residues;
  uint64_t begin, end; /* blocks that are not hashed, if not equal */
  size_t first_token, first_node;
  uint32_t first_piece, pieces;
};

/* A thread's memory. It begins with {0}, and may be used for one window after another. Documents
 * wait until enough are there to be hashed together. */
struct evidence {
  struct plm_translator translator;
  struct evidence_places places;
  struct evidence_document documents[EVIDENCE_DOCUMENTS];
  uint32_t document_count;
  struct plm_window_place *pieces; /* of these documents */
  uint8_t *tokens;
  struct plm_proof_node *nodes;
  size_t piece_count, token_count, node_count;          /* in use */
  size_t piece_capacity, token_capacity, node_capacity; /* in bytes */
};
/* Begins a window. */
void evidence_begin(struct evidence *evidence, const struct evidence_places *places);
/* Takes a piece that is not a whole document. residues: of the whole document. Pieces of one
 * document come one after another. */
plm_status evidence_take(struct evidence *evidence, struct plm_window_place piece,
                         const uint8_t *residues, struct plm_error *error);
/* Writes what is not written yet. */
plm_status evidence_end(struct evidence *evidence, struct plm_error *error);
void evidence_deinit(struct evidence *evidence);

#endif
