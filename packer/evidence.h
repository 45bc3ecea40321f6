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
  uint8_t *tokens;          /* of all chunks, with those that prove pieces; not packed yet */
  const uint64_t *chunk_at; /* (chunks + 1) the token where each chunk begins */
  uint8_t *payload;
  const uint64_t *offset; /* (chunks) the byte of the payload where each chunk begins */
};

/* A thread's memory. It begins with {0}, and may be used for one window after another. */
struct evidence {
  struct plm_translator translator;
  struct evidence_places places;
  /* of the document that a piece came from last */
  bool held;
  uint64_t number;
  uint8_t *tokens; /* of the whole document */
  size_t capacity;
  struct plm_proof_tree *tree; /* over its blocks */
};
/* Begins a window. */
void evidence_begin(struct evidence *evidence, const struct evidence_places *places);
/* Writes what proves a piece: struct plm_assembly's `piece`, whose context is the evidence. */
plm_status evidence_write(void *evidence, struct plm_window_place piece, const uint8_t *residues,
                          struct plm_error *error);
void evidence_deinit(struct evidence *evidence);

#endif
