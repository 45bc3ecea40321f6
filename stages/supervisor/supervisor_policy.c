/* Watching what is left of a run, and stopping one kind after the other. */
#include "stages/supervisor/supervisor_policy.h"

#include <signal.h>

#include "common/base/log/log.h"
#include "common/run/run.h"
#include "stages/supervisor/supervisor_stage.h"

/* Whether no instance of a kind lives and none will be started again. */
static bool all_over(const struct stages *stages, enum plm_stage_index kind)
{
  for (size_t i = 0; i < stages->count; i++) {
    const struct supervised *stage = &stages->all[i];
    if (stage->kind != kind) continue;
    const bool over = stage->state == PLM_STAGE_DONE || stage->state == PLM_STAGE_FATAL ||
                      (stage->state == PLM_STAGE_STOPPED && !stage->start_again);
    if (!over) return false;
  }
  return true;
}

static bool any_fatal(const struct stages *stages, enum plm_stage_index kind)
{
  for (size_t i = 0; i < stages->count; i++) {
    if (stages->all[i].kind == kind && stages->all[i].state == PLM_STAGE_FATAL) {
      return true;
    }
  }
  return false;
}

static size_t how_many(const struct stages *stages, enum plm_stage_index kind,
                       enum plm_stage_state state)
{
  size_t found = 0;
  for (size_t i = 0; i < stages->count; i++) {
    found += stages->all[i].kind == kind && stages->all[i].state == state;
  }
  return found;
}

static bool present(const struct stages *stages, enum plm_stage_index kind)
{
  for (size_t i = 0; i < stages->count; i++) {
    if (stages->all[i].kind == kind && !stages->all[i].removed) return true;
  }
  return false;
}

void drain_begin(struct drain *drain, int signal_number)
{
  if (signal_number != 0 && signal_number != SIGUSR1) drain->signals++;
  if (drain->signals >= 2 && !drain->killing) {
    screen_say(drain->screen, "second signal: killing all stages");
    drain->killing = true;
  }
  if (drain->stages->draining) return;
  drain->stages->draining = true;
  drain->signal = signal_number;
  if (signal_number != 0 && !drain->killing) {
    screen_say(drain->screen, "stopping: %s; a second signal kills them",
               drain->trains
                   ? "the trainer saves a checkpoint, then the evaluator and the packers stop"
                   : "the stages end what they are doing");
  }
}

/* When all packers of the supervisor have failed, the trainer waits less long for others. It reads
 * this in endpoints.json. */
static void tell_packers_are_fatal(struct drain *drain)
{
  const size_t fatal = how_many(drain->stages, PLM_KIND_PACKER, PLM_STAGE_FATAL);
  const bool all = fatal > 0 && all_over(drain->stages, PLM_KIND_PACKER);
  if (all == drain->packers_fatal) return;
  drain->packers_fatal = all;
  struct plm_error error = {0};
  if (!all) {
    plm_endpoint_remove(drain->stages->config->run, "packers");
  } else if (plm_endpoint_write(drain->stages->config->run, "packers", "fatal", &error) != PLM_OK) {
    plm_log_error(&error);
  } else {
    screen_say(drain->screen,
               "all packers of this run have failed for good; others may still join");
  }
}

/* Whether there is nothing left to wait for. */
static bool is_over(const struct stages *stages)
{
  if (any_fatal(stages, PLM_KIND_TRAINER)) return true;
  const bool computes = present(stages, PLM_KIND_TRAINER) || present(stages, PLM_KIND_EVALUATOR);
  if (!computes) return all_over(stages, PLM_KIND_PACKER);
  return all_over(stages, PLM_KIND_TRAINER) && all_over(stages, PLM_KIND_EVALUATOR);
}

/* Stops one kind after the other, each once the one before it is gone. */
static void continue_drain(struct drain *drain)
{
  for (int kind = 0; kind < PLM_KIND_COUNT; kind++) {
    for (size_t i = 0; i < drain->stages->count; i++) {
      struct supervised *stage = &drain->stages->all[i];
      stage->start_again = false;
      if (drain->killing && !stage->killed_by_us)
        supervised_kill(stage);
      else if ((int)stage->kind == kind)
        supervised_stop(drain->stages->config, stage);
    }
    if (!drain->killing && !all_over(drain->stages, (enum plm_stage_index)kind)) return;
  }
}

void drain_turn(struct drain *drain)
{
  if (!drain->stages->draining) {
    tell_packers_are_fatal(drain);
    if (is_over(drain->stages)) drain_begin(drain, 0);
  }
  if (drain->stages->draining) continue_drain(drain);
}

bool drain_is_over(const struct drain *drain)
{
  if (!drain->stages->draining) return false;
  for (int kind = 0; kind < PLM_KIND_COUNT; kind++) {
    if (!all_over(drain->stages, (enum plm_stage_index)kind)) return false;
  }
  return true;
}
