/* The feed's I/O thread, which keeps the state machines going. */
#ifndef PLM_COMMON_FEED_FEED_LOOP_H
#define PLM_COMMON_FEED_FEED_LOOP_H

#include "common/feed/feed_handle.h"

/* Starts the thread, which lets packers in and answers them until feed_loop_stop, which says BYE to
 * them and joins it. */
plm_status feed_loop_start(struct plm_feed *feed, struct plm_error *error);
void feed_loop_stop(struct plm_feed *feed);

#endif
