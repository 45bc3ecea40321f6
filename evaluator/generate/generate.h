/* `generate`: a masked model fills <mask>, a causal model continues prompts or starts from nothing.
 * How tokens are chosen: sampling.h. The same seed, input and options give the same output. */
#ifndef PLM_EVALUATOR_GENERATE_GENERATE_H
#define PLM_EVALUATOR_GENERATE_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"

struct plm_generate_request {
  const char *weights;                     /* NULL, "model" or "ema" */
  const char *checkpoint, *input, *output; /* input NULL: none; "-": standard streams */
  double temperature, top_p;
  uint64_t seed, count;
  uint32_t steps;      /* masked: passes; 0: not given */
  uint32_t length;     /* masked, without input: residues; 0: not given */
  uint32_t max_tokens; /* causal: generated at most; 0: not given */
  bool json;
};

/* Writes request.output and says what it did: with json one object on stdout. PLM_USAGE for options
 * that the checkpoint's model has no use for. */
plm_status plm_generate(const struct plm_generate_request *request, struct plm_ops *ops,
                        struct plm_error *error);

#endif
