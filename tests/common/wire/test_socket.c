/* Sockets: what binding does to the files at an ipc path, and which messages are taken. */
#include "common/wire/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/raw_peer.h"

static plm_status bind_ipc(const char *path, struct plm_error *error)
{
  char endpoint[PLM_PATH_SIZE + 8], bound[256];
  void *context = zmq_ctx_new(), *socket;
  snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
  assert_int_equal(plm_socket_open(context, ZMQ_ROUTER, 1024, &socket, error), PLM_OK);
  errno = ENOENT; /* what an earlier call left says nothing about this path */
  const plm_status status = plm_socket_bind(socket, endpoint, NULL, bound, error);
  if (status == PLM_OK) plm_socket_unbind(bound);
  zmq_close(socket);
  zmq_ctx_term(context);
  return status;
}

/* Only where this host has IPv6. */
static void ipv6_addresses_are_bound(void **state)
{
  const struct sockaddr_in6 here = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  char bound[256] = "";
  void *context = zmq_ctx_new(), *socket_;
  (void)state;
  const int plain = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool has = bind(plain, (const struct sockaddr *)&here, sizeof here) == 0;
  assert_int_equal(plm_socket_open(context, ZMQ_ROUTER, 1024, &socket_, NULL), PLM_OK);
  assert_int_equal(plm_socket_bind(socket_, "tcp://[::1]:*", NULL, bound, NULL),
                   has ? PLM_OK : PLM_IO);
  assert_int_equal(strncmp(bound, "tcp://[::1]:", 12) == 0, has);
  zmq_close(socket_);
  zmq_ctx_term(context);
  if (plain >= 0) close(plain);
}

static void a_file_at_an_ipc_path_is_kept(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE], link[PLM_PATH_SIZE], *bytes;
  size_t size;
  snprintf(path, sizeof path, "%s", scratch_path("thesis.tex"));
  snprintf(link, sizeof link, "%s", scratch_path("link"));
  assert_int_equal(plm_file_write(path, "years of work", 13, 0600, &error), PLM_OK);
  assert_int_equal(bind_ipc(path, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "not a socket"));
  assert_non_null(strstr(error.what, "thesis.tex"));
  assert_int_equal(symlink(path, link), 0);
  assert_int_equal(bind_ipc(link, &error), PLM_CONFIG);
  assert_int_equal(bind_ipc(scratch_path("."), &error), PLM_CONFIG);
  assert_int_equal(plm_file_read(path, 100, &bytes, &size, &error), PLM_OK);
  assert_int_equal(size, 13);
  free(bytes);
}

/* The values of doc/connections.md. An address that does not answer, as that of a pod that is gone,
 * is given up long before the kernel would (two minutes); the next attempt looks the name up again.
 */
static void sockets_have_the_documented_options(void **state)
{
  (void)state;
  static const struct {
    int type, send, receive;
  } types[] = {{ZMQ_ROUTER, 8192, 64}, {ZMQ_DEALER, 1024, 1024}, {ZMQ_PUB, 64, 64}};
  void *context = zmq_ctx_new(), *socket;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    const struct {
      int option, value;
    } rows[] = {{ZMQ_SNDHWM, types[i].send},
                {ZMQ_RCVHWM, types[i].receive},
                {ZMQ_BACKLOG, 128},
                {ZMQ_LINGER, 0},
                {ZMQ_IMMEDIATE, 1},
                {ZMQ_RECONNECT_IVL, 100},
                {ZMQ_RECONNECT_IVL_MAX, 2000},
                {ZMQ_HANDSHAKE_IVL, 3000},
                {ZMQ_CONNECT_TIMEOUT, 5000}};
    assert_int_equal(plm_socket_open(context, types[i].type, 1024, &socket, NULL), PLM_OK);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
      int value = -1;
      size_t size = sizeof value;
      assert_int_equal(zmq_getsockopt(socket, rows[k].option, &value, &size), 0);
      if (value != rows[k].value)
        fail_msg("socket %d, option %d: %d", types[i].type, rows[k].option, value);
    }
    int64_t limit = -1; /* what encryption adds comes on top */
    size_t size = sizeof limit;
    assert_int_equal(zmq_getsockopt(socket, ZMQ_MAXMSGSIZE, &limit, &size), 0);
    assert_int_equal(limit, 1024 + 33);
    zmq_close(socket);
  }
  zmq_ctx_term(context);
}

