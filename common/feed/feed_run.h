/* Connects a consumer's feed to its run folder, about once a second, in a thread that keeps running
 * while the consumer computes or waits for packers.
 *
 *   feed -> folder   peers.ROLE.json, the packers that serve now, for `ps`
 *   folder -> feed   where the run's other consumer is bound, for packers that know only this one;
 *                    whether the supervisor has given up on the run's own packers
 */
#ifndef PLM_COMMON_FEED_FEED_RUN_H
#define PLM_COMMON_FEED_FEED_RUN_H

#include "common/base/status.h"
#include "common/feed/feed.h"

struct plm_feed_run_options {
  const char *run;  /* its folder; all pointers here are borrowed */
  const char *role; /* "trainer" or "evaluator" */
  struct plm_feed *feed;
  const char *other_key;     /* the other consumer's key in endpoints.json */
  const char *other_bind;    /* where it binds, according to the configuration */
  const char *other_address; /* where packers reach it, if that differs from other_bind; or NULL */
};

struct plm_feed_run;
/* Exchanges once before it returns, and starts the thread. */
plm_status plm_feed_run_open(const struct plm_feed_run_options *options,
                             struct plm_feed_run **feed_run, struct plm_error *error);
/* Stops the thread and removes peers.ROLE.json. Call it before the feed is closed. NULL is fine. */
void plm_feed_run_close(struct plm_feed_run *feed_run);

#endif
