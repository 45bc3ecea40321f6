/* Which packer is asked for something: its home first, another one if that is late, gone or
 * refuses. What is asked, the callers know. */
#ifndef PLM_COMMON_FEED_FEED_REQUESTS_H
#define PLM_COMMON_FEED_FEED_REQUESTS_H

#include "common/feed/feed_state.h"

/* The packer to ask now; NULL: none. *slot receives its place among the asks. late: milliseconds
 * after which another packer is asked as well. */
struct feed_peer *feed_request_due(struct feed_state *feed, struct feed_request *request,
                                   int64_t late, int *slot);
/* Sends the message to the packer that is due. header: from feed_header, and what is asked. */
void feed_request_send(struct feed_state *feed, struct feed_request *request, int slot,
                       struct feed_peer *peer, struct plm_header *header, const void *payload,
                       size_t bytes);
/* The ask that a message of the peer answers; NULL: none. */
struct feed_ask *feed_request_find(struct feed_request *request, const struct feed_peer *peer,
                                   uint64_t id);
/* Forgets all asks. */
void feed_request_clear(struct feed_request *request);
/* The packer does not answer this ask, of a window or a range, if it still stands: it is asked
 * again in a while, or another one. */
void feed_requests_refused(struct feed_state *feed, const struct feed_peer *peer, uint64_t id);

/* Lets an answer of the peer be checked: job says what it is and for whom. Takes the payload. */
void feed_request_check(struct feed_state *feed, const struct feed_peer *peer,
                        struct plm_message *message, const struct feed_job *job);

#endif
