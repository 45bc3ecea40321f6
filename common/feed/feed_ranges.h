/* Ranges of chunks: which are requested ahead of use, from which packer, and what happens to the
 * answers. */
#ifndef PLM_COMMON_FEED_FEED_RANGES_H
#define PLM_COMMON_FEED_FEED_RANGES_H

#include "common/feed/feed_state.h"

/* Forgets all requests, because the caller seeks. */
void feed_ranges_clear(struct feed_state *feed);
/* Called each turn: measures the credit, requests what fits into it, and requests late ranges from
 * a second packer. */
void feed_ranges_tick(struct feed_state *feed, int64_t now);
/* Removes the first range, which was consumed. */
void feed_ranges_pop(struct feed_state *feed);
/* Takes DATA whose payload was checked, and takes over the payload. False: it is not what was
 * requested. */
bool feed_ranges_data(struct feed_state *feed, struct feed_peer *peer, struct plm_message *message,
                      uint64_t real_tokens);
void feed_ranges_nack(struct feed_state *feed, struct feed_peer *peer,
                      const struct plm_message *message);

#endif
