/* The account of a bound socket's connections: a table by descriptor, and a list by age. */
#include "common/wire/connection_limiter.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/log/log.h"

enum {
  LOG_EVERY_MS = 1000,
  DISMISS_MS = 5000,
  DESCRIPTORS_KEPT = 64, /* for everything but connections */
  UNDRAINED_MS =
      1000, /* while the queue is never empty, a peer with messages is heard in this time */
};
#define SLACK_BYTES ((uint64_t)64 << 10)

struct connection {
  bool used, broken, unidentified, dismissed;
  int older, newer; /* descriptors; -1: none */
  uint64_t cookie;  /* of the kernel's socket, which differs if the descriptor was reused */
  int64_t since_ms; /* accepted, or last heard */
  int64_t dismissed_ms;
  uint64_t bytes; /* that the kernel had received when it was last heard */
  uint64_t seen;  /* the same when plm_limiter_look was last called */
};

struct plm_limiter {
  struct plm_limiter_limits limits;
  bool tcp;
  unsigned port;
  char path[sizeof((struct sockaddr_un){0}.sun_path) + 1];
  struct connection *table; /* by descriptor */
  int capacity;
  int oldest, newest; /* of those that are not broken */
  uint32_t open, unidentified;
  uint64_t broken;
  int64_t logged_ms;
};

plm_status plm_limiter_open(const char *endpoint, const struct plm_limiter_limits *limits,
                            struct plm_limiter **limiter, struct plm_error *error)
{
  struct plm_limiter *made = calloc(1, sizeof *made);
  struct rlimit descriptors;
  if (made == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for connections");
  made->limits = *limits;
  made->oldest = made->newest = -1;
  made->tcp = strncmp(endpoint, "tcp://", 6) == 0;
  if (made->tcp)
    made->port = (unsigned)strtoul(strrchr(endpoint, ':') + 1, NULL, 10);
  else
    snprintf(made->path, sizeof made->path, "%s", endpoint + strlen("ipc://"));
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0 &&
      descriptors.rlim_cur < 2 * (rlim_t)limits->connections + DESCRIPTORS_KEPT) {
    const rlim_t few = descriptors.rlim_cur;
    made->limits.connections =
        few < DESCRIPTORS_KEPT + 16 ? 8 : (uint32_t)(few - DESCRIPTORS_KEPT) / 2;
  }
  if (made->limits.unidentified > made->limits.connections / 2)
    made->limits.unidentified = (made->limits.connections + 1) / 2;
  *limiter = made;
  return PLM_OK;
}

void plm_limiter_close(struct plm_limiter *limiter)
{
  if (limiter == NULL) return;
  free(limiter->table);
  free(limiter);
}

uint32_t plm_limiter_connections(const struct plm_limiter *limiter)
{
  return limiter->open;
}

uint64_t plm_limiter_broken(const struct plm_limiter *limiter)
{
  return limiter->broken;
}

/* ---- what the kernel knows ---------------------------------------------------------------- */

