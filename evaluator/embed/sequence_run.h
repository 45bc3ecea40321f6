/* The way of `embed` and `predict` through all sequences of their input.
 *
 * The sequences are read once into a spool. Windows of them are sorted by length and packed into
 * batches, and the rows of a batch go to their places in the file. Memory does not depend on the
 * number of sequences. Which batch computes what depends only on the sequences, the model and the
 * options, so a run that was killed continues with the next batch and ends with the same bytes.
 *
 *   struct plm_sequence_run run = {.request = request, .inference = opened};
 *   plm_sequence_run_read(&run, &options, error);
 *   set run.layout, run.journal.checkpoint, .config and .options
 *   plm_sequence_run_begin(&run, error);
 *   status = plm_sequence_run_all(&run, "embed", run_batch, context, error);
 *   make the result of run.output
 *   status = plm_sequence_run_end(&run, status, error);
 *   plm_sequence_run_close(&run);                     also after an error
 */
#ifndef PLM_EVALUATOR_EMBED_SEQUENCE_RUN_H
#define PLM_EVALUATOR_EMBED_SEQUENCE_RUN_H

#include <stdint.h>

#include "common/base/log/progress.h"
#include "common/inference/inference.h"
#include "common/inference/sequence_batch.h"
#include "evaluator/embed/embed_output.h"
#include "evaluator/embed/sequence_intake.h"
#include "evaluator/embed/sequence_request.h"

struct plm_sequence_run {
  const struct plm_sequence_request *request; /* borrowed, as inference */
  struct plm_inference *inference;
  struct plm_sequence_spool *spool;
  struct plm_intake_counts intake;
  struct plm_embed_layout layout;
  struct plm_embed_journal journal;
  struct plm_embed_output *output;
  struct plm_spool_window window;
  struct plm_sequence_batch *batch;
  struct plm_sequence_queue queue; /* sequences of the window that no batch has taken yet */
  uint32_t *taken;      /* (window) the sequences of the batch, in the order they were added */
  uint64_t *row_of;     /* (window) the first row of each in the file */
  uint64_t rows_before; /* of the sequences before the window */
  int32_t *tokens;      /* (max_length) of one sequence */
  uint64_t windows;     /* number of windows before this one */
  uint64_t tokens_at;   /* tokens of the finished sequences */
  uint64_t computed;    /* those of this run */
  uint64_t resumed;     /* sequences that an earlier run has done */
  struct plm_progress progress;
};

/* Reads all sequences into the spool, and makes room in the model for the longest. options has what
 * the request does not say; the rest is filled in. */
plm_status plm_sequence_run_read(struct plm_sequence_run *run, struct plm_intake_options *options,
                                 struct plm_error *error);
/* Begins the file or continues it, which is said, and prepares for batches. */
plm_status plm_sequence_run_begin(struct plm_sequence_run *run, struct plm_error *error);
/* Computes all batches that are left: `compute` runs run->batch, which is filled, and puts the rows
 * of its sequences. PLM_INTERRUPTED, PLM_TERMINATED: a signal stopped it. */
plm_status plm_sequence_run_all(struct plm_sequence_run *run, const char *label,
                                plm_status (*compute)(void *context, struct plm_error *error),
                                void *context, struct plm_error *error);
/* Ends the line of progress, and adds to a lack of space what is kept. Returns the status. */
plm_status plm_sequence_run_end(struct plm_sequence_run *run, plm_status status,
                                struct plm_error *error);
void plm_sequence_run_close(struct plm_sequence_run *run);

/* The tokens of sequence i of the window, valid until the next call. */
const int32_t *plm_sequence_run_tokens(struct plm_sequence_run *run, uint32_t i);
/* Its residues: its tokens but <cls> and, unless it was cut, <eos>. */
uint32_t plm_sequence_run_residues(const struct plm_sequence_run *run, uint32_t i);

#endif
