/* The tables of a window's groups, and the paths that prove them (wire/tables.h): a PROOF. */
#ifndef PLM_PACKER_WINDOW_PROOF_H
#define PLM_PACKER_WINDOW_PROOF_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/plan/plan.h"
#include "packer/proven_groups.h"

/* A request for tables, and its answer. */
struct store_proof {
  uint64_t owner, request; /* the caller's */
  struct store_plan *plan;
  enum plm_split split;
  uint64_t epoch, window;
  uint32_t first, count; /* groups of the window; in the answer, count is how many were written */
  uint8_t *bytes;        /* the payload of PROOF */
  size_t size;
  struct plm_error error; /* unless its status is PLM_OK, there are no bytes */
};

/* Fills bytes, size and count of a proof, of groups of the plan. cursor is the calling thread's.
 * PLM_NOT_FOUND: an epoch of the plan has no such window, or the window no such groups. After an
 * error, bytes may be there, and the caller frees them. */
plm_status window_proof_write(const struct plm_corpus *corpus, struct proven_groups *proven,
                              struct plm_corpus_cursor *cursor, const struct plm_plan *plan,
                              struct store_proof *proof, struct plm_error *error);

#endif
