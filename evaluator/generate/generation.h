/* The sequences that `generate` works on: read from IN, or made up, each as often as asked for. */
#ifndef PLM_EVALUATOR_GENERATE_GENERATION_H
#define PLM_EVALUATOR_GENERATE_GENERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"

/* One sequence of the output. */
struct plm_generation {
  uint64_t number; /* in the output, from 0 */
  char *name;
  int32_t *tokens; /* <cls> residues, and <eos> where the model is masked */
  uint8_t *text;   /* the residues as they are written: token t is text[t - 1] */
  uint32_t count;  /* tokens */
  uint32_t end;    /* causal: tokens at most */
  uint32_t masks;  /* still to be filled */
};

void plm_generation_free(struct plm_generation *generation); /* NULL is fine */
uint32_t plm_generation_residues(const struct plm_generation *generation,
                                 const struct plm_tokenizer *tokenizer);
/* Token t (causal: t may be count, the next one) becomes `token`, in the text, too. */
void plm_generation_set(struct plm_generation *generation, const struct plm_tokenizer *tokenizer,
                        uint32_t t, int32_t token);

struct plm_generation_options {
  const char *input; /* NULL: none. "-": standard input */
  const struct plm_tokenizer *tokenizer;
  uint32_t max_length;
  bool causal;
  uint64_t count;      /* sequences from each of IN's, or in all without IN */
  uint32_t length;     /* masked model without IN: residues of each */
  uint32_t max_tokens; /* causal: generated at most; 0: up to max_length */
};

struct plm_generation_source;
plm_status plm_generation_source_open(const struct plm_generation_options *options,
                                      struct plm_generation_source **source,
                                      struct plm_error *error);
void plm_generation_source_close(struct plm_generation_source *source); /* NULL is fine */

/* The next sequence, the caller's; NULL at the end. Names: NAME, NAME_1 … where there are several
 * of each or the model is causal, sample_1 … without IN. PLM_FORMAT, PLM_LIMIT: a record that is
 * bad or too long, with its place. */
plm_status plm_generation_next(struct plm_generation_source *source,
                               struct plm_generation **generation, struct plm_error *error);
/* Sequences of IN so far, and how many of them had a mask. */
uint64_t plm_generation_inputs(const struct plm_generation_source *source);
uint64_t plm_generation_masked_inputs(const struct plm_generation_source *source);

#endif
