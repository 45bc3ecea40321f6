/* The supervisor's loop: one poll for signals, readiness, the control socket and its clients. */
#include "stages/supervisor/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/printable.h"
#include "common/checkpoint/checkpoint.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "stages/supervisor/report/supervisor_report.h"
#include "stages/supervisor/report/up_command.h"
#include "stages/supervisor/stage/supervisor_process.h"
#include "stages/supervisor/supervisor_internal.h"

enum { TICK_MS = 100, POLL_MAX = 2 + CLIENTS_MAX + SUPERVISED_MAX + PLM_HTTP_POLLS };

/* ---- set-up -------------------------------------------------------------------------------- */

void supervisor_init(struct plm_supervisor *supervisor,
                     const struct plm_supervisor_options *options, struct supervised *table)
{
  struct stages *const stages = &supervisor->stages;
  struct screen *const screen = &supervisor->screen;
  *supervisor = (struct plm_supervisor){
      .options = *options,
      .stages = {.config = options->config,
                 .gang = &supervisor->gang,
                 .launch = supervisor->options.launch,
                 .apart = options->apart,
                 .all = table},
      .gang = {.config = options->config,
               .socket_path = supervisor->requests.socket_path,
               .screen = screen},
      .launcher = {.stages = stages,
                   .screen = screen,
                   .exporter = &supervisor->exporter,
                   .program_directory = options->program_directory,
                   .fingerprint = options->fingerprint,
                   .trainer_options = options->trainer_options,
                   .packer_options = options->packer_options},
      .watchdog = {.stages = stages, .screen = screen},
      .screen = {.stages = stages,
                 .detached = options->detached,
                 .quiet = options->quiet,
                 .color = options->color},
      .exporter = {.stages = stages, .screen = screen},
      .drain = {.stages = stages, .screen = screen, .trains = options->chosen[PLM_KIND_TRAINER]},
      .requests = {.stages = stages,
                   .launcher = &supervisor->launcher,
                   .drain = &supervisor->drain},
      .signal_fd = -1};
  gang_init(&supervisor->gang);
  requests_init(&supervisor->requests);
}

static plm_status open_signals(struct plm_supervisor *supervisor, struct plm_error *error)
{
  static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    struct sigaction action;
    sigaction(numbers[i], NULL, &action);
    /* under nohup, SIGHUP is ignored; if it were blocked, signalfd would still deliver it */
    if (numbers[i] != SIGHUP || action.sa_handler != SIG_IGN) sigaddset(&set, numbers[i]);
  }
  signal(SIGPIPE, SIG_IGN);
  if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
    return plm_error_errno(error, "cannot receive signals");
  supervisor->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (supervisor->signal_fd < 0) return plm_error_errno(error, "cannot receive signals");
  return PLM_OK;
}

/* Whether a stage's endpoints are those of an earlier start: nobody else has started the stage. */
static bool is_over(const struct plm_supervisor *supervisor, int kind)
{
  struct plm_lock_holder holder;
  if (supervisor->options.chosen[kind]) return true;
  if (supervisor->stages.apart) return false;
  return plm_lock_holder(supervisor->stages.config->run, plm_stage_kinds[kind].name, &holder,
                         NULL) == PLM_NOT_FOUND;
}

static void forget_endpoints(struct plm_supervisor *supervisor)
{
  for (int kind = 0; kind < PLM_KIND_COUNT; kind++) {
    if (is_over(supervisor, kind))
      plm_stage_forget_endpoints(supervisor->stages.config->run, (enum plm_stage_index)kind);
  }
  if (supervisor->stages.apart) return;
  plm_endpoint_remove(supervisor->stages.config->run, "packers");
  plm_endpoint_remove(supervisor->stages.config->run, "prometheus");
}

