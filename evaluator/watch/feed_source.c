/* Adapts the feed to what an evaluation reads. */
#include "evaluator/watch/feed_source.h"

static plm_status begin(void *context, enum plm_split split, uint64_t *chunks,
                        struct plm_error *error)
{
  struct plm_feed_source *state = context;
  plm_feed_seek(state->feed, split, 0, 0);
  const plm_status status =
      plm_feed_epoch_chunks(state->feed, split, 0, state->give_up, chunks, error);
  if (status == PLM_NOT_FOUND) *chunks = 0;
  return status == PLM_NOT_FOUND ? PLM_OK : status;
}

static plm_status next(void *context, uint32_t count, struct plm_batch *batch,
                       struct plm_error *error)
{
  struct plm_feed_source *state = context;
  return plm_feed_next(state->feed, count, state->give_up, batch, error);
}

static void release(void *context, struct plm_batch *batch)
{
  struct plm_feed_source *state = context;
  plm_feed_release(state->feed, batch);
}

struct plm_chunk_source plm_source_of_feed(struct plm_feed_source *source)
{
  return (struct plm_chunk_source){source, begin, next, release};
}
