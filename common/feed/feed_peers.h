/* The packers of a feed: admitting them, forgetting them, and sending to them.
 *
 * A peer is identified by its serial, which is never reused. Other files keep serials rather than
 * pointers; feed_peer_serial returns NULL once that packer is gone.
 */
#ifndef PLM_COMMON_FEED_FEED_PEERS_H
#define PLM_COMMON_FEED_FEED_PEERS_H

#include "common/feed/feed_state.h"

struct feed_peer *feed_peer_find(struct feed_state *feed, const uint8_t *routing_id, size_t bytes);
/* NULL: the peer is gone, or serial is 0. */
struct feed_peer *feed_peer_serial(struct feed_state *feed, uint64_t serial);
/* Whether this connection was dropped. */
bool feed_peer_dropped(struct feed_state *feed, const uint8_t *routing_id, size_t bytes);
/* Answers a message of a packer that is not admitted with a text, which may be empty. */
void feed_peer_reply(struct feed_state *feed, const struct plm_message *message,
                     enum plm_message_type type, uint64_t request, const char *text);

/* Answers HELLO with WELCOME or REJECT, at most once a second on a connection. False: the HELLO
 * breaks the protocol. */
bool feed_peer_hello(struct feed_state *feed, const struct plm_message *message);
/* Forgets a peer. why is logged; NULL: nothing is. */
void feed_peer_gone(struct feed_state *feed, struct feed_peer *peer, const char *why);
/* Answers a message of another version of the protocol with REJECT, at most once a second on a
 * connection. The packer cannot read it, but its log then names both versions. */
void feed_peer_other_version(struct feed_state *feed, const struct plm_message *message,
                             const char *what);
/* Drops a process and refuses it from now on: it tells it why with REJECT, forgets it, and ignores
 * its connection. */
void feed_peer_breaks_protocol(struct feed_state *feed, uint64_t packer_id);
/* The same because its answer was false, as error says. */
void feed_peer_lied(struct feed_state *feed, uint64_t packer_id, const char *name,
                    const struct plm_error *error);
/* Called each turn: forgets silent peers, sends PING, drops those whose key was removed. */
void feed_peers_tick(struct feed_state *feed, int64_t now);
/* Sends WELCOME to all again, after the run's other consumers changed. */
void feed_peers_welcome(struct feed_state *feed);
/* Sends PING to all. A connection was lost, and sending finds out whose. */
void feed_peers_probe(struct feed_state *feed, int64_t now);

/* If it fails, the peer has left, and is forgotten. */
void feed_peer_send(struct feed_state *feed, struct feed_peer *peer, struct plm_header *header,
                    const void *payload, size_t bytes);
/* The next peer in turn whose packer id is not excluded; NULL: there is none. */
struct feed_peer *feed_peer_next(struct feed_state *feed, const uint64_t *excluded, int count);

#endif
