/* Which packer is asked for something: its home first, another one if that is late, gone or
 * refuses. What is asked, the callers know. */
#ifndef PLM_COMMON_FEED_FEED_REQUESTS_H
#define PLM_COMMON_FEED_FEED_REQUESTS_H

#include "common/feed/feed_state.h"

/* Sends a message to the packer that is to be asked now, if the request is wanted and there is one.
 * Returns its serial, or 0. late: milliseconds after which another packer is asked as well. header:
 * its type, and what is asked. */
uint64_t feed_request_ask(struct feed_state *feed, struct feed_request *request, int64_t late,
                          const struct plm_header *header, const void *payload, size_t bytes);
/* The ask that a message of the peer answers; NULL: none. */
struct feed_ask *feed_request_find(struct feed_request *request, const struct feed_peer *peer,
                                   uint64_t id);
/* The packer does not answer this ask, of a window or a range, if it still stands: it is asked
 * again in a while, or another one. */
void feed_requests_refused(struct feed_state *feed, const struct feed_peer *peer, uint64_t id);

/* Lets an answer of the peer be checked, as job says, and forgets all asks. Takes the payload. */
void feed_request_check(struct feed_state *feed, struct feed_request *request,
                        const struct feed_peer *peer, struct plm_message *message,
                        const struct feed_job *job);

#endif
