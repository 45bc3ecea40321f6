/* The steps that both ways of generating take: writing a finished sequence, and stopping. */
#include "evaluator/generate/generate_work.h"

#include "common/run/run.h"

plm_status plm_generate_stop(struct plm_error *error)
{
  if (plm_stop_requested == 0) return PLM_OK;
  return plm_error_set(error, PLM_INTERRUPTED, "generating was interrupted");
}

plm_status plm_generate_write(struct plm_generate_work *work, struct plm_generation *generation,
                              struct plm_error *error)
{
  const plm_status status =
      plm_fasta_writer_add(work->writer, generation->name, generation->text,
                           plm_generation_residues(generation, work->inference->tokenizer), error);
  plm_generation_free(generation);
  work->sequences++;
  plm_progress_update(&work->progress, work->sequences, work->total, work->residues,
                      work->sequences, "sequences");
  return status;
}
