/* Announcements: PUB in the trainer, SUB in the evaluator. A message is one
 * frame: u32 magic, u16 version, u16 length of the path, u64 step, u64[2] manifest hash (low,
 * high), the path, u64 XXH3-64 of everything before; little-endian. */
#include "common/wire/announce.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/process/thread.h"
#include "common/wire/connection_limiter.h"
#include "common/wire/socket.h"
#include "common/wire/wire_bytes.h"

enum { HASH_BYTES = 8, VERSION = 1, MESSAGE_LIMIT = 1024, SUBSCRIBERS = 32, WATCH_MS = 100 };
#define MAGIC 0x414D4C50u /* "PLMA" */

struct plm_announcer {
  void *context, *socket;
  struct plm_gate *gate;
  struct plm_monitor *monitor;
  struct plm_limiter *limiter; /* the thread's, as the monitor is */
  pthread_t thread;
  bool started;
  atomic_bool closing;
  pthread_mutex_t mutex; /* of the socket */
  char bound[256];
};

struct plm_announcement_listener {
  void *context, *socket;
};

static size_t announce_encode(const struct plm_announcement *message, uint8_t bytes[MESSAGE_LIMIT])
{
  struct wire_writer out = {bytes, MESSAGE_LIMIT, 0};
  const size_t length = strnlen(message->path, sizeof message->path - 1);
  wire_put(&out, MAGIC, 4);
  wire_put(&out, VERSION, 2);
  wire_put(&out, length, 2);
  wire_put(&out, message->step, 8);
  wire_put_hash(&out, message->manifest);
  wire_put_bytes(&out, message->path, length);
  wire_put(&out, plm_hash64_bytes(bytes, out.size), HASH_BYTES);
  return out.size;
}

/* A path must be relative, printable and without "..". */
static bool path_valid(const uint8_t *path, size_t length)
{
  if (length == 0 || path[0] == '/') return false;
  for (size_t i = 0; i < length; i++) {
    if (path[i] < 0x21 || path[i] > 0x7e) return false;
    if (path[i] == '.' && i + 1 < length && path[i + 1] == '.') return false;
  }
  return true;
}

static bool announce_decode(const uint8_t *bytes, size_t size, struct plm_announcement *message)
{
  struct wire_reader in = {bytes, size, false};
  if (wire_get(&in, 4) != MAGIC || wire_get(&in, 2) != VERSION) return false;
  const size_t length = wire_get_below(&in, 2, sizeof message->path);
  message->step = wire_get(&in, 8);
  message->manifest = wire_get_hash(&in);
  const uint8_t *path = wire_take(&in, length);
  const uint64_t hash = wire_get(&in, HASH_BYTES);
  if (in.bad || in.left != 0 || hash != plm_hash64_bytes(bytes, size - HASH_BYTES) ||
      !path_valid(path, length))
    return false;
  memcpy(message->path, path, length);
  message->path[length] = '\0';
  return true;
}

/* ---- the trainer's side ------------------------------------------------------------------- */

/* Watches who connects. Subscribers say nothing after their subscription, so all are unidentified
 * peers. */
static void *announce_watch(void *argument)
{
  struct plm_announcer *announcer = argument;
  while (!atomic_load(&announcer->closing)) {
    struct plm_link_report report;
    zmq_pollitem_t item = {plm_monitor_socket(announcer->monitor), 0, ZMQ_POLLIN, 0};
    (void)zmq_poll(&item, 1, WATCH_MS);
    const int64_t now = plm_clock_ms();
    while (plm_monitor_next(announcer->monitor, &report)) {
      if (report.event == PLM_LINK_ACCEPTED)
        plm_limiter_accepted(announcer->limiter, report.descriptor, now);
      if (report.event == PLM_LINK_LOST) plm_limiter_left(announcer->limiter, report.descriptor);
    }
    plm_limiter_look(announcer->limiter);
    plm_limiter_turn(announcer->limiter, true, now);
  }
  return NULL;
}

static plm_status start_watching(struct plm_announcer *announcer, struct plm_error *error)
{
  static const struct plm_limiter_limits limits = {.connections = 2 * SUBSCRIBERS,
                                                   .unidentified = SUBSCRIBERS,
                                                   .unidentified_bytes = 64 << 10,
                                                   .message_bytes = MESSAGE_LIMIT};
  PLM_TRY(plm_limiter_open(announcer->bound, &limits, &announcer->limiter, error));
  PLM_TRY(plm_thread_start(&announcer->thread, "announcements", announce_watch, announcer, error));
  announcer->started = true;
  return PLM_OK;
}

