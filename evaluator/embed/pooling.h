/* Pools the hidden states x (tokens, D) of one sequence into one vector. Its n residues are all
 * tokens but <cls>, <eos> and <pad>:
 *
 *   mean   sum of x over the residues / n
 *   cls    x of <cls>
 *   max    largest x over the residues
 *   std    sqrt(sum of (x - mean)^2 over the residues / n)
 *
 * Several are concatenated. mean, max and std of a sequence without residues are 0. */
#ifndef PLM_EVALUATOR_EMBED_POOLING_H
#define PLM_EVALUATOR_EMBED_POOLING_H

#include <stdint.h>

#include "common/base/status.h"

enum plm_pooling_kind { PLM_POOL_MEAN, PLM_POOL_CLS, PLM_POOL_MAX, PLM_POOL_STD, PLM_POOL_COUNT };

struct plm_pooling {
  enum plm_pooling_kind kinds[PLM_POOL_COUNT]; /* in the order of concatenation */
  uint32_t count;
};

/* Parses, for example, "mean,max". PLM_USAGE: an unknown kind, or one that is named twice. */
plm_status plm_pooling_parse(const char *text, struct plm_pooling *pooling,
                             struct plm_error *error);
/* Writes the text that was parsed into name, and returns name. */
enum { PLM_POOLING_NAME_SIZE = 32 };
const char *plm_pooling_name(const struct plm_pooling *pooling, char name[PLM_POOLING_NAME_SIZE]);

/* x (1 + residues, width or more rows) begins with <cls>, and the residues follow. out has count *
 * width floats. Sums are computed in double, in scratch (2 * width). */
void plm_pooling_run(const struct plm_pooling *pooling, const float *x, uint32_t residues,
                     uint32_t width, double *scratch, float *out);

#endif
