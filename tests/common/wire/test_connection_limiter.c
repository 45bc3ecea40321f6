/* A limiter's decisions, with real connections and a clock that the test sets. */
#include "common/wire/connection_limiter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/raw_peer.h"

enum { WAIT_MS = 20000, MOST_LINKS = 10 };

static const struct plm_limiter_limits limits = {.connections = 8,
                                                 .unidentified = 3,
                                                 .unidentified_bytes = 1000,
                                                 .message_bytes = 100000,
                                                 .unidentified_ms = 5000,
                                                 .silence_ms = 10000};

/* A listening socket with its limiter, and the connections to it. */
struct scene {
  int listener;
  char endpoint[64];
  struct plm_limiter *limiter;
  int64_t now;
  struct link {
    int client, server;
  } links[MOST_LINKS];
  int count;
};

static int open_scene(void **state)
{
  static struct scene scene;
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t size = sizeof address;
  struct plm_error error = {0};
  memset(&scene, 0, sizeof scene);
  scene.now = 1000000;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  scene.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(scene.listener, (struct sockaddr *)&address, size) != 0 ||
      listen(scene.listener, MOST_LINKS) != 0 ||
      getsockname(scene.listener, (struct sockaddr *)&address, &size) != 0)
    return -1;
  snprintf(scene.endpoint, sizeof scene.endpoint, "tcp://127.0.0.1:%u", ntohs(address.sin_port));
  *state = &scene;
  return plm_limiter_open(scene.endpoint, &limits, &scene.limiter, &error) == PLM_OK ? 0 : -1;
}

static int close_scene(void **state)
{
  struct scene *scene = *state;
  for (int i = 0; i < scene->count; i++) {
    close(scene->links[i].client);
    close(scene->links[i].server);
  }
  plm_limiter_close(scene->limiter);
  return close(scene->listener);
}

static struct link *enter(struct scene *scene)
{
  struct link *made = &scene->links[scene->count++];
  made->client = raw_peer_connect(scene->endpoint);
  made->server = accept(scene->listener, NULL, NULL);
  assert_true(made->client >= 0 && made->server >= 0);
  plm_limiter_accepted(scene->limiter, made->server, scene->now);
  return made;
}

/* Sends bytes, which arrive before it returns. */
static void send_bytes(const struct link *link, size_t size)
{
  static char bytes[16384], got[16384];
  while (size > 0) {
    const size_t part = size < sizeof bytes ? size : sizeof bytes;
    assert_true(raw_peer_send(link->client, bytes, part));
    assert_int_equal(recv(link->server, got, part, MSG_WAITALL), part);
    size -= part;
  }
}

static void turn_after(struct scene *scene, bool drained, int64_t milliseconds)
{
  scene->now += milliseconds;
  plm_limiter_look(scene->limiter);
  plm_limiter_turn(scene->limiter, drained, scene->now);
}

/* Whether the limiter has broken the connection, by its own account and as the client sees it. */
static void assert_broken(const struct scene *scene, const struct link *link, uint64_t broken)
{
  assert_int_equal(plm_limiter_broken(scene->limiter), broken);
  assert_true(raw_peer_hung_up(link->client, WAIT_MS));
}

static void assert_kept(const struct scene *scene, const struct link *link, uint64_t broken)
{
  assert_int_equal(plm_limiter_broken(scene->limiter), broken);
  assert_false(raw_peer_hung_up(link->client, 0));
}

static void the_oldest_unidentified_peer_makes_room(void **state)
{
  struct scene *scene = *state;
  struct link *known = enter(scene);
  plm_limiter_heard(scene->limiter, known->server, scene->now);
  struct link *oldest = enter(scene);
  enter(scene);
  enter(scene);
  assert_int_equal(plm_limiter_broken(scene->limiter), 0);
  struct link *newest = enter(scene);
  assert_broken(scene, oldest, 1);
  assert_kept(scene, known, 1);
  assert_kept(scene, newest, 1);
  assert_int_equal(plm_limiter_connections(scene->limiter), 4);
}

