/* A fork that reports its start through a pipe. */
#include "stages/commands/behind.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/log/log_file.h"
#include "common/base/text/printable.h"
#include "common/base/text/strict_json.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "stages/commands/command.h"
#include "stages/supervisor/control/supervisor_socket.h"

/* Closes what the child has inherited beyond standard error, except one descriptor. A pipe or a
 * lock among them belongs to the caller, who may wait until everybody has closed it. */
static plm_status close_inherited(int kept, struct plm_error *error)
{
  static const char path[] = "/proc/self/fd";
  const struct dirent *entry;
  plm_status status = PLM_OK;
  DIR *folder = opendir(path);
  if (folder == NULL) return plm_error_errno(error, "cannot open %s", path);
  while ((status = plm_directory_next(folder, path, &entry, error)) == PLM_OK && entry != NULL) {
    const int descriptor = atoi(entry->d_name); /* 0 for "." and ".." */
    if (descriptor > STDERR_FILENO && descriptor != kept && descriptor != dirfd(folder))
      close(descriptor);
  }
  closedir(folder);
  return status;
}

/* Runs the child. Once its lines go to the run's log, it keeps none of the caller's descriptors, so
 * that whoever reads the caller's output sees its end. An error before the start is sent through
 * the pipe to the parent, which prints it; once the stages are started, a newline is sent. */
static _Noreturn void live_behind(plm_behind_body *body, void *context, int pipe_end)
{
  struct plm_error error = {0};
  int exit_code = 1;
  setsid();
  plm_status status = close_inherited(pipe_end, &error);
  if (status == PLM_OK) status = body(context, pipe_end, &exit_code, &error);
  if (status != PLM_OK) {
    const ssize_t sent = write(pipe_end, &error, sizeof error);
    (void)sent; /* the parent also sees the exit code */
    exit_code = plm_status_exit_code(status);
  }
  _exit(exit_code);
}

/* Reads what the child sends until it has started the stages (true) or ended (false). */
static bool wait_for_start(int pipe_end, struct plm_error *error)
{
  struct plm_error sent;
  size_t used = 0;
  while (used < sizeof sent) {
    const ssize_t got = read(pipe_end, (char *)&sent + used, sizeof sent - used);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    used += (size_t)got;
  }
  if (used == sizeof sent) *error = sent;
  return used == 1;
}

/* Waits until the run's process has ended. Returns what its exit code means to a command. */
static plm_status wait_for_end(pid_t child, struct plm_error *error)
{
  int status = 0;
  waitpid(child, &status, 0);
  if (error->what[0] != '\0') return error->status;
  return plm_command_status_of_code(WIFEXITED(status) ? WEXITSTATUS(status) : 1, error);
}

plm_status plm_behind_start(plm_behind_body *body, void *context, int *pid, struct plm_error *error)
{
  int ends[2];
  fflush(NULL);
  if (pipe2(ends, O_CLOEXEC) != 0) return plm_error_errno(error, "pipe");
  const pid_t child = fork();
  if (child < 0) return plm_error_errno(error, "fork");
  if (child == 0) {
    close(ends[0]);
    live_behind(body, context, ends[1]);
  }
  close(ends[1]);
  const bool up = wait_for_start(ends[0], error);
  close(ends[0]);
  *pid = (int)child;
  return up ? PLM_OK : wait_for_end(child, error);
}

/* The run has ended before it could be asked. If it failed, it has left the reason. */
static plm_status ended_before(const char *run, int pid, struct plm_error *error)
{
  static struct plm_run_failure failure; /* static because it is large */
  *error = (struct plm_error){0};        /* that nobody answered */
  const plm_status status = wait_for_end(pid, error);
  if (plm_run_failure_read(run, &failure))
    plm_print(stderr, "plm-pipeline: failed: %s %s\n", failure.stage, failure.cause);
  return status;
}

plm_status plm_behind_wait_ready(const char *run, int pid, struct plm_error *error)
{
  static char reply[PLM_SOCKET_LINE_SIZE];
  const plm_status asked =
      plm_socket_ask(run, "{\"command\":\"wait\",\"ready\":true}", -1, reply, error);
  if (asked == PLM_NOT_RUNNING) return ended_before(run, pid, error);
  PLM_TRY(asked);
  cJSON *json = plm_json_line(reply);
  const cJSON *code = cJSON_GetObjectItemCaseSensitive(json, "exit");
  const cJSON *failure = cJSON_GetObjectItemCaseSensitive(json, "failure");
  if (cJSON_IsString(failure)) plm_print(stderr, "plm-pipeline: %s", failure->valuestring);
  const plm_status status =
      plm_command_status_of_code(cJSON_IsNumber(code) ? code->valueint : 0, error);
  cJSON_Delete(json);
  return status;
}

/* From here on, a run in the background writes its lines to its log. */
plm_status plm_behind_log(const char *run, struct plm_error *error)
{
  char logs[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(logs, run, PLM_RUN_LOGS, error));
  PLM_TRY(plm_path_join(path, logs, "supervisor.log", error));
  plm_log_file_turn_idle(path);
  const int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (log < 0 || nothing < 0) return plm_error_errno(error, "%s", path);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  close(log);
  close(nothing);
  plm_log_file_set(path);
  return PLM_OK;
}
