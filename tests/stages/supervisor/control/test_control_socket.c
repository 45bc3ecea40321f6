/* The path of the control socket, and whose answers a command trusts. */
#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/run/stop.h"
#include "stages/supervisor/control/supervisor_socket.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static char runtime[64], elsewhere[64];
static uid_t other;       /* if it is not 0, the user that this process seems to belong to */
static int made = EEXIST; /* why the folder of that user cannot be made */
static int signals;       /* that come before the next answers */

/* Takes the place of libc's function in this program. */
uid_t getuid(void)
{
  return other != 0 ? other : (uid_t)syscall(SYS_getuid);
}

/* Likewise. The folder of that user seems to be there at first, so none is made outside the scratch
 * folder. */
int mkdir(const char *path, mode_t mode)
{
  errno = made;
  return other != 0 ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

/* Likewise. */
int poll(struct pollfd *items, nfds_t count, int timeout_ms)
{
  const struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
  if (signals > 0) {
    signals--;
    errno = EINTR;
    return -1;
  }
  return (int)syscall(SYS_ppoll, items, count, timeout_ms < 0 ? NULL : &timeout, NULL, 0);
}

/* XDG_RUNTIME_DIR may have 59 bytes at most, which the scratch folder may exceed. */
static int prepare(void **state)
{
  (void)state;
  snprintf(runtime, sizeof runtime, "%s/plm-test-XXXXXX", plm_temporary_folder());
  if (mkdtemp(runtime) == NULL) return 1;
  snprintf(elsewhere, sizeof elsewhere, "/tmp/plm-%u/", (unsigned)getuid());
  return setenv("XDG_RUNTIME_DIR", runtime, 1);
}

static int clean(void **state)
{
  (void)state;
  return rmdir(runtime);
}

static bool lies_in(const char *folder)
{
  char path[PLM_SOCKET_PATH_SIZE];
  struct plm_error error = {0};
  assert_int_equal(plm_socket_path(scratch_directory(), path, &error), PLM_OK);
  return strncmp(path, folder, strlen(folder)) == 0;
}

static void only_a_private_runtime_folder_is_trusted(void **state)
{
  (void)state;
  static const mode_t open_to_others[] = {0710, 0701, 0755, 0770, 0777, 01777};
  char link[80];
  assert_true(lies_in(runtime));
  for (size_t i = 0; i < sizeof open_to_others / sizeof open_to_others[0]; i++) {
    assert_int_equal(chmod(runtime, open_to_others[i]), 0);
    assert_true(lies_in(elsewhere));
  }
  assert_int_equal(chmod(runtime, 0700), 0);
  assert_true(lies_in(runtime));
  /* somebody else could make a link point elsewhere */
  snprintf(link, sizeof link, "%s-link", runtime);
  assert_int_equal(symlink(runtime, link), 0);
  setenv("XDG_RUNTIME_DIR", link, 1);
  assert_true(lies_in(elsewhere));
  setenv("XDG_RUNTIME_DIR", runtime, 1);
  assert_int_equal(unlink(link), 0);
  if (getuid() != 0) return; /* the rest gives the folder to another user */
  assert_int_equal(chown(runtime, 1234, 1234), 0);
  assert_true(lies_in(elsewhere));
  assert_int_equal(chown(runtime, 0, 0), 0);
}

/* A folder that is not named as it has to be is not used, and a run that is not there has no
 * socket. */
static void names_of_folders_and_runs_are_checked(void **state)
{
  static const char *const names[] = {"", ".", "nowhere", "/no such folder"};
  char path[PLM_SOCKET_PATH_SIZE], folder[64], deep[96];
  struct plm_error error = {0};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    setenv("XDG_RUNTIME_DIR", names[i], 1);
    assert_true(lies_in(elsewhere));
  }
  unsetenv("XDG_RUNTIME_DIR");
  assert_true(lies_in(elsewhere));
  for (int length = 59; length < 61 && strlen(runtime) < 57; length++) { /* 59 are the most */
    snprintf(deep, sizeof deep, "%s/", runtime);
    while ((int)strlen(deep) < length) strcat(deep, "x");
    assert_int_equal(mkdir(deep, 0700), 0);
    setenv("XDG_RUNTIME_DIR", deep, 1);
    assert_true(lies_in(length == 59 ? deep : elsewhere));
    assert_int_equal(rmdir(deep), 0);
  }
  setenv("XDG_RUNTIME_DIR", runtime, 1);
  assert_int_equal(plm_socket_path("/no such run", path, &error), PLM_NOT_RUNNING);
  assert_string_equal(error.what, "there is no run in /no such run");
  snprintf(folder, sizeof folder, "%.50s/none/x.sock", runtime);
  int listener = -1;
  assert_int_equal(plm_socket_listen(folder, &listener, &error), PLM_IO);
  assert_non_null(strstr(error.what, ": No such file or directory"));
  assert_int_equal(listener, -1);
}

