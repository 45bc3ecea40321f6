/* The account of a bound socket's connections: a table by descriptor, and a list by age. */
#include "common/wire/door.h"

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

#include "common/base/log.h"

enum {
  LOG_EVERY_MS = 1000,
  DISMISS_MS = 5000,
  DESCRIPTORS_KEPT = 64, /* for everything but connections */
  UNDRAINED_MS =
      1000, /* while the queue is never empty, a peer with messages is heard in this time */
};
#define SLACK_BYTES ((uint64_t)64 << 10)

struct connection {
  bool used, broken, stranger, dismissed;
  int older, newer; /* descriptors; -1: none */
  uint64_t cookie;  /* of the kernel's socket, which differs if the descriptor was reused */
  int64_t since_ms; /* accepted, or last heard */
  int64_t dismissed_ms;
  uint64_t bytes; /* that the kernel had received when it was last heard */
  uint64_t seen;  /* the same when plm_door_look was last called */
};

struct plm_door {
  struct plm_door_limits limits;
  bool tcp;
  unsigned port;
  char path[sizeof((struct sockaddr_un){0}.sun_path) + 1];
  struct connection *table; /* by descriptor */
  int capacity;
  int oldest, newest; /* of those that are not broken */
  uint32_t open, strangers;
  uint64_t broken;
  int64_t logged_ms;
};

plm_status plm_door_open(const char *endpoint, const struct plm_door_limits *limits,
                         struct plm_door **door, struct plm_error *error)
{
  struct plm_door *made = calloc(1, sizeof *made);
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
  if (made->limits.strangers > made->limits.connections / 2)
    made->limits.strangers = (made->limits.connections + 1) / 2;
  *door = made;
  return PLM_OK;
}

void plm_door_close(struct plm_door *door)
{
  if (door == NULL) return;
  free(door->table);
  free(door);
}

uint32_t plm_door_connections(const struct plm_door *door)
{
  return door->open;
}

uint64_t plm_door_broken(const struct plm_door *door)
{
  return door->broken;
}

/* ---- what the kernel knows ---------------------------------------------------------------- */

