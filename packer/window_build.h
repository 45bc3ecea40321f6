/* A window as it goes over the wire: the DATA payload of all its chunks in one buffer, from which
 * GETs cut ranges, and which libzmq sends without a copy. */
#ifndef PLM_PACKER_WINDOW_BUILD_H
#define PLM_PACKER_WINDOW_BUILD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/plan/plan.h"
#include "packer/evidence.h"

struct packed_window {
  atomic_uint references;
  uint8_t *bytes;
  size_t capacity;
  uint32_t chunks;
  uint32_t max_length, token_bytes;
  const struct plm_label_schema *schema; /* of the labels; NULL: none */
  size_t table_capacity;
  uint64_t *offset;                           /* (chunks + 1) first byte of each chunk */
  uint64_t *tokens;                           /* (chunks + 1) real tokens before each chunk */
  uint64_t *documents;                        /* (chunks + 1) documents before each chunk */
  void (*free)(struct packed_window *packed); /* called for the last reference */
  void *owner;
  struct packed_window *next;
};

/* A worker's memory, which is used for one window after another. It begins with {0}. */
struct window_memory {
  struct plm_window window;
  struct evidence evidence;
  uint8_t *piece; /* the tokens of a document or piece, before they are packed */
  size_t piece_capacity;
  uint64_t *label_at; /* (label_capacity) of each document's record in the payload */
  size_t label_capacity;
};
void window_memory_deinit(struct window_memory *memory);

/* Packs window `index` of an epoch into `packed`, whose buffers are reused and grow if necessary.
 * PLM_CORRUPT names the record. */
plm_status packed_window_build(struct packed_window *packed, struct window_memory *memory,
                               struct plm_corpus_cursor *cursor, enum plm_split split,
                               const struct plm_plan *plan, uint64_t epoch, uint64_t index,
                               struct plm_error *error);
void packed_window_hold(struct packed_window *packed);
/* Any thread may release. */
void packed_window_release(struct packed_window *packed);
/* Frees buffers and struct. */
void packed_window_free(struct packed_window *packed);

#endif
