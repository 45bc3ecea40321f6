/* A planned window and a corpus to the window's tokens. Each group of documents is decompressed
 * once, and its residues go straight to their places in the chunks. */
#ifndef PLM_COMMON_PLAN_ASSEMBLE_H
#define PLM_COMMON_PLAN_ASSEMBLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/corpus/corpus.h"
#include "common/plan/plan.h"

/* Bytes of the window's tokens: chunks * max_length tokens, one byte each (esm) or two (byte). */
size_t plm_assemble_bytes(const struct plm_plan *plan, const struct plm_window *window);

/* Fills tokens, (window->chunks, max_length) uint8 (esm) or uint16 (byte): in each chunk its
 * documents at their starts, <pad> everywhere else. The plan must be of this split of the cursor's
 * corpus. PLM_CORRUPT names the group whose residues are not what the lengths say. */
plm_status plm_assemble_window(struct plm_corpus_cursor *cursor, enum plm_split split,
                               const struct plm_plan *plan, const struct plm_window *window,
                               void *tokens, struct plm_error *error);

/* The part of it that comes from the window's groups [first, first + count) of window->groups.
 * Parts write apart from each other: several threads, each with its own cursor, may share a
 * window. */
plm_status plm_assemble_groups(struct plm_corpus_cursor *cursor, enum plm_split split,
                               const struct plm_plan *plan, const struct plm_window *window,
                               uint32_t first, uint32_t count, void *tokens,
                               struct plm_error *error);

/* The same with chunk c's tokens beginning at token chunk_at[c] of tokens, wherever that is: the
 * packer writes what it sends. */
plm_status plm_assemble_scattered(struct plm_corpus_cursor *cursor, enum plm_split split,
                                  const struct plm_plan *plan, const struct plm_window *window,
                                  uint32_t first, uint32_t count, const uint64_t *chunk_at,
                                  void *tokens, struct plm_error *error);

#endif
