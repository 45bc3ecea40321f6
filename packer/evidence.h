/* What proves the pieces of long documents in a window's payload: wire/data.h. */
#ifndef PLM_PACKER_EVIDENCE_H
#define PLM_PACKER_EVIDENCE_H

#include <stdint.h>

#include "common/corpus/translate.h"
#include "common/plan/plan.h"
#include "common/proof/proof.h"

/* A thread's memory. It begins with {0}, and may be used for one window after another. */
struct evidence {
  struct plm_translator translator;
  const struct plm_plan_parameters *plan; /* borrowed, like the next three */
  const struct plm_window *window;        /* that is built */
  const uint64_t *offset;                 /* (chunks) of the window in bytes */
  uint8_t *bytes;                         /* its payload */
  /* of the document that a piece came from last */
  bool held;
  uint64_t number;
  uint8_t *tokens; /* of the whole document */
  size_t capacity;
  struct plm_proof_tree *tree; /* over its blocks */
};
/* Begins a window. */
void evidence_begin(struct evidence *evidence, const struct plm_plan_parameters *plan,
                    const struct plm_window *window, const uint64_t *offset, uint8_t *bytes);
/* Writes what proves a piece: struct plm_assembly's `piece`, whose context is the evidence. */
plm_status evidence_write(void *evidence, struct plm_window_place piece, const uint8_t *residues,
                          struct plm_error *error);
void evidence_deinit(struct evidence *evidence);

#endif
