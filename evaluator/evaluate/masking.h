/* Which tokens an evaluation hides, and what it asks for: a pure function of (document,
 * evaluator.seed, rate), never of the run, the checkpoint, the packing or the batch.
 *
 * Masked objectives (model.md, purpose 2): x = position in the document with <cls> = 0, y = number
 * of the document in its split. A token is chosen if (w0 >> 8) < ceil(rate * 2^24) and becomes
 * <mask>; <cls>, <eos> and <pad> never. Causal: position i predicts token i + 1 of its document.
 */
#ifndef PLM_EVALUATOR_EVALUATE_MASKING_H
#define PLM_EVALUATOR_EVALUATE_MASKING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/plan/chunk.h"

/* Buffers for one batch of at most max_tokens tokens; caller-owned, _init and _deinit. */
struct plm_question {
  int32_t *inputs;    /* (B, L) */
  int32_t *positions; /* (rows) ascending */
  int32_t *labels;    /* (rows) */
  uint32_t *residues; /* (rows) of the whole document: for loss_by_length */
  uint32_t rows;
};
plm_status plm_question_init(struct plm_question *question, uint32_t max_tokens,
                             struct plm_error *error);
void plm_question_deinit(struct plm_question *question);

/* ceil(rate * 2^24): the bound a 24-bit draw stays below. */
uint32_t plm_mask_threshold(double rate);

void plm_question_masked(struct plm_question *question, const struct plm_batch *batch,
                         const struct plm_tokenizer *tokenizer, uint64_t seed, double rate);
void plm_question_causal(struct plm_question *question, const struct plm_batch *batch);

#endif
