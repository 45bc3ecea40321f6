/* Starting processes, and finding all their descendants. */
#include "stages/supervisor/stage/supervisor_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/log/log_file.h"
#include "common/base/process/process_state.h"
#include "common/collective/collective.h"
#include "common/run/stop.h"

plm_status plm_process_adopt(struct plm_error *error)
{
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return plm_error_errno(error, "cannot adopt orphaned processes");
  return PLM_OK;
}

static void mark_text(char text[128], const char *stage, unsigned instance, pid_t supervisor)
{
  snprintf(text, 128, "%d.%s.%u", (int)supervisor, stage, instance);
}

/* ---- starting ------------------------------------------------------------------------------ */

static bool become_gang(const struct plm_process_gang *gang)
{
  unsetenv("PLM_READY_FD");
  setenv("TMPDIR", gang->folder, 1);
  setenv(PLM_GANG_FOLDER, gang->folder, 1);
  if (geteuid() == 0) { /* Open MPI wants both */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  return fcntl(gang->kept[0], F_SETFD, 0) == 0 && fcntl(gang->kept[1], F_SETFD, 0) == 0;
}

/* Runs in the child, between fork and exec. Returns only if something failed, with errno set. */
static void supervisor_process_become(const struct plm_process_start *start, pid_t supervisor,
                                      int log, int ready)
{
  char text[128];
  sigset_t none;
  sigemptyset(&none);
  for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, NULL);
  setsid(); /* Ctrl-C on the terminal is for the supervisor only */
  /* This must come after fork, which clears the setting. getppid tells if the supervisor has died
   * in the meantime. */
  prctl(PR_SET_PDEATHSIG, start->gang != NULL || start->elsewhere ? SIGUSR1 : SIGTERM);
  if (getppid() != supervisor) _exit(plm_status_exit_code(PLM_TERMINATED));
  if (start->nice != 0) {
    setpriority(PRIO_PROCESS, 0, start->nice);
    setenv("OMP_WAIT_POLICY", "passive", 1);
  }
  mark_text(text, start->stage, start->instance, supervisor);
  setenv(PLM_SUPERVISED, text, 1);
  snprintf(text, sizeof text, "%u", start->instance);
  setenv("PLM_INSTANCE", text, 1);
  setenv(PLM_LOG_TIMES, "1", 1); /* `logs` merges lines by their times */
  setenv(PLM_LOG_FILE, start->log_path, 1);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
      dup2(log, STDERR_FILENO) < 0) {
    return;
  }
  if (start->gang != NULL) {
    if (!become_gang(start->gang)) return;
  } else {
    if (fcntl(ready, F_SETFD, 0) != 0) return;
    snprintf(text, sizeof text, "%d", ready);
    setenv("PLM_READY_FD", text, 1);
  }
  execv(start->argv[0], start->argv);
}

/* All ends close on exec; `become` clears the flag of the end that its program keeps. */
static bool open_pipes(int ready[2], int failure[2])
{
  if (pipe2(ready, O_CLOEXEC) != 0) return false;
  if (pipe2(failure, O_CLOEXEC) == 0) {
    fcntl(ready[0], F_SETFL, O_NONBLOCK);
    return true;
  }
  close(ready[0]);
  close(ready[1]);
  return false;
}