plm_status plm_announcer_open(const char *endpoint, const char *keys,
                              struct plm_announcer **announcer, struct plm_error *error)
{
  struct plm_announcer *made = plm_alloc_zeroed(1, sizeof *made);
  pthread_mutex_init(&made->mutex, NULL);
  plm_status status = plm_context_open(&made->context, error);
  if (status == PLM_OK && keys != NULL)
    status = plm_gate_open(made->context, keys, &made->gate, error);
  if (status == PLM_OK)
    status = plm_socket_open(made->context, ZMQ_PUB, MESSAGE_LIMIT, &made->socket, error);
  if (status == PLM_OK) status = plm_socket_secure_server(made->socket, keys, error);
  if (status == PLM_OK)
    status = plm_monitor_open(made->context, made->socket, &made->monitor, error);
  if (status == PLM_OK) status = plm_socket_bind(made->socket, endpoint, keys, made->bound, error);
  if (status == PLM_OK) status = start_watching(made, error);
  if (status != PLM_OK) {
    plm_announcer_close(made);
    return status;
  }
  *announcer = made;
  return PLM_OK;
}

const char *plm_announcer_bound(const struct plm_announcer *announcer)
{
  return announcer->bound;
}

void plm_announcer_send(struct plm_announcer *announcer, const struct plm_announcement *message)
{
  uint8_t bytes[MESSAGE_LIMIT];
  const size_t size = announce_encode(message, bytes);
  pthread_mutex_lock(&announcer->mutex);
  (void)zmq_send(announcer->socket, bytes, size,
                 ZMQ_DONTWAIT); /* if it is lost, the evaluator still finds the folder */
  pthread_mutex_unlock(&announcer->mutex);
}

void plm_announcer_close(struct plm_announcer *announcer)
{
  if (announcer == NULL) return;
  const int linger_ms = 200;
  atomic_store(&announcer->closing, true);
  if (announcer->started) pthread_join(announcer->thread, NULL);
  plm_monitor_close(announcer->monitor, announcer->socket);
  plm_limiter_close(announcer->limiter);
  if (announcer->socket != NULL) {
    plm_socket_unbind(announcer->bound);
    zmq_setsockopt(announcer->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_close(announcer->socket);
  }
  plm_gate_close(announcer->gate);
  if (announcer->context != NULL) zmq_ctx_term(announcer->context);
  pthread_mutex_destroy(&announcer->mutex);
  free(announcer);
}

/* ---- the evaluator's side ----------------------------------------------------------------- */

plm_status plm_listener_open(const char *endpoint, const char *keys,
                             struct plm_announcement_listener **listener, struct plm_error *error)
{
  struct plm_announcement_listener *made = plm_alloc_zeroed(1, sizeof *made);
  plm_status status = plm_context_open(&made->context, error);
  if (status == PLM_OK) status = plm_endpoint_check(endpoint, keys, error);
  if (status == PLM_OK)
    status = plm_socket_open(made->context, ZMQ_SUB, MESSAGE_LIMIT, &made->socket, error);
  if (status == PLM_OK) status = plm_socket_secure_client(made->socket, keys, NULL, error);
  if (status == PLM_OK && zmq_setsockopt(made->socket, ZMQ_SUBSCRIBE, "", 0) != 0)
    status = plm_error_set(error, PLM_IO, "cannot subscribe: %s", zmq_strerror(zmq_errno()));
  if (status == PLM_OK) status = plm_socket_connect(made->socket, endpoint, error);
  if (status != PLM_OK) {
    plm_listener_close(made);
    return status;
  }
  *listener = made;
  return PLM_OK;
}

plm_status plm_listener_wait(struct plm_announcement_listener *listener, int timeout_ms,
                             struct plm_announcement *message, struct plm_error *error)
{
  const int64_t until = plm_clock_ms() + timeout_ms;
  for (;;) {
    uint8_t bytes[MESSAGE_LIMIT];
    const int64_t left = until - plm_clock_ms();
    zmq_pollitem_t item = {listener->socket, 0, ZMQ_POLLIN, 0};
    const int ready = zmq_poll(&item, 1, left > 0 ? left : 0);
    if (ready < 0 && zmq_errno() == EINTR)
      return PLM_AGAIN; /* interrupted by a signal; the caller checks the stop flag */
    if (ready < 0)
      return plm_error_set(error, PLM_IO, "announcements: %s", zmq_strerror(zmq_errno()));
    if (ready == 0) return PLM_AGAIN;
    const int size = zmq_recv(listener->socket, bytes, sizeof bytes, ZMQ_DONTWAIT);
    int more = 0;
    size_t option = sizeof more;
    zmq_getsockopt(listener->socket, ZMQ_RCVMORE, &more, &option);
    if (size >= 0 && (size_t)size <= sizeof bytes && !more &&
        announce_decode(bytes, (size_t)size, message))
      return PLM_OK;
  }
}

void plm_listener_close(struct plm_announcement_listener *listener)
{
  if (listener == NULL) return;
  if (listener->socket != NULL) zmq_close(listener->socket);
  if (listener->context != NULL) zmq_ctx_term(listener->context);
  free(listener);
}
