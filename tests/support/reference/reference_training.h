/* A second implementation of rules of training, in double precision and straight from the formulas
 * of doc/training.md and doc/model.md: masks, objectives, the schedule, Muon, Adam and the average.
 * Tests compare trainer/ with it. It shares only the types of the configuration with trainer/,
 * kernels/ and common/, no code.
 *
 * tests/support/python/plm_oracle.py has the same rules in PyTorch, and repeats whole runs.
 */
#ifndef PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_TRAINING_H
#define PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_TRAINING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/model/model.h"
#include "common/plan/chunk.h"

/* What the rules depend on. They read only seed, data.max_length and trainer of config. */
struct reference_rules {
  const struct plm_config *config; /* borrowed */
};

/* Token ids of the esm tokenizer; residues are 4 to 28. */
enum {
  REFERENCE_CLS = 0,
  REFERENCE_PAD = 1,
  REFERENCE_EOS = 2,
  REFERENCE_UNK = 3,
  REFERENCE_MASK = 32
};

/* ---- inputs and targets ---- */

struct reference_masks {
  int32_t *inputs;             /* (places) */
  int32_t *positions, *labels; /* (places), the first `rows` are used; positions ascend */
  double *weights;             /* of the rows */
  uint32_t rows;
  uint64_t count; /* what these chunks add to the divisor of loss and gradients */
};
void reference_masks_open(struct reference_masks *masks, uint32_t places);
void reference_masks_close(struct reference_masks *masks);

/* Draws inputs and targets for a batch of one-byte esm tokens in step s. Chunk 0 of the batch is
 * chunk first_in_step of the step and chunk batch->first_chunk of the run. */
void reference_masks_draw(const struct reference_rules *rules, const struct plm_batch *batch,
                          uint64_t s, uint32_t first_in_step, uint32_t chunks_of_step,
                          struct reference_masks *masks);

/* ---- optimizers ---- */

/* One parameter with its state; each array has rows * cols elements. */
struct reference_weights {
  const char *name; /* decides the group */
  int64_t rows, cols;
  bool is_vector;
  double *w, *first, *second, *average; /* average may be NULL */
};
/* True for a matrix that belongs neither to an embedding nor to the head. */
bool reference_is_hidden_matrix(const struct reference_weights *weights);
/* The learning rate trainer.optimizer.lr_… of the parameter's group. */
double reference_configured_rate(const struct reference_rules *rules,
                                 const struct reference_weights *weights);
/* Applies the update of step s (from 0), after `updates` earlier ones. The caller has divided the
 * gradient by the step's count and clipped it. The sides of a hidden matrix are multiples of 4. */
void reference_update(const struct reference_rules *rules, struct reference_weights *weights,
                      const double *gradient, uint64_t s, uint64_t updates);

#endif
