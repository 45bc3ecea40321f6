/* Starts, polls and stops children. */
#include "stages/commands/child_up.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/config/settings.h"
#include "common/run/stop.h"

enum { MOST_ARGUMENTS = 256 };

/* The settings of own_ports. */
static const char *const apart[] = {"network.feed=tcp://127.0.0.1:*",
                                    "network.evaluation_feed=tcp://127.0.0.1:*",
                                    "network.announcements=tcp://127.0.0.1:*",
                                    "network.feed_address=null",
                                    "network.evaluation_feed_address=null",
                                    "network.announcements_address=null",
                                    "metrics.prometheus=null"};
enum { APART = sizeof apart / sizeof *apart };

static void forget_settings(void)
{
  size_t count;
  char variable[96];
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++)
    if (plm_setting_variable(table[i].key, variable)) unsetenv(variable);
}

static _Noreturn void child_up_become(char **command, const struct plm_child_options *options,
                                      pid_t parent)
{
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1); /* it died before */
  for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
  if (options->isolated) forget_settings();
  if (options->log != NULL) {
    const int log = open(options->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0) {
      fprintf(stderr, "plm-pipeline: cannot open %s: %s\n", options->log, strerror(errno));
      _exit(127);
    }
  }
  execv(command[0], command);
  fprintf(stderr, "plm-pipeline: cannot run %s: %s\n", command[0], strerror(errno));
  _exit(127);
}

plm_status plm_child_start(const struct plm_child_options *options, struct plm_child *child,
                           struct plm_error *error)
{
  char program[PLM_PATH_SIZE];
  const char *command[MOST_ARGUMENTS] = {program};
  size_t count = 1;
  *child = (struct plm_child){0};
  PLM_TRY(plm_path_join(program, options->program_directory, "plm-pipeline", error));
  for (; options->arguments[count - 1] != NULL; count++) {
    if (count + 1 + 2 * APART == MOST_ARGUMENTS)
      return plm_error_set(error, PLM_LIMIT, "more than %d arguments",
                           MOST_ARGUMENTS - 2 - 2 * APART);
    command[count] = options->arguments[count - 1];
  }
  for (size_t i = 0; i < APART && options->own_ports; i++) {
    command[count++] = "--set";
    command[count++] = apart[i];
  }
  fflush(NULL);
  const pid_t parent = getpid(), pid = fork();
  if (pid < 0) return plm_error_errno(error, "cannot start %s", program);
  if (pid == 0) child_up_become((char **)command, options, parent);
  child->pid = pid;
  return PLM_OK;
}

bool plm_child_ended(struct plm_child *child)
{
  int state = 0;
  if (child->pid == 0) return true;
  const pid_t ended = waitpid(child->pid, &state, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
  child->pid = 0;
  child->code = ended < 0 ? 1 : WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  return true;
}

void plm_child_stop(struct plm_child *child)
{
  if (child->pid == 0 || child->asked) return;
  child->asked = true;
  kill(child->pid, plm_stop_requested == SIGTERM ? SIGTERM : SIGINT);
}
