/* Starting mpirun, asking it to stop, and watching rank 0. */
#include "stages/supervisor/supervisor_gang.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/run/run.h"
#include "stages/supervisor/gang/gang_log.h"

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

static plm_status start_log(struct gang *gang, const struct supervised *stage,
                            struct plm_error *error)
{
  const struct plm_gang_log log = {stage->tail.path, gang->log_fd, &gang->folder};
  return plm_gang_log_start(&log, &gang->log_pid, error);
}

void gang_init(struct gang *gang)
{
  gang->first_fd = gang->log_fd = -1;
}

plm_status gang_prepare(struct gang *gang, const struct supervised *stage, char *const *rank_argv,
                        struct gang_start *start, struct plm_error *error)
{
  int ends[2];
  start->process.output = -1;
  gang->hung = false;
  /* readiness is read from the endpoints, so those of an earlier start must be gone */
  plm_stage_forget_endpoints(gang->config->run, stage->kind);
  PLM_TRY(plm_gang_command_make(gang->config, rank_argv, &start->command, error));
  PLM_TRY(plm_gang_folder_make(gang->socket_path, &gang->folder, error));
  PLM_TRY(plm_gang_log_pipe(ends, error));
  gang->log_fd = ends[0];
  /* mpirun also has the reading end: without it, the signal SIGPIPE would end mpirun if the writer
   * and this process were killed */
  start->process = (struct plm_process_gang){
      .folder = gang->folder.path, .output = ends[1], .kept = {ends[0], gang->folder.lock}};
  return start_log(gang, stage, error);
}

void gang_prepared(struct gang_start *start)
{
  plm_gang_command_deinit(&start->command);
  if (start->process.output >= 0) close(start->process.output);
}

void gang_stop(struct gang *gang, pid_t mpirun, bool was_ready)
{
  if (mpirun > 0) kill(mpirun, SIGUSR1);
  gang->ask_ms = was_ready ? 0 : plm_clock_ms() + ASK_AGAIN_MS;
}

void gang_ended(struct gang *gang)
{
  if (gang->first_fd >= 0) close(gang->first_fd);
  gang->first_fd = -1;
  gang->first_gone_ms = 0;
  gang->ranks_seen = false;
  gang->ask_ms = 0;
  if (gang->log_fd >= 0) close(gang->log_fd);
  gang->log_fd = -1;
  plm_gang_folder_remove(&gang->folder);
}

/* ---- the writer of the log ----------------------------------------------------------------- */

bool gang_still_writes(const struct gang *gang)
{
  return gang != NULL && gang->log_pid != 0;
}

void gang_kill_writer(const struct gang *gang)
{
  if (gang_still_writes(gang)) kill(gang->log_pid, SIGKILL);
}

void gang_reaped(struct gang *gang, pid_t pid)
{
  if (gang != NULL && gang->log_pid == pid) gang->log_pid = 0;
}

/* ---- rank 0 -------------------------------------------------------------------------------- */

bool gang_has_hung(const struct gang *gang)
{
  return gang != NULL && gang->hung;
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
static void supervisor_gang_find_first(struct gang *gang, const struct supervised *stage,
                                       int64_t now_ms)
{
  enum { MOST = 8192 };
  static pid_t pids[MOST];
  struct plm_lock_holder holder;
  const size_t count = find_ranks(stage, pids, MOST);
  if (count == 0 && gang->ranks_seen) gang->first_gone_ms = now_ms;
  if (count == 0) return;
  gang->ranks_seen = true;
  if (plm_lock_holder(gang->config->run, plm_stage_kinds[stage->kind].name, &holder, NULL) !=
      PLM_OK)
    return;
  for (size_t i = 0; i < count; i++)
    if (pids[i] == (pid_t)holder.pid) gang->first_fd = (int)syscall(SYS_pidfd_open, pids[i], 0);
}

/* If rank 0 is gone, mpirun must end as well. */
static void watch_first(struct gang *gang, const struct supervised *stage, int64_t now_ms)
{
  struct pollfd item = {.fd = gang->first_fd, .events = POLLIN};
  if (gang->first_gone_ms == 0 && gang->first_fd < 0) {
    supervisor_gang_find_first(gang, stage, now_ms);
  } else if (gang->first_gone_ms == 0) {
    if (poll(&item, 1, 0) == 1) gang->first_gone_ms = now_ms; /* also if nobody has reaped it */
  } else if (!gang->hung && now_ms - gang->first_gone_ms >= 1000 * mpirun_grace_s()) {
    char name[64];
    screen_say(gang->screen, "%s: mpirun still runs %d s after rank 0 has ended; killing it",
               supervised_name(stage, name), mpirun_grace_s());
    gang->hung = true;
    kill(stage->pid, SIGKILL);
  }
}

void gang_tick(struct gang *gang, const struct supervised *stage, int64_t now_ms)
{
  if (stage->pid == 0) return;
  if (gang->log_pid == 0) (void)start_log(gang, stage, NULL); /* somebody has killed it */
  if (gang->ask_ms != 0 && now_ms >= gang->ask_ms) {
    kill(stage->pid, SIGUSR1);
    gang->ask_ms = now_ms + ASK_AGAIN_MS;
  }
  watch_first(gang, stage, now_ms);
}
