/* The sequences that `generate` works on: those of IN, or one that is made if there is no IN. Each
 * is returned --count times. */
#ifndef PLM_EVALUATOR_GENERATE_GENERATION_H
#define PLM_EVALUATOR_GENERATE_GENERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/sequences/sequence_reader.h"

/* One sequence of the output, complete or not yet. */
struct plm_generation {
  uint64_t number; /* its place in the output, from 0 */
  char *name;
  int32_t *tokens; /* <cls>, residues, and for a masked model <eos>, unless it was cut */
  uint8_t *text;   /* the residues as text: token t is text[t - 1] */
  uint32_t count;  /* tokens */
  uint32_t end;    /* causal: the most tokens that it may have */
  uint32_t masks;  /* number still to be filled */
};

void plm_generation_free(struct plm_generation *generation); /* NULL is fine */
/* Tokens other than <cls> and a final <eos>. */
uint32_t plm_generation_residues(const struct plm_generation *generation,
                                 const struct plm_tokenizer *tokenizer);
/* Sets token t, and the text accordingly. For a causal model t may be count: then the token is
 * appended. */
void plm_generation_set(struct plm_generation *generation, const struct plm_tokenizer *tokenizer,
                        uint32_t t, int32_t token);

/* Makes token t, a residue, a mask again. */
void plm_generation_mask(struct plm_generation *generation, const struct plm_tokenizer *tokenizer,
                         uint32_t t);

struct plm_generation_options {
  const char *input; /* IN: NULL if there is none; "-" is standard input */
  struct plm_sequence_choices choices;
  const struct plm_tokenizer *tokenizer;
  uint32_t max_length;
  bool cut; /* masked model: longer sequences are cut to max_length tokens, not refused */
  bool causal;
  uint64_t count;      /* copies of each sequence of IN, or of the one that is made */
  uint32_t length;     /* masked model without IN: residues to generate */
  uint32_t max_tokens; /* causal: the most tokens to generate; 0: up to max_length */
};

struct plm_generation_queue;
/* max_length is above 2, count above 0, and length at most max_length - 2. PLM_NOT_FOUND and
 * others: IN cannot be opened. */
plm_status plm_generation_queue_open(const struct plm_generation_options *options,
                                     struct plm_generation_queue **queue, struct plm_error *error);
void plm_generation_queue_close(struct plm_generation_queue *queue); /* NULL is fine */

/* The next sequence, which the caller frees; NULL at the end. Its name is NAME, or NAME_1, …
 * if count is above 1 or the model is causal, or sample_1, sample_2 … without IN. PLM_FORMAT,
 * PLM_LIMIT: a record is malformed or too long; the error says where it is. After a stop signal:
 * what plm_stop_check says. */
plm_status plm_generation_next(struct plm_generation_queue *queue,
                               struct plm_generation **generation, struct plm_error *error);
/* How many sequences were read or made so far, and how many of them had a mask. */
uint64_t plm_generation_inputs(const struct plm_generation_queue *queue);
uint64_t plm_generation_masked_inputs(const struct plm_generation_queue *queue);
/* How many were cut: these have no <eos>. */
uint64_t plm_generation_cut_inputs(const struct plm_generation_queue *queue);

#endif
