/* Windows of a sequence, packed into a batch, and the logits at chosen places of each. */
#ifndef PLM_EVALUATOR_SCORE_SCORE_BATCH_H
#define PLM_EVALUATOR_SCORE_SCORE_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/inference/inference.h"

/* A window, and what its logits are for. */
struct plm_score_job {
  enum {
    PLM_JOB_PLACE,  /* for the table: one masked place, or places that are not masked */
    PLM_JOB_SET,    /* masked: all places of variants that share them */
    PLM_JOB_MUTANT, /* causal: one variant */
    PLM_JOB_WILD    /* causal: the wild type, for the variants of one window */
  } kind;
  size_t first,
      count; /* PLM_JOB_PLACE: the first place, how many; else variants, as indices into `order` */
  uint32_t begin;     /* of the window, in tokens of the wild type */
  uint32_t row_count; /* logits wanted */
  /* The batch sets the rest. */
  const uint32_t *places; /* (row_count) where they are wanted, in tokens of the window */
  uint32_t row;           /* of its first token in the batch */
  const float *logits;    /* (row_count, V), after the run */
};

struct plm_score_batch;
/* For windows of `length` tokens. inference is borrowed. PLM_NO_MEMORY. */
plm_status plm_score_batch_open(struct plm_inference *inference, uint32_t length,
                                struct plm_score_batch **batch, struct plm_error *error);
void plm_score_batch_close(struct plm_score_batch *batch); /* NULL is fine */
void plm_score_batch_reset(struct plm_score_batch *batch);

/* Where the caller writes the places of the next job, up to `length`, in ascending order. */
uint32_t *plm_score_batch_places(struct plm_score_batch *batch);
/* Adds a window with the places that were written. False: the batch is full. */
bool plm_score_batch_add(struct plm_score_batch *batch, const int32_t *window,
                         const struct plm_score_job *job);
/* Runs the model on the batch. The jobs then have rows, which ascend, and logits. */
plm_status plm_score_batch_run(struct plm_score_batch *batch, struct plm_error *error);
/* (count) until the next reset */
const struct plm_score_job *plm_score_batch_jobs(const struct plm_score_batch *batch,
                                                 uint32_t *count);
/* After the run: the log-probability of the token after the k-th place of a job whose places follow
 * one another. */
double plm_score_batch_next_token(const struct plm_score_batch *batch,
                                  const struct plm_score_job *job, uint32_t k);

#endif
