/* Sockets: what binding does to the files at an ipc path. */
#include "common/wire/socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/file.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/scratch.h"

static plm_status bind_ipc(const char *path, struct plm_error *error)
{
  char endpoint[PLM_PATH_SIZE + 8], bound[256];
  void *context = zmq_ctx_new(), *socket;
  snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
  assert_int_equal(plm_socket_open(context, ZMQ_ROUTER, 1024, &socket, error), PLM_OK);
  const plm_status status = plm_socket_bind(socket, endpoint, NULL, bound, error);
  if (status == PLM_OK) plm_socket_unbind(bound);
  zmq_close(socket);
  zmq_ctx_term(context);
  return status;
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

/* A program that receives datagrams there does not listen, but it uses the socket. */
static void a_socket_of_another_type_is_kept(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    struct stat about;
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", scratch_path("log"));
    const int log = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);
    assert_true(log >= 0);
    assert_int_equal(bind(log, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(bind_ipc(address.sun_path, &error), PLM_BUSY);
    assert_int_equal(lstat(address.sun_path, &about), 0);
    close(log);
    unlink(address.sun_path);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_at_an_ipc_path_is_kept),
      cmocka_unit_test(a_dead_socket_is_replaced),
      cmocka_unit_test(a_socket_of_another_type_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