/* 0: it is not a socket any more. */
static uint64_t cookie_of(int descriptor)
{
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

/* Whether a descriptor is a connection to this limiter's endpoint, and not something else that was
 * opened after the connection had ended. */
static bool limiter_is_ours(const struct plm_limiter *limiter, int descriptor)
{
  struct sockaddr_storage address = {0};
  socklen_t size = sizeof address;
  if (getsockname(descriptor, (struct sockaddr *)&address, &size) != 0) return false;
  if (!limiter->tcp) {
    const char *path = ((const struct sockaddr_un *)&address)->sun_path;
    return address.ss_family == AF_UNIX &&
           (path[0] == '\0' || strncmp(path, limiter->path, sizeof limiter->path - 1) == 0);
  }
  if (address.ss_family == AF_INET)
    return ntohs(((const struct sockaddr_in *)&address)->sin_port) == limiter->port;
  return address.ss_family == AF_INET6 &&
         ntohs(((const struct sockaddr_in6 *)&address)->sin6_port) == limiter->port;
}

/* Bytes received so far. 0 for ipc, where the kernel does not count. */
static uint64_t bytes_received(const struct plm_limiter *limiter, int descriptor)
{
  struct tcp_info info = {0};
  socklen_t size = sizeof info;
  if (!limiter->tcp || getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
    return 0;
  return info.tcpi_bytes_received;
}

/* Bytes that the kernel may hold back before libzmq reads them. */
static uint64_t buffer_bytes(int descriptor)
{
  int bytes = 0;
  socklen_t size = sizeof bytes;
  if (getsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, &size) != 0 || bytes < 0) return 0;
  return (uint64_t)bytes;
}

/* ---- the table ---------------------------------------------------------------------------- */

static struct connection *limiter_find(struct plm_limiter *limiter, int descriptor)
{
  if (descriptor < 0 || descriptor >= limiter->capacity || !limiter->table[descriptor].used)
    return NULL;
  return &limiter->table[descriptor];
}

static bool limiter_grow(struct plm_limiter *limiter, int descriptor)
{
  if (descriptor < limiter->capacity) return true;
  const int capacity = 2 * descriptor + 64;
  struct connection *table = realloc(limiter->table, (size_t)capacity * sizeof *table);
  if (table == NULL) return false;
  memset(table + limiter->capacity, 0, (size_t)(capacity - limiter->capacity) * sizeof *table);
  limiter->table = table;
  limiter->capacity = capacity;
  return true;
}

static void unlink_connection(struct plm_limiter *limiter, const struct connection *connection)
{
  const int older = connection->older, newer = connection->newer;
  if (older >= 0)
    limiter->table[older].newer = newer;
  else
    limiter->oldest = newer;
  if (newer >= 0)
    limiter->table[newer].older = older;
  else
    limiter->newest = older;
}

static void link_newest(struct plm_limiter *limiter, int descriptor)
{
  struct connection *connection = &limiter->table[descriptor];
  connection->older = limiter->newest;
  connection->newer = -1;
  if (limiter->newest >= 0)
    limiter->table[limiter->newest].newer = descriptor;
  else
    limiter->oldest = descriptor;
  limiter->newest = descriptor;
}

/* Takes a connection out of the account of those that are open. */
static void discount(struct plm_limiter *limiter, struct connection *connection)
{
  unlink_connection(limiter, connection);
  limiter->open--;
  limiter->unidentified -= connection->unidentified;
}

static void break_one(struct plm_limiter *limiter, int descriptor, const char *why, int64_t now)
{
  struct connection *connection = &limiter->table[descriptor];
  discount(limiter, connection);
  connection->broken = true;
  if (cookie_of(descriptor) == connection->cookie) (void)shutdown(descriptor, SHUT_RDWR);
  limiter->broken++;
  if (why == NULL || now - limiter->logged_ms < LOG_EVERY_MS) return;
  limiter->logged_ms = now;
  plm_warning("broke a connection to %s%u%s: %s (%llu so far)", limiter->tcp ? "port " : "",
              limiter->port, limiter->path, why, (unsigned long long)limiter->broken);
}

void plm_limiter_accepted(struct plm_limiter *limiter, int descriptor, int64_t now)
{
  plm_limiter_left(limiter, descriptor);
  const uint64_t cookie = descriptor >= 0 ? cookie_of(descriptor) : 0;
  if (cookie == 0 || !limiter_is_ours(limiter, descriptor)) return; /* it has ended already */
  if (!limiter_grow(limiter, descriptor)) {
    (void)shutdown(descriptor, SHUT_RDWR);
    return;
  }
  limiter->table[descriptor] =
      (struct connection){.used = true, .unidentified = true, .cookie = cookie, .since_ms = now};
  link_newest(limiter, descriptor);
  limiter->open++;
  limiter->unidentified++;
  if (limiter->unidentified <= limiter->limits.unidentified &&
      limiter->open <= limiter->limits.connections)
    return;
  int victim = limiter->oldest;
  while (!limiter->table[victim].unidentified) victim = limiter->table[victim].newer;
  break_one(limiter, victim, "too many connections", now);
}

void plm_limiter_left(struct plm_limiter *limiter, int descriptor)
{
  struct connection *connection = limiter_find(limiter, descriptor);
  if (connection == NULL) return;
  if (!connection->broken) discount(limiter, connection);
  connection->used = false;
}

void plm_limiter_heard(struct plm_limiter *limiter, int descriptor, int64_t now)
{
  struct connection *connection = limiter_find(limiter, descriptor);
  if (connection == NULL || connection->broken) return;
  limiter->unidentified -= connection->unidentified;
  connection->unidentified = false;
  connection->since_ms = now;
  connection->bytes = bytes_received(limiter, descriptor);
  unlink_connection(limiter, connection);
  link_newest(limiter, descriptor);
}

void plm_limiter_dismiss(struct plm_limiter *limiter, int descriptor, int64_t now)
{
  struct connection *connection = limiter_find(limiter, descriptor);
  if (connection == NULL || connection->broken || connection->dismissed) return;
  connection->dismissed = true;
  connection->dismissed_ms = now;
}

/* ---- turns -------------------------------------------------------------------------------- */

static const char *limiter_objection(const struct plm_limiter *limiter, int descriptor,
                                     bool drained, int64_t now)
{
  const struct connection *connection = &limiter->table[descriptor];
  const struct plm_limiter_limits *limits = &limiter->limits;
  if (connection->dismissed && now - connection->dismissed_ms > DISMISS_MS)
    return "it stays although it was dropped";
  const int64_t limit_ms = connection->unidentified ? limits->unidentified_ms : limits->silence_ms;
  if (limit_ms != 0 && now - connection->since_ms > limit_ms)
    return connection->unidentified ? "it sent no message" : "it fell silent";
  if (!limiter->tcp || (!drained && now - connection->since_ms <= UNDRAINED_MS)) return NULL;
  if (connection->unidentified)
    return connection->seen > limits->unidentified_bytes
               ? "it sent too much before its first message"
               : NULL;
  const uint64_t most = connection->bytes + 2 * limits->message_bytes + SLACK_BYTES;
  if (connection->seen <= most || connection->seen <= most + buffer_bytes(descriptor)) return NULL;
  return "its message does not end";
}

void plm_limiter_look(struct plm_limiter *limiter)
{
  for (int descriptor = limiter->oldest; descriptor >= 0;
       descriptor = limiter->table[descriptor].newer)
    limiter->table[descriptor].seen = bytes_received(limiter, descriptor);
}

void plm_limiter_turn(struct plm_limiter *limiter, bool drained, int64_t now)
{
  for (int descriptor = limiter->oldest; descriptor >= 0;) {
    const int newer = limiter->table[descriptor].newer;
    const char *why = limiter_objection(limiter, descriptor, drained, now);
    if (why != NULL) break_one(limiter, descriptor, why, now);
    descriptor = newer;
  }
}
