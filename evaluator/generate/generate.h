/* `generate`: a masked model fills <mask>, a causal model continues prompts or starts from nothing.
 * How tokens are chosen: sampling.h. The same seed, input and options give the same output. */
#ifndef PLM_EVALUATOR_GENERATE_GENERATE_H
#define PLM_EVALUATOR_GENERATE_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/inference/inference.h"
#include "common/ops/ops.h"
#include "evaluator/generate/fasta_writer.h"
#include "evaluator/generate/generation.h"
#include "evaluator/generate/sampling.h"

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

/* What both ways of generating work with. */
struct plm_generate_work {
  struct plm_inference *inference;
  struct plm_generation_source *source;
  struct plm_fasta_writer *writer;
  struct plm_sampler sampler;
  struct plm_progress progress;
  uint32_t longest;   /* tokens of a sequence at most */
  uint64_t total;     /* sequences, 0: unknown */
  uint64_t sequences; /* written */
  uint64_t residues;  /* generated */
};

/* Passes over masked sequences, as many at a time as a batch holds. */
plm_status plm_generate_masked(struct plm_generate_work *work, uint32_t steps,
                               struct plm_error *error);
/* Token after token, with a cache of keys and values; a sequence that ends makes room. */
plm_status plm_generate_causal(struct plm_generate_work *work, struct plm_error *error);

/* Writes and frees a finished sequence. */
plm_status plm_generate_write(struct plm_generate_work *work, struct plm_generation *generation,
                              struct plm_error *error);
/* PLM_INTERRUPTED after a stop signal. */
plm_status plm_generate_stop(struct plm_error *error);

#endif
