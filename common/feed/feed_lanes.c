/* Opening the state machines of a feed's sources, and finding the one that a message is for. */
#include "common/feed/feed_lanes.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/feed/feed_peers.h"

/* ---- opening ------------------------------------------------------------------------------ */

plm_status feed_lanes_open(struct plm_feed *feed, const struct plm_feed_options *options,
                           struct plm_error *error)
{
  const struct feed_network network = feed_handle_network(feed);
  const struct plm_feed_source_options only = {
      .plan = options->plan, .fingerprint = options->fingerprint, .root = options->root};
  const bool listed = options->source_count > 0;
  const uint32_t count = listed ? options->source_count : 1;
  PLM_ASSERT(count <= PLM_MAX_SOURCES);
  feed->wait_packers_ms = (int64_t)(options->wait_packers_s * 1e3);
  feed->lanes = plm_alloc_zeroed(count, sizeof *feed->lanes);
  for (; feed->lane_count < count; feed->lane_count++) {
    const struct plm_feed_source_options *source =
        listed ? &options->sources[feed->lane_count] : &only;
    PLM_TRY(plm_plan_parameters_check(&source->plan, error));
    struct feed_state *lane = &feed->lanes[feed->lane_count];
    feed_machine_init(lane, options, source, &network, plm_clock_ms());
    feed_machine_others(lane, options->other_addresses, options->other_keys, options->other_count);
  }
  return PLM_OK;
}

void feed_lanes_close(struct plm_feed *feed)
{
  for (uint32_t k = 0; k < feed->lane_count; k++) feed_machine_deinit(&feed->lanes[k]);
  free(feed->lanes);
}

/* ---- messages ----------------------------------------------------------------------------- */

static struct feed_state *lane_of_hello(struct plm_feed *feed, const struct plm_message *message)
{
  struct plm_hello hello;
  struct plm_error error;
  if (plm_hello_decode(zmq_msg_data((zmq_msg_t *)&message->payload),
                       zmq_msg_size(&message->payload), &hello, &error) == PLM_OK)
    for (uint32_t k = 0; k < feed->lane_count; k++)
      if (plm_hello_is(&hello, feed->lanes[k].fingerprint)) return &feed->lanes[k];
  return &feed->lanes[0]; /* refuses it */
}

struct feed_state *feed_lane_of(struct plm_feed *feed, const struct plm_message *message)
{
  if (feed->lane_count == 1) return &feed->lanes[0];
  if (message->header.type == PLM_MESSAGE_HELLO) return lane_of_hello(feed, message);
  for (uint32_t k = 0; k < feed->lane_count; k++)
    if (plm_hash_equal(feed->lanes[k].plan_hash, message->header.plan)) return &feed->lanes[k];
  return &feed->lanes[0]; /* does not know the packer */
}

struct feed_state *feed_lane_of_peer(struct plm_feed *feed, const struct plm_message *message)
{
  for (uint32_t k = 1; k < feed->lane_count; k++)
    if (feed_peer_find(&feed->lanes[k], message->routing_id, message->routing_id_bytes) != NULL)
      return &feed->lanes[k];
  return &feed->lanes[0];
}

/* ---- turns -------------------------------------------------------------------------------- */

void feed_lanes_watch(struct plm_feed *feed, int64_t now)
{
  uint32_t peers = 0;
  if (feed->lane_count == 1) return;
  for (uint32_t k = 0; k < feed->lane_count; k++) peers += feed->lanes[k].peer_count;
  for (uint32_t k = 0; k < feed->lane_count; k++) {
    struct feed_state *lane = &feed->lanes[k];
    if (peers == 0 || lane->peer_count > 0) {
      lane->alone_ms = now; /* without any packer, the wait for the first one is told */
    } else if (now - lane->alone_ms >= FEED_SILENCE_MS) {
      lane->alone_ms = now + FEED_WAITING_MS - FEED_SILENCE_MS;
      plm_warning("no packer%s is connected, but %u of other sources; start one that holds it: "
                  "plm-packer --corpus DIR --connect %s%s%s",
                  lane->of_source, peers, feed->bound, feed->gate != NULL ? " --keys " : "",
                  feed->gate != NULL ? plm_gate_keys(feed->gate) : "");
    }
  }
}

/* ---- positions ---------------------------------------------------------------------------- */

static bool same_place(const struct plm_plan_place *a, const struct plm_plan_place *b)
{
  return a->epoch == b->epoch && a->window == b->window && a->chunk == b->chunk;
}

void feed_lanes_places(const struct plm_feed *feed, struct feed_place places[PLM_MAX_SOURCES])
{
  for (uint32_t k = 0; k < feed->lane_count; k++)
    places[k] = (struct feed_place){feed->lanes[k].split, feed->lanes[k].place};
}

void feed_lanes_return(struct plm_feed *feed, const struct feed_place places[PLM_MAX_SOURCES])
{
  for (uint32_t k = 0; k < feed->lane_count; k++)
    if (!same_place(&feed->lanes[k].place, &places[k].place))
      feed_machine_seek(&feed->lanes[k], places[k].split, &places[k].place);
}
