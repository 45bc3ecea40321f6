/* What is asked for ahead of use, of whom, and what the answers become. The caller of each function
 * holds the mutex. */
#ifndef PLM_COMMON_FEED_FEED_RANGES_H
#define PLM_COMMON_FEED_FEED_RANGES_H

#include "common/feed/feed_state.h"

/* Forgets everything that was asked for, as a seek does. */
void feed_ranges_clear(struct plm_feed *feed);
/* Called each turn: measures the credit, asks for what fits into it, and asks a second packer for
 * what is late. */
void feed_ranges_tick(struct plm_feed *feed, int64_t now);
/* Removes the head, which was consumed. */
void feed_ranges_pop(struct plm_feed *feed);
/* Takes DATA whose payload was checked, and takes the payload over. False: it differs from what was
 * asked. */
bool feed_ranges_data(struct plm_feed *feed, struct feed_peer *peer, struct plm_message *message,
                      uint64_t real_tokens);
void feed_ranges_nack(struct plm_feed *feed, struct feed_peer *peer,
                      const struct plm_message *message);

#endif
