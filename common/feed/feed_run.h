/* What a consumer's feed and its run folder tell each other, about once a second, from a thread of
 * its own: it goes on while the consumer computes, or waits for packers.
 *
 *   feed -> folder   peers.ROLE.json, the packers that serve now, for `ps`
 *   folder -> feed   where the run's other consumer is bound, for packers that know one alone;
 *                    whether the supervisor has given the run's own packers up
 */
#ifndef PLM_COMMON_FEED_FEED_RUN_H
#define PLM_COMMON_FEED_FEED_RUN_H

#include "common/base/status.h"
#include "common/feed/feed.h"

struct plm_feed_run_options {
  const char *run;  /* its folder; borrowed, as all here */
  const char *role; /* "trainer" or "evaluator" */
  struct plm_feed *feed;
  const char *other_key;     /* of the other consumer's endpoint in endpoints.json */
  const char *other_bind;    /* where it binds by the configuration */
  const char *other_address; /* what packers connect to, when they do not connect there; or NULL */
};

struct plm_feed_run;
/* Tells once before it returns. */
plm_status plm_feed_run_open(const struct plm_feed_run_options *options,
                             struct plm_feed_run **feed_run, struct plm_error *error);
/* To be closed before the feed; removes peers.ROLE.json. NULL is fine. */
void plm_feed_run_close(struct plm_feed_run *feed_run);

#endif
