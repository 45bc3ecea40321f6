/* The process that copies what mpirun writes to the log of a gang. */
#include "stages/supervisor/gang/gang_log.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log_file.h"

enum {
  PART_BYTES = 1 << 16,
  PIPE_BYTES = 1 << 20, /* lines of a gang that has lost its writer */
  FOLDER_DESCRIPTOR = STDERR_FILENO + 1,
};

plm_status plm_gang_log_pipe(int ends[2], struct plm_error *error)
{
  if (pipe2(ends, O_CLOEXEC) != 0) return plm_error_errno(error, "cannot make a pipe for the log");
  (void)fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES); /* if it fails, the pipe is only smaller */
  return PLM_OK;
}

/* What cannot be written, for example to a full disk, is dropped. No signal interrupts a call here,
 * because the writer blocks all of them. */
static void gang_log_put(const char *text, size_t size)
{
  while (size > 0) {
    const ssize_t written = write(STDERR_FILENO, text, size);
    if (written <= 0) return;
    text += written;
    size -= (size_t)written;
  }
}

/* Rotates only between lines, because readers take the end of a file for the end of a line. */
static void gang_log_copy(int input)
{
  static char part[PART_BYTES];
  bool within_line = false;
  for (;;) {
    const ssize_t got = read(input, part, sizeof part);
    if (got <= 0) return;
    size_t length;
    for (size_t used = 0; used < (size_t)got; used += length) {
      const char *text = part + used;
      const char *end = memchr(text, '\n', (size_t)got - used);
      length = end != NULL ? (size_t)(end - text) + 1 : (size_t)got - used;
      if (!within_line) plm_log_file_turn();
      gang_log_put(text, length);
      within_line = end == NULL;
    }
  }
}

/* Keeps only the pipe, the log and the folder's lock, so that the run's locks and its socket are
 * free when the supervisor dies. Returns only after an error. */
static void become_writer(const struct plm_gang_log *log, pid_t supervisor)
{
  setsid();
  prctl(PR_SET_NAME, "plm-gang-log");
  const int file = open(log->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0 || dup2(log->input, STDIN_FILENO) < 0 || dup2(file, STDOUT_FILENO) < 0 ||
      dup2(file, STDERR_FILENO) < 0 || dup2(log->folder->lock, FOLDER_DESCRIPTOR) < 0)
    return;
  close_range(FOLDER_DESCRIPTOR + 1, ~0U, 0);
  plm_log_file_set(log->path);
  gang_log_copy(STDIN_FILENO);
  if (getppid() != supervisor) (void)plm_path_remove(log->folder->path, NULL);
  _exit(0);
}

plm_status plm_gang_log_start(const struct plm_gang_log *log, pid_t *pid, struct plm_error *error)
{
  sigset_t all, before;
  const pid_t supervisor = getpid();
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before); /* and the writer never unblocks them */
  const pid_t child = fork();
  if (child == 0) {
    become_writer(log, supervisor);
    _exit(1);
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (child < 0) return plm_error_errno(error, "cannot start the writer of %s", log->path);
  *pid = child;
  return PLM_OK;
}
