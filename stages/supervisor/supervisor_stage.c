/* Starting a stage, stopping it, and judging how it ended. */
#include "stages/supervisor/supervisor_stage.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/base/log/log_file.h"
#include "common/checkpoint/unevaluated.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "stages/supervisor/stage/memory_kill.h"
#include "stages/supervisor/stage/supervisor_process.h"
#include "stages/supervisor/supervisor_failure.h"
#include "stages/supervisor/supervisor_gang.h"

static const char *kind_name(const struct supervised *stage)
{
  return plm_stage_kinds[stage->kind].name;
}

static void supervisor_stage_move(struct supervised *stage, enum plm_stage_event event)
{
  stage->state = plm_stage_next(stage->state, event);
}

static void close_ready(struct supervised *stage)
{
  if (stage->ready_fd >= 0) close(stage->ready_fd);
  stage->ready_fd = -1;
}

/* Whether the cause of an error before the start may pass: a lack of memory or descriptors is
 * treated as a death, which is tried again a few times. */
static enum plm_failure_kind kind_of_error(plm_status status)
{
  if (plm_status_stage_code(status) == PLM_EXIT_MAY_PASS) return PLM_FAILURE_PASSES;
  return plm_status_may_pass(status) ? PLM_FAILURE_UNKNOWN : PLM_FAILURE_STAYS;
}

static void could_not_start(struct launcher *launcher, struct supervised *stage,
                            const struct plm_error *error)
{
  char how[256];
  snprintf(how, sizeof how, "could not be started: %.200s", error->what);
  supervisor_stage_move(stage, PLM_EVENT_START);
  stage->started_ms = 0; /* how an earlier process ended does not matter here */
  supervised_failed(launcher->stages, launcher->screen, stage, kind_of_error(error->status), how);
}

enum { OUTSIDE_MS = 5000 }; /* from the end of a stage to the signal that stops the run */
enum { LAUNCH_SIZE = 2048, LAUNCH_WORDS = 4 };

/* The command line that starts `argv` through the stage's launch. */
static plm_status make_launch(const struct supervised *stage, char *const *argv,
                              char text[LAUNCH_SIZE],
                              char *words[LAUNCH_WORDS + PLM_STAGE_ARGUMENTS],
                              struct plm_error *error)
{
  size_t used = 0;
  if (snprintf(text, LAUNCH_SIZE, "exec %s \"$@\"", stage->launch) >= LAUNCH_SIZE)
    return plm_error_set(error, PLM_USAGE, "the command after --launch %s= is too long",
                         kind_name(stage));
  words[used++] = (char *)"/bin/sh";
  words[used++] = (char *)"-c";
  words[used++] = text;
  words[used++] = (char *)"sh";
  for (; *argv != NULL; argv++) words[used++] = *argv;
  words[used] = NULL;
  return PLM_OK;
}

static plm_status start_process(struct launcher *launcher, struct supervised *stage,
                                struct plm_error *error)
{
  static struct plm_stage_command command; /* static because it is large; there is one thread */
  static char launch[LAUNCH_SIZE], *words[LAUNCH_WORDS + PLM_STAGE_ARGUMENTS];
  struct gang_start gang = {.process = {.output = -1}};
  plm_status status =
      plm_stage_command_make(launcher->program_directory, launcher->stages->config->run,
                             launcher->stages->apart ? PLM_RUN_CONFIG_APART : PLM_RUN_CONFIG,
                             launcher->fingerprint, stage->kind, &command, error);
  if (stage->kind == PLM_KIND_TRAINER) plm_stage_command_add(&command, launcher->trainer_options);
  if (stage->kind == PLM_KIND_PACKER) plm_stage_command_add(&command, launcher->packer_options);
  if (status == PLM_OK && stage->gang != NULL)
    status = gang_prepare(stage->gang, stage, command.argv, &gang, error);
  if (status == PLM_OK && stage->launch != NULL) {
    /* readiness is read from the endpoints, so those of an earlier start must be gone */
    plm_stage_forget_endpoints(launcher->stages->config->run, stage->kind);
    status = make_launch(stage, command.argv, launch, words, error);
  }
  if (status == PLM_OK) {
    const struct plm_process_start start = {.argv = stage->gang != NULL     ? gang.command.argv
                                                    : stage->launch != NULL ? words
                                                                            : command.argv,
                                            .stage = kind_name(stage),
                                            .instance = stage->instance,
                                            .log_path = stage->tail.path,
                                            .nice = plm_stage_kinds[stage->kind].nice,
                                            .elsewhere = stage->launch != NULL,
                                            .gang = stage->gang != NULL ? &gang.process : NULL};
    status = plm_process_start(&start, &stage->pid, &stage->ready_fd, error);
  }
  gang_prepared(&gang);
  return status;
}