static void a_folder_of_somebody_else_is_not_used(void **state)
{
  char path[PLM_SOCKET_PATH_SIZE], what[200];
  struct plm_error error = {0};
  (void)state;
  setenv("XDG_RUNTIME_DIR", "relative", 1);
  other = (uid_t)(3000000000U + (unsigned)getpid());
  const plm_status status = plm_socket_path(scratch_directory(), path, &error);
  snprintf(path, sizeof path, "/tmp/plm-%u", (unsigned)other);
  other = 0;
  setenv("XDG_RUNTIME_DIR", runtime, 1);
  assert_int_equal(status, PLM_FAILURE);
  snprintf(what, sizeof what, "the folder %s must belong to you and have mode 0700", path);
  assert_string_equal(error.what, what);
  assert_string_equal(error.hint, "remove it, or set XDG_RUNTIME_DIR, which is not an absolute "
                                  "path, to such a folder");
}

/* If it cannot be made either, a runtime folder is needed. */
static void there_may_be_no_folder_at_all(void **state)
{
  char path[PLM_SOCKET_PATH_SIZE], what[200];
  struct plm_error error = {0};
  (void)state;
  unsetenv("XDG_RUNTIME_DIR");
  other = (uid_t)(3000000000U + (unsigned)getpid());
  made = EROFS;
  const plm_status status = plm_socket_path(scratch_directory(), path, &error);
  snprintf(what, sizeof what, "/tmp/plm-%u: Read-only file system", (unsigned)other);
  other = 0;
  made = EEXIST;
  setenv("XDG_RUNTIME_DIR", runtime, 1);
  assert_int_not_equal(status, PLM_OK);
  assert_string_equal(error.what, what);
  assert_string_equal(error.hint, "the control socket needs a folder: set XDG_RUNTIME_DIR, which "
                                  "is not set, to one that belongs to you, has mode 0700 and can "
                                  "be written");
}

/* The socket belongs to its user only, and takes the place of one that was left. */
static void a_socket_is_private(void **state)
{
  char path[PLM_SOCKET_PATH_SIZE];
  struct stat info;
  int one, two;
  (void)state;
  assert_int_equal(plm_socket_path(scratch_directory(), path, NULL), PLM_OK);
  const mode_t before = umask(0);
  assert_int_equal(plm_socket_listen(path, &one, NULL), PLM_OK);
  assert_int_equal(plm_socket_listen(path, &two, NULL), PLM_OK);
  assert_int_equal(umask(before), 0); /* it was put back */
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);
  close(one);
  close(two);
  assert_int_equal(unlink(path), 0);
}

/* The first byte comes by itself, and the rest when it was read. False: the client is gone. */
static bool answer(int client, const char *text)
{
  if (text[0] == '\0') return true;
  if (write(client, text, 1) != 1) return false;
  for (int left = 1; left > 0;)
    if (ioctl(client, SIOCOUTQ, &left) != 0) return false;
  return write(client, text + 1, strlen(text) - 1) >= 0;
}

/* A process that listens on the run's control socket as `user` and answers everything with `text`,
 * then ends the connection. */
static pid_t answer_as(uid_t user, const char *text, char path[PLM_SOCKET_PATH_SIZE])
{
  struct plm_error error = {0};
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int ready[2];
  char byte;
  assert_int_equal(plm_socket_path(scratch_directory(), path, &error), PLM_OK);
  assert_int_equal(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || setuid(user) != 0 ||
        listen(listener, 4) != 0 || write(ready[1], "", 1) != 1)
      _exit(1);
    for (;;) {
      char request[256];
      const int client = accept(listener, NULL, NULL);
      /* a client that does not believe it closes without a request */
      if (read(client, request, sizeof request) > 0 && !answer(client, text)) _exit(1);
      close(client);
    }
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return child;
}

static plm_status ask(uid_t listener, const char *text, char reply[PLM_SOCKET_LINE_SIZE],
                      struct plm_error *error)
{
  char path[PLM_SOCKET_PATH_SIZE];
  const pid_t child = answer_as(listener, text, path);
  const plm_status status =
      plm_socket_ask(scratch_directory(), "{\"command\":\"ps\"}", 5000, reply, error);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_int_equal(unlink(path), 0);
  return status;
}

