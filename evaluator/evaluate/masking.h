/* Which tokens an evaluation masks, and which tokens the model has to predict. Both depend only on
 * the document, the seed and the mask rate, so all checkpoints and all ways of packing get the same
 * questions.
 *
 * Masked objectives draw from Philox with key = seed, x = the token's position in its document
 * (<cls> is 0), y = the document's number in its split, purpose = 2. A token is chosen if (w0 >> 8)
 * < ceil(rate * 2^24), and becomes <mask>. <cls>, <eos> and <pad> are never chosen. Causal:
 * position i predicts token i + 1 of its document, and nothing is masked.
 */
#ifndef PLM_EVALUATOR_EVALUATE_MASKING_H
#define PLM_EVALUATOR_EVALUATE_MASKING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/plan/chunk.h"

/* The questions about one batch: what the model reads, and what it has to predict. Buffers are for
 * at most max_tokens tokens. The caller owns it. */
struct plm_question {
  int32_t *inputs;    /* (B, L) tokens, with masks */
  int32_t *positions; /* (rows) into B * L, ascending */
  int32_t *labels;    /* (rows) true tokens */
  uint32_t *residues; /* (rows) length of the document, for loss_by_length */
  uint32_t rows;
};
plm_status plm_question_init(struct plm_question *question, uint32_t max_tokens,
                             struct plm_error *error);
void plm_question_deinit(struct plm_question *question);

/* Copies the tokens of a batch into the inputs, and asks nothing yet. */
void plm_question_copy(struct plm_question *question, const struct plm_batch *batch);
/* Asks for `label` at a position of B * L, after the last one. residues gets `about`: the length of
 * the document, or whatever the caller wants to know of the row. */
void plm_question_ask(struct plm_question *question, size_t position, int32_t label,
                      uint32_t about);

/* ceil(rate * 2^24): a 24-bit draw below it chooses its token. */
uint32_t plm_mask_threshold(double rate);

void plm_question_masked(struct plm_question *question, const struct plm_batch *batch,
                         const struct plm_tokenizer *tokenizer, uint64_t seed, double rate);
void plm_question_causal(struct plm_question *question, const struct plm_batch *batch);

/* Checks the answers, logits (rows, V). PLM_NOT_FINITE names the document of the first one that has
 * NaN or infinity. */
plm_status plm_question_check(const struct plm_question *question, const struct plm_batch *batch,
                              const float *logits, uint32_t V, struct plm_error *error);

#endif
