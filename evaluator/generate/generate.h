/* `generate`: a masked model fills <mask>, and a causal model continues prompts or starts from
 * nothing. sampling.h says how tokens are chosen. The same seed, input and options give the same
 * output. */
#ifndef PLM_EVALUATOR_GENERATE_GENERATE_H
#define PLM_EVALUATOR_GENERATE_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "common/sequences/sequence_reader.h"

struct plm_generate_request {
  const char *weights;                     /* NULL, "model" or "ema" */
  const char *checkpoint, *input, *output; /* input NULL: none; "-" is a standard stream */
  const char *trace;                       /* step_trace.h; NULL: none */
  double temperature, top_p;
  uint32_t top_k; /* 0 if not given */
  uint64_t seed, count;
  uint32_t steps;      /* masked: passes; 0 if not given */
  double remask;       /* masked: the share that is masked again after a pass; 0: nothing */
  uint32_t length;     /* masked, without input: residues; 0 if not given */
  uint32_t max_length; /* tokens of a sequence; 0: the model's max_length (doc/inference.md) */
  uint32_t max_tokens; /* causal: the most tokens to generate; 0 if not given */
  struct plm_sequence_choices choices; /* about the input */
  bool json;                           /* report as one JSON object on stdout */
};

/* Writes request->output and reports what was generated. PLM_USAGE: an option that does not apply
 * to the checkpoint's model, or an output that is the input. PLM_FORMAT: an input without sequences
 * or without masks. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal; there is no output then. */
plm_status plm_generate(const struct plm_generate_request *request, struct plm_ops *ops,
                        struct plm_error *error);

#endif
