/* The tokens of a planned window, from the corpus. Each group of documents is decompressed once,
 * and its documents go directly to their places in the chunks. */
#ifndef PLM_COMMON_PLAN_ASSEMBLE_H
#define PLM_COMMON_PLAN_ASSEMBLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/corpus/corpus.h"
#include "common/corpus/translate.h"
#include "common/plan/plan.h"

/* The size of the window's tokens: chunks * max_length tokens of one byte (esm) or two (byte). */
size_t plm_assemble_bytes(const struct plm_plan *plan, const struct plm_window *window);

/* Fills tokens, (window->chunks, max_length) uint8 (esm) or uint16 (byte): each chunk has its
 * documents at their starts, and <pad> everywhere else. The plan must be for this split of the
 * cursor's corpus. PLM_CORRUPT names the group whose residues do not match the lengths. */
plm_status plm_assemble_window(struct plm_corpus_cursor *cursor, enum plm_split split,
                               const struct plm_plan *plan, const struct plm_window *window,
                               void *tokens, struct plm_error *error);

/* A window to assemble. */
struct plm_assembly {
  enum plm_split split;
  const struct plm_plan *plan; /* of this split */
  const struct plm_window *window;
  void *tokens; /* of the window, if there is no `take` */
  /* Called for each document or piece, number i of window->places; residues are those of the whole
   * document. Pieces of one document come one after another. NULL: all are written to `tokens`. */
  plm_status (*take)(void *context, uint32_t i, const uint8_t *residues, struct plm_error *error);
  void *context;
};

/* Takes the part of the window that comes from the groups window->groups[first .. first + count).
 * Errors are those of plm_assemble_window and `take`. */
plm_status plm_assemble_groups(struct plm_corpus_cursor *cursor,
                               const struct plm_assembly *assembly, uint32_t first, uint32_t count,
                               struct plm_error *error);
/* Writes document or piece number i of window->places, and then <pad> up to the next one or the end
 * of its chunk. residues: of the whole document; tokens: room for max_length of them. Returns their
 * number. */
uint32_t plm_assemble_piece(const struct plm_window *window, uint32_t max_length,
                            const struct plm_translator *translator, uint32_t i,
                            const uint8_t *residues, void *tokens);

#endif
