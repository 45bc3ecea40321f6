/* How many chunks each window of an epoch has. */
#ifndef PLM_COMMON_FEED_FEED_SIZES_H
#define PLM_COMMON_FEED_FEED_SIZES_H

#include "common/feed/feed_state.h"

/* What is known about an epoch, perhaps nothing yet. Valid until the next call. */
struct feed_sizes *feed_sizes_of(struct feed_state *feed, enum plm_split split, uint64_t epoch);
/* Asks two packers, if there are two, for the windows after those known, unless one was asked
 * within the last second. */
void feed_sizes_ask(struct feed_state *feed, struct feed_sizes *sizes, int64_t now);
/* Takes SIZED. False: this peer was not asked for these sizes. PLM_PROTOCOL in error: the answer is
 * not valid. */
bool feed_sizes_answer(struct feed_state *feed, const struct feed_peer *peer,
                       const struct plm_message *message, struct plm_error *error);
/* Takes a NACK: if it refuses a SIZES, the next packer will be asked soon. */
void feed_sizes_nack(struct feed_state *feed, const struct feed_peer *peer, uint64_t request,
                     int64_t now);

#endif
