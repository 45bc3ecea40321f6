/* A temporary copy of the input on disk, so that any number of sequences can be read again, in
 * windows and in bounded memory, even if they came from a pipe or a compressed file. Tokens,
 * lengths and names are in three unnamed files, which disappear with the process.
 */
#ifndef PLM_EVALUATOR_EMBED_SEQUENCE_SPOOL_H
#define PLM_EVALUATOR_EMBED_SEQUENCE_SPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"

struct plm_sequence_spool;

/* The files are created in the folder. token_bytes is 1 or 2. */
plm_status plm_sequence_spool_open(const char *folder, uint32_t token_bytes,
                                   struct plm_sequence_spool **spool, struct plm_error *error);
void plm_sequence_spool_close(struct plm_sequence_spool *spool); /* NULL is fine */

/* Adds a sequence of count >= 1 tokens of token_bytes each, and its name, which has no line end. It
 * may have what belongs to it behind a tab. */
plm_status plm_sequence_spool_add(struct plm_sequence_spool *spool, const char *name,
                                  size_t name_size, const void *tokens, uint32_t count,
                                  struct plm_error *error);
/* After the last sequence: flushes the files, and prepares them for reading. */
plm_status plm_sequence_spool_finish(struct plm_sequence_spool *spool, struct plm_error *error);

uint64_t plm_sequence_spool_count(const struct plm_sequence_spool *spool);
uint64_t plm_sequence_spool_tokens(const struct plm_sequence_spool *spool);
/* XXH3-128 of all names, lengths and tokens, in their order. */
struct plm_hash plm_sequence_spool_fingerprint(const struct plm_sequence_spool *spool);

/* Call `each` with each length (in tokens), or with each name, from the first sequence on; with
 * names until it returns an error. A name is valid only during the call. */
plm_status plm_sequence_spool_each_length(struct plm_sequence_spool *spool,
                                          void (*each)(void *context, uint64_t number,
                                                       uint32_t tokens),
                                          void *context, struct plm_error *error);
plm_status plm_sequence_spool_each_name(struct plm_sequence_spool *spool,
                                        plm_status (*each)(void *context, uint64_t number,
                                                           const char *name, size_t size,
                                                           struct plm_error *error),
                                        void *context, struct plm_error *error);

/* Consecutive sequences. The caller owns it; it is {0} before the first window, and _deinit frees
 * it. */
struct plm_spool_window {
  uint64_t first; /* number of the first sequence */
  uint32_t count;
  uint64_t tokens_before; /* of all sequences before the window */
  uint64_t tokens;
  uint32_t *lengths; /* (count) in tokens */
  uint64_t *starts;  /* (count) where each begins in token_data, in tokens */
  void *token_data;  /* (tokens) of token_bytes each */
  uint64_t capacity; /* of token_data, in tokens */
};
enum {
  PLM_SPOOL_WINDOW_SEQUENCES = 1 << 14,
  PLM_SPOOL_WINDOW_TOKENS = 1 << 22,
};
/* Replaces the window by the sequences that follow it: as many as both limits allow, but at least
 * one. count is 0 at the end. */
plm_status plm_sequence_spool_next(struct plm_sequence_spool *spool,
                                   struct plm_spool_window *window, struct plm_error *error);
void plm_spool_window_deinit(struct plm_spool_window *window);

#endif
