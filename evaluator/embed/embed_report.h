/* The summary that `embed` prints when it is done. */
#ifndef PLM_EVALUATOR_EMBED_EMBED_REPORT_H
#define PLM_EVALUATOR_EMBED_EMBED_REPORT_H

#include <stdint.h>

#include "evaluator/embed/sequence_run.h"

/* positions: computed by this run, including padding. Prints for people to stdout, or to stderr if
 * the embeddings go to stdout; with
 * --json one
 * object on one line of stdout. Its keys: output, checkpoint, weights, kind, pooling, layers,
 * attention, width, sequences, tokens, bytes, bad_records, cut, unknown_residues,
 * resumed_sequences, padding_fraction, seconds, tokens_per_second. */
plm_status plm_embed_report_print(const struct plm_sequence_run *run, uint64_t positions,
                                  double seconds, struct plm_error *error);

#endif
