/* Lets calls of libzmq that set up sockets fail, one after another. The functions take the place of
 * libzmq's in the one source of a test program that includes this. */
#ifndef PLM_TESTS_SUPPORT_PEERS_FAILING_SOCKETS_H
#define PLM_TESTS_SUPPORT_PEERS_FAILING_SOCKETS_H

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <zmq.h>

#include "common/base/status.h"
#include "tests/support/harness/cmocka_all.h"

static atomic_long failing_sockets_left = -1; /* calls that succeed before one fails; -1: all do */

static bool failing_sockets_fails(void)
{
  long at = failing_sockets_left;
  while (at >= 0 && !atomic_compare_exchange_weak(&failing_sockets_left, &at, at - 1)) continue;
  if (at == 0) errno = ENOTSUP;
  return at == 0;
}

/* Looks up libzmq's own function, whose address goes to `function`. */
static void failing_sockets_find(const char *name, void *function)
{
  void *found = dlsym(RTLD_NEXT, name);
  assert_non_null(found);
  memcpy(function, &found, sizeof found);
}

void *zmq_socket(void *context, int type)
{
  void *(*next)(void *, int);
  failing_sockets_find("zmq_socket", &next);
  return failing_sockets_fails() ? NULL : next(context, type);
}

int zmq_setsockopt(void *socket, int option, const void *value, size_t size)
{
  int (*next)(void *, int, const void *, size_t);
  failing_sockets_find("zmq_setsockopt", &next);
  /* without IPv6, IPv4 still works */
  return option != ZMQ_IPV6 && failing_sockets_fails() ? -1 : next(socket, option, value, size);
}

int zmq_bind(void *socket, const char *endpoint)
{
  int (*next)(void *, const char *);
  failing_sockets_find("zmq_bind", &next);
  return failing_sockets_fails() ? -1 : next(socket, endpoint);
}

int zmq_connect(void *socket, const char *endpoint)
{
  int (*next)(void *, const char *);
  failing_sockets_find("zmq_connect", &next);
  return failing_sockets_fails() ? -1 : next(socket, endpoint);
}

int zmq_socket_monitor(void *socket, const char *endpoint, int events)
{
  int (*next)(void *, const char *, int);
  failing_sockets_find("zmq_socket_monitor", &next);
  if (failing_sockets_fails()) return -1;
  const long at = atomic_exchange(&failing_sockets_left, -1); /* it calls the others itself */
  const int status = next(socket, endpoint, events);
  failing_sockets_left = at;
  return status;
}

/* Opens something, which it gives to *opened only if all of it is open. */
typedef plm_status failing_sockets_open(void **opened, struct plm_error *error);

/* Opens it again and again: first its first call fails, then the second one, until all succeed.
 * Each attempt but the last has to end with an error that has the words for ENOTSUP; that nothing
 * is left of it, the harness checks. There have to be so many calls. */
static void failing_sockets_try(failing_sockets_open *open, void (*close)(void *opened), long calls)
{
  for (long at = 0;; at++) {
    struct plm_error error = {0};
    void *opened = NULL;
    failing_sockets_left = at;
    const plm_status status = open(&opened, &error);
    const bool failed = atomic_exchange(&failing_sockets_left, -1) < 0;
    if (failed && (status == PLM_OK || (strstr(error.what, strerror(ENOTSUP)) == NULL &&
                                        strstr(error.what, "no CURVE") == NULL)))
      fail_msg("call %ld fails, and this is not said, but %s", at, error.what);
    if (!failed && status != PLM_OK) fail_msg("%s", error.what);
    if (status == PLM_OK) close(opened);
    if (failed) continue;
    assert_int_equal(at, calls);
    return;
  }
}

#endif
