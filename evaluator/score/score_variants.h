/* `score`: reads variants, checks, scores and writes them, and compares the scores
 * with measurements. */
#ifndef PLM_EVALUATOR_SCORE_SCORE_VARIANTS_H
#define PLM_EVALUATOR_SCORE_SCORE_VARIANTS_H

#include <stdbool.h>

#include "common/ops/ops.h"
#include "common/sequences/sequence_reader.h"
#include "evaluator/score/variant_reader.h"
#include "evaluator/score/variant_scorer.h"

struct plm_score_request {
  const char *checkpoint;
  const char *weights;                 /* NULL, "model" or "ema" */
  const char *wild_type;               /* a file, or the letters themselves */
  struct plm_sequence_choices choices; /* about that file */
  int64_t first;                       /* number of the wild type's first residue */
  bool fixed_first; /* it is no choice of the user: no message suggests another number */
  struct plm_variant_reader_request reader;
  enum plm_score_masking masking;
  uint32_t
      max_length; /* tokens that the model sees of a longer protein; 0: the model's max_length */
  bool masking_given; /* the user chose it; then a causal model is refused */
  const char *output; /* file for the CSV; NULL: stdout, unless json or plot */
  bool json;          /* write an object to stdout */
  bool plot;          /* draw a map of all substitutions on stdout */
  bool color;         /* draw the map in colour */
};

/* Opens the model and reads the wild type for `score`, which `check` may refuse before. Of the
 * request, it reads checkpoint, weights, wild_type, choices, first and max_length. */
plm_status plm_score_opened(
    const struct plm_score_request *request, struct plm_ops *ops,
    plm_status (*check)(const struct plm_score_request *request,
                        const struct plm_inference *inference, struct plm_error *error),
    plm_status (*score)(const struct plm_score_request *request, struct plm_inference *inference,
                        const struct plm_wild_type *wild_type, struct plm_error *error),
    struct plm_error *error);

/* If a variant is wrong, nothing is scored: up to twenty errors are printed, and the error that is
 * returned counts them all. Scores are written with six decimals, and the correlation is computed
 * from the numbers as written. Memory: the table of one wild type, a block of variants, and two
 * numbers for each measured variant. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. */
plm_status plm_score_variants(const struct plm_score_request *request, struct plm_ops *ops,
                              struct plm_error *error);

/* The same with a model and a wild type that are open: of the request, checkpoint, weights,
 * wild_type, first, max_length and masking_given are not read. */
plm_status plm_score_table(const struct plm_score_request *request, struct plm_inference *inference,
                           const struct plm_wild_type *wild_type, struct plm_error *error);

#endif