/* A packer that was killed leaves its pulse. (Those of the others are older than the next lock.) */
static void forget_pulse(const struct plm_config *config, const struct supervised *stage)
{
  char role[PACKER_ROLE_SIZE];
  if (stage->kind != PLM_KIND_PACKER) return;
  supervised_packer_role(stage, role);
  plm_run_pulse_remove(config->run, role);
}

void supervised_start(struct launcher *launcher, struct supervised *stage)
{
  struct plm_error error = {0};
  plm_log_file_turn_idle(stage->tail.path);
  stage->log_start = plm_tail_end(stage->tail.path);
  stage->silent = false;
  stage->pulse = (struct plm_pulse){0};
  stage->heard = stage->listing = false;
  stage->spoken_ms = 0;
  stage->memory_kills = plm_memory_kills();
  stage->judged_ms = 0;
  stage->launched_pid = 0;
  forget_pulse(launcher->stages->config, stage); /* of a process that an earlier `up` has started */
  if (start_process(launcher, stage, &error) != PLM_OK) {
    if (stage->gang != NULL) gang_ended(stage->gang);
    could_not_start(launcher, stage, &error);
    return;
  }
  stage->started_ms = plm_clock_ms();
  stage->kill_ms = 0;
  stage->ending = false;
  stage->killed_by_us = false;
  supervisor_stage_move(stage, PLM_EVENT_START);
  exporter_started(launcher->exporter, stage);
}

void supervised_stop(const struct plm_config *config, struct supervised *stage)
{
  if (stage->state == PLM_STAGE_STOPPING) return;
  const bool lived = plm_stage_lives(stage->state), was_ready = stage->state == PLM_STAGE_READY;
  supervisor_stage_move(stage, PLM_EVENT_STOP);
  if (!lived) return;
  if (stage->gang != NULL)
    gang_stop(stage->gang, stage->pid, was_ready);
  else if (stage->pid > 0)
    kill(stage->pid, stage->launch != NULL ? SIGUSR1 : SIGTERM);
  const double grace_s = config->trainer.stop_timeout_s + plm_stage_kinds[stage->kind].stop_s;
  stage->kill_ms = plm_clock_ms() + (int64_t)(1000.0 * grace_s);
}

void supervised_kill(struct supervised *stage)
{
  if (!plm_stage_lives(stage->state)) {
    supervisor_stage_move(stage, PLM_EVENT_STOP);
    return;
  }
  stage->killed_by_us = true;
  supervisor_stage_move(stage, PLM_EVENT_STOP);
  supervised_signal_kill(stage);
  stage->kill_ms = plm_clock_ms() + 1000; /* again, for processes that were forked meanwhile */
}

static void is_ready(struct screen *screen, struct supervised *stage)
{
  char name[64];
  supervisor_stage_move(stage, PLM_EVENT_READY);
  if (stage->state == PLM_STAGE_READY && !screen->quiet) {
    screen_say(screen, "%s is ready (%.1f s)", supervised_name(stage, name),
               (double)(plm_clock_ms() - stage->started_ms) / 1000.0);
  }
}

void supervised_readable(struct screen *screen, struct supervised *stage)
{
  char bytes[64];
  const ssize_t size = read(stage->ready_fd, bytes, sizeof bytes);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size > 0 && memchr(bytes, '\n', (size_t)size) != NULL) {
    is_ready(screen, stage);
    close_ready(stage);
  } else if (size <= 0) {
    close_ready(stage); /* it closed without a line; its exit will tell why */
  }
}

