/* Parameters that a training leaves unchanged. They have no gradients and no moments, and nothing
 * of them is exchanged between ranks. */
#ifndef PLM_COMMON_MODEL_FREEZE_H
#define PLM_COMMON_MODEL_FREEZE_H

#include <stdbool.h>
#include <stdint.h>

struct plm_freeze {
  bool embeddings; /* the embedding with its norm, and the tables of value embeddings */
  uint32_t blocks; /* the first so many blocks, in the order in which they run */
  bool trunk;      /* everything but the head, lm_head.* */
  bool base;       /* everything but adapters and a head that predicts labels: with adapters */
};

#endif
