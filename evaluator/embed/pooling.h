/* From the hidden states of one sequence to one vector: mean, cls, max, std and their
 * concatenations (model.md, "Embeddings and inference").
 *
 * x is (tokens, D), n residues of it count: all but <cls>, <eos> and <pad>.
 *   mean  sum of x over the residues / n
 *   cls   x of <cls>
 *   max   largest of x over the residues
 *   std   sqrt(sum of (x - mean)^2 over the residues / n)
 * Without a residue mean, max and std are 0. */
#ifndef PLM_EVALUATOR_EMBED_POOLING_H
#define PLM_EVALUATOR_EMBED_POOLING_H

#include <stdint.h>

#include "common/base/status.h"

enum plm_pooling_kind { PLM_POOL_MEAN, PLM_POOL_CLS, PLM_POOL_MAX, PLM_POOL_STD, PLM_POOL_COUNT };

struct plm_pooling {
  enum plm_pooling_kind kinds[PLM_POOL_COUNT]; /* in the order of the result */
  uint32_t count;
};

/* "mean,max": each kind once at most. PLM_USAGE names what is wrong. */
plm_status plm_pooling_parse(const char *text, struct plm_pooling *pooling,
                             struct plm_error *error);
/* The text again, into name (PLM_POOLING_NAME_SIZE bytes), which is returned. */
enum { PLM_POOLING_NAME_SIZE = 32 };
const char *plm_pooling_name(const struct plm_pooling *pooling, char name[PLM_POOLING_NAME_SIZE]);

/* x (rows, width) are the rows of one sequence from <cls> on, of which `residues` from the second
 * on count; out has count * width floats. Sums are in double (scratch: 2 * width). */
void plm_pooling_run(const struct plm_pooling *pooling, const float *x, uint32_t residues,
                     uint32_t width, double *scratch, float *out);

#endif
