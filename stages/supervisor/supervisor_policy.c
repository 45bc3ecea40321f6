/* What the states of the stages mean for the run: when it is over, and in which order it stops. */
#include <signal.h>

#include "common/base/log.h"
#include "common/run/run.h"
#include "stages/supervisor/supervisor_internal.h"

/* Whether no instance of a kind lives and none will be started again. */
static bool all_over(const struct plm_supervisor *supervisor, enum plm_stage_index kind)
{
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    const struct supervised *stage = &supervisor->stages.all[i];
    if (stage->kind != kind) continue;
    const bool over = stage->state == PLM_STAGE_DONE || stage->state == PLM_STAGE_FATAL ||
                      (stage->state == PLM_STAGE_STOPPED && !stage->start_again);
    if (!over) return false;
  }
  return true;
}

static bool any_fatal(const struct plm_supervisor *supervisor, enum plm_stage_index kind)
{
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    if (supervisor->stages.all[i].kind == kind &&
        supervisor->stages.all[i].state == PLM_STAGE_FATAL) {
      return true;
    }
  }
  return false;
}

static size_t how_many(const struct plm_supervisor *supervisor, enum plm_stage_index kind,
                       enum plm_stage_state state)
{
  size_t found = 0;
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    found += supervisor->stages.all[i].kind == kind && supervisor->stages.all[i].state == state;
  }
  return found;
}

static bool present(const struct plm_supervisor *supervisor, enum plm_stage_index kind)
{
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    if (supervisor->stages.all[i].kind == kind && !supervisor->stages.all[i].removed) return true;
  }
  return false;
}

void supervisor_drain(struct plm_supervisor *supervisor, int signal_number)
{
  if (signal_number != 0 && signal_number != SIGUSR1) supervisor->signals++;
  if (supervisor->signals >= 2 && !supervisor->killing) {
    screen_say(&supervisor->screen, "second signal: killing all stages");
    supervisor->killing = true;
  }
  if (supervisor->stages.draining) return;
  supervisor->stages.draining = true;
  supervisor->drain_signal = signal_number;
  if (signal_number != 0 && !supervisor->killing) {
    screen_say(&supervisor->screen, "stopping: %s; a second signal kills them",
               supervisor->options.chosen[PLM_KIND_TRAINER]
                   ? "the trainer saves a checkpoint, then the evaluator and the packers stop"
                   : "the stages end what they are doing");
  }
}

/* When all packers of the supervisor have failed, the trainer waits less long for others. It reads
 * this in endpoints.json. */
static void tell_packers_are_fatal(struct plm_supervisor *supervisor)
{
  const size_t fatal = how_many(supervisor, PLM_KIND_PACKER, PLM_STAGE_FATAL);
  const bool all = fatal > 0 && all_over(supervisor, PLM_KIND_PACKER);
  if (all == supervisor->packers_fatal) return;
  supervisor->packers_fatal = all;
  struct plm_error error = {0};
  if (!all) {
    plm_endpoint_remove(supervisor->stages.config->run, "packers");
  } else if (plm_endpoint_write(supervisor->stages.config->run, "packers", "fatal", &error) !=
             PLM_OK) {
    plm_log_error(&error);
  } else {
    screen_say(&supervisor->screen,
               "all packers of this run have failed for good; others may still join");
  }
}

/* Whether there is nothing left to wait for. */
static bool is_over(const struct plm_supervisor *supervisor)
{
  if (any_fatal(supervisor, PLM_KIND_TRAINER)) return true;
  const bool computes =
      present(supervisor, PLM_KIND_TRAINER) || present(supervisor, PLM_KIND_EVALUATOR);
  if (!computes) return all_over(supervisor, PLM_KIND_PACKER);
  return all_over(supervisor, PLM_KIND_TRAINER) && all_over(supervisor, PLM_KIND_EVALUATOR);
}

/* Stops one kind after the other, each once the one before it is gone. */
static void continue_drain(struct plm_supervisor *supervisor)
{
  for (int kind = 0; kind < PLM_KIND_COUNT; kind++) {
    for (size_t i = 0; i < supervisor->stages.count; i++) {
      struct supervised *stage = &supervisor->stages.all[i];
      stage->start_again = false;
      if (supervisor->killing && !stage->killed_by_us)
        supervised_kill(stage);
      else if ((int)stage->kind == kind)
        supervised_stop(supervisor->stages.config, stage);
    }
    if (!supervisor->killing && !all_over(supervisor, (enum plm_stage_index)kind)) return;
  }
}

void supervisor_decide(struct plm_supervisor *supervisor)
{
  if (!supervisor->stages.draining) {
    tell_packers_are_fatal(supervisor);
    if (is_over(supervisor)) supervisor_drain(supervisor, 0);
  }
  if (supervisor->stages.draining) continue_drain(supervisor);
}

bool supervisor_finished(const struct plm_supervisor *supervisor)
{
  if (!supervisor->stages.draining) return false;
  for (int kind = 0; kind < PLM_KIND_COUNT; kind++) {
    if (!all_over(supervisor, (enum plm_stage_index)kind)) return false;
  }
  return true;
}
