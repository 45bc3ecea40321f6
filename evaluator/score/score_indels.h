/* Scores a table of whole sequences, as score_variants.h does for substitutions. */
#ifndef PLM_EVALUATOR_SCORE_SCORE_INDELS_H
#define PLM_EVALUATOR_SCORE_SCORE_INDELS_H

#include "common/inference/inference.h"
#include "evaluator/score/variant_reader.h"
#include "evaluator/score/variant_scorer.h"

/* reader names a CSV file and its columns; the variants are whole sequences. The output keeps all
 * columns and adds the score with six decimals; it appears complete or not at all. If a sequence is
 * wrong, nothing is scored. Progress goes to stderr. PLM_INTERRUPTED, PLM_TERMINATED: a stop
 * signal. */
plm_status plm_score_indels(const struct plm_variant_reader_request *reader, const char *output,
                            enum plm_score_masking masking, struct plm_inference *inference,
                            const struct plm_wild_type *wild_type, struct plm_error *error);

#endif
