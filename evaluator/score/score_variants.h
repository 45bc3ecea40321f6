/* `score`, whole: variants from a source, checked, scored, written, compared with measurements. */
#ifndef PLM_EVALUATOR_SCORE_SCORE_VARIANTS_H
#define PLM_EVALUATOR_SCORE_SCORE_VARIANTS_H

#include <stdbool.h>

#include "common/ops/ops.h"
#include "evaluator/score/variant_scorer.h"
#include "evaluator/score/variant_source.h"

struct plm_score_request {
  const char *checkpoint;
  const char *weights;   /* NULL, "model" or "ema" */
  const char *wild_type; /* a file, or letters */
  int64_t first;         /* number of the wild type's first residue */
  struct plm_variant_source_request source;
  enum plm_score_masking masking;
  bool masking_given; /* by the user: a causal model refuses it */
  const char *output; /* CSV; NULL: stdout */
  bool json;          /* an object on stdout; CSV only with output */
  bool plot;          /* of all substitutions: a map on stdout; CSV only with output */
  bool color;         /* of the map */
};

/* Nothing is scored when a variant is wrong: up to twenty of what is wrong are printed, the error
 * returned counts them all. Scores are written with six decimals, and the correlation is that of
 * the numbers as written. Memory: one wild type's table and a block of variants; two numbers a
 * variant where there are measurements. */
plm_status plm_score_variants(const struct plm_score_request *request, struct plm_ops *ops,
                              struct plm_error *error);

#endif