plm_status plm_process_start(const struct plm_process_start *start, pid_t *pid, int *ready,
                             struct plm_error *error)
{
  int pipes[2], failure[2], failed_errno = 0;
  const pid_t supervisor = getpid();
  const int log = start->gang != NULL
                      ? fcntl(start->gang->output, F_DUPFD_CLOEXEC, 0)
                      : open(start->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return plm_error_errno(error, "%s", start->log_path);
  if (!open_pipes(pipes, failure)) {
    const plm_status status = plm_error_errno(error, "pipe");
    close(log);
    return status;
  }
  const pid_t child = fork();
  if (child == 0) {
    supervisor_process_become(start, supervisor, log, pipes[1]);
    const int number = errno;
    ssize_t ignored = write(failure[1], &number, sizeof number);
    (void)ignored;
    _exit(127);
  }
  const int fork_errno = errno;
  close(log);
  close(pipes[1]);
  close(failure[1]);
  /* end of file means that exec closed the pipe: the program runs */
  const bool failed =
      child < 0 || read(failure[0], &failed_errno, sizeof failed_errno) == sizeof failed_errno;
  close(failure[0]);
  if (failed) {
    close(pipes[0]);
    errno = child < 0 ? fork_errno : failed_errno;
    return plm_error_errno(error, "cannot run %s", start->argv[0]);
  }
  *pid = child;
  *ready = pipes[0];
  return PLM_OK;
}

/* ---- finding ------------------------------------------------------------------------------- */

struct entry {
  pid_t pid, parent;
  bool found; /* it belongs to the stage */
};

bool plm_process_is_paused(pid_t pid)
{
  char state;
  pid_t parent;
  return pid > 0 && plm_process_state(pid, &state, &parent) && state == 'T';
}

static bool read_stat(pid_t pid, struct entry *entry)
{
  char state;
  if (!plm_process_state(pid, &state, &entry->parent)) return false;
  entry->pid = pid;
  return state != 'Z' && state != 'X';
}

static size_t read_processes(struct entry **entries)
{
  size_t count = 0, room = 0;
  *entries = NULL;
  DIR *folder = opendir("/proc");
  if (folder == NULL) return 0;
  for (const struct dirent *item; (item = readdir(folder)) != NULL;) {
    const pid_t pid = (pid_t)atoi(item->d_name);
    if (pid <= 0) continue;
    if (count == room) {
      room = room == 0 ? 256 : 2 * room;
      *entries = plm_realloc(*entries, room * sizeof **entries);
    }
    if (read_stat(pid, &(*entries)[count])) count++;
  }
  closedir(folder);
  return count;
}

static bool is_marked(pid_t pid, const char *mark)
{
  char path[64];
  char *text = NULL;
  size_t size = 0;
  bool found = false;
  snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
  if (plm_file_read(path, 1 << 22, &text, &size, NULL) != PLM_OK) return false;
  const size_t name = strlen(PLM_SUPERVISED);
  for (const char *c = text; c < text + size && !found; c += strlen(c) + 1) {
    found =
        strncmp(c, PLM_SUPERVISED, name) == 0 && c[name] == '=' && strcmp(c + name + 1, mark) == 0;
  }
  free(text);
  return found;
}

/* The ancestor of pid, or pid itself, that is `pid_of_stage` or a child of the supervisor; 0 if pid
 * does not descend from the supervisor. */
static pid_t top_of(const struct entry *entries, size_t count, pid_t pid, pid_t pid_of_stage,
                    pid_t supervisor)
{
  for (int depth = 0; depth < 64; depth++) {
    const struct entry *entry = NULL;
    for (size_t i = 0; i < count && entry == NULL; i++) {
      if (entries[i].pid == pid) entry = &entries[i];
    }
    if (entry == NULL) return 0;
    if (pid == pid_of_stage || entry->parent == supervisor) return pid;
    pid = entry->parent;
  }
  return 0;
}

/* All processes, of which *found belong to the stage. The caller frees them. */
static size_t find_all(const char *stage, unsigned instance, pid_t pid, struct entry **entries,
                       size_t *found)
{
  char mark[128];
  const pid_t supervisor = getpid();
  const size_t count = read_processes(entries);
  mark_text(mark, stage, instance, supervisor);
  *found = 0;
  for (size_t i = 0; i < count; i++) {
    struct entry *entry = &(*entries)[i];
    const pid_t top = top_of(*entries, count, entry->pid, pid, supervisor);
    entry->found = top != 0 && (top == pid || is_marked(top, mark));
    *found += entry->found;
  }
  return count;
}

size_t plm_process_find(const char *stage, unsigned instance, pid_t pid, pid_t *pids, size_t room)
{
  struct entry *entries;
  size_t found, written = 0;
  const size_t count = find_all(stage, instance, pid, &entries, &found);
  for (size_t i = 0; i < count && written < room; i++)
    if (entries[i].found) pids[written++] = entries[i].pid;
  free(entries);
  return found;
}

bool plm_process_runs(pid_t pid, const char *program)
{
  char path[64], name[32];
  snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) return false;
  const bool is_read = fgets(name, sizeof name, file) != NULL;
  fclose(file);
  if (!is_read) return false;
  name[strcspn(name, "\n")] = '\0';
  return strncmp(name, program, PLM_PROCESS_NAME) == 0;
}

size_t plm_process_signal_all(const char *stage, unsigned instance, pid_t pid, int number)
{
  struct entry *entries;
  size_t found;
  const size_t count = find_all(stage, instance, pid, &entries, &found);
  for (size_t i = 0; i < count; i++)
    if (entries[i].found) kill(entries[i].pid, number);
  free(entries);
  return found;
}
