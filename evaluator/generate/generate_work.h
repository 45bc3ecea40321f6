/* What the two ways of generating share: the open checkpoint, the input, the output and the
 * progress of one `generate`; and the two ways themselves. */
#ifndef PLM_EVALUATOR_GENERATE_GENERATE_WORK_H
#define PLM_EVALUATOR_GENERATE_GENERATE_WORK_H

#include <stdint.h>

#include "common/base/log/progress.h"
#include "common/base/status.h"
#include "common/inference/inference.h"
#include "evaluator/generate/fasta_writer.h"
#include "evaluator/generate/generation.h"
#include "evaluator/generate/sampling.h"
#include "evaluator/generate/step_trace.h"

struct plm_generate_work {
  struct plm_inference *inference;
  struct plm_generation_queue *queue;
  struct plm_fasta_writer *writer;
  struct plm_output_file *trace; /* NULL without --trace */
  struct plm_sampler sampler;
  struct plm_progress progress;
  uint64_t total;     /* sequences to write; 0 if it is not known beforehand */
  uint64_t sequences; /* written so far */
  uint64_t residues;  /* generated so far */
};

/* Fills the masks of masked sequences in `steps` passes, as many sequences at a time as fit into a
 * batch. `remask` is the share that is masked again after a pass (sampling.h). Errors: those of the
 * input, the output and the device, and a stop signal's. */
plm_status plm_generate_masked(struct plm_generate_work *work, uint32_t steps, double remask,
                               struct plm_error *error);
/* Samples one token after another with a cache of keys and values. A sequence that ends leaves its
 * place in the cache to the next one. Errors as above. */
plm_status plm_generate_causal(struct plm_generate_work *work, struct plm_error *error);

/* Writes a finished sequence, frees it (even if writing fails) and updates the progress line. */
plm_status plm_generate_write(struct plm_generate_work *work, struct plm_generation *generation,
                              struct plm_error *error);

#endif
