/* Adapts the feed to what an evaluation reads. */
#include "evaluator/watch/feed_stream.h"

uint64_t plm_feed_stream_credit(const struct plm_config *config)
{
  const uint32_t token_bytes = plm_tokenizer_of(config->data.tokenizer)->token_bytes;
  const uint64_t chunk_bytes = (uint64_t)config->data.max_length * token_bytes;
  const uint64_t set_bytes = config->evaluator.max_tokens * token_bytes + chunk_bytes;
  const uint64_t most = config->network.credit_bytes;
  return config->evaluator.max_tokens != 0 && 2 * set_bytes < most ? 2 * set_bytes : most;
}

static plm_status feed_stream_begin(void *context, enum plm_split split, uint64_t *total,
                                    struct plm_error *error)
{
  struct plm_feed_stream *state = context;
  (void)error;
  plm_feed_seek(state->feed, 0, split, &(struct plm_plan_place){0});
  if (total != NULL) *total = 0; /* known only once the last window is */
  return PLM_OK;
}

static plm_status feed_stream_next(void *context, uint32_t most, struct plm_batch *batch,
                                   struct plm_error *error)
{
  struct plm_feed_stream *state = context;
  const plm_status status = plm_feed_next_of_epoch(state->feed, most, state->give_up, batch, error);
  if (status != PLM_NOT_FOUND) return status;
  *batch = (struct plm_batch){0}; /* the split is empty */
  return PLM_OK;
}

static void feed_stream_release(void *context, struct plm_batch *batch)
{
  struct plm_feed_stream *state = context;
  plm_feed_release(state->feed, batch);
}

static plm_status feed_stream_labels(void *context, const struct plm_label_schema **schema,
                                     struct plm_error *error)
{
  struct plm_feed_stream *state = context;
  return plm_feed_labels(state->feed, 0, state->give_up, schema, error);
}

struct plm_chunk_stream plm_stream_of_feed(struct plm_feed_stream *stream)
{
  return (struct plm_chunk_stream){stream, feed_stream_begin, feed_stream_next, feed_stream_release,
                                   feed_stream_labels};
}
