/* Bounds what the connections to a bound socket can cost.
 *
 * libzmq accepts every connection, keeps it as long as it lasts, and hands out a message only once
 * all its frames have arrived. So it limits neither the number of connections nor the frames of a
 * message that never ends. A door keeps account of the connections, by their descriptors, which the
 * socket's monitor reports, and breaks those that exceed a limit; the I/O thread of libzmq then
 * cleans up. A connection is a stranger until its first whole message was received.
 *
 * A door has no thread and no clock: it is told what happens. */
#ifndef PLM_COMMON_WIRE_DOOR_H
#define PLM_COMMON_WIRE_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_door_limits {
  uint32_t connections;    /* at most in total; fewer if the process may open few descriptors */
  uint32_t strangers;      /* at most; beyond it, the oldest is disconnected */
  uint64_t stranger_bytes; /* that a stranger may send */
  uint64_t message_bytes;  /* of the greatest message, headers included */
  int64_t stranger_ms;     /* after which a stranger must leave; 0: never */
  int64_t silence_ms;      /* after which the others must leave; 0: never */
};

struct plm_door;
/* endpoint: what the socket is bound to, with its real port. */
plm_status plm_door_open(const char *endpoint, const struct plm_door_limits *limits,
                         struct plm_door **door, struct plm_error *error);
void plm_door_close(struct plm_door *door); /* NULL is fine */

/* From the monitor. now is in milliseconds. */
void plm_door_accepted(struct plm_door *door, int descriptor, int64_t now);
void plm_door_left(struct plm_door *door, int descriptor);
/* A whole message came from this connection. */
void plm_door_heard(struct plm_door *door, int descriptor, int64_t now);
/* Breaks a connection unless it ends by itself within 5 s, in which it can still be told why.
 */
void plm_door_dismiss(struct plm_door *door, int descriptor, int64_t now);
/* Notes how much every connection has sent. Call it before the messages of a turn are received:
 * what arrives while they are received may belong to whole messages, which nobody has seen yet. */
void plm_door_look(struct plm_door *door);
/* Breaks the connections that exceed a limit. drained: after plm_door_look all whole messages were
 * received, so what a connection had sent by then, since its last one, belongs to a message that is
 * not complete. If messages always wait, this is checked for those that were not heard for a
 * second. */
void plm_door_turn(struct plm_door *door, bool drained, int64_t now);

uint32_t plm_door_connections(const struct plm_door *door); /* open now */
uint64_t plm_door_broken(const struct plm_door *door);      /* by this door, since it was opened */

#endif
