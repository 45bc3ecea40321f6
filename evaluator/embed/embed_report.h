/* The summary that `embed` prints when it is done. */
#ifndef PLM_EVALUATOR_EMBED_EMBED_REPORT_H
#define PLM_EVALUATOR_EMBED_EMBED_REPORT_H

#include <stdint.h>

#include "common/inference/inference.h"
#include "evaluator/embed/embed.h"
#include "evaluator/embed/sequence_intake.h"

struct plm_embed_report {
  struct plm_intake_counts intake;
  uint64_t resumed;   /* sequences that an earlier run has done */
  uint64_t tokens;    /* computed by this run */
  uint64_t positions; /* the same, including padding */
  double seconds;
};

/* Prints for people to stdout, or to stderr if the embeddings go to stdout; with request->json one
 * object on one line of stdout. Its keys: output, checkpoint, weights, kind, pooling, layers,
 * attention, width, sequences, tokens, bytes, bad_records, cut, unknown_residues,
 * resumed_sequences, padding_fraction, seconds, tokens_per_second. */
plm_status plm_embed_report_print(const struct plm_embed_report *report,
                                  const struct plm_embed_request *request,
                                  const struct plm_embed_layout *layout,
                                  const struct plm_inference *inference, uint64_t sequences,
                                  uint64_t tokens, struct plm_error *error);

#endif