static void another_users_answer_is_not_believed(void **state)
{
  (void)state;
  static const char yes[] = "{\"ok\":true}\n";
  static char reply[PLM_SOCKET_LINE_SIZE];
  struct plm_error error = {0};
  assert_int_equal(ask(getuid(), yes, reply, &error), PLM_OK);
  assert_string_equal(reply, "{\"ok\":true}");
  if (getuid() != 0) skip("only root can listen as somebody else");
  reply[0] = '\0';
  assert_int_equal(ask(1234, yes, reply, &error), PLM_FAILURE);
  assert_string_equal(reply, "");
  assert_non_null(strstr(error.what, "another user (uid 1234)"));
  assert_non_null(strstr(error.where, runtime));
}

static void an_answer_is_one_whole_line(void **state)
{
  (void)state;
  enum { ROOM = PLM_SOCKET_LINE_SIZE };
  static char text[ROOM + 1];
  char *reply = must(malloc(ROOM));
  struct plm_error error = {0};
  assert_int_equal(ask(getuid(), "first\nsecond\n", reply, &error), PLM_OK);
  assert_string_equal(reply, "first");
  assert_int_equal(ask(getuid(), "", reply, &error), PLM_NOT_RUNNING);
  assert_string_equal(error.what, "the supervisor ended without an answer");
  error = (struct plm_error){0};
  memset(reply, '\n', ROOM); /* what was there before is no part of the answer */
  assert_int_equal(ask(getuid(), "{\"ok\":tr", reply, &error), PLM_NOT_RUNNING);
  assert_string_equal(error.what, "the supervisor ended without an answer");
  /* the longest line that fits, and one byte more */
  memset(text, 'a', sizeof text - 1);
  text[ROOM - 2] = '\n';
  text[ROOM - 1] = '\0';
  assert_int_equal(ask(getuid(), text, reply, &error), PLM_OK);
  assert_int_equal(strlen(reply), ROOM - 2);
  text[ROOM - 2] = 'a';
  text[ROOM - 1] = '\n';
  assert_int_equal(ask(getuid(), text, reply, &error), PLM_PROTOCOL);
  assert_string_equal(error.what, "the supervisor's answer is too long");
  free(reply);
}

/* Of the signals that come while a command waits, one that stops it ends the wait. */
static void a_signal_may_end_the_wait(void **state)
{
  static const int numbers[] = {0, SIGINT, SIGTERM};
  static const plm_status expected[] = {PLM_OK, PLM_INTERRUPTED, PLM_TERMINATED};
  static char reply[PLM_SOCKET_LINE_SIZE];
  (void)state;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    struct plm_error error = {0};
    signals = 2;
    plm_stop_requested = numbers[i];
    const plm_status status = ask(getuid(), "yes\n", reply, &error);
    plm_stop_requested = 0;
    assert_int_equal(status, expected[i]);
    assert_int_equal(signals, i == 0 ? 0 : 1);
  }
  signals = 0;
}

/* A socket whose listener does not take the request: the command waits as long as it was told. */
static void a_silent_supervisor_is_not_waited_for(void **state)
{
  (void)state;
  static char reply[PLM_SOCKET_LINE_SIZE];
  char path[PLM_SOCKET_PATH_SIZE];
  struct plm_error error = {0};
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  assert_int_equal(plm_socket_path(scratch_directory(), path, &error), PLM_OK);
  assert_int_equal(plm_socket_ask(scratch_directory(), "x", 0, reply, &error), PLM_NOT_RUNNING);
  assert_string_equal(error.hint, "start it with `plm-pipeline up`");
  assert_int_equal(plm_socket_ask("/nowhere", "x", 0, reply, &error), PLM_NOT_RUNNING);
  assert_string_equal(error.what, "there is no run in /nowhere");
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(listener, 4), 0);
  for (int timeout_ms = 0; timeout_ms < 2; timeout_ms++) {
    char expected[64];
    error = (struct plm_error){0};
    assert_int_equal(plm_socket_ask(scratch_directory(), "x", timeout_ms, reply, &error),
                     PLM_TIMEOUT);
    snprintf(expected, sizeof expected, "no answer in %d ms", timeout_ms);
    assert_string_equal(error.what, expected);
  }
  close(listener);
  assert_int_equal(unlink(path), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_a_private_runtime_folder_is_trusted),
      cmocka_unit_test(names_of_folders_and_runs_are_checked),
      cmocka_unit_test(a_folder_of_somebody_else_is_not_used),
      cmocka_unit_test(there_may_be_no_folder_at_all),
      cmocka_unit_test(a_socket_is_private),
      cmocka_unit_test(another_users_answer_is_not_believed),
      cmocka_unit_test(an_answer_is_one_whole_line),
      cmocka_unit_test(a_signal_may_end_the_wait),
      cmocka_unit_test(a_silent_supervisor_is_not_waited_for),
  };
  return cmocka_run_group_tests(tests, prepare, clean);
}
