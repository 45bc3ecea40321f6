/* ZeroMQ as the feed uses it: contexts with CURVE's gatekeeper, sockets with the project's
 * options, monitors, and messages of two frames.
 *
 * Debian's libzmq has no draft options; none is used. Routing ids are never set by hand.
 */
#ifndef PLM_COMMON_WIRE_SOCKET_H
#define PLM_COMMON_WIRE_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "common/wire/message.h"
#include "common/wire/security.h"

/* Options every socket gets: high-water marks 0, LINGER 0, IMMEDIATE, the greatest message. */
plm_status plm_socket_open(void *context, int type, size_t message_limit, void **socket,
                           struct plm_error *error);
/* Binds; `bound` (256 bytes) is the endpoint with its real port. PLM_BUSY names who has it. Beyond
 * loopback without keys: PLM_CONFIG. An ipc socket's file becomes 0600. */
plm_status plm_socket_bind(void *socket, const char *endpoint, const char *keys, char bound[256],
                           struct plm_error *error);
/* Takes the file of an ipc endpoint away: before its socket is closed, so that a successor's stays.
 */
void plm_socket_unbind(const char *bound);
/* Begins connecting; libzmq goes on trying. */
plm_status plm_socket_connect(void *socket, const char *endpoint, struct plm_error *error);

/* One message of the feed, received. */
struct plm_message {
  uint8_t identity[PLM_WIRE_IDENTITY]; /* of a ROUTER's peer */
  size_t identity_bytes;
  struct plm_header header;
  zmq_msg_t payload; /* initialised whenever _receive returned PLM_OK */
  char user[41];     /* the peer's public key, "" without CURVE */
};

/* Takes the next message, never waits. PLM_AGAIN: none. PLM_PROTOCOL: one came and was not a
 * message of the feed (frames, header, payload hash); it is gone, identity is filled. PLM_IO: the
 * socket is unusable. On PLM_OK the caller closes message->payload. */
plm_status plm_message_receive(void *socket, bool router, struct plm_message *message,
                               struct plm_error *error);

/* Sends header (payload length and hash are filled in) and a copy of payload, never waits.
 * identity: of a ROUTER's peer, else NULL. PLM_NOT_FOUND: no such peer any more, PLM_AGAIN: not
 * connected. */
plm_status plm_message_send(void *socket, const uint8_t *identity, size_t identity_bytes,
                            struct plm_header *header, const void *payload, size_t payload_bytes,
                            struct plm_error *error);
/* The same from a DEALER without a copy: release(payload, hint) is called once, from any thread,
 * when libzmq is done with it, also when the call fails. The header is complete, the payload's
 * hash included. */
plm_status plm_message_send_shared(void *socket, const struct plm_header *header,
                                   const void *payload, void (*release)(void *data, void *hint),
                                   void *hint, struct plm_error *error);

/* What became of connections, from a socket monitor. */
enum plm_link_event {
  PLM_LINK_NONE,
  PLM_LINK_CONNECTED, /* and the handshake succeeded */
  PLM_LINK_LOST,
  PLM_LINK_RETRY,   /* nobody listens there */
  PLM_LINK_REFUSED, /* the handshake failed: reason says why */
};
struct plm_monitor;
plm_status plm_monitor_open(void *context, void *socket, struct plm_monitor **monitor,
                            struct plm_error *error);
void *plm_monitor_socket(const struct plm_monitor *monitor); /* to poll */
/* The next event, never waits. reason: 256 bytes, for PLM_LINK_REFUSED. */
enum plm_link_event plm_monitor_next(struct plm_monitor *monitor, char reason[256]);
/* Before the socket it watches is closed. NULL is fine. */
void plm_monitor_close(struct plm_monitor *monitor, void *socket);

/* "pid 4711 (redis-server)" that listens on a tcp port or a unix socket's path, into owner (128
 * bytes); false when it can't be seen. */
bool plm_port_owner(const char *endpoint, char owner[128]);

#endif