static void start_all(struct plm_supervisor *supervisor)
{
  for (int kind = 0; kind < PLM_KIND_COUNT; kind++) {
    if (!supervisor->options.chosen[kind]) continue;
    const unsigned instances =
        plm_stage_instances(supervisor->stages.config, (enum plm_stage_index)kind);
    for (unsigned i = 0; i < instances; i++) {
      supervised_start(&supervisor->launcher,
                       supervised_add(&supervisor->stages, (enum plm_stage_index)kind, i));
    }
  }
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void reap(struct plm_supervisor *supervisor)
{
  for (;;) {
    int status;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    for (size_t i = 0; i < supervisor->stages.count;
         i++) { /* an adopted orphan is not a main process */
      struct supervised *stage = &supervisor->stages.all[i];
      if (stage->pid == pid) supervised_reaped(&supervisor->launcher, stage, status);
      gang_reaped(stage->gang, pid);
    }
  }
}

static void read_signals(struct plm_supervisor *supervisor)
{
  struct signalfd_siginfo info;
  while (read(supervisor->signal_fd, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) continue;
    drain_begin(&supervisor->drain, (int)info.ssi_signo);
  }
  reap(supervisor);
}

static size_t supervisor_fill(struct plm_supervisor *supervisor, struct pollfd items[POLL_MAX])
{
  size_t used = 0;
  items[used++] = (struct pollfd){.fd = supervisor->signal_fd, .events = POLLIN};
  items[used++] = (struct pollfd){.fd = supervisor->requests.listen_fd, .events = POLLIN};
  for (size_t i = 0; i < CLIENTS_MAX; i++) {
    items[used++] =
        (struct pollfd){.fd = supervisor->requests.clients[i].descriptor, .events = POLLIN};
  }
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    items[used++] = (struct pollfd){.fd = supervisor->stages.all[i].ready_fd, .events = POLLIN};
  }
  if (supervisor->exporter.http != NULL) {
    plm_http_fill(supervisor->exporter.http, &items[used]);
    used += PLM_HTTP_POLLS;
  }
  return used;
}

/* Fills in revents. poll takes no more entries than descriptors may be open, and counts those of
 * -1 as well, so only the others are passed. If it fails all the same, signals must still be seen.
 */
static void wait_for_events(struct pollfd *items, size_t count)
{
  static struct pollfd used[POLL_MAX];
  static size_t places[POLL_MAX];
  const struct timespec pause = {.tv_nsec = TICK_MS * 1000000L};
  nfds_t n = 0;
  for (size_t i = 0; i < count; i++) {
    if (items[i].fd < 0) continue;
    places[n] = i;
    used[n++] = items[i];
  }
  if (poll(used, n, TICK_MS) >= 0) {
    for (nfds_t i = 0; i < n; i++) items[places[i]].revents = used[i].revents;
  } else if (errno != EINTR) {
    plm_warning("the supervisor cannot poll: %s", strerror(errno));
    items[0].revents = POLLIN;
    (void)nanosleep(&pause, NULL);
  }
}

static void supervisor_turn(struct plm_supervisor *supervisor)
{
  static struct pollfd items[POLL_MAX];
  const size_t stages = supervisor->stages.count; /* a request may add stages */
  wait_for_events(items, supervisor_fill(supervisor, items));
  for (size_t i = 0; i < stages; i++) {
    const struct pollfd *item = &items[2 + CLIENTS_MAX + i];
    if (item->revents != 0) supervised_readable(&supervisor->screen, &supervisor->stages.all[i]);
  }
  if (items[0].revents != 0) read_signals(supervisor);
  for (size_t i = 0; i < CLIENTS_MAX; i++) {
    if (items[2 + i].revents != 0) {
      requests_readable(&supervisor->requests, &supervisor->requests.clients[i]);
    }
  }
  if (items[1].revents != 0) requests_accept(&supervisor->requests);
  const int64_t now_ms = plm_clock_ms();
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    supervised_tick(&supervisor->launcher, &supervisor->stages.all[i], now_ms);
  }
  watchdog_turn(&supervisor->watchdog, now_ms);
  /* other commands look for supervisor.lock, so it is created again if somebody removed it */
  (void)plm_lock_watch(supervisor->options.lock, NULL);
  drain_turn(&supervisor->drain);
  requests_answer_ready(&supervisor->requests);
  exporter_update(&supervisor->exporter);
  screen_update(&supervisor->screen);
}

