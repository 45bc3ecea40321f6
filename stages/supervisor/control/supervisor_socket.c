/* The control socket: its path, the server's end, the client's end. */
#include "stages/supervisor/control/supervisor_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/numbers/hash.h"
#include "common/run/stop.h"

/* Anyone else who can write to the folder could put their own socket there. */
static bool supervisor_socket_is_ours(const char *folder)
{
  struct stat info;
  return lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == getuid() &&
         (info.st_mode & 077) == 0;
}

enum { RUNTIME_LIMIT = 60 }; /* the path of a socket has at most 107 bytes */

/* Why $XDG_RUNTIME_DIR is not used; NULL if it is. */
static const char *unsuitable(const char *runtime)
{
  if (runtime == NULL || runtime[0] == '\0') return "is not set";
  if (runtime[0] != '/') return "is not an absolute path";
  if (strlen(runtime) >= RUNTIME_LIMIT) return "has more than 59 bytes";
  if (!supervisor_socket_is_ours(runtime)) return "is not a folder of yours with mode 0700";
  if (access(runtime, W_OK) != 0) return "cannot be written";
  return NULL;
}

static plm_status no_folder(const char *why, struct plm_error *error)
{
  return plm_error_hint(error,
                        "the control socket needs a folder: set XDG_RUNTIME_DIR, which %s, to one "
                        "that belongs to you, has mode 0700 and can be written",
                        why);
}

static plm_status socket_folder(char folder[64], struct plm_error *error)
{
  const char *runtime = getenv("XDG_RUNTIME_DIR"), *why = unsuitable(runtime);
  if (why == NULL) {
    snprintf(folder, 64, "%s", runtime);
    return PLM_OK;
  }
  snprintf(folder, 64, "/tmp/plm-%u", (unsigned)getuid());
  if ((mkdir(folder, 0700) != 0 && errno != EEXIST) ||
      (supervisor_socket_is_ours(folder) && access(folder, W_OK) != 0)) {
    plm_error_errno(error, "%s", folder);
    return no_folder(why, error);
  }
  if (supervisor_socket_is_ours(folder)) return PLM_OK;
  plm_error_set(error, PLM_FAILURE, "the folder %s must belong to you and have mode 0700", folder);
  return plm_error_hint(error, "remove it, or set XDG_RUNTIME_DIR, which %s, to such a folder",
                        why);
}

plm_status plm_socket_path(const char *run, char path[PLM_SOCKET_PATH_SIZE],
                           struct plm_error *error)
{
  char folder[64], hex[PLM_HASH_HEX_SIZE];
  char *real = realpath(run, NULL);
  if (real == NULL) {
    plm_error_set(error, PLM_NOT_RUNNING, "there is no run in %s", run);
    return plm_error_hint(error, "name a run with --run DIR, or its configuration with -c FILE");
  }
  plm_hash_to_hex(plm_hash_bytes(real, strlen(real)), hex);
  free(real);
  PLM_TRY(socket_folder(folder, error));
  snprintf(path, PLM_SOCKET_PATH_SIZE, "%s/plm-%s.sock", folder, hex);
  return PLM_OK;
}

static struct sockaddr_un address_of(const char *path)
{
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  return address;
}

plm_status plm_socket_listen(const char *path, int *descriptor, struct plm_error *error)
{
  const struct sockaddr_un address = address_of(path);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return plm_error_errno(error, "cannot make the control socket");
  unlink(path); /* left by a supervisor that was killed; the lock shows that none lives */
  const mode_t before = umask(0177);
  const bool bound = bind(listener, (const struct sockaddr *)&address, sizeof address) == 0;
  umask(before); /* which keeps errno */
  if (!bound || listen(listener, 16) != 0) {
    plm_error_errno(error, "cannot listen on the control socket %s", path);
    close(listener);
    return PLM_IO;
  }
  *descriptor = listener;
  return PLM_OK;
}

/* Otherwise, an answer from another user's process would be taken for the supervisor's. */
static plm_status check_peer(int descriptor, const char *path, struct plm_error *error)
{
  struct ucred peer;
  socklen_t size = sizeof peer;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return plm_error_errno(error, "cannot see who listens on %s", path);
  if (peer.uid == getuid()) return PLM_OK;
  plm_error_set(error, PLM_FAILURE,
                "process %d of another user (uid %u) listens on this run's control socket",
                (int)peer.pid, (unsigned)peer.uid);
  plm_error_where(error, "%s", path);
  return plm_error_hint(error, "remove the socket, and find out how that user came to write there");
}

static plm_status read_reply(int descriptor, int timeout_ms, char reply[PLM_SOCKET_LINE_SIZE],
                             struct plm_error *error)
{
  const int64_t deadline_ms = plm_clock_ms() + timeout_ms;
  size_t used = 0;
  for (;;) {
    struct pollfd item = {.fd = descriptor, .events = POLLIN};
    int64_t left = timeout_ms < 0 ? -1 : deadline_ms - plm_clock_ms();
    if (timeout_ms >= 0 && left < 0) left = 0;
    const int ready = poll(&item, 1, (int)left);
    if (ready < 0 && errno == EINTR) {
      PLM_TRY(plm_stop_check("", error));
      continue;
    }
    if (ready == 0) return plm_error_set(error, PLM_TIMEOUT, "no answer in %d ms", timeout_ms);
    const ssize_t size = read(descriptor, reply + used, PLM_SOCKET_LINE_SIZE - 1 - used);
    if (size <= 0) break;
    used += (size_t)size;
    reply[used] = '\0';
    char *end = strchr(reply, '\n');
    if (end != NULL) {
      *end = '\0';
      return PLM_OK;
    }
    if (used == PLM_SOCKET_LINE_SIZE - 1) {
      return plm_error_set(error, PLM_PROTOCOL, "the supervisor's answer is too long");
    }
  }
  return plm_error_set(error, PLM_NOT_RUNNING, "the supervisor ended without an answer");
}

plm_status plm_socket_ask(const char *run, const char *request, int timeout_ms,
                          char reply[PLM_SOCKET_LINE_SIZE], struct plm_error *error)
{
  char path[PLM_SOCKET_PATH_SIZE];
  PLM_TRY(plm_socket_path(run, path, error));
  const struct sockaddr_un address = address_of(path);
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return plm_error_errno(error, "cannot make the control socket");
  plm_status status = PLM_OK;
  if (connect(descriptor, (const struct sockaddr *)&address, sizeof address) != 0) {
    status = plm_error_set(error, PLM_NOT_RUNNING, "%s is not running", run);
    plm_error_hint(error, "start it with `plm-pipeline up`");
  } else if ((status = check_peer(descriptor, path, error)) == PLM_OK) {
    /* if the supervisor has just ended, there is no answer; a signal would end this program */
    if (send(descriptor, request, strlen(request), MSG_NOSIGNAL) >= 0)
      (void)send(descriptor, "\n", 1, MSG_NOSIGNAL);
    status = read_reply(descriptor, timeout_ms, reply, error);
  }
  close(descriptor);
  return status;
}
