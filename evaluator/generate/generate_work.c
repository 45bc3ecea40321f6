/* The step that both ways of generating take: writing a finished sequence. */
#include "evaluator/generate/generate_work.h"

plm_status plm_generate_write(struct plm_generate_work *work, struct plm_generation *generation,
                              struct plm_error *error)
{
  const plm_status status =
      plm_fasta_writer_add(work->writer, generation->name, generation->text,
                           plm_generation_residues(generation, work->inference->tokenizer), error);
  plm_generation_free(generation);
  work->sequences++;
  plm_progress_update(&work->progress, work->sequences, work->total, work->residues,
                      work->sequences, "sequence");
  return status;
}
