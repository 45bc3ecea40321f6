/* Sequences of any number on disk, so that they can be read a second time and in windows whatever
 * they came from (a pipe, a compressed file), in bounded memory: tokens, lengths and names in three
 * unnamed files beside the result, which vanish with the process. */
#ifndef PLM_EVALUATOR_EMBED_SEQUENCE_SPOOL_H
#define PLM_EVALUATOR_EMBED_SEQUENCE_SPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"

struct plm_sequence_spool;

/* In the folder of the file `beside`. token_bytes 1 or 2. */
plm_status plm_sequence_spool_open(const char *beside, uint32_t token_bytes,
                                   struct plm_sequence_spool **spool, struct plm_error *error);
void plm_sequence_spool_close(struct plm_sequence_spool *spool); /* NULL is fine */

/* A sequence of count >= 1 tokens of token_bytes each, and its name (without a line end). */
plm_status plm_sequence_spool_add(struct plm_sequence_spool *spool, const char *name,
                                  size_t name_size, const void *tokens, uint32_t count,
                                  struct plm_error *error);
/* After the last one: everything is written, reading begins. */
plm_status plm_sequence_spool_finish(struct plm_sequence_spool *spool, struct plm_error *error);

uint64_t plm_sequence_spool_count(const struct plm_sequence_spool *spool);
uint64_t plm_sequence_spool_tokens(const struct plm_sequence_spool *spool);
/* XXH3-128 over names, lengths and tokens in their order. */
struct plm_hash plm_sequence_spool_fingerprint(const struct plm_sequence_spool *spool);

/* Each length (tokens), each name, from the first on: `take` ends it by returning an error. A name
 * is valid during its call. */
plm_status plm_sequence_spool_each_length(struct plm_sequence_spool *spool,
                                          plm_status (*take)(void *context, uint64_t number,
                                                             uint32_t tokens,
                                                             struct plm_error *error),
                                          void *context, struct plm_error *error);
plm_status plm_sequence_spool_each_name(struct plm_sequence_spool *spool,
                                        plm_status (*take)(void *context, uint64_t number,
                                                           const char *name, size_t size,
                                                           struct plm_error *error),
                                        void *context, struct plm_error *error);

/* Consecutive sequences. Caller-owned, {0} before the first; _deinit frees. */
struct plm_spool_window {
  uint64_t first; /* number of its first sequence */
  uint32_t count;
  uint64_t tokens_before; /* of all sequences before it */
  uint64_t tokens;
  uint32_t *lengths; /* (count) tokens */
  uint64_t *starts;  /* (count) into token_data, tokens */
  void *token_data;  /* (tokens) of token_bytes each */
  uint64_t capacity; /* tokens */
};
enum {
  PLM_SPOOL_WINDOW_SEQUENCES = 1 << 14,
  PLM_SPOOL_WINDOW_TOKENS = 1 << 22,
};
/* The sequences after `window`'s (the first ones when its count is 0): as many as the two limits
 * allow, one at least. count is 0 at the end. */
plm_status plm_sequence_spool_next(struct plm_sequence_spool *spool,
                                   struct plm_spool_window *window, struct plm_error *error);
void plm_spool_window_deinit(struct plm_spool_window *window);

#endif
