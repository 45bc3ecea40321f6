/* Objectives and optimizers a second time, in double precision, written from model.md: what tests
 * hold the trainer against. Shares nothing with trainer/ or kernels/ but the Philox generator,
 * whose known answer is tested by itself. */
#ifndef PLM_TESTS_SUPPORT_REFERENCE_TRAINING_H
#define PLM_TESTS_SUPPORT_REFERENCE_TRAINING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/model/model.h"

/* ---- masks (esm tokens, mlm and masked diffusion) ---- */

struct reference_masks {
  int32_t *inputs;             /* (places) */
  int32_t *positions, *labels; /* (places), rows of them used */
  double *weights;
  uint32_t rows;
  uint64_t count; /* the divisor's share */
};
void reference_masks_open(struct reference_masks *masks, uint32_t places);
void reference_masks_close(struct reference_masks *masks);

/* Rate of a chunk of step s (from 0) by the schedule or the stratified draw. */
double reference_mask_rate(const struct plm_config *config, uint64_t s, uint32_t chunk_in_step,
                           uint32_t chunks_of_step);
/* tokens: (chunks, length) ids, padding <pad>; g of chunk 0 is first_chunk. */
void reference_masks_draw(const struct plm_config *config, const uint8_t *tokens, uint32_t chunks,
                          uint32_t length, uint64_t first_chunk, uint64_t s, uint32_t first_in_step,
                          uint32_t chunks_of_step, struct reference_masks *masks);

/* ---- optimizers ---- */

/* One parameter with its state; all arrays of rows * cols. */
struct reference_weights {
  const char *name; /* decides the group */
  int64_t rows, cols;
  bool is_vector;
  double *w, *first, *second, *average; /* average may be NULL */
};
/* A matrix that is neither an embedding nor of the head. */
bool reference_is_hidden_matrix(const struct reference_weights *weights);
/* One update of step s (from 0) after `updates` earlier ones; gradient as divided and clipped. */
void reference_update(const struct plm_config_trainer *trainer, struct reference_weights *weights,
                      const double *gradient, uint64_t s, uint64_t updates);

#endif
