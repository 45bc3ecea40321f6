/* Sockets and messages of two frames. */
#include "common/wire/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/process/host_address.h"

static plm_status zmq_failed(struct plm_error *error, const char *what)
{
  return plm_error_set(error, PLM_IO, "%s: %s", what, zmq_strerror(zmq_errno()));
}

/* Messages that libzmq keeps for a peer that does not read, or of a peer that we do not read yet.
 */
struct marks {
  int send, receive;
};

static struct marks marks_of(int type)
{
  switch (type) {
  case ZMQ_ROUTER: return (struct marks){.send = 8192, .receive = 64}; /* GETs; DATA of 1 MiB */
  case ZMQ_DEALER: return (struct marks){.send = 1024, .receive = 1024};
  default: return (struct marks){.send = 64, .receive = 64}; /* announcements */
  }
}

/* What encryption adds to a frame: "MESSAGE", a nonce, flags and an authenticator. libzmq compares
 * the limit with the encrypted frame. */
enum { CURVE_BYTES = 8 + 8 + 1 + 16 };

plm_status plm_socket_open(void *context, int type, size_t message_limit, void **socket,
                           struct plm_error *error)
{
  const int zero = 0, one = 1;
  const struct marks marks = marks_of(type);
  const int64_t limit = (int64_t)message_limit + CURVE_BYTES;
  const int reconnect_ms = 100, reconnect_most_ms = 2000, handshake_ms = 3000, backlog = 128;
  /* the address of a host that is gone does not answer; a name may have another one by then */
  const int connect_ms = 5000;
  const struct {
    int option;
    const void *value;
    size_t size;
  } options[] = {
      {ZMQ_SNDHWM, &marks.send, sizeof marks.send},
      {ZMQ_RCVHWM, &marks.receive, sizeof marks.receive},
      {ZMQ_BACKLOG, &backlog, sizeof backlog},
      {ZMQ_LINGER, &zero, sizeof zero},
      {ZMQ_IMMEDIATE, &one, sizeof one},
      {ZMQ_MAXMSGSIZE, &limit, sizeof limit},
      {ZMQ_RECONNECT_IVL, &reconnect_ms, sizeof reconnect_ms},
      {ZMQ_RECONNECT_IVL_MAX, &reconnect_most_ms, sizeof reconnect_most_ms},
      {ZMQ_HANDSHAKE_IVL, &handshake_ms, sizeof handshake_ms},
      {ZMQ_CONNECT_TIMEOUT, &connect_ms, sizeof connect_ms},
  };
  *socket = zmq_socket(context, type);
  if (*socket == NULL) return zmq_failed(error, "cannot make a ZeroMQ socket");
  bool failed = false;
  for (size_t i = 0; i < sizeof options / sizeof options[0] && !failed; i++)
    failed = zmq_setsockopt(*socket, options[i].option, options[i].value, options[i].size) != 0;
  if (!failed && type == ZMQ_ROUTER) /* otherwise messages to a peer that has left are dropped */
    failed = zmq_setsockopt(*socket, ZMQ_ROUTER_MANDATORY, &one, sizeof one) != 0;
  if (!failed) return PLM_OK;
  const plm_status status = zmq_failed(error, "cannot set a ZeroMQ option");
  zmq_close(*socket);
  *socket = NULL;
  return status;
}

/* libzmq unlinks whatever is at an ipc path before it binds, so refuse anything but a socket. A
 * name that begins with @ is an abstract one, which has no file. */
static plm_status check_ipc_path(const char *path, struct plm_error *error)
{
  struct stat about;
  if (path[0] == '@' || lstat(path, &about) != 0 || S_ISSOCK(about.st_mode)) return PLM_OK;
  (void)plm_error_set(error, PLM_CONFIG,
                      "cannot bind ipc://%s: a file that is not a socket is there", path);
  return plm_error_hint(error, "choose a path where no file is, or move that file away");
}

/* For the same reason, first check whether somebody uses the socket. A stream is refused by one
 * that nobody listens on, but also by one of another type, such as that of a system log. */
static bool ipc_in_use(const char *path)
{
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (path[0] == '\0' || strlen(path) >= sizeof address.sun_path) return false;
  strcpy(address.sun_path, path);
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  const bool used = connect(descriptor, (struct sockaddr *)&address, sizeof address) == 0 ||
                    (errno != ECONNREFUSED && errno != ENOENT);
  close(descriptor);
  return used;
}

