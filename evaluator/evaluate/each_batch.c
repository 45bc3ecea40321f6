/* The loop over the batches of a split. */
#include "evaluator/evaluate/each_batch.h"

#include "common/base/progress.h"

static plm_status one_batch(const struct plm_batch_walk *walk, uint32_t count,
                            plm_batch_visit *visit, void *context, struct plm_error *error)
{
  struct plm_batch batch;
  if (walk->stop != NULL) PLM_TRY(walk->stop(walk->stop_context, error));
  PLM_TRY(walk->source->next(walk->source->context, count, &batch, error));
  const plm_status status = visit(context, &batch, error);
  walk->source->release(walk->source->context, &batch);
  return status;
}

plm_status plm_each_batch(const struct plm_batch_walk *walk, plm_batch_visit *visit, void *context,
                          struct plm_error *error)
{
  uint64_t chunks;
  struct plm_progress progress;
  PLM_TRY(walk->source->begin(walk->source->context, walk->split, &chunks, error));
  if (chunks == 0) {
    plm_error_set(error, PLM_CONFIG, "the corpus has no documents in split %s",
                  plm_split_name(walk->split));
    return plm_error_hint(error, "ingest more sequences, ingest with another --split, or evaluate "
                                 "another split (evaluator.splits)");
  }
  if (walk->progress != NULL) plm_progress_begin(&progress, walk->progress);
  plm_status status = PLM_OK;
  for (uint64_t done = 0; done < chunks && status == PLM_OK;) {
    const uint64_t left = chunks - done;
    const uint32_t count = left < walk->most ? (uint32_t)left : walk->most;
    status = one_batch(walk, count, visit, context, error);
    done += count;
    if (walk->progress == NULL) continue;
    progress.rate_unit = "chunks";
    plm_progress_update(&progress, done, chunks, done, done, "chunk");
  }
  if (walk->progress != NULL) plm_progress_clear(&progress);
  return status;
}
