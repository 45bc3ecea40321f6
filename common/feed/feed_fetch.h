/* FETCH in the feed: hosts that have no copy of the corpus ask for parts of it. */
#ifndef PLM_COMMON_FEED_FEED_FETCH_H
#define PLM_COMMON_FEED_FEED_FETCH_H

#include "common/feed/feed_handle.h"

/* Takes a FETCH in the I/O thread. A peer whose key is no longer allowed, and one that asks a feed
 * that serves no corpora, gets a NACK. PLM_PROTOCOL: the message is malformed. */
plm_status feed_fetch_handle(struct plm_feed *feed, const struct plm_message *message,
                             struct plm_error *error);
/* Sends the answers that are ready, from the I/O thread. */
void feed_fetch_answer(struct plm_feed *feed);

#endif
