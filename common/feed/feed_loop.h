/* The feed's I/O thread. */
#ifndef PLM_COMMON_FEED_FEED_LOOP_H
#define PLM_COMMON_FEED_FEED_LOOP_H

#include "common/feed/feed_state.h"

/* Starts the thread; the sockets must be open. It answers packers until feed_loop_stop, which says
 * BYE to them and joins the thread. */
plm_status feed_loop_start(struct plm_feed *feed, struct plm_error *error);
void feed_loop_stop(struct plm_feed *feed);
/* Wakes the thread, because the caller changed something. */
void feed_loop_wake(struct plm_feed *feed);

#endif
