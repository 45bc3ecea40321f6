/* Ranges of chunks: which are requested ahead of use, and what happens to the answers. */
#ifndef PLM_COMMON_FEED_FEED_RANGES_H
#define PLM_COMMON_FEED_FEED_RANGES_H

#include "common/feed/feed_state.h"

/* Forgets all requests, because the caller seeks. */
void feed_ranges_clear(struct feed_state *feed);
/* Called each turn: requests what fits into the credit. */
void feed_ranges_tick(struct feed_state *feed, int64_t late);
/* PLM_LIMIT: the chunk has more than `most` bytes. The hint names its labels if they are why. */
plm_status feed_chunk_check(const struct feed_planned *planned, uint32_t chunk, uint64_t most,
                            struct plm_error *error);
/* Removes the first range, which was consumed. */
void feed_ranges_pop(struct feed_state *feed);

/* Takes DATA, and its payload, if it was asked for. False: it was not. */
bool feed_ranges_data(struct feed_state *feed, struct feed_peer *peer, struct plm_message *message);
/* A job is done. If the answer was true, its range, unless that is gone, takes the payload. */
void feed_ranges_checked(struct feed_state *feed, struct feed_job *job, bool truth);

#endif
