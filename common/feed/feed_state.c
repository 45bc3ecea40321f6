/* Recording the feed's failure, and making message headers, for the other files of the feed. */
#include "common/feed/feed_state.h"

void feed_fail(struct feed_state *feed, const struct plm_error *error)
{
  if (feed->failed.status == PLM_OK) feed->failed = *error;
  feed->network.changed(feed->network.context);
}

bool feed_span_is(const struct feed_state *feed, const struct feed_span *span,
                  const struct plm_header *header)
{
  return header->split == (uint32_t)feed->split && header->epoch == span->epoch &&
         header->first == span->first && header->count == span->count;
}

struct plm_header feed_header(const struct feed_state *feed, enum plm_message_type type,
                              const struct feed_peer *peer)
{
  return (struct plm_header){
      .type = type,
      .run_id = feed->run_id,
      .consumer = feed->incarnation,
      .packer = peer != NULL ? peer->incarnation : 0,
      .plan = feed->plan_hash,
      .max_length = feed->plan.max_length,
      .dtype = feed->tokenizer->token_bytes,
  };
}