/* Who leaves makes room for one more of its kind, and for no others. */
static void who_leaves_makes_room(void **state)
{
  struct scene *scene = *state;
  struct link *known = enter(scene), *first = enter(scene), *second = enter(scene);
  plm_limiter_heard(scene->limiter, known->server, scene->now);
  enter(scene);
  plm_limiter_left(scene->limiter, first->server);
  assert_int_equal(plm_limiter_connections(scene->limiter), 3);
  struct link *third = enter(scene);
  assert_kept(scene, second, 0);
  plm_limiter_left(scene->limiter, known->server);
  plm_limiter_left(scene->limiter, known->server); /* it has left already */
  assert_int_equal(plm_limiter_connections(scene->limiter), 3);
  enter(scene);
  assert_broken(scene, second, 1);
  assert_kept(scene, third, 1);
  assert_int_equal(plm_limiter_connections(scene->limiter), 3);
}

static void all_connections_are_limited(void **state)
{
  struct scene *scene = *state;
  for (int i = 0; i < 8; i++) plm_limiter_heard(scene->limiter, enter(scene)->server, scene->now);
  assert_int_equal(plm_limiter_connections(scene->limiter), 8);
  struct link *late = enter(scene);
  assert_broken(scene, late, 1);
  assert_int_equal(plm_limiter_connections(scene->limiter), 8);
}

static void an_unidentified_peer_may_send_little(void **state)
{
  struct scene *scene = *state;
  struct link *link = enter(scene);
  send_bytes(link, limits.unidentified_bytes);
  turn_after(scene, true, 1);
  assert_kept(scene, link, 0);
  send_bytes(link, 1);
  turn_after(scene, true, 1);
  assert_broken(scene, link, 1);
}

static void an_unidentified_peer_must_send_a_message(void **state)
{
  struct scene *scene = *state;
  struct link *link = enter(scene);
  turn_after(scene, true, limits.unidentified_ms);
  assert_kept(scene, link, 0);
  turn_after(scene, true, 1);
  assert_broken(scene, link, 1);
}

/* Bytes that one connection may send after its last whole message. */
static size_t allowance(const struct link *link)
{
  int buffer = 0;
  socklen_t size = sizeof buffer;
  assert_int_equal(getsockopt(link->server, SOL_SOCKET, SO_RCVBUF, &buffer, &size), 0);
  return 2 * (size_t)limits.message_bytes + (64 << 10) + (size_t)buffer;
}

static void a_message_must_end(void **state)
{
  struct scene *scene = *state;
  struct link *link = enter(scene);
  send_bytes(link, 500);
  plm_limiter_heard(scene->limiter, link->server, scene->now);
  send_bytes(link, limits.message_bytes);
  turn_after(scene, true, 1);
  assert_kept(scene, link, 0);
  size_t sent = limits.message_bytes;
  while (sent + 10000 <= allowance(link)) { /* the kernel may hold back as much as its buffer has */
    send_bytes(link, 10000);
    sent += 10000;
  }
  turn_after(scene, true, 1);
  assert_kept(scene, link, 0);
  while (sent <= allowance(link)) { /* the kernel may enlarge the buffer meanwhile */
    send_bytes(link, 100000);
    sent += 100000;
  }
  turn_after(scene, true, 1);
  assert_broken(scene, link, 1);
}

/* A connection that sends whole messages may send any number of bytes. */
static void whole_messages_are_not_limited(void **state)
{
  struct scene *scene = *state;
  struct link *link = enter(scene);
  for (int i = 0; i < 200; i++) {
    send_bytes(link, limits.message_bytes);
    plm_limiter_heard(scene->limiter, link->server, scene->now);
    turn_after(scene, true, 1);
  }
  assert_kept(scene, link, 0);
}

/* While messages wait to be received, bytes may belong to them; but not for ever. */
static void bytes_are_checked_once_messages_are_received(void **state)
{
  struct scene *scene = *state;
  struct link *link = enter(scene);
  turn_after(scene, true, 0);
  send_bytes(link, 2 * limits.unidentified_bytes);
  turn_after(scene, false, 1);
  assert_kept(scene, link, 0);
  turn_after(scene, false, 2000);
  assert_broken(scene, link, 1);
}

/* On a busy machine a thread may stand still between receiving messages and checking bytes. */
static void what_arrives_after_the_look_is_not_counted(void **state)
{
  struct scene *scene = *state;
  struct link *link = enter(scene);
  plm_limiter_heard(scene->limiter, link->server, scene->now);
  plm_limiter_look(scene->limiter);
  for (size_t sent = 0; sent <= 2 * allowance(link); sent += 100000) send_bytes(link, 100000);
  plm_limiter_turn(scene->limiter, true, scene->now);
  assert_kept(scene, link, 0);
  turn_after(scene, true, 1);
  assert_broken(scene, link, 1);
}

