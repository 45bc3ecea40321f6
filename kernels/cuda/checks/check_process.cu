/* See check_process.cuh. */
#include "kernels/cuda/checks/check_process.cuh"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

enum { MOST_MS = 90 * 1000 };

/* Reads the child's error, which it writes at once. Returns false if it ended, or was too slow,
 * before it did. */
bool receive(int from, struct plm_error *error, bool *late)
{
  static_assert(sizeof *error <= PIPE_BUF, "an error goes through a pipe as a whole");
  struct pollfd waiting = {from, POLLIN, 0};
  int ready;
  do ready = poll(&waiting, 1, MOST_MS);
  while (ready < 0 && errno == EINTR);
  *late = ready == 0;
  return ready > 0 && read(from, error, sizeof *error) == (ssize_t)sizeof *error;
}

plm_status verdict_of(pid_t child, int from, struct plm_error *error)
{
  struct plm_error found = {};
  bool late;
  int how = 0;
  const bool whole = receive(from, &found, &late);
  if (!whole) kill(child, SIGKILL);
  while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
  }
  if (late)
    return plm_error_set(error, PLM_TIMEOUT, "the check did not end within %d s", MOST_MS / 1000);
  if (!whole)
    return plm_error_set(error, PLM_FAILURE, "the process of the check ended with %s %d",
                         WIFSIGNALED(how) ? "signal" : "status",
                         WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
  *error = found;
  return found.status;
}

} // namespace

plm_status plm_cuda_check_apart(plm_status (*check)(void *context, struct plm_error *error),
                                void *context, struct plm_error *error)
{
  int ends[2];
  if (pipe(ends) != 0)
    return plm_error_set(error, PLM_FAILURE, "no pipe for the check: %s", strerror(errno));
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    struct plm_error found = {};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    found.status = check(context, &found);
    const ssize_t written = write(ends[1], &found, sizeof found);
    _exit(written == (ssize_t)sizeof found ? 0 : 1);
  }
  close(ends[1]);
  plm_status status;
  if (child < 0)
    status = plm_error_set(error, PLM_FAILURE, "no process for the check: %s", strerror(errno));
  else
    status = verdict_of(child, ends[0], error);
  close(ends[0]);
  return status;
}