/* What libzmq refuses is told with its reason. */
static void what_libzmq_refuses_is_said(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_message message;
  struct plm_header header = {.type = PLM_MESSAGE_PONG};
  void *context = zmq_ctx_new(), *socket = &error;
  assert_int_equal(plm_socket_open(context, 77, 1024, &socket, &error), PLM_IO);
  assert_string_equal(error.what, "cannot make a ZeroMQ socket: Invalid argument");
  assert_null(socket);
  assert_int_equal(plm_socket_open(context, ZMQ_DEALER, 1024, &socket, &error), PLM_OK);
  assert_int_equal(plm_socket_connect(socket, "nowhere", &error), PLM_IO);
  assert_string_equal(error.what, "cannot connect to nowhere: Invalid argument");
  zmq_close(socket);
  struct plm_monitor *monitor;
  assert_int_equal(plm_monitor_open(context, NULL, &monitor, &error), PLM_IO);
  assert_string_equal(error.what, "cannot watch a socket: Socket operation on non-socket");
  zmq_ctx_term(context);
  const char *keys = scratch_path("keys");
  assert_int_equal(plm_keys_write(keys, "one", NULL, NULL), PLM_OK);
  assert_int_equal(plm_socket_secure_client(NULL, keys, NULL, &error), PLM_IO);
  assert_string_equal(error.what, "cannot set CURVE keys: Socket operation on non-socket");
  assert_int_equal(bind_ipc(scratch_path("no/folder"), &error), PLM_IO);
  assert_memory_equal(error.what, "cannot bind ipc://", 18);
  assert_non_null(strstr(error.what, "/no/folder: No such file or directory"));
  assert_non_null(strstr(error.hint, " say where to bind"));
  for (int router = 0; router < 2; router++) {
    error = (struct plm_error){0};
    assert_int_equal(plm_message_receive(NULL, router, &message, &error), PLM_IO);
    assert_string_equal(error.what, "receive: Socket operation on non-socket");
  }
  assert_int_equal(plm_message_send(NULL, NULL, 0, &header, "", 0, &error), PLM_IO);
  assert_string_equal(error.what, "send: Socket operation on non-socket");
}

/* What a process that was killed left behind is replaced. */
static void a_dead_socket_is_replaced(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct stat about;
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("dead.sock"));
  assert_int_equal(mknod(path, S_IFSOCK | 0600, 0), 0);
  assert_int_equal(bind_ipc(path, &error), PLM_OK);
  assert_int_equal(lstat(path, &about), -1);
  assert_int_equal(errno, ENOENT);
}

/* A program that receives datagrams there does not listen, but it uses the socket. One that ought
 * to listen and does not has stopped. */