/* While messages always wait, one that sends whole messages is heard now and then. */
static void a_peer_that_was_heard_is_kept_while_messages_wait(void **state)
{
  struct scene *scene = *state;
  struct link *heard = enter(scene), *endless = enter(scene);
  plm_limiter_heard(scene->limiter, endless->server, scene->now);
  for (int i = 0; i < 4; i++) {
    plm_limiter_heard(scene->limiter, heard->server, scene->now);
    for (size_t sent = 0; sent <= 2 * allowance(heard); sent += 100000) send_bytes(heard, 100000);
    turn_after(scene, false, 400);
    assert_kept(scene, heard, 0);
  }
  for (size_t sent = 0; sent <= 2 * allowance(endless); sent += 100000) send_bytes(endless, 100000);
  turn_after(scene, false, 1);
  assert_kept(scene, heard, 1);
  assert_broken(scene, endless, 1);
}

static void silence_is_limited(void **state)
{
  struct scene *scene = *state;
  struct link *link = enter(scene);
  for (int i = 0; i < 5; i++) {
    plm_limiter_heard(scene->limiter, link->server, scene->now);
    turn_after(scene, true, limits.silence_ms);
  }
  assert_kept(scene, link, 0);
  turn_after(scene, true, 1);
  assert_broken(scene, link, 1);
}

static void a_dismissed_connection_leaves_within_five_seconds(void **state)
{
  struct scene *scene = *state;
  struct link *link = enter(scene);
  plm_limiter_heard(scene->limiter, link->server, scene->now);
  plm_limiter_dismiss(scene->limiter, link->server, scene->now);
  turn_after(scene, true, 5000);
  assert_kept(scene, link, 0);
  plm_limiter_heard(scene->limiter, link->server, scene->now); /* which does not save it */
  turn_after(scene, true, 1);
  assert_broken(scene, link, 1);
}

/* The program has closed the descriptor and opened another connection with the same number. */
static void another_connection_with_the_same_number_is_not_broken(void **state)
{
  struct scene *scene = *state;
  struct link *link = enter(scene), *other = enter(scene);
  plm_limiter_left(scene->limiter, other->server);
  plm_limiter_heard(scene->limiter, link->server, scene->now);
  assert_int_equal(dup2(other->server, link->server), link->server);
  turn_after(scene, true, limits.silence_ms + 1);
  assert_int_equal(plm_limiter_connections(scene->limiter), 0);
  assert_kept(scene, other, 1);
}

/* Without memory to note it, a connection is broken at once, and the next one is noted. */
static void a_connection_that_cannot_be_noted_is_broken(void **state)
{
  struct scene *scene = *state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  struct link *made = &scene->links[scene->count++];
  made->client = raw_peer_connect(scene->endpoint);
  made->server = accept(scene->listener, NULL, NULL);
  checked_memory_fail(0);
  plm_limiter_accepted(scene->limiter, made->server, scene->now);
  assert_int_equal(checked_memory_pause(), 0);
  assert_true(raw_peer_hung_up(made->client, WAIT_MS));
  assert_int_equal(plm_limiter_connections(scene->limiter), 0);
  assert_kept(scene, enter(scene), 0);
  assert_int_equal(plm_limiter_connections(scene->limiter), 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      CASE(the_oldest_unidentified_peer_makes_room),
      CASE(who_leaves_makes_room),
      CASE(a_connection_that_cannot_be_noted_is_broken),
      CASE(all_connections_are_limited),
      CASE(an_unidentified_peer_may_send_little),
      CASE(an_unidentified_peer_must_send_a_message),
      CASE(a_message_must_end),
      CASE(whole_messages_are_not_limited),
      CASE(bytes_are_checked_once_messages_are_received),
      CASE(what_arrives_after_the_look_is_not_counted),
      CASE(a_peer_that_was_heard_is_kept_while_messages_wait),
      CASE(silence_is_limited),
      CASE(a_dismissed_connection_leaves_within_five_seconds),
      CASE(another_connection_with_the_same_number_is_not_broken),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
