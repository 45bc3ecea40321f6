/* Bounds what the connections to a bound socket can cost.
 *
 * libzmq accepts every connection, keeps it as long as it lasts, and hands out a message only once
 * all its frames have arrived. So it limits neither the number of connections nor the frames of a
 * message that never ends. A limiter keeps account of the connections, by their descriptors, which
 * the socket's monitor reports, and breaks those that exceed a limit; the I/O thread of libzmq then
 * cleans up. A connection is an unidentified peer until its first whole message was received.
 *
 * A limiter has no thread and no clock: it is told what happens. */
#ifndef PLM_COMMON_WIRE_CONNECTION_LIMITER_H
#define PLM_COMMON_WIRE_CONNECTION_LIMITER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_limiter_limits {
  uint32_t connections;        /* at most in total; fewer if the process may open few descriptors */
  uint32_t unidentified;       /* at most; beyond it, the oldest is disconnected */
  uint64_t unidentified_bytes; /* that an unidentified peer may send */
  uint64_t message_bytes;      /* of the greatest message, headers included */
  int64_t unidentified_ms;     /* after which an unidentified peer must leave; 0: never */
  int64_t silence_ms;          /* after which the others must leave; 0: never */
};

struct plm_limiter;
/* endpoint: what the socket is bound to, with its real port. */
plm_status plm_limiter_open(const char *endpoint, const struct plm_limiter_limits *limits,
                            struct plm_limiter **limiter, struct plm_error *error);
void plm_limiter_close(struct plm_limiter *limiter); /* NULL is fine */

/* From the monitor. now is in milliseconds. */
void plm_limiter_accepted(struct plm_limiter *limiter, int descriptor, int64_t now);
void plm_limiter_left(struct plm_limiter *limiter, int descriptor);
/* A whole message came from this connection. */
void plm_limiter_heard(struct plm_limiter *limiter, int descriptor, int64_t now);
/* Breaks a connection unless it ends by itself within 5 s, in which it can still be told why.
 */
void plm_limiter_dismiss(struct plm_limiter *limiter, int descriptor, int64_t now);
/* Notes how much every connection has sent. Call it before the messages of a turn are received:
 * what arrives while they are received may belong to whole messages, which nobody has seen yet. */
void plm_limiter_look(struct plm_limiter *limiter);
/* Breaks the connections that exceed a limit. drained: after plm_limiter_look all whole messages
 * were received, so what a connection had sent by then, since its last one, belongs to a message
 * that is not complete. If messages always wait, this is checked for those that were not heard for
 * a second. */
void plm_limiter_turn(struct plm_limiter *limiter, bool drained, int64_t now);

uint32_t plm_limiter_connections(const struct plm_limiter *limiter); /* open now */
uint64_t
plm_limiter_broken(const struct plm_limiter *limiter); /* by this limiter, since it was opened */

#endif
