/* Decompressed frames of labels that the cursors of a corpus share. Private to common/corpus. */
#ifndef PLM_COMMON_CORPUS_LABEL_FRAMES_H
#define PLM_COMMON_CORPUS_LABEL_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "common/corpus/corpus.h"

/* The label records of a group, which never change. */
struct label_frame {
  uint64_t key;
  unsigned holders;
  uint8_t *bytes;
  size_t size;
};

struct label_frames;
/* limit: bytes of all frames that are kept. */
struct label_frames *label_frames_open(size_t limit);
void label_frames_close(struct label_frames *frames); /* NULL is fine; nobody holds a frame */

/* The frame of a group, held, perhaps after a wait for the thread that makes it. NULL: the caller
 * makes it, and must then call label_frames_add. */
struct label_frame *label_frames_hold(struct label_frames *frames, enum plm_split split,
                                      uint64_t group);
/* Takes over the bytes of such a frame, and returns it, held. bytes: of malloc; NULL, which returns
 * NULL, says that it cannot be made. */
struct label_frame *label_frames_add(struct label_frames *frames, enum plm_split split,
                                     uint64_t group, uint8_t *bytes, size_t size);
void label_frames_release(struct label_frames *frames, struct label_frame *frame);

#endif
