/* The tokens of a planned window, from the corpus. Each group of documents is decompressed once,
 * and its residues are written directly to their places in the chunks. */
#ifndef PLM_COMMON_PLAN_ASSEMBLE_H
#define PLM_COMMON_PLAN_ASSEMBLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/corpus/corpus.h"
#include "common/plan/plan.h"

/* The size of the window's tokens: chunks * max_length tokens of one byte (esm) or two (byte). */
size_t plm_assemble_bytes(const struct plm_plan *plan, const struct plm_window *window);

/* Fills tokens, (window->chunks, max_length) uint8 (esm) or uint16 (byte): each chunk has its
 * documents at their starts, and <pad> everywhere else. The plan must be for this split of the
 * cursor's corpus. PLM_CORRUPT names the group whose residues do not match the lengths. */
plm_status plm_assemble_window(struct plm_corpus_cursor *cursor, enum plm_split split,
                               const struct plm_plan *plan, const struct plm_window *window,
                               void *tokens, struct plm_error *error);

/* A window to assemble, and the memory for its tokens. */
struct plm_assembly {
  enum plm_split split;
  const struct plm_plan *plan; /* of this split */
  const struct plm_window *window;
  void *tokens;             /* uint8 or uint16 */
  const uint64_t *chunk_at; /* the token of `tokens` where each chunk begins, so that a caller can
                               leave room between chunks; NULL: chunk c begins at c * max_length */
  /* Called for each piece that is not a whole document: `piece` is its place in the window, and
   * residues are those of the whole document. Pieces of one document come one after another. NULL:
   * nobody. */
  plm_status (*piece)(void *context, struct plm_window_place piece, const uint8_t *residues,
                      struct plm_error *error);
  void *piece_context;
};

/* Writes the part of the window that comes from the groups window->groups[first .. first + count).
 * Different groups write to different bytes, so several threads, each with its own cursor, may
 * share a window. Errors are those of plm_assemble_window. */
plm_status plm_assemble_groups(struct plm_corpus_cursor *cursor,
                               const struct plm_assembly *assembly, uint32_t first, uint32_t count,
                               struct plm_error *error);

#endif