/* ---- ends ---------------------------------------------------------------------------------- */

void supervised_ending(const struct supervised *stage, char text[96])
{
  const int status = stage->wait_status;
  if (stage->silent) {
    snprintf(text, 96, "gave no sign of life and was killed");
  } else if (gang_has_hung(stage->gang)) {
    snprintf(text, 96, "lost rank 0, and mpirun did not notice");
  } else if (stage->gang != NULL && WIFEXITED(status) && WEXITSTATUS(status) > 128 &&
             WEXITSTATUS(status) < 128 + NSIG) {
    snprintf(text, 96, "lost a rank to signal %d (%s)%s", WEXITSTATUS(status) - 128,
             strsignal(WEXITSTATUS(status) - 128),
             plm_memory_kill_note(WEXITSTATUS(status) - 128, stage->memory_kills));
  } else if (WIFSIGNALED(status)) {
    snprintf(text, 96, "was killed by signal %d (%s)%s", WTERMSIG(status),
             strsignal(WTERMSIG(status)),
             plm_memory_kill_note(WTERMSIG(status), stage->memory_kills));
  } else if (WEXITSTATUS(status) == 0) {
    snprintf(text, 96, "ended before %s",
             stage->kind == PLM_KIND_EVALUATOR ? "every checkpoint was evaluated"
                                               : "the run was complete");
  } else if (WEXITSTATUS(status) == 128 + SIGTERM || WEXITSTATUS(status) == 128 + SIGINT) {
    snprintf(text, 96, "was stopped by a signal that did not come from this run (exit code %d)",
             WEXITSTATUS(status));
  } else {
    snprintf(text, 96, "exited with %d", WEXITSTATUS(status));
  }
}

/* Whether the run has its last checkpoint (DONE). */
static bool run_is_done(const struct plm_config *config)
{
  struct plm_done done;
  return plm_done_read(config->run, &done, NULL) == PLM_OK;
}

/* Whether a stage that ended with 0 has nothing left to do. An evaluator that was told to stop once
 * DONE existed also ends with it, so its reports decide. */
static bool is_finished(const struct plm_config *config, enum plm_stage_index kind)
{
  struct plm_unevaluated left;
  struct plm_error error = {0};
  if (!run_is_done(config)) return false;
  if (kind != PLM_KIND_EVALUATOR) return true;
  if (plm_unevaluated_read(config->run, &config->evaluator, &left, &error) == PLM_OK)
    return left.count == 0;
  plm_log_error(&error);
  return false;
}

/* Whether a stage that ended by itself has done its work. */
static bool has_finished(const struct plm_config *config, const struct supervised *stage)
{
  if (gang_has_hung(stage->gang)) return run_is_done(config);
  if (!WIFEXITED(stage->wait_status) || WEXITSTATUS(stage->wait_status) != 0) return false;
  if (stage->kind == PLM_KIND_PACKER)
    return plm_stage_restart(config, stage->kind) != PLM_RESTART_ALWAYS;
  return is_finished(config, stage->kind);
}

/* Whether it ended as a program does that the signal stopped: with 128 and the signal's number, or,
 * if it could not handle the signal yet, by the signal itself. mpirun exits with such a code if
 * that happened to a rank. */
static bool ended_by_request(const struct supervised *stage)
{
  const int status = stage->wait_status, asked = stage->gang != NULL ? SIGUSR1 : SIGTERM;
  if (WIFSIGNALED(status)) return WTERMSIG(status) == asked;
  return WEXITSTATUS(status) == 128 + asked;
}

static void ended_by_itself(struct launcher *launcher, struct supervised *stage)
{
  char how[96];
  if (has_finished(launcher->stages->config, stage)) {
    supervisor_stage_move(stage, PLM_EVENT_ENDED);
    return;
  }
  supervised_ending(stage, how);
  supervised_failed(launcher->stages, launcher->screen, stage,
                    plm_failure_kind_of(stage->wait_status), how);
}

/* Whether a batch system may have stopped the stage with the whole job, in which case this process
 * is told to stop as well, before or after. */
static bool maybe_stopped_outside(const struct supervised *stage)
{
  return stage->launch != NULL && WIFEXITED(stage->wait_status) &&
         WEXITSTATUS(stage->wait_status) == 128 + SIGTERM;
}

