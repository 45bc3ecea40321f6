/* When the ZAP handler ends by itself, its process ends with an error before libzmq lets anybody in
 * without it. */
#include "tests/support/harness/cmocka_all.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/wire/socket.h"
#include "tests/support/harness/scratch.h"

/* ---- a handler whose socket fails ---------------------------------------------------------- */

static atomic_bool broken; /* the handler's next zmq_recv fails */

static bool is_handler(void)
{
  char name[32] = "";
  return atomic_load(&broken) && pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         strcmp(name, "keys") == 0;
}

/* These two take the place of libzmq's functions in this program. */
int zmq_recv(void *socket, void *buffer, size_t size, int flags)
{
  int (*real)(void *, void *, size_t, int);
  *(void **)&real = dlsym(RTLD_NEXT, "zmq_recv");
  if (!is_handler()) return real(socket, buffer, size, flags);
  errno = ENOTSOCK;
  return -1;
}

int zmq_close(void *socket)
{
  int (*real)(void *);
  *(void **)&real = dlsym(RTLD_NEXT, "zmq_close");
  const int status = real(socket);
  if (is_handler()) sleep(2); /* time enough for an intruder to come in */
  return status;
}

/* ---- the test ------------------------------------------------------------------------------ */

/* A consumer's sockets. It tells its endpoint, breaks its handler when it is told to, and waits. */
static _Noreturn void serve(const char *keys, int tell, int told)
{
  struct plm_error error;
  struct plm_gate *gate;
  void *context = zmq_ctx_new(), *router;
  char bound[256], byte;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (freopen(scratch_path("consumer.log"), "w", stderr) == NULL ||
      plm_gate_open(context, keys, &gate, &error) != PLM_OK ||
      plm_socket_open(context, ZMQ_ROUTER, 1024, &router, &error) != PLM_OK ||
      plm_socket_secure_server(router, keys, &error) != PLM_OK ||
      plm_socket_bind(router, "tcp://127.0.0.1:*", keys, bound, &error) != PLM_OK ||
      write(tell, bound, sizeof bound) != sizeof bound || read(told, &byte, 1) != 1)
    _exit(2);
  atomic_store(&broken, true);
  if (write(tell, "", 1) != 1) _exit(3);
  sleep(60);
  _exit(4);
}

struct client {
  void *context, *socket;
  struct plm_monitor *monitor;
};

static struct client connect_with(const char *keys, const char *server_key, const char *endpoint)
{
  struct client client = {.context = zmq_ctx_new()};
  struct plm_error error;
  assert_int_equal(plm_socket_open(client.context, ZMQ_DEALER, 1024, &client.socket, &error),
                   PLM_OK);
  assert_int_equal(plm_socket_secure_client(client.socket, keys, server_key, &error), PLM_OK);
  assert_int_equal(plm_monitor_open(client.context, client.socket, &client.monitor, &error),
                   PLM_OK);
  assert_int_equal(plm_socket_connect(client.socket, endpoint, &error), PLM_OK);
  return client;
}

static void pause_100_ms(void)
{
  const struct timespec pause = {.tv_nsec = 100 * 1000000L};
  nanosleep(&pause, NULL);
}

static bool is_let_in(const struct client *client)
{
  struct plm_link_report report;
  bool connected = false;
  while (plm_monitor_next(client->monitor, &report))
    connected |= report.event == PLM_LINK_CONNECTED;
  return connected;
}

static void hang_up(struct client *client)
{
  plm_monitor_close(client->monitor, client->socket);
  zmq_close(client->socket);
  zmq_ctx_term(client->context);
}

static void nobody_enters_without_the_handler(void **state)
{
  (void)state;
  enum { intruders = 100 };
  struct client clients[intruders];
  struct plm_error error;
  struct plm_keypair pair;
  char keys[PLM_PATH_SIZE], others[PLM_PATH_SIZE], bound[256], byte, *log;
  int made, tell[2], told[2], status = 0, count = 0;
  size_t size;
  snprintf(keys, sizeof keys, "%s", scratch_path("keys"));
  snprintf(others, sizeof others, "%s", scratch_path("others"));
  assert_int_equal(plm_keys_write(keys, "friend", &made, &error), PLM_OK);
  assert_int_equal(plm_keys_write(others, "intruder", &made, &error), PLM_OK);
  assert_int_equal(plm_keys_server(keys, &pair, &error), PLM_OK);
  assert_int_equal(pipe(tell), 0);
  assert_int_equal(pipe(told), 0);
  const pid_t consumer = fork();
  if (consumer == 0) serve(keys, tell[1], told[0]);
  assert_int_equal(read(tell[0], bound, sizeof bound), sizeof bound);

  struct client friend = connect_with(keys, NULL, bound);
  for (int i = 0; i < 100 && !is_let_in(&friend); i++) pause_100_ms();
  hang_up(&friend);
  assert_int_equal(write(told[1], "", 1), 1);
  assert_int_equal(read(tell[0], &byte, 1), 1);

  /* The first intruder wakes the handler; all find out whether anybody guards the socket. */
  bool entered = false;
  while (count < intruders && waitpid(consumer, &status, WNOHANG) == 0) {
    clients[count++] = connect_with(others, pair.public_text, bound);
    pause_100_ms();
    for (int i = 0; i < count; i++) entered |= is_let_in(&clients[i]);
  }
  for (int i = 0; i < count; i++) {
    entered |= is_let_in(&clients[i]);
    hang_up(&clients[i]);
  }
  assert_false(entered);
  assert_true(count < intruders && WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 1);
  assert_int_equal(plm_file_read(scratch_path("consumer.log"), 1 << 16, &log, &size, &error),
                   PLM_OK);
  assert_non_null(strstr(log, "the ZAP handler that checks CURVE keys stopped"));
  free(log);
  for (int i = 0; i < 2; i++) {
    close(tell[i]);
    close(told[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_enters_without_the_handler)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
