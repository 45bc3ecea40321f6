/* A child with a pipe for its standard output, which is read to the end, and a file in memory for
 * its standard error, so that the two cannot block each other. */
#include "common/base/process/program_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PART = 4096 };

bool plm_program_find(const char *name, char path[PLM_PATH_SIZE])
{
  const char *folders = getenv("PATH");
  while (folders != NULL && *folders != '\0') {
    struct stat info;
    const int length = (int)strcspn(folders, ":");
    const int size = length == 0 ? snprintf(path, PLM_PATH_SIZE, "./%s", name)
                                 : snprintf(path, PLM_PATH_SIZE, "%.*s/%s", length, folders, name);
    if (size < PLM_PATH_SIZE && stat(path, &info) == 0 && S_ISREG(info.st_mode) &&
        access(path, X_OK) == 0)
      return true;
    folders += length + (folders[length] == ':');
  }
  return false;
}

/* Appends what the descriptor has, up to its end or until the text has limit_bytes. */
static void program_read_output(int descriptor, size_t limit_bytes, struct plm_text *text)
{
  char part[PART];
  while (text->length < limit_bytes) {
    const size_t left = limit_bytes - text->length;
    const ssize_t size = read(descriptor, part, left < sizeof part ? left : sizeof part);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    plm_text_append(text, part, (size_t)size);
  }
}

static _Noreturn void program_run_become(const char *const *arguments, unsigned limit_s, int out,
                                         int err)
{
  dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  alarm(limit_s);
  execv(arguments[0], (char *const *)arguments);
  _exit(127);
}

static int program_run_wait_for(pid_t child)
{
  int state = 0;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

plm_status plm_program_run(const char *const *arguments, size_t limit_bytes, unsigned limit_s,
                           struct plm_program_said *said, struct plm_error *error)
{
  int ends[2];
  said->exit_code = -1;
  const int err = said->capture_err ? memfd_create("standard error", MFD_CLOEXEC) : -1;
  if (said->capture_err && err < 0) return plm_error_errno(error, "cannot run %s", arguments[0]);
  if (pipe2(ends, O_CLOEXEC) != 0) {
    const plm_status status = plm_error_errno(error, "cannot run %s", arguments[0]);
    if (err >= 0) close(err);
    return status;
  }
  const pid_t child = fork();
  if (child == 0) program_run_become(arguments, limit_s, ends[1], err);
  const plm_status status =
      child < 0 ? plm_error_errno(error, "cannot run %s", arguments[0]) : PLM_OK;
  close(ends[1]);
  if (child > 0) program_read_output(ends[0], limit_bytes, &said->out);
  close(ends[0]);
  if (child > 0) said->exit_code = program_run_wait_for(child);
  if (err >= 0) {
    if (child > 0 && lseek(err, 0, SEEK_SET) == 0)
      program_read_output(err, limit_bytes, &said->err);
    close(err);
  }
  return status;
}

void plm_program_said_deinit(struct plm_program_said *said)
{
  plm_text_deinit(&said->out);
  plm_text_deinit(&said->err);
}
