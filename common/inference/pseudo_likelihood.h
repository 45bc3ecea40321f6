/* The pseudo-log-likelihood of a sequence under a masked model (Salazar et al., "Masked Language
 * Model Scoring", ACL 2020): each residue is masked by itself and predicted from all others,
 *
 *   sum over i of log p(x_i | x, i masked)
 *
 * where p is the softmax of the capped logits over the whole vocabulary. It takes one pass of the
 * sequence for each residue. Sums are doubles of fp32 logits, from the first residue to the last.
 */
#ifndef PLM_COMMON_INFERENCE_PSEUDO_LIKELIHOOD_H
#define PLM_COMMON_INFERENCE_PSEUDO_LIKELIHOOD_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/inference/inference.h"

/* log softmax(logits)[token]; logits (V). */
double plm_log_probability(const float *logits, uint32_t V, int32_t token);

struct plm_pseudo_likelihood;
/* inference is borrowed. Memory: the buffers of one batch. PLM_NO_MEMORY. */
plm_status plm_pseudo_likelihood_open(struct plm_inference *inference,
                                      struct plm_pseudo_likelihood **likelihood,
                                      struct plm_error *error);
void plm_pseudo_likelihood_close(struct plm_pseudo_likelihood *likelihood); /* NULL is fine */

/* Polled before each batch; any status but PLM_OK ends the work with it. */
typedef plm_status plm_pseudo_likelihood_stop(void *context, struct plm_error *error);

/* tokens (count) are at most max_length tokens; <cls>, <eos> and <pad> among them are seen but not
 * predicted. *terms is the number of predicted tokens. stop may be NULL. PLM_NOT_FINITE: the model
 * computes NaN or infinity; the caller adds where. */
plm_status plm_pseudo_likelihood_run(struct plm_pseudo_likelihood *likelihood,
                                     const int32_t *tokens, uint32_t count,
                                     plm_pseudo_likelihood_stop *stop, void *context, double *sum,
                                     uint32_t *terms, struct plm_error *error);

#endif