/* Only for IPv6 endpoints, because libzmq would otherwise print IPv4 ones in IPv6 form. */
static void allow_ipv6(void *socket, const char *endpoint)
{
  const int one = 1;
  if (strchr(endpoint, '[') != NULL) (void)zmq_setsockopt(socket, ZMQ_IPV6, &one, sizeof one);
}

plm_status plm_socket_connect(void *socket, const char *endpoint, struct plm_error *error)
{
  allow_ipv6(socket, endpoint);
  if (zmq_connect(socket, endpoint) == 0) return PLM_OK;
  return plm_error_set(error, PLM_IO, "cannot connect to %s: %s", endpoint,
                       zmq_strerror(zmq_errno()));
}

/* The endpoint as libzmq can bind it: with an address in place of a name. A name that is taken for
 * this host needs keys if it stands for another address. */
static plm_status name_to_address(const char *endpoint, const char *keys,
                                  char numeric[PLM_HOST_ADDRESS_SIZE + 8], struct plm_error *error)
{
  snprintf(numeric, PLM_HOST_ADDRESS_SIZE + 8, "%s", endpoint);
  if (strncmp(endpoint, "tcp://", 6) != 0) return PLM_OK;
  const plm_status status = plm_host_address(endpoint + 6, numeric + 6, error);
  if (status != PLM_OK) {
    plm_error_where(error, "%s", endpoint);
    return status;
  }
  return plm_endpoint_check(numeric, keys, error);
}

plm_status plm_socket_bind(void *socket, const char *endpoint, const char *keys, char bound[256],
                           struct plm_error *error)
{
  char numeric[PLM_HOST_ADDRESS_SIZE + 8];
  PLM_TRY(plm_endpoint_check(endpoint, keys, error));
  PLM_TRY(name_to_address(endpoint, keys, numeric, error));
  const bool ipc = strncmp(endpoint, "ipc://", 6) == 0;
  if (ipc) PLM_TRY(check_ipc_path(endpoint + 6, error));
  allow_ipv6(socket, numeric);
  const bool used = ipc && ipc_in_use(endpoint + 6);
  if (used || zmq_bind(socket, numeric) != 0) {
    if (!used && zmq_errno() != EADDRINUSE) {
      (void)plm_error_set(error, PLM_IO, "cannot bind %s: %s", endpoint, zmq_strerror(zmq_errno()));
      return plm_error_hint(error, "network.feed, network.evaluation_feed and "
                                   "network.announcements say where to bind");
    }
    char owner[128];
    if (!plm_port_owner(endpoint, owner)) strcpy(owner, "another process");
    (void)plm_error_set(error, PLM_BUSY, "%s is in use by %s", endpoint, owner);
    return plm_error_hint(error, "stop it, or choose another endpoint in network: "
                                 "(tcp://127.0.0.1:* takes any free port)");
  }
  size_t size = 256;
  if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size) != 0)
    return zmq_failed(error, "cannot read the bound endpoint");
  if (ipc) (void)chmod(endpoint + 6, S_IRUSR | S_IWUSR);
  return PLM_OK;
}

void plm_socket_unbind(const char *bound)
{
  if (strncmp(bound, "ipc://", 6) == 0 && check_ipc_path(bound + 6, NULL) == PLM_OK)
    (void)unlink(bound + 6);
}

/* ---- receiving ---------------------------------------------------------------------------- */

static void socket_drain(void *socket)
{
  int more = 1;
  size_t size = sizeof more;
  while (zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size) == 0 && more) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) more = 0;
    zmq_msg_close(&frame);
  }
}

static plm_status receive_routing_id(void *socket, struct plm_message *message,
                                     struct plm_error *error)
{
  const int size = zmq_recv(socket, message->routing_id, sizeof message->routing_id, ZMQ_DONTWAIT);
  if (size < 0)
    return zmq_errno() == EAGAIN || zmq_errno() == EINTR ? PLM_AGAIN : zmq_failed(error, "receive");
  if ((size_t)size > sizeof message->routing_id) { /* libzmq does not limit what a peer says */
    socket_drain(socket);
    return plm_error_set(error, PLM_PROTOCOL, "routing id of %d bytes", size);
  }
  message->routing_id_bytes = (size_t)size;
  return PLM_OK;
}

