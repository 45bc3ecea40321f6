/* How many chunks each window of an epoch has. */
#ifndef PLM_COMMON_FEED_FEED_SIZES_H
#define PLM_COMMON_FEED_FEED_SIZES_H

#include "common/feed/feed_state.h"

/* What is known about an epoch, perhaps nothing yet. Valid until the next call. */
struct feed_sizes *feed_sizes_of(struct feed_state *feed, enum plm_split split, uint64_t epoch);
/* Asks two packers, if there are two, for the windows after those known, unless one was asked
 * within the last second. */
void feed_sizes_ask(struct feed_state *feed, struct feed_sizes *sizes, int64_t now);
/* Asks one packer for the block of windows from made->first on, until made->until_ms. False: the
 * packer has left, and made is empty. */
bool feed_sizes_ask_peer(struct feed_state *feed, const struct feed_sizes *sizes,
                         struct feed_peer *peer, int64_t now, struct feed_sizes_ask *made);
/* Forgets an ask whose packer has left, or has not answered in time. */
void feed_sizes_expire(struct feed_state *feed, struct feed_sizes_ask *asked, int64_t now);
/* Fails the feed: packers a and b state different sizes; why says why nobody can decide. */
void feed_sizes_disagree(struct feed_state *feed, const struct feed_sizes *sizes, uint64_t first,
                         const char *a, const char *b, const char *why);
/* Bans a packer that stated wrong sizes. */
void feed_sizes_ban(struct feed_state *feed, const struct feed_sizes *sizes, uint64_t first,
                    uint64_t packer_id, const char *name);
/* Notes that the user relies on the sizes of the first `windows` windows. */
void feed_sizes_rely(struct feed_state *feed, enum plm_split split, uint64_t epoch,
                     uint64_t windows);
/* Takes SIZED. False: this peer was not asked for these sizes. PLM_PROTOCOL in error: the answer is
 * not valid. */
bool feed_sizes_answer(struct feed_state *feed, const struct feed_peer *peer,
                       const struct plm_message *message, struct plm_error *error);
/* Takes a NACK: if it refuses a SIZES, the next packer will be asked soon. */
void feed_sizes_nack(struct feed_state *feed, const struct feed_peer *peer, uint64_t request,
                     int64_t now);

#endif
