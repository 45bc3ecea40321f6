/* Opening the state machines of a feed's sources, and finding the one that a message is for. */
#include "common/feed/feed_lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

#include "common/feed/feed_peers.h"

enum { ALONE_MS = FEED_SILENCE_MS, ALONE_AGAIN_MS = FEED_WAITING_MS };

/* ---- opening ------------------------------------------------------------------------------ */

static void name_lane(const struct plm_feed_source_options *source, uint32_t k,
                      char name[FEED_LANE_NAME])
{
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(source->fingerprint, hex);
  snprintf(name, FEED_LANE_NAME, " of source %u, %.200s (fingerprint %s)", k, source->name, hex);
}

static void open_lane(struct plm_feed *feed, const struct plm_feed_options *options, uint32_t k,
                      int64_t now)
{
  const struct feed_network network = feed_handle_network(feed);
  const struct plm_feed_source_options *source = &options->sources[k];
  const struct feed_machine_options machine = {.role = options->role,
                                               .run_id = options->run_id,
                                               .fingerprint = source->fingerprint,
                                               .root = source->root,
                                               .plan = source->plan,
                                               .split = options->split,
                                               .credit_bytes =
                                                   options->credit_bytes / options->source_count,
                                               .one_of_several = options->one_of_several};
  if (source->name != NULL) name_lane(source, k, feed->lane_names[k]);
  feed_machine_init(&feed->lanes[k], &machine, &network, now);
  feed_machine_others(&feed->lanes[k], options->other_addresses, options->other_keys,
                      options->other_count);
  feed->lane_alone_ms[k] = now;
}

/* Opens a lane for each of the options' sources, of which there is at least one. */
static plm_status open_lanes(struct plm_feed *feed, const struct plm_feed_options *options,
                             struct plm_error *error)
{
  const uint32_t count = options->source_count;
  const int64_t now = plm_clock_ms();
  PLM_ASSERT(count <= PLM_MAX_SOURCES);
  for (uint32_t k = 0; k < count; k++)
    PLM_TRY(plm_plan_parameters_check(&options->sources[k].plan, error));
  feed->wait_packers_ms = (int64_t)(options->wait_packers_s * 1e3);
  feed->lanes = plm_alloc_zeroed(count, sizeof *feed->lanes);
  feed->lane_names = plm_alloc_zeroed(count, sizeof *feed->lane_names);
  feed->lane_alone_ms = plm_alloc_zeroed(count, sizeof *feed->lane_alone_ms);
  for (; feed->lane_count < count; feed->lane_count++)
    open_lane(feed, options, feed->lane_count, now);
  return PLM_OK;
}

plm_status feed_lanes_open(struct plm_feed *feed, const struct plm_feed_options *options,
                           struct plm_error *error)
{
  struct plm_feed_options listed = *options;
  const struct plm_feed_source_options only = {
      .plan = options->plan, .fingerprint = options->fingerprint, .root = options->root};
  if (options->source_count == 0) {
    listed.sources = &only;
    listed.source_count = 1;
  }
  return open_lanes(feed, &listed, error);
}

void feed_lanes_close(struct plm_feed *feed)
{
  for (uint32_t k = 0; k < feed->lane_count; k++) feed_machine_deinit(&feed->lanes[k]);
  free(feed->lanes);
  free(feed->lane_names);
  free(feed->lane_alone_ms);
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

bool feed_lanes_busy(const struct plm_feed *feed)
{
  for (uint32_t k = 0; k < feed->lane_count; k++)
    if (feed->lanes[k].head != NULL || feed->lanes[k].wanted) return true;
  return false;
}

void feed_lanes_watch(struct plm_feed *feed, int64_t now)
{
  uint32_t peers = 0;
  if (feed->lane_count == 1) return;
  for (uint32_t k = 0; k < feed->lane_count; k++) peers += feed->lanes[k].peer_count;
  for (uint32_t k = 0; k < feed->lane_count; k++) {
    if (peers == 0 || feed->lanes[k].peer_count > 0) {
      feed->lane_alone_ms[k] = now; /* without any packer, the wait for the first one is told */
    } else if (now - feed->lane_alone_ms[k] >= ALONE_MS) {
      feed->lane_alone_ms[k] = now + ALONE_AGAIN_MS - ALONE_MS;
      plm_warning("no packer%s is connected, but %u of other sources; start one that holds it: "
                  "plm-packer --corpus DIR --connect %s%s%s",
                  feed->lane_names[k], peers, feed->bound, feed->gate != NULL ? " --keys " : "",
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