/* ---- the end ------------------------------------------------------------------------------- */

/* After a stop by a signal: says where `up` will continue. */
static void say_stopped(struct plm_supervisor *supervisor)
{
  uint64_t step;
  struct plm_text command = {0};
  const struct plm_supervisor_options *options = &supervisor->options;
  plm_up_command_put(options->config, options->run, &command);
  if (!options->chosen[PLM_KIND_TRAINER])
    screen_say(&supervisor->screen, "stopped");
  else if (plm_checkpoint_latest(supervisor->stages.config->run, &step))
    screen_say(&supervisor->screen, "stopped; `%s`%s will continue from step %llu", command.data,
               options->sets ? " with the same --set" : "", (unsigned long long)step);
  else
    screen_say(&supervisor->screen, "stopped before the first checkpoint");
  plm_text_deinit(&command);
}

/* Says how the run has ended, also to the clients that wait for it, and returns the exit code. */
static int supervisor_conclude(struct plm_supervisor *supervisor)
{
  const char *run = supervisor->stages.config->run;
  const int signal_number = supervisor->drain.signal;
  struct plm_text failure = {0}; /* for people; empty if nothing failed */
  /* a stage that is started by hand later may have packers */
  if (!supervisor->stages.apart) plm_endpoint_remove(run, "packers");
  const int failure_code =
      stages_judge_failures(&supervisor->stages, supervisor->options.chosen, &failure);
  const int exit_code =
      signal_number != 0 ? plm_status_exit_code(plm_stop_status(signal_number)) : failure_code;
  screen_close(&supervisor->screen);
  /* a run that was stopped did not fail for lack of packers */
  if (failure_code == 0 && signal_number != 0) plm_text_clear(&failure);
  if (failure.length > 0) plm_print(stderr, "plm-pipeline: %s", failure.data);
  struct plm_done done;
  if (exit_code == 0 && plm_done_read(run, &done, NULL) == PLM_OK) {
    screen_say(&supervisor->screen, "the run is complete at step %llu",
               (unsigned long long)done.step);
  } else if (signal_number != 0 && failure.length == 0) {
    say_stopped(supervisor);
  }
  requests_answer_end(&supervisor->requests, exit_code, failure.length > 0 ? failure.data : "");
  plm_text_deinit(&failure);
  return exit_code;
}

static void supervisor_close_all(struct plm_supervisor *supervisor)
{
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    if (supervisor->stages.all[i].ready_fd >= 0) close(supervisor->stages.all[i].ready_fd);
  }
  requests_close(&supervisor->requests);
  if (supervisor->signal_fd >= 0) close(supervisor->signal_fd);
  exporter_close(&supervisor->exporter);
  free(supervisor->stages.all);
}

plm_status plm_supervise(const struct plm_supervisor_options *options, int *exit_code,
                         struct plm_error *error)
{
  struct plm_supervisor supervisor;
  plm_status status = PLM_OK;
  struct supervised *table = plm_alloc_zeroed(SUPERVISED_MAX, sizeof *table);
  supervisor_init(&supervisor, options, table);
  plm_alloc_persist(1000); /* the stages, and who reads their states, depend on this process */
  PLM_TRY_GOTO(status, plm_process_adopt(error), done);
  PLM_TRY_GOTO(status, open_signals(&supervisor, error), done);
  PLM_TRY_GOTO(status, requests_open(&supervisor.requests, error), done);
  forget_endpoints(&supervisor);
  screen_open(&supervisor.screen);
  PLM_TRY_GOTO(status, exporter_open(&supervisor.exporter, error), done);
  start_all(&supervisor);
  if (options->started_fd >= 0) {
    const ssize_t told = write(options->started_fd, "\n", 1);
    (void)told;
    close(options->started_fd);
  }
  while (!drain_is_over(&supervisor.drain)) supervisor_turn(&supervisor);
  *exit_code = supervisor_conclude(&supervisor);
done:
  supervisor_close_all(&supervisor);
  return status;
}