/* 0: it is not a socket any more. */
static uint64_t cookie_of(int descriptor)
{
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

/* Whether a descriptor is a connection to this door's endpoint, and not something else that was
 * opened after the connection had ended. */
static bool is_ours(const struct plm_door *door, int descriptor)
{
  struct sockaddr_storage address = {0};
  socklen_t size = sizeof address;
  if (getsockname(descriptor, (struct sockaddr *)&address, &size) != 0) return false;
  if (!door->tcp) {
    const char *path = ((const struct sockaddr_un *)&address)->sun_path;
    return address.ss_family == AF_UNIX &&
           (path[0] == '\0' || strncmp(path, door->path, sizeof door->path - 1) == 0);
  }
  if (address.ss_family == AF_INET)
    return ntohs(((const struct sockaddr_in *)&address)->sin_port) == door->port;
  return address.ss_family == AF_INET6 &&
         ntohs(((const struct sockaddr_in6 *)&address)->sin6_port) == door->port;
}

/* Bytes received so far. 0 for ipc, where the kernel does not count. */
static uint64_t bytes_received(const struct plm_door *door, int descriptor)
{
  struct tcp_info info = {0};
  socklen_t size = sizeof info;
  if (!door->tcp || getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
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

static struct connection *find(struct plm_door *door, int descriptor)
{
  if (descriptor < 0 || descriptor >= door->capacity || !door->table[descriptor].used) return NULL;
  return &door->table[descriptor];
}

static bool grow(struct plm_door *door, int descriptor)
{
  if (descriptor < door->capacity) return true;
  const int capacity = 2 * descriptor + 64;
  struct connection *table = realloc(door->table, (size_t)capacity * sizeof *table);
  if (table == NULL) return false;
  memset(table + door->capacity, 0, (size_t)(capacity - door->capacity) * sizeof *table);
  door->table = table;
  door->capacity = capacity;
  return true;
}

static void unlink_connection(struct plm_door *door, const struct connection *connection)
{
  const int older = connection->older, newer = connection->newer;
  if (older >= 0)
    door->table[older].newer = newer;
  else
    door->oldest = newer;
  if (newer >= 0)
    door->table[newer].older = older;
  else
    door->newest = older;
}

static void link_newest(struct plm_door *door, int descriptor)
{
  struct connection *connection = &door->table[descriptor];
  connection->older = door->newest;
  connection->newer = -1;
  if (door->newest >= 0)
    door->table[door->newest].newer = descriptor;
  else
    door->oldest = descriptor;
  door->newest = descriptor;
}

/* Takes a connection out of the account of those that are open. */
static void discount(struct plm_door *door, struct connection *connection)
{
  unlink_connection(door, connection);
  door->open--;
  door->strangers -= connection->stranger;
}

static void break_one(struct plm_door *door, int descriptor, const char *why, int64_t now)
{
  struct connection *connection = &door->table[descriptor];
  discount(door, connection);
  connection->broken = true;
  if (cookie_of(descriptor) == connection->cookie) (void)shutdown(descriptor, SHUT_RDWR);
  door->broken++;
  if (why == NULL || now - door->logged_ms < LOG_EVERY_MS) return;
  door->logged_ms = now;
  plm_warning("broke a connection to %s%u%s: %s (%llu so far)", door->tcp ? "port " : "",
              door->port, door->path, why, (unsigned long long)door->broken);
}

void plm_door_accepted(struct plm_door *door, int descriptor, int64_t now)
{
  plm_door_left(door, descriptor);
  const uint64_t cookie = descriptor >= 0 ? cookie_of(descriptor) : 0;
  if (cookie == 0 || !is_ours(door, descriptor)) return; /* it has ended already */
  if (!grow(door, descriptor)) {
    (void)shutdown(descriptor, SHUT_RDWR);
    return;
  }
  door->table[descriptor] =
      (struct connection){.used = true, .stranger = true, .cookie = cookie, .since_ms = now};
  link_newest(door, descriptor);
  door->open++;
  door->strangers++;
  if (door->strangers <= door->limits.strangers && door->open <= door->limits.connections) return;
  int victim = door->oldest;
  while (!door->table[victim].stranger) victim = door->table[victim].newer;
  break_one(door, victim, "too many connections", now);
}

void plm_door_left(struct plm_door *door, int descriptor)
{
  struct connection *connection = find(door, descriptor);
  if (connection == NULL) return;
  if (!connection->broken) discount(door, connection);
  connection->used = false;
}

void plm_door_heard(struct plm_door *door, int descriptor, int64_t now)
{
  struct connection *connection = find(door, descriptor);
  if (connection == NULL || connection->broken) return;
  door->strangers -= connection->stranger;
  connection->stranger = false;
  connection->since_ms = now;
  connection->bytes = bytes_received(door, descriptor);
  unlink_connection(door, connection);
  link_newest(door, descriptor);
}

void plm_door_dismiss(struct plm_door *door, int descriptor, int64_t now)
{
  struct connection *connection = find(door, descriptor);
  if (connection == NULL || connection->broken || connection->dismissed) return;
  connection->dismissed = true;
  connection->dismissed_ms = now;
}

/* ---- turns -------------------------------------------------------------------------------- */

static const char *objection(const struct plm_door *door, int descriptor, bool drained, int64_t now)
{
  const struct connection *connection = &door->table[descriptor];
  const struct plm_door_limits *limits = &door->limits;
  if (connection->dismissed && now - connection->dismissed_ms > DISMISS_MS)
    return "it stays although it was dropped";
  const int64_t limit_ms = connection->stranger ? limits->stranger_ms : limits->silence_ms;
  if (limit_ms != 0 && now - connection->since_ms > limit_ms)
    return connection->stranger ? "it sent no message" : "it fell silent";
  if (!door->tcp || (!drained && now - connection->since_ms <= UNDRAINED_MS)) return NULL;
  if (connection->stranger)
    return connection->seen > limits->stranger_bytes ? "it sent too much before its first message"
                                                     : NULL;
  const uint64_t most = connection->bytes + 2 * limits->message_bytes + SLACK_BYTES;
  if (connection->seen <= most || connection->seen <= most + buffer_bytes(descriptor)) return NULL;
  return "its message does not end";
}

void plm_door_look(struct plm_door *door)
{
  for (int descriptor = door->oldest; descriptor >= 0; descriptor = door->table[descriptor].newer)
    door->table[descriptor].seen = bytes_received(door, descriptor);
}

void plm_door_turn(struct plm_door *door, bool drained, int64_t now)
{
  for (int descriptor = door->oldest; descriptor >= 0;) {
    const int newer = door->table[descriptor].newer;
    const char *why = objection(door, descriptor, drained, now);
    if (why != NULL) break_one(door, descriptor, why, now);
    descriptor = newer;
  }
}
