/* `score --per-position`: the log-probabilities of the 20 amino acids at each position of a
 * protein, that position masked and all others kept. */
#ifndef PLM_EVALUATOR_SCORE_POSITION_SCORES_H
#define PLM_EVALUATOR_SCORE_POSITION_SCORES_H

#include <stdint.h>

#include "common/ops/ops.h"
#include "common/sequences/sequence_reader.h"

struct plm_position_request {
  const char *checkpoint;
  const char *weights;                 /* NULL, "model" or "ema" */
  const char *wild_type;               /* a file, or the letters themselves */
  struct plm_sequence_choices choices; /* about that file */
  int64_t first;                       /* number of the wild type's first residue */
  const char *output; /* NULL or "-": CSV on stdout; position_output.h says what names mean */
};

/* PLM_USAGE: a causal model, which masks nothing, or one whose letters are bytes. Memory: the
 * logits of each residue, and 20 doubles for each. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal.
 */
plm_status plm_score_positions(const struct plm_position_request *request, struct plm_ops *ops,
                               struct plm_error *error);

#endif