/* Called when no process of the stage is left. If it may have been stopped from outside, it is
 * called again once the run is being stopped, or OUTSIDE_MS later. */
static void supervisor_stage_ended(struct launcher *launcher, struct supervised *stage)
{
  const bool outside = maybe_stopped_outside(stage);
  stage->ending = false;
  stage->kill_ms = 0;
  close_ready(stage);
  forget_pulse(launcher->stages->config, stage);
  if (stage->gang != NULL) gang_ended(stage->gang);
  if (outside && launcher->stages->draining) supervisor_stage_move(stage, PLM_EVENT_STOP);
  if (outside && stage->state != PLM_STAGE_STOPPING && stage->judged_ms == 0) {
    stage->judged_ms = plm_clock_ms() + OUTSIDE_MS;
    return;
  }
  stage->judged_ms = 0;
  if (stage->state != PLM_STAGE_STOPPING) {
    ended_by_itself(launcher, stage);
    return;
  }
  const bool clean = WIFEXITED(stage->wait_status) && WEXITSTATUS(stage->wait_status) == 0;
  supervisor_stage_move(stage, PLM_EVENT_ENDED);
  if (!clean && !ended_by_request(stage) && !stage->killed_by_us && !gang_has_hung(stage->gang)) {
    char name[64], how[96];
    supervised_ending(stage, how);
    screen_say(launcher->screen, "%s %s while it was stopping", supervised_name(stage, name), how);
  }
}

void supervised_reaped(struct launcher *launcher, struct supervised *stage, int status)
{
  stage->pid = 0;
  stage->wait_status = status;
  /* the writer of a gang's log ends by itself, and the log is complete only then */
  if (plm_process_signal_all(kind_name(stage), stage->instance, 0, SIGTERM) == 0 &&
      !gang_still_writes(stage->gang)) {
    supervisor_stage_ended(launcher, stage);
    return;
  }
  stage->ending = true;
  if (stage->kill_ms == 0) stage->kill_ms = plm_clock_ms() + LEFTOVER_GRACE_MS;
}

static void time_is_up(struct screen *screen, struct supervised *stage, int64_t now_ms)
{
  char name[64];
  if (!stage->killed_by_us) {
    screen_say(screen,
               stage->ending ? "%s left processes behind; killing them"
                             : "%s did not stop in time; killing it",
               supervised_name(stage, name));
  }
  stage->killed_by_us = true;
  if (supervised_signal_kill(stage) == 0) gang_kill_writer(stage->gang); /* a disk that hangs */
  stage->kill_ms = now_ms + 1000;
}

void supervised_tick(struct launcher *launcher, struct supervised *stage, int64_t now_ms)
{
  if (stage->judged_ms != 0 && (launcher->stages->draining || stage->state == PLM_STAGE_STOPPING ||
                                now_ms >= stage->judged_ms))
    supervisor_stage_ended(launcher, stage);
  if (stage->ending && !gang_still_writes(stage->gang) &&
      plm_process_find(kind_name(stage), stage->instance, 0, NULL, 0) == 0) {
    supervisor_stage_ended(launcher, stage);
  }
  if ((stage->gang != NULL || stage->launch != NULL) && stage->pid > 0 &&
      stage->state == PLM_STAGE_STARTING && supervised_has_bound(launcher->stages, stage))
    is_ready(launcher->screen, stage);
  if (stage->gang != NULL && stage->pid > 0 && plm_stage_lives(stage->state))
    gang_tick(stage->gang, stage, now_ms);
  if (stage->kill_ms != 0 && now_ms >= stage->kill_ms) time_is_up(launcher->screen, stage, now_ms);
  if (stage->state == PLM_STAGE_BACKOFF && !launcher->stages->draining && now_ms >= stage->due_ms) {
    stage->restarts++;
    supervised_start(launcher, stage);
  }
  if (stage->state == PLM_STAGE_STOPPED && stage->start_again && !launcher->stages->draining) {
    stage->start_again = false;
    stage->restarts++;
    supervised_start(launcher, stage);
  }
}
