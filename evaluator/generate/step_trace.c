/* Prints the lines of a trace. */
#include "evaluator/generate/step_trace.h"

#include <inttypes.h>

void plm_step_trace_add(const struct plm_output_file *trace, const struct plm_tokenizer *tokenizer,
                        const struct plm_generation *generation, uint32_t step, uint32_t t,
                        struct plm_sampled sampled, bool remasked)
{
  if (trace == NULL) return;
  FILE *out = plm_output_stream(trace);
  fprintf(out, "{\"sequence\":%" PRIu64 ",\"step\":%u,\"position\":%u,\"token\":%d",
          generation->number, step, t, sampled.token);
  if (tokenizer->kind == PLM_TOKENIZER_ESM && sampled.token != tokenizer->eos)
    fprintf(out, ",\"residue\":\"%c\"", generation->text[t - 1]);
  fprintf(out, ",\"probability\":%.6f%s}\n", sampled.probability,
          remasked ? ",\"remasked\":true" : "");
}

plm_status plm_step_trace_finish(struct plm_output_file *trace, struct plm_error *error)
{
  if (trace == NULL) return PLM_OK;
  if (ferror(plm_output_stream(trace))) return plm_output_failed(trace, error);
  return plm_output_finish(trace, error);
}
