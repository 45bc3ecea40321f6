/* A second implementation of the rules of training, in double precision and straight from the
 * formulas of doc/training.md and doc/model.md: Philox, masks, objectives, schedules, clipping,
 * Muon, Adam and the average. Unit tests compare trainer/ with it, and tests/integration/oracle
 * trains whole runs with it. It shares only the types of the configuration with trainer/, kernels/
 * and common/, no code.
 *
 * tests/support/python/plm_oracle.py has the same rules in PyTorch.
 *
 * A planted fault makes one rule deviate, so that a test can show that its comparison would notice.
 */
#ifndef PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_TRAINING_H
#define PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_TRAINING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/model/model.h"
#include "common/plan/chunk.h"

enum reference_rule_fault {
  REFERENCE_RULE_NO_FAULT,
  REFERENCE_RULE_FAULT_POSITION,    /* masks drawn one position further */
  REFERENCE_RULE_FAULT_CHUNK,       /* masks drawn for the next chunk of the run */
  REFERENCE_RULE_FAULT_RESIDUE,     /* random residues from word 3 instead of word 2 */
  REFERENCE_RULE_FAULT_RATE,        /* masked diffusion's rate drawn for the next step */
  REFERENCE_RULE_FAULT_NESTEROV,    /* plain momentum */
  REFERENCE_RULE_FAULT_CORRECTION,  /* Adam without bias correction */
  REFERENCE_RULE_FAULT_LAST_TARGET, /* causal: no target for <eos> */
};

/* What the rules depend on. They read only seed, data.max_length and trainer of config. */
struct reference_rules {
  const struct plm_config *config; /* borrowed */
  enum reference_rule_fault fault;
};

/* Token ids of the esm tokenizer; residues are 4 to 28. */
enum {
  REFERENCE_CLS = 0,
  REFERENCE_PAD = 1,
  REFERENCE_EOS = 2,
  REFERENCE_UNK = 3,
  REFERENCE_MASK = 32
};

/* ---- Philox4x32-10 ---- */

struct reference_words {
  uint32_t w[4];
};
/* Counter (x, y low, y high, purpose), key seed. Source: Salmon et al. 2011. */
struct reference_words reference_philox(uint64_t seed, uint32_t x, uint64_t y, uint32_t purpose);

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

/* Mask rate of a chunk of step s (from 0): by the schedule, or masked diffusion's stratified draw.
 * 0 for causal. */
double reference_mask_rate(const struct reference_rules *rules, uint64_t s, uint32_t chunk_in_step,
                           uint32_t chunks_of_step);
/* Draws inputs and targets for a batch of one-byte esm tokens in step s. Chunk 0 of the batch is
 * chunk first_in_step of the step and chunk batch->first_chunk of the run. */
void reference_masks_draw(const struct reference_rules *rules, const struct plm_batch *batch,
                          uint64_t s, uint32_t first_in_step, uint32_t chunks_of_step,
                          struct reference_masks *masks);

/* ---- schedules and clipping ---- */

/* The factor of all learning rates in step s. */
double reference_rate_factor(const struct reference_rules *rules, uint64_t s);
/* The sliding window of step s, in tokens. */
uint32_t reference_window(const struct plm_model_config *model, uint64_t s);
/* The factor by which trainer.clip.norm scales a gradient of this norm. */
double reference_clip_factor(const struct reference_rules *rules, double norm);

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
