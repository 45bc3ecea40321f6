/* Who listens at an endpoint: this program, on IPv4, IPv6 and at a path; and nobody. */
#include "tests/support/harness/cmocka_all.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/wire/socket.h"
#include "tests/support/harness/scratch.h"

static bool hidden; /* the descriptors of processes are, as those of other users are */

/* Takes the place of libc's function in this program. */
DIR *opendir(const char *path)
{
  if (hidden && strstr(path, "/fd") != NULL) return NULL;
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return folder < 0 ? NULL : fdopendir(folder);
}

static void owned_by_this_program(const char *endpoint)
{
  char owner[128] = "", expected[128];
  snprintf(expected, sizeof expected, "pid %d (test_port_owner)", (int)getpid());
  assert_true(plm_port_owner(endpoint, owner));
  assert_string_equal(owner, expected);
}

static void owned_by_nobody(const char *endpoint)
{
  char owner[128] = "nobody";
  if (plm_port_owner(endpoint, owner)) fail_msg("%s belongs to %s", endpoint, owner);
  assert_string_equal(owner, "nobody");
}

/* A bound socket, which listens or not; its port goes to *port. -1: there is no such address. */
static int bind_tcp(int family, bool listens, unsigned *port)
{
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr *address = family == AF_INET ? (struct sockaddr *)&four : (struct sockaddr *)&six;
  socklen_t size = family == AF_INET ? sizeof four : sizeof six;
  const int made = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (made < 0 || bind(made, address, size) != 0 || (listens && listen(made, 1) != 0)) {
    if (made >= 0) close(made);
    return -1;
  }
  assert_int_equal(getsockname(made, address, &size), 0);
  *port = ntohs(family == AF_INET ? four.sin_port : six.sin6_port);
  return made;
}

static void the_process_of_a_port_is_found(void **state)
{
  (void)state;
  for (int i = 0; i < 2; i++) {
    char endpoint[64];
    unsigned port;
    const int made = bind_tcp(i == 0 ? AF_INET : AF_INET6, true, &port);
    if (made < 0 && i == 1) skip("there is no IPv6");
    assert_true(made >= 0);
    snprintf(endpoint, sizeof endpoint, "tcp://%s:%u", i == 0 ? "127.0.0.1" : "[::1]", port);
    owned_by_this_program(endpoint);
    hidden = true;
    owned_by_nobody(endpoint);
    hidden = false;
    close(made);
    owned_by_nobody(endpoint);
  }
}

static void the_process_of_a_path_is_found(void **state)
{
  (void)state;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char endpoint[256], other[300];
  snprintf(address.sun_path, sizeof address.sun_path, "%.100s", scratch_path("s"));
  snprintf(endpoint, sizeof endpoint, "ipc://%s", address.sun_path);
  snprintf(other, sizeof other, "%s2", endpoint);
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(made, (struct sockaddr *)&address, sizeof address), 0);
  owned_by_nobody(endpoint); /* bound, but it does not listen */
  assert_int_equal(listen(made, 1), 0);
  owned_by_this_program(endpoint);
  owned_by_nobody(other);
  close(made);
}

static void nobody_owns_what_does_not_listen(void **state)
{
  (void)state;
  char endpoint[64];
  unsigned port;
  const int made = bind_tcp(AF_INET, false, &port);
  assert_true(made >= 0);
  snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", port);
  owned_by_nobody(endpoint);
  close(made);
  owned_by_nobody("tcp://127.0.0.1:*");
  owned_by_nobody("tcp://127.0.0.1:0");
  owned_by_nobody("tcp://127.0.0.1:65536");
  owned_by_nobody("tcp://127.0.0.1:-1");
  owned_by_nobody("nothing");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_process_of_a_port_is_found),
      cmocka_unit_test(the_process_of_a_path_is_found),
      cmocka_unit_test(nobody_owns_what_does_not_listen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