static plm_status receive_header(void *socket, struct plm_message *message, struct plm_error *error)
{
  zmq_msg_t frame;
  zmq_msg_init(&frame);
  plm_status status = PLM_OK;
  if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
    status =
        zmq_errno() == EAGAIN || zmq_errno() == EINTR ? PLM_AGAIN : zmq_failed(error, "receive");
    zmq_msg_close(&frame);
    return status;
  }
  const bool more = zmq_msg_more(&frame) != 0;
  message->connection = zmq_msg_get(&frame, ZMQ_SRCFD);
  const char *user = zmq_msg_gets(&frame, "User-Id");
  message->user[0] = '\0';
  if (user != NULL && strlen(user) < sizeof message->user) strcpy(message->user, user);
  status = plm_header_decode(zmq_msg_data(&frame), zmq_msg_size(&frame), &message->header, error);
  if (status == PLM_OK && !more)
    status = plm_error_set(error, PLM_PROTOCOL, "a message without its payload frame");
  zmq_msg_close(&frame);
  if (status != PLM_OK) socket_drain(socket);
  return status;
}

plm_status plm_message_receive(void *socket, bool router, struct plm_message *message,
                               struct plm_error *error)
{
  message->routing_id_bytes = 0;
  message->connection = -1;
  message->header = (struct plm_header){0};
  if (router) PLM_TRY(receive_routing_id(socket, message, error));
  PLM_TRY(receive_header(socket, message, error));
  zmq_msg_init(&message->payload);
  if (zmq_msg_recv(&message->payload, socket, ZMQ_DONTWAIT) < 0) {
    zmq_msg_close(&message->payload);
    return zmq_failed(error, "receive");
  }
  const size_t size = zmq_msg_size(&message->payload);
  const char *wrong = NULL;
  if (zmq_msg_more(&message->payload))
    wrong = "it has more than two frames";
  else if (size != message->header.payload_bytes)
    wrong = "the payload's length differs from the one in the header";
  else if (!plm_hash_equal(plm_hash_bytes(zmq_msg_data(&message->payload), size),
                           message->header.payload_hash))
    wrong = "the payload's hash does not match";
  if (wrong == NULL) return PLM_OK;
  zmq_msg_close(&message->payload);
  socket_drain(socket);
  return plm_error_set(error, PLM_PROTOCOL, "%s: %s", plm_message_name(message->header.type),
                       wrong);
}

/* ---- sending ------------------------------------------------------------------------------ */

bool plm_socket_can_send(void *socket)
{
  int events = 0;
  size_t size = sizeof events;
  return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) == 0 && (events & ZMQ_POLLOUT) != 0;
}

static plm_status send_failed(struct plm_error *error)
{
  switch (zmq_errno()) {
  case EHOSTUNREACH: return plm_error_set(error, PLM_NOT_FOUND, "the peer has left");
  case EAGAIN:
  case EINTR: return plm_error_set(error, PLM_AGAIN, "not connected, or the peer does not read");
  default: return zmq_failed(error, "send");
  }
}

plm_status plm_message_send(void *socket, const uint8_t *routing_id, size_t routing_id_bytes,
                            struct plm_header *header, const void *payload, size_t payload_bytes,
                            struct plm_error *error)
{
  uint8_t bytes[PLM_HEADER_BYTES];
  header->payload_bytes = payload_bytes;
  header->payload_hash = plm_hash_bytes(payload, payload_bytes);
  plm_header_encode(header, bytes);
  if (routing_id != NULL &&
      zmq_send(socket, routing_id, routing_id_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
    return send_failed(error);
  if (zmq_send(socket, bytes, sizeof bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
    return send_failed(error);
  if (zmq_send(socket, payload, payload_bytes, ZMQ_DONTWAIT) < 0) return send_failed(error);
  return PLM_OK;
}

plm_status plm_message_send_shared(void *socket, const struct plm_header *header,
                                   const void *payload, void (*release)(void *data, void *hint),
                                   void *hint, struct plm_error *error)
{
  uint8_t bytes[PLM_HEADER_BYTES];
  plm_header_encode(header, bytes);
  zmq_msg_t frame;
  if (zmq_msg_init_data(&frame, (void *)(uintptr_t)payload, header->payload_bytes, release, hint) !=
      0) {
    release((void *)(uintptr_t)payload, hint);
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for a message");
  }
  if (zmq_send(socket, bytes, sizeof bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
      zmq_msg_send(&frame, socket, ZMQ_DONTWAIT) < 0) {
    const plm_status status = send_failed(error);
    zmq_msg_close(&frame);
    return status;
  }
  return PLM_OK;
}
