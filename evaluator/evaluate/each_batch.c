/* The loop over the batches of a split. */
#include "evaluator/evaluate/each_batch.h"

#include "common/base/log/progress.h"

static void add_lengths(struct plm_document_lengths *lengths, const struct plm_batch *batch)
{
  for (uint32_t d = batch->document_begin[0]; d < batch->document_begin[batch->chunks]; d++) {
    const struct plm_chunk_document *document = &batch->documents[d];
    lengths->cut += (uint64_t)document->residues + 2 > document->tokens;
    if (document->tokens > lengths->longest) lengths->longest = document->tokens;
  }
}

/* *count: the chunks of the batch; 0 at the end of the split. */
static plm_status one_batch(const struct plm_batch_walk *walk, plm_batch_visit *visit,
                            void *context, uint32_t *count, struct plm_error *error)
{
  struct plm_batch batch;
  PLM_TRY(walk->stream->next(walk->stream->context, walk->most, &batch, error));
  *count = batch.chunks;
  if (batch.chunks == 0) return PLM_OK;
  plm_status status = walk->stop != NULL ? walk->stop(walk->stop_context, error) : PLM_OK;
  if (status == PLM_OK && walk->lengths != NULL) add_lengths(walk->lengths, &batch);
  if (status == PLM_OK) status = visit(context, &batch, error);
  walk->stream->release(walk->stream->context, &batch);
  return status;
}

static plm_status refuse_empty(enum plm_split split, struct plm_error *error)
{
  plm_error_set(error, PLM_CONFIG, "the corpus has no documents in split %s",
                plm_split_name(split));
  return plm_error_hint(error, "ingest more sequences, ingest with another --split, or evaluate "
                               "another split (evaluator.splits)");
}

plm_status plm_each_batch(const struct plm_batch_walk *walk, plm_batch_visit *visit, void *context,
                          struct plm_error *error)
{
  uint64_t total = 0, done = 0;
  uint32_t count;
  struct plm_progress progress;
  PLM_TRY(walk->stream->begin(walk->stream->context, walk->split,
                              walk->progress != NULL ? &total : NULL, error));
  if (walk->progress != NULL) plm_progress_begin(&progress, walk->progress);
  plm_status status = PLM_OK;
  for (;;) {
    status = one_batch(walk, visit, context, &count, error);
    if (status != PLM_OK || count == 0) break;
    done += count;
    if (walk->progress == NULL) continue;
    progress.rate_unit = "chunks";
    plm_progress_update(&progress, done, total, done, done, "chunk");
  }
  if (walk->progress != NULL) plm_progress_clear(&progress);
  return status == PLM_OK && done == 0 ? refuse_empty(walk->split, error) : status;
}
