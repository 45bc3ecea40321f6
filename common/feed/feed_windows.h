/* The windows ahead: packers are asked for their tables, which jobs check and plan, and the place
 * that the user wants is found in them. */
#ifndef PLM_COMMON_FEED_FEED_WINDOWS_H
#define PLM_COMMON_FEED_FEED_WINDOWS_H

#include "common/feed/feed_state.h"

/* Forgets all windows. Those after feed->place are asked for from now on. */
void feed_windows_clear(struct feed_state *feed);
/* Called each turn: adds windows, asks for their tables, and looks for the place. */
void feed_windows_tick(struct feed_state *feed, int64_t late);
/* Leaves the first windows if the place is behind their chunks. */
void feed_windows_leave(struct feed_state *feed);

/* Takes PROOF for a window, and its payload, if it was asked for. False: it was not. */
bool feed_windows_proof(struct feed_state *feed, struct feed_peer *peer,
                        struct plm_message *message);
/* A job is done, and the answer for its window, unless that is gone, was true or false. */
void feed_windows_checked(struct feed_state *feed, const struct feed_job *job, bool truth);

#endif
