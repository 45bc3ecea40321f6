/* Norms of gradients, weights and updates by layer, every N-th step (metrics.norms).
 *
 * A layer is what a parameter's name begins with: "layers.3", "encoder.0", "merge.0",
 * "embeddings", "value_embeddings.1", "lm_head". Of each layer these are Euclidean norms over all
 * its parameters:
 *
 *   gradient   of the gradient that grad_norm is of: divided by the step's count, before clipping
 *   weight     after the update
 *   update     of the difference that the update made, weight decay included; 0 if it was skipped
 *
 * Measuring only reads what training computes, so the bits of a run do not depend on it. Squares
 * are added in double in the order of the parameters, so the norms do not depend on the number of
 * ranks either. With ranks, each measures what it updates, and the ranks tell each other. */
#ifndef PLM_TRAINER_STEP_LAYER_NORMS_H
#define PLM_TRAINER_STEP_LAYER_NORMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/model.h"
#include "trainer/ranks/ranks.h"

enum plm_measured_norm {
  PLM_MEASURED_GRADIENT,
  PLM_MEASURED_WEIGHT,
  PLM_MEASURED_UPDATE,
  PLM_MEASURED_NORMS
};

struct plm_layer_norms;

/* model, ranks (NULL: no other process takes part) and owners (by parameter, if there are ranks)
 * are borrowed. Takes a copy of the fp32 values that this process updates from the device's memory.
 */
plm_status plm_layer_norms_open(struct plm_model *model, struct plm_ranks *ranks,
                                const uint32_t *owners, struct plm_layer_norms **norms,
                                struct plm_error *error);
void plm_layer_norms_close(struct plm_layer_norms *norms); /* NULL is fine */

/* Call it when the gradients are complete and the weights are still those of before the update. */
void plm_layer_norms_before(struct plm_layer_norms *norms);
/* Call it when the update was launched. */
void plm_layer_norms_after(struct plm_layer_norms *norms);
/* Waits for both, and exchanges the norms with the other ranks. count: the divisor of the step's
 * gradients. */
plm_status plm_layer_norms_finish(struct plm_layer_norms *norms, double count,
                                  struct plm_error *error);

/* What plm_layer_norms_finish has found. Names belong to norms. */
size_t plm_layer_norms_count(const struct plm_layer_norms *norms);
const char *plm_layer_norms_name(const struct plm_layer_norms *norms, size_t layer);
double plm_layer_norms_value(const struct plm_layer_norms *norms, enum plm_measured_norm kind,
                             size_t layer);

#endif
