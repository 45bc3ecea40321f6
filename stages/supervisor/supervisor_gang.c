/* What differs if the trainer is a gang: it is started by mpirun, which closes the ready pipe,
 * passes on only SIGUSR1 without killing, and may hang when a rank is gone. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/run/run.h"
#include "stages/supervisor/gang_log.h"
#include "stages/supervisor/supervisor_internal.h"
#include "stages/supervisor/supervisor_process.h"

enum {
  ASK_AGAIN_MS = 1000,
  MPIRUN_GRACE_S = 10, /* for mpirun to end after rank 0; PLM_MPIRUN_GRACE_S changes it */
  MPIRUN_GRACE_MOST_S = 86400,
};

static int mpirun_grace_s(void)
{
  const char *text = getenv("PLM_MPIRUN_GRACE_S");
  char *end;
  const long value = text != NULL ? strtol(text, &end, 10) : 0;
  return value > 0 && value <= MPIRUN_GRACE_MOST_S && *end == '\0' ? (int)value : MPIRUN_GRACE_S;
}

static plm_status start_log(struct plm_supervisor *supervisor, struct supervised *stage,
                            struct plm_error *error)
{
  const struct plm_gang_log log = {stage->tail.path, stage->mpi.log_fd, &supervisor->gang_folder};
  return plm_gang_log_start(&log, &stage->mpi.log_pid, error);
}

plm_status gang_prepare(struct plm_supervisor *supervisor, struct supervised *stage,
                        char *const *rank_argv, struct gang_start *start, struct plm_error *error)
{
  int ends[2];
  start->process.output = -1;
  /* readiness is read from the endpoints, so those of an earlier start must be gone */
  supervised_forget_endpoints(supervisor->stages.config->run, stage->kind);
  PLM_TRY(plm_gang_command_make(supervisor->stages.config, rank_argv, &start->command, error));
  PLM_TRY(plm_gang_folder_make(supervisor->socket_path, &supervisor->gang_folder, error));
  PLM_TRY(plm_gang_log_pipe(ends, error));
  stage->mpi.log_fd = ends[0];
  /* mpirun also has the reading end: without it, the signal SIGPIPE would end mpirun if the writer
   * and this process were killed */
  start->process = (struct plm_process_gang){.folder = supervisor->gang_folder.path,
                                             .output = ends[1],
                                             .kept = {ends[0], supervisor->gang_folder.lock}};
  return start_log(supervisor, stage, error);
}

void gang_prepared(struct gang_start *start)
{
  plm_gang_command_deinit(&start->command);
  if (start->process.output >= 0) close(start->process.output);
}

void gang_stop(struct supervised *stage, bool was_ready)
{
  if (stage->pid > 0) kill(stage->pid, SIGUSR1);
  stage->mpi.ask_ms = was_ready ? 0 : plm_clock_ms() + ASK_AGAIN_MS;
}

void gang_ended(struct plm_supervisor *supervisor, struct supervised *stage)
{
  if (stage->mpi.first_fd >= 0) close(stage->mpi.first_fd);
  stage->mpi.first_fd = -1;
  stage->mpi.first_gone_ms = 0;
  stage->mpi.ranks_seen = false;
  stage->mpi.ask_ms = 0;
  if (stage->mpi.log_fd >= 0) close(stage->mpi.log_fd);
  stage->mpi.log_fd = -1;
  plm_gang_folder_remove(&supervisor->gang_folder);
}

static bool has_bound(const struct plm_supervisor *supervisor, const struct supervised *stage)
{
  char value[512];
  for (const char *const *key = plm_stage_kinds[stage->kind].binds; *key != NULL; key++) {
    if (plm_endpoint_read(supervisor->stages.config->run, *key, value, NULL) != PLM_OK)
      return false;
  }
  return true;
}

/* The ranks on this host. Writes at most `room` of them to pids and returns how many it wrote. */
static size_t find_ranks(const struct supervised *stage, pid_t *pids, size_t room)
{
  const char *kind = plm_stage_kinds[stage->kind].name;
  size_t ranks = 0, found = plm_process_find(kind, stage->instance, stage->pid, pids, room);
  if (found > room) found = room;
  for (size_t i = 0; i < found; i++)
    if (plm_process_runs(pids[i], plm_stage_kinds[stage->kind].program)) pids[ranks++] = pids[i];
  return ranks;
}

/* Looks for rank 0, which holds the trainer's lock, and opens a descriptor of it. If all ranks of
 * this host have ended before it was found, rank 0 is gone as well, because it runs here. */
static void find_first(const struct plm_supervisor *supervisor, struct supervised *stage,
                       int64_t now_ms)
{
  enum { MOST = 8192 };
  static pid_t pids[MOST];
  struct plm_lock_holder holder;
  const size_t count = find_ranks(stage, pids, MOST);
  if (count == 0 && stage->mpi.ranks_seen) stage->mpi.first_gone_ms = now_ms;
  if (count == 0) return;
  stage->mpi.ranks_seen = true;
  if (plm_lock_holder(supervisor->stages.config->run, plm_stage_kinds[stage->kind].name, &holder,
                      NULL) != PLM_OK)
    return;
  for (size_t i = 0; i < count; i++)
    if (pids[i] == (pid_t)holder.pid)
      stage->mpi.first_fd = (int)syscall(SYS_pidfd_open, pids[i], 0);
}

/* If rank 0 is gone, mpirun must end as well. */
static void watch_first(struct plm_supervisor *supervisor, struct supervised *stage, int64_t now_ms)
{
  struct pollfd item = {.fd = stage->mpi.first_fd, .events = POLLIN};
  if (stage->mpi.first_gone_ms == 0 && stage->mpi.first_fd < 0) {
    find_first(supervisor, stage, now_ms);
  } else if (stage->mpi.first_gone_ms == 0) {
    if (poll(&item, 1, 0) == 1)
      stage->mpi.first_gone_ms = now_ms; /* also if nobody has reaped it */
  } else if (!stage->mpi.hung && now_ms - stage->mpi.first_gone_ms >= 1000 * mpirun_grace_s()) {
    char name[64];
    supervised_name(stage, name);
    screen_say(&supervisor->screen, "%s: mpirun still runs %d s after rank 0 has ended; killing it",
               name, mpirun_grace_s());
    stage->mpi.hung = true;
    kill(stage->pid, SIGKILL);
  }
}

void gang_tick(struct plm_supervisor *supervisor, struct supervised *stage, int64_t now_ms)
{
  if (stage->pid == 0) return;
  if (stage->mpi.log_pid == 0)
    (void)start_log(supervisor, stage, NULL); /* somebody has killed it */
  if (stage->state == PLM_STAGE_STARTING && has_bound(supervisor, stage))
    supervised_is_ready(supervisor, stage);
  if (stage->mpi.ask_ms != 0 && now_ms >= stage->mpi.ask_ms) {
    kill(stage->pid, SIGUSR1);
    stage->mpi.ask_ms = now_ms + ASK_AGAIN_MS;
  }
  watch_first(supervisor, stage, now_ms);
}