static void a_socket_in_use_is_kept(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const struct {
    int type;
    bool listens, kept;
  } rows[] = {{SOCK_DGRAM, false, true},
              {SOCK_SEQPACKET, false, true},
              {SOCK_STREAM, true, true},
              {SOCK_STREAM, false, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct stat about;
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", scratch_path("log"));
    const int log = socket(AF_UNIX, rows[i].type | SOCK_CLOEXEC, 0);
    assert_true(log >= 0);
    assert_int_equal(bind(log, (struct sockaddr *)&address, sizeof address), 0);
    if (rows[i].listens) assert_int_equal(listen(log, 1), 0);
    const plm_status status = bind_ipc(address.sun_path, &error);
    if (status != (rows[i].kept ? PLM_BUSY : PLM_OK)) fail_msg("row %zu: %d", i, (int)status);
    assert_int_equal(lstat(address.sun_path, &about) == 0, rows[i].kept);
    close(log);
    unlink(address.sun_path);
  }
}

/* ---- messages -------------------------------------------------------------------------------- */

struct ends {
  void *context, *router, *dealer;
};

static void open_ends(struct ends *ends)
{
  ends->context = zmq_ctx_new();
  assert_int_equal(plm_socket_open(ends->context, ZMQ_ROUTER, 4096, &ends->router, NULL), PLM_OK);
  assert_int_equal(plm_socket_open(ends->context, ZMQ_DEALER, 4096, &ends->dealer, NULL), PLM_OK);
  assert_int_equal(zmq_setsockopt(ends->dealer, ZMQ_ROUTING_ID, "dealer", 6), 0);
  assert_int_equal(zmq_bind(ends->router, "inproc://test"), 0);
  assert_int_equal(zmq_connect(ends->dealer, "inproc://test"), 0);
}

static void close_ends(struct ends *ends)
{
  zmq_close(ends->dealer);
  zmq_close(ends->router);
  zmq_ctx_term(ends->context);
}

/* Receives "payload", with everything that was left in `message` replaced. */
static void expect_payload(struct ends *ends)
{
  struct plm_message message = {.user = "left over", .connection = 77, .routing_id_bytes = 5};
  struct plm_error error = {0};
  assert_int_equal(plm_message_receive(ends->router, true, &message, &error), PLM_OK);
  assert_string_equal(message.user, "");
  assert_int_equal(message.routing_id_bytes, 6);
  assert_memory_equal(message.routing_id, "dealer", 6);
  assert_int_equal(message.header.type, PLM_MESSAGE_PONG);
  assert_int_equal(zmq_msg_size(&message.payload), 7);
  assert_memory_equal(zmq_msg_data(&message.payload), "payload", 7);
  zmq_msg_close(&message.payload);
}

static void send_payload(struct ends *ends)
{
  struct plm_header header = {.type = PLM_MESSAGE_PONG};
  assert_int_equal(plm_message_send(ends->dealer, NULL, 0, &header, "payload", 7, NULL), PLM_OK);
}

/* The address that a name stands for is bound, IPv4 if it has one. */
static void names_are_bound_by_their_address(void **state)
{
  (void)state;
  static const struct {
    const char *endpoint, *bound; /* how the endpoint that was bound begins; NULL: an error */
  } rows[] = {
      {"tcp://localhost:*", "tcp://127.0.0.1:"},
      {"tcp://127.0.0.1:*", "tcp://127.0.0.1:"},
      {"tcp://lo:*", "tcp://127.0.0.1:"},
      {"tcp://plm-no-such-host.invalid:*", NULL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_error error = {0};
    char bound[256] = "";
    void *context = zmq_ctx_new(), *socket;
    assert_int_equal(plm_socket_open(context, ZMQ_ROUTER, 1024, &socket, NULL), PLM_OK);
    const plm_status status = plm_socket_bind(socket, rows[i].endpoint,
                                              rows[i].bound == NULL ? "keys" : NULL, bound, &error);
    zmq_close(socket);
    zmq_ctx_term(context);
    if (rows[i].bound == NULL) {
      assert_true(status == PLM_CONFIG || status == PLM_IO); /* no name server answers here */
      assert_non_null(strstr(error.what, "\"plm-no-such-host.invalid\" is not an address"));
      assert_string_equal(error.where, rows[i].endpoint);
    } else if (status != PLM_OK || strncmp(bound, rows[i].bound, strlen(rows[i].bound)) != 0) {
      fail_msg("%s: \"%s\" (%s)", rows[i].endpoint, bound, error.what);
    }
  }
}

/* A header that says what is not so, or frames that are too many or missing; what follows is found.
 */
static void wrong_messages_are_dropped_whole(void **state)
{
  (void)state;
  enum { NONE, LENGTH, HASH, ONE_FRAME, THREE_FRAMES, HEADER, EMPTY };
  static const char *const wrong[EMPTY + 1] = {
      [LENGTH] = "the payload's length differs from the one in the header",
      [HASH] = "the payload's hash does not match",
      [ONE_FRAME] = "a message without its payload frame",
      [THREE_FRAMES] = "it has more than two frames"};
  struct ends ends;
  struct plm_message message = {.connection = 5, .routing_id_bytes = 6, .header = {.request = 7}};
  open_ends(&ends);
  assert_int_equal(plm_message_receive(ends.router, true, &message, NULL), PLM_AGAIN);
  assert_int_equal(message.connection, -1); /* nothing is left of an earlier one */
  assert_int_equal(message.routing_id_bytes, 0);
  assert_int_equal(message.header.request, 0);
  for (int kind = NONE; kind <= EMPTY; kind++) {
    struct plm_header header = {.type = PLM_MESSAGE_PONG, .payload_bytes = 7};
    struct plm_error error = {0};
    uint8_t bytes[PLM_HEADER_BYTES];
    header.payload_hash = plm_hash_bytes(kind == HASH ? "Payload" : "payload", 7);
    if (kind == LENGTH) header.payload_bytes = 8;
    plm_header_encode(&header, bytes);
    if (kind == HEADER) bytes[0] ^= 1;
    zmq_send(ends.dealer, bytes, kind == EMPTY ? 0 : sizeof bytes,
             kind == ONE_FRAME ? 0 : ZMQ_SNDMORE);
    if (kind != ONE_FRAME)
      zmq_send(ends.dealer, "payload", 7, kind == THREE_FRAMES ? ZMQ_SNDMORE : 0);
    if (kind == THREE_FRAMES) zmq_send(ends.dealer, "more", 4, 0);
    send_payload(&ends);
    if (kind == NONE) {
      expect_payload(&ends);
    } else {
      assert_int_equal(plm_message_receive(ends.router, true, &message, &error), PLM_PROTOCOL);
      if (wrong[kind] != NULL && strstr(error.what, wrong[kind]) == NULL)
        fail_msg("kind %d: %s", kind, error.what);
      assert_memory_equal(message.routing_id, "dealer", 6);
    }
    expect_payload(&ends);
    assert_int_equal(plm_message_receive(ends.router, true, &message, NULL), PLM_AGAIN);
  }
  close_ends(&ends);
}

/* libzmq's own routing ids have at most 255 bytes, but it passes on what another peer says. */
static void a_long_routing_id_is_refused(void **state)
{
  (void)state;
  enum { LONGEST = sizeof((struct plm_message *)0)->routing_id };
  char bound[256];
  void *context = zmq_ctx_new(), *router;
  assert_int_equal(plm_socket_open(context, ZMQ_ROUTER, 1024, &router, NULL), PLM_OK);
  assert_int_equal(plm_socket_bind(router, "tcp://127.0.0.1:*", NULL, bound, NULL), PLM_OK);
  for (size_t size = LONGEST; size <= LONGEST + 1; size++) {
    struct plm_header header = {.type = PLM_MESSAGE_PONG};
    struct plm_message message;
    struct plm_error error = {0};
    uint8_t bytes[PLM_HEADER_BYTES];
    plm_status status;
    header.payload_hash = plm_hash_bytes("", 0);
    plm_header_encode(&header, bytes);
    const int peer = raw_peer_connect(bound);
    assert_true(raw_peer_greet_as(peer, size));
    assert_true(raw_peer_send_frame(peer, true, bytes, sizeof bytes));
    assert_true(raw_peer_send_frame(peer, false, "", 0));
    zmq_pollitem_t item = {.socket = router, .events = ZMQ_POLLIN};
    assert_int_equal(zmq_poll(&item, 1, 60000), 1); /* the message arrives */
    status = plm_message_receive(router, true, &message, &error);
    if (size == LONGEST) {
      assert_int_equal(status, PLM_OK);
      assert_int_equal(message.routing_id_bytes, LONGEST);
      zmq_msg_close(&message.payload);
    } else {
      assert_int_equal(status, PLM_PROTOCOL);
      assert_int_equal(message.routing_id_bytes, 0);
      assert_string_equal(error.what, "routing id of 257 bytes");
    }
    assert_int_equal(plm_message_receive(router, true, &message, NULL), PLM_AGAIN);
    close(peer);
  }
  zmq_close(router);
  zmq_ctx_term(context);
}

static void a_peer_that_has_left_is_noticed(void **state)
{
  (void)state;
  struct ends ends;
  struct plm_header header = {.type = PLM_MESSAGE_PONG};
  struct plm_error error = {0};
  open_ends(&ends);
  assert_int_equal(
      plm_message_send(ends.router, (const uint8_t *)"nobody", 6, &header, "", 0, &error),
      PLM_NOT_FOUND);
  assert_string_equal(error.what, "the peer has left");
  assert_true(plm_socket_can_send(ends.dealer));
  close_ends(&ends);
}

/* With fewer than 16 descriptors, libzmq is not asked to start its threads. */
static void a_context_needs_descriptors(void **state)
{
  (void)state;
  struct rlimit before, few;
  int next[16];
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  for (int i = 0; i < 16; i++) next[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (int i = 0; i < 16; i++) assert_true(next[i] >= 0 && close(next[i]) == 0);
  for (int left = 15; left < 17; left++) {
    struct plm_error error = {0};
    void *context = &error;
    few = (struct rlimit){(rlim_t)next[left - 1] + 1, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const plm_status status = plm_context_open(&context, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, left < 16 ? PLM_NO_DESCRIPTORS : PLM_OK);
    if (status == PLM_OK) {
      zmq_ctx_term(context);
      continue;
    }
    assert_null(context);
    assert_string_equal(error.what, "cannot open a ZeroMQ context: Too many open files");
    assert_string_equal(error.hint, "raise the limit on open files (ulimit -Hn)");
  }
}

static void count_release(void *data, void *released)
{
  assert_string_equal(data, "payload");
  ++*(int *)released;
}

/* Nobody is connected. The payload is released once all the same. */
static void what_cannot_be_sent_is_released(void **state)
{
  (void)state;
  struct plm_header header = {.type = PLM_MESSAGE_PONG, .payload_bytes = 7};
  struct plm_error error = {0};
  int released = 0;
  void *context = zmq_ctx_new(), *socket;
  assert_int_equal(plm_socket_open(context, ZMQ_DEALER, 1024, &socket, NULL), PLM_OK);
  assert_false(plm_socket_can_send(socket));
  assert_int_equal(plm_message_send(socket, NULL, 0, &header, "payload", 7, &error), PLM_AGAIN);
  assert_int_equal(
      plm_message_send_shared(socket, &header, "payload", count_release, &released, &error),
      PLM_AGAIN);
  assert_string_equal(error.what, "not connected, or the peer does not read");
  assert_int_equal(released, 1);
  zmq_close(socket);
  zmq_ctx_term(context);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_at_an_ipc_path_is_kept),
      cmocka_unit_test(ipv6_addresses_are_bound),
      cmocka_unit_test(sockets_have_the_documented_options),
      cmocka_unit_test(what_libzmq_refuses_is_said),
      cmocka_unit_test(a_dead_socket_is_replaced),
      cmocka_unit_test(a_socket_in_use_is_kept),
      cmocka_unit_test(names_are_bound_by_their_address),
      cmocka_unit_test(wrong_messages_are_dropped_whole),
      cmocka_unit_test(a_long_routing_id_is_refused),
      cmocka_unit_test(a_peer_that_has_left_is_noticed),
      cmocka_unit_test(a_context_needs_descriptors),
      cmocka_unit_test(what_cannot_be_sent_is_released),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
