/* A small model opened for inference, with the weights of case_weights, and what it answers for a
 * sequence that is alone. Errors end the process. */
#ifndef PLM_TESTS_SUPPORT_CASES_INFERENCE_CASE_H
#define PLM_TESTS_SUPPORT_CASES_INFERENCE_CASE_H

#include "common/inference/inference.h"
#include "tests/support/cases/model_case.h"

struct inference_case {
  struct model_case c;
  struct plm_inference inference;
};

/* Batches of at most max_chunks chunks of max_length tokens. A causal model's attention is causal.
 */
void inference_case_open(struct inference_case *c, enum plm_architecture architecture,
                         enum plm_objective objective, enum plm_tokenizer_kind tokenizer,
                         uint32_t max_length, uint32_t max_chunks);
/* Gives a transformer other weights, all of them finite: what it computes for a sequence overflows
 * if and only if the sequence has `residue`. */
void inference_case_overflow(struct inference_case *c, char residue);
/* Writes it as a Hugging Face folder, which is made. */
void inference_case_save(const struct inference_case *c, const char *folder);
void inference_case_close(struct inference_case *c);
/* The capped logits (count, V) of a sequence by itself, at most 256 tokens; valid until the next
 * call. */
const float *inference_case_logits(struct inference_case *c, const int32_t *tokens, uint32_t count);
/* log softmax(logits)[token], in a simple way. */
double inference_case_log_p(const struct inference_case *c, const float *logits, int32_t token);

#endif
