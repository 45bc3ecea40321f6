/* ZeroMQ as the feed uses it: sockets with the project's options, monitors, and messages of two
 * frames. No draft option is used, because Debian builds libzmq without them. libzmq chooses the
 * routing ids.
 */
#ifndef PLM_COMMON_WIRE_SOCKET_H
#define PLM_COMMON_WIRE_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "common/wire/message.h"
#include "common/wire/security.h"

/* Opens a context and starts its threads, which zmq_ctx_term ends. libzmq aborts the process if it
 * lacks a descriptor while it starts them; this function returns PLM_NO_DESCRIPTORS instead. With
 * the threads running, a socket that cannot be opened is an ordinary error. */
plm_status plm_context_open(void **context, struct plm_error *error);

/* Opens a socket with the options in doc/connections.md#sockets. message_limit: the largest message
 * accepted, in bytes. */
plm_status plm_socket_open(void *context, int type, size_t message_limit, void **socket,
                           struct plm_error *error);
/* Binds. In a tcp endpoint the host may be a name (plm_host_address). bound receives the endpoint
 * with its address and its real port. PLM_BUSY names the process that holds the
 * port; PLM_CONFIG as in plm_endpoint_check, or if a file that is not a socket is at an ipc path.
 * An ipc socket's file gets mode 0600. */
plm_status plm_socket_bind(void *socket, const char *endpoint, const char *keys, char bound[256],
                           struct plm_error *error);
/* Removes the file of an ipc endpoint. Call it before the socket is closed: afterwards the file may
 * belong to a successor. */
void plm_socket_unbind(const char *bound);
/* Begins to connect. libzmq retries until it succeeds. */
plm_status plm_socket_connect(void *socket, const char *endpoint, struct plm_error *error);

/* A message that was received. */
struct plm_message {
  uint8_t routing_id[PLM_WIRE_ROUTING_ID]; /* of a ROUTER's peer */
  size_t routing_id_bytes;
  struct plm_header header;
  int connection;    /* its descriptor, for plm_limiter; -1: unknown */
  zmq_msg_t payload; /* initialised whenever _receive returned PLM_OK */
  char user[41];     /* the peer's public key, "" without CURVE */
};

/* Takes the next message without waiting. PLM_AGAIN: there is none. PLM_PROTOCOL: it was not a
 * valid message (frames, header, payload hash) and was discarded; routing id is filled.
 * PLM_UNSUPPORTED: the same, as it was of another version of the protocol. PLM_IO: the socket is
 * unusable. On PLM_OK the caller closes message->payload. */
plm_status plm_message_receive(void *socket, bool router, struct plm_message *message,
                               struct plm_error *error);

/* Whether a DEALER is connected to a peer that has read enough of what it was sent. */
bool plm_socket_can_send(void *socket);
/* Fills in the header's payload length and hash, and sends it with a copy of payload, without
 * waiting. routing id is that of a ROUTER's peer, else NULL. PLM_NOT_FOUND: the peer has left.
 * PLM_AGAIN: not connected, or the peer's queue is full because it does not read. */
plm_status plm_message_send(void *socket, const uint8_t *routing_id, size_t routing_id_bytes,
                            struct plm_header *header, const void *payload, size_t payload_bytes,
                            struct plm_error *error);
/* Sends from a DEALER without a copy. release(payload, hint) is called once, from any thread, when
 * libzmq no longer needs the payload, and also if the call fails. The caller has filled in the
 * whole header, with the payload's length and hash. */
plm_status plm_message_send_shared(void *socket, const struct plm_header *header,
                                   const void *payload, void (*release)(void *data, void *hint),
                                   void *hint, struct plm_error *error);

/* What a socket's monitor reports. */
enum plm_link_event {
  PLM_LINK_NONE,
  PLM_LINK_ACCEPTED,  /* a connection came in, at a socket that is bound */
  PLM_LINK_CONNECTED, /* the handshake succeeded */
  PLM_LINK_LOST,
  PLM_LINK_RETRY,   /* nobody listens there */
  PLM_LINK_REFUSED, /* the handshake failed: reason says why */
};
struct plm_link_report {
  enum plm_link_event event;
  int descriptor;   /* of the connection, for ACCEPTED and LOST; else -1 */
  char reason[256]; /* for REFUSED */
};
struct plm_monitor;
plm_status plm_monitor_open(void *context, void *socket, struct plm_monitor **monitor,
                            struct plm_error *error);
void *plm_monitor_socket(const struct plm_monitor *monitor); /* to poll */
/* The next event, without waiting. False, and PLM_LINK_NONE: there is none. */
bool plm_monitor_next(struct plm_monitor *monitor, struct plm_link_report *report);
/* Call it before the socket that it watches is closed. NULL is fine. */
void plm_monitor_close(struct plm_monitor *monitor, void *socket);

/* Who listens at an endpoint, for example "pid 4711 (redis-server)". False if that cannot be seen;
 * processes of other users cannot. */
bool plm_port_owner(const char *endpoint, char owner[128]);

#endif
