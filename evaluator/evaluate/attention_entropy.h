/* How widely attention looks, by layer: the entropy of its weights. For a query with weights p over
 * the keys that it sees,
 *
 *   entropy = - sum of p log p      (nats)
 *
 * 0: it looks at one position. log n: it looks at all n positions alike. The value of a layer is
 * the mean over its heads and over at most PLM_ENTROPY_QUERIES queries, which are spread evenly
 * over the real positions of the first chunks of a batch. An entropy that falls towards 0 in
 * training is a sign of trouble (Zhai et al., "Stabilizing Transformer Training by Preventing
 * Attention Entropy Collapse", ICML 2023).
 *
 * It is computed in double on the host from the queries and keys that the device's attention reads,
 * one query after another, so it does not depend on the number of threads. */
#ifndef PLM_EVALUATOR_EVALUATE_ATTENTION_ENTROPY_H
#define PLM_EVALUATOR_EVALUATE_ATTENTION_ENTROPY_H

#include "common/inference/inference.h"

enum {
  PLM_ENTROPY_QUERIES = 128,
  PLM_ENTROPY_TOKENS = 2048, /* of the batch; but at least one chunk */
};

struct plm_layer_entropy {
  char layer[40]; /* "layers.0", "encoder.3" */
  double entropy; /* NaN if the chunks have no real position */
};

struct plm_attention_entropy; /* with the buffers, for one model */
/* inference is borrowed. */
plm_status plm_attention_entropy_open(struct plm_inference *inference,
                                      struct plm_attention_entropy **entropy,
                                      struct plm_error *error);
void plm_attention_entropy_close(struct plm_attention_entropy *entropy); /* NULL is fine */

/* Runs the first chunks of a batch with these inputs (B, L). Errors are those of
 * plm_inference_run_states. */
plm_status plm_attention_entropy_measure(struct plm_attention_entropy *entropy,
                                         const struct plm_batch *batch, const int32_t *inputs,
                                         struct plm_error *error);
/* What was measured last: the layers with attention, in the order in which they run. It belongs to
 * entropy, which may be NULL. */
const struct plm_layer_entropy *plm_attention_entropies(const struct plm_attention_entropy *entropy,
                                                        uint32_t *count);

#endif
