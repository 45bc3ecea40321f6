/* `generate --trace`: one JSON object on a line for each token that is chosen, and for each that
 * --remask masks again.
 *
 *   {"sequence":0,"step":3,"position":17,"token":12,"residue":"L","probability":0.431205}
 *   {"sequence":0,"step":3,"position":9,"token":4,"residue":"A","probability":0.1,"remasked":true}
 *
 * sequence is the number in the output, from 0; position counts tokens, with <cls> at 0. A masked
 * model's step is the pass that filled the mask; a causal model's counts the tokens generated
 * before. probability is that of sampling.h. "residue" is there only for amino acids. The lines of
 * one sequence are in the order of its steps, but those of several sequences alternate. */
#ifndef PLM_EVALUATOR_GENERATE_STEP_TRACE_H
#define PLM_EVALUATOR_GENERATE_STEP_TRACE_H

#include <stdint.h>

#include "common/cli/output_file.h"
#include "evaluator/generate/generation.h"
#include "evaluator/generate/sampling.h"

/* Writes one line about token t, which has been set, or is about to be masked again. With trace
 * NULL, nothing is written. Failures are found by _finish. */
void plm_step_trace_add(const struct plm_output_file *trace, const struct plm_tokenizer *tokenizer,
                        const struct plm_generation *generation, uint32_t step, uint32_t t,
                        struct plm_sampled sampled, bool remasked);
/* Completes the file. trace may be NULL. */
plm_status plm_step_trace_finish(struct plm_output_file *trace, struct plm_error *error);

#endif
