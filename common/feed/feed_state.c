/* Recording the feed's failure, and making message headers, for the other files of the feed. */
#include "common/feed/feed_state.h"

#include "common/wire/data.h"

void feed_fail(struct feed_state *feed, const struct plm_error *error)
{
  if (feed->failed.status == PLM_OK) feed->failed = *error;
  feed->network.changed(feed->network.context);
}

bool feed_is_time(const struct feed_state *feed, int64_t *last, int64_t every)
{
  if (feed->now_ms - *last < every) return false;
  *last = feed->now_ms;
  return true;
}

bool feed_may_log(struct feed_state *feed)
{
  const int64_t elapsed = feed->now_ms - feed->log_filled_ms;
  const uint64_t more = elapsed < 0 ? 0 : (uint64_t)elapsed / FEED_LOG_EVERY_MS;
  if (more > 0) {
    feed->log_filled_ms = feed->now_ms;
    feed->log_left =
        more >= FEED_LOG_MOST - feed->log_left ? FEED_LOG_MOST : feed->log_left + (unsigned)more;
  }
  if (feed->log_left == 0) {
    feed->log_omitted++;
    return false;
  }
  feed->log_left--;
  if (feed->log_omitted > 0)
    plm_info("%llu lines about packers were not logged", (unsigned long long)feed->log_omitted);
  feed->log_omitted = 0;
  return true;
}

size_t feed_data_most(const struct plm_plan_parameters *plan)
{
  const size_t chunk = plm_data_chunk_most(plan) + FEED_LABELS_MOST;
  return chunk < PLM_WIRE_DATA_LIMIT ? chunk : PLM_WIRE_DATA_LIMIT;
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
