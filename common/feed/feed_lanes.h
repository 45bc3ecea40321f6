/* The lanes of a feed: one state machine for each source of a mixture, or a single one. All of them
 * share the sockets, the thread and the mutex. A packer that holds several corpora has a connection
 * for each, so a connection belongs to one lane. */
#ifndef PLM_COMMON_FEED_FEED_LANES_H
#define PLM_COMMON_FEED_FEED_LANES_H

#include "common/feed/feed.h"
#include "common/feed/feed_handle.h"

/* Before the thread is started. After a failure, feed_lanes_close releases what was opened. */
plm_status feed_lanes_open(struct plm_feed *feed, const struct plm_feed_options *options,
                           struct plm_error *error);
void feed_lanes_close(struct plm_feed *feed);

/* The lane that a message is for: the one of its corpus (HELLO) or plan. Reads only what never
 * changes, so the mutex is not needed. */
struct feed_state *feed_lane_of(struct plm_feed *feed, const struct plm_message *message);

/* For the rest, the mutex is held. */

/* The lane of a connection; lane 0 if it has none. */
struct feed_state *feed_lane_of_peer(struct plm_feed *feed, const struct plm_message *message);
/* Warns about a source that no packer holds while packers of other sources are connected. */
void feed_lanes_watch(struct plm_feed *feed, int64_t now);

/* Where the lanes are, so that they can be returned there. */
struct feed_place {
  enum plm_split split;
  struct plm_plan_place place;
};
void feed_lanes_places(const struct plm_feed *feed, struct feed_place places[PLM_MAX_SOURCES]);
void feed_lanes_return(struct plm_feed *feed, const struct feed_place places[PLM_MAX_SOURCES]);

#endif
