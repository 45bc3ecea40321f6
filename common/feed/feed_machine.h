/* A feed's consumer side as a state machine: its owner passes in what comes from the network, the
 * time, and what the user wants. feed_loop.c owns one on real sockets, and the tests have one on a
 * simulated network. */
#ifndef PLM_COMMON_FEED_FEED_MACHINE_H
#define PLM_COMMON_FEED_FEED_MACHINE_H

#include "common/feed/feed.h"
#include "common/feed/feed_state.h"

/* Fills feed, which feed_machine_deinit empties, for a source of the options, whose plan is valid.
 * now is in milliseconds, here and below, and never goes back. */
void feed_machine_init(struct feed_state *feed, const struct plm_feed_options *options,
                       const struct plm_feed_source_options *source,
                       const struct feed_network *network, int64_t now);
void feed_machine_deinit(struct feed_state *feed);

/* ---- the network's side ------------------------------------------------------------------- */

/* Takes a message, perhaps also its payload: an empty one is left then. */
void feed_machine_handle(struct feed_state *feed, struct plm_message *message, int64_t now);
/* Takes back a job of feed_network.submit that was done. The caller then frees it. */
void feed_machine_done(struct feed_state *feed, struct feed_job *job, int64_t now);
/* Something arrived that is not a message of the feed. Only message's routing id is read. */
void feed_machine_invalid(struct feed_state *feed, const struct plm_message *message,
                          const char *what, int64_t now);
/* The same for a message of another version of the protocol. */
void feed_machine_other_version(struct feed_state *feed, const struct plm_message *message,
                                const char *what, int64_t now);
/* A connection was lost; it is not known whose. */
void feed_machine_lost(struct feed_state *feed, int64_t now);
/* Handles timeouts and requests chunks. Call it after messages, and at least every 100 ms. */
void feed_machine_turn(struct feed_state *feed, int64_t now);
/* Says BYE to all packers. */
void feed_machine_bye(struct feed_state *feed);

/* ---- the user's side ---------------------------------------------------------------------- */

/* The run's other consumers; keys may be NULL. */
void feed_machine_others(struct feed_state *feed, const char *const *addresses,
                         const char *const *keys, uint32_t count);
/* Moves to a place. Everything requested is forgotten. */
void feed_machine_seek(struct feed_state *feed, enum plm_split split,
                       const struct plm_plan_place *place);
/* Which chunk comes next. */
void feed_machine_position(const struct feed_state *feed, struct plm_feed_position *position);

/* Chunks that are ready. */
struct feed_ready {
  uint32_t chunks;
  const struct feed_planned *planned; /* the window */
  uint32_t first;                     /* chunk of the window */
  const uint8_t *payload;             /* DATA of these chunks */
};
/* False: the next chunk is not ready. Otherwise ready is up to `most` chunks, which stay as they
 * are until _end, even while other calls are made. */
bool feed_machine_begin(struct feed_state *feed, uint32_t most, struct feed_ready *ready);
/* The chunks were used, or the next call of _begin gives them again. True: more can be requested
 * now. */
bool feed_machine_end(struct feed_state *feed, const struct feed_ready *ready, bool used);

#endif
