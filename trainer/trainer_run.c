/* Training: steps and checkpoints until the last step, a stop signal or an error. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/run/stop.h"
#include "trainer/trainer.h"
#include "trainer/tuning.h"

static double seconds_since(uint64_t started_ns)
{
  return 1e-9 * (double)(plm_clock_ns() - started_ns);
}

/* ---- checkpoints --------------------------------------------------------------------------- */

/* Whether steps run on a device while this thread continues. */
static bool computes_beside(const struct plm_trainer *trainer)
{
  return trainer->ops->record_begin != NULL;
}

/* Waits for the copies of the pending snapshot, if there is one, and gives it to the writer. */
static void hand_over_snapshot(struct plm_trainer *trainer)
{
  struct plm_error error = {0};
  const uint64_t started = plm_clock_ns();
  if (!trainer->snapshot_on_its_way) return;
  trainer->snapshot_on_its_way = false;
  if (trainer->ops->wait_copies(trainer->ops, &error) == PLM_OK)
    plm_publisher_submit(trainer->publisher);
  else
    plm_publisher_fail(trainer->publisher, &error);
  trainer->checkpoint_s += seconds_since(started);
}

/* Starts copying the state into the snapshot, after waiting until the writer has released it. The
 * time spent here is counted in checkpoint_s. */
static struct plm_snapshot *take_snapshot(struct plm_trainer *trainer)
{
  hand_over_snapshot(trainer);
  const uint64_t started = plm_clock_ns();
  struct plm_ops *ops = trainer->ops;
  struct plm_snapshot *snapshot = plm_publisher_begin(trainer->publisher);
  const struct plm_optimizer_state state = plm_optimizer_state(trainer->optimizer);
  snapshot->step = trainer->state.step;
  ops->copies_follow(ops);
  ops->download_beside(ops, snapshot->weights, plm_model_parameter_arena(trainer->model),
                       plm_model_arena_elements(trainer->model) * sizeof(float));
  ops->download_beside(ops, snapshot->first, state.first, state.first_count * sizeof(float));
  if (state.second_count > 0)
    ops->download_beside(ops, snapshot->second, state.second, state.second_count * sizeof(float));
  if (state.average != NULL)
    ops->download_beside(ops, snapshot->average, state.average,
                         state.average_count * sizeof(float));
  snapshot->clip_count = plm_clip_export(&trainer->clip, snapshot->clip_norms);
  trainer->checkpoint_s += seconds_since(started);
  return snapshot;
}

/* Records in the state's history that a checkpoint could not be published; otherwise nobody could
 * tell it from a deleted one. The writer is idle, because the trainer owns the snapshot. */
static plm_status remember_failure(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_publisher_outcome outcome = plm_publisher_outcome(trainer->publisher, false);
  if (outcome.failures == trainer->failures_remembered) return PLM_OK;
  trainer->failures_remembered = outcome.failures;
  return plm_trainer_state_remember_failure(&trainer->state, outcome.failed_step,
                                            outcome.error.what, error);
}

/* Completes the snapshot with trainer.json, which states the length of trainer.jsonl; the step's
 * line is therefore written first. On a device, the copies may still run; the writer then gets the
 * snapshot during the next step. */
static void submit_snapshot(struct plm_trainer *trainer, struct plm_snapshot *snapshot)
{
  struct plm_error error = {0};
  struct plm_trainer_state *state = &trainer->state;
  trainer->saved = true;
  trainer->saved_step = state->step;
  state->updates = plm_optimizer_updates(trainer->optimizer);
  /* Before anything of this checkpoint can fail, because the outcome holds only one failure. */
  plm_status status = remember_failure(trainer, &error);
  if (status == PLM_OK) status = plm_step_report_flush(trainer->report, &error);
  if (status == PLM_OK) {
    state->metrics_bytes = plm_metrics_size(plm_step_report_file(trainer->report));
    status = plm_trainer_state_print(state, trainer->config, trainer->run_id,
                                     &snapshot->trainer_json, &error);
  }
  trainer->snapshot_on_its_way = status == PLM_OK;
  if (status != PLM_OK) plm_publisher_fail(trainer->publisher, &error);
  if (!computes_beside(trainer)) hand_over_snapshot(trainer);
}

/* Too many failed checkpoints in a row end the run, and so does another trainer that has taken the
 * lock. With `wait`, waits for the writer, and any failure is an error. */
static plm_status check_checkpoints(struct plm_trainer *trainer, bool wait, struct plm_error *error)
{
  const struct plm_publisher_outcome outcome = plm_publisher_outcome(trainer->publisher, wait);
  if (outcome.status == PLM_OK) return PLM_OK;
  if (outcome.status == PLM_BUSY || (outcome.status == PLM_NO_DESCRIPTORS && wait)) {
    *error = outcome.error;
    return outcome.status;
  }
  if (outcome.failed_in_a_row < trainer->config->trainer.checkpoint.max_failed && !wait)
    return PLM_OK;
  plm_error_set(error, outcome.status, "%u checkpoints in a row failed, the last one with: %s",
                outcome.failed_in_a_row, outcome.error.what);
  return plm_error_hint(error, "the checkpoint before them is intact; the run resumes from it");
}

/* Publishes the current state, unless that was already done, and waits until it is published. */
static plm_status publish_now(struct plm_trainer *trainer, struct plm_error *error)
{
  if (!trainer->saved || trainer->saved_step != trainer->state.step)
    submit_snapshot(trainer, take_snapshot(trainer));
  hand_over_snapshot(trainer);
  return check_checkpoints(trainer, true, error);
}

/* ---- one step ------------------------------------------------------------------------------ */

bool plm_grace_is_short(const struct plm_grace *grace)
{
  const double pace_s = grace->done == 0 ? 0 : grace->step_s * grace->total / grace->done;
  const double expected_s = grace->last_step_s > 0 ? grace->last_step_s : pace_s;
  const double left_s = fmax(0, expected_s - grace->step_s);
  return grace->since_stop_s + left_s + grace->publish_s > grace->limit_s;
}

/* Between micro-batches: abandons the step if too little of the grace time is left for it. */
static bool give_up(void *context, uint32_t done, uint32_t total)
{
  struct plm_trainer *trainer = context;
  const double limit_s = trainer->config->trainer.stop_timeout_s;
  /* The device runs behind this thread. If a step may take long compared with the grace time, wait
   * for the device, so that `done` tells how far the step is. */
  if (computes_beside(trainer) && !(trainer->last_step_s > 0 && trainer->last_step_s < limit_s / 4))
    trainer->ops->synchronize(trainer->ops, NULL);
  const uint64_t now = plm_clock_ns();
  if (plm_stop_requested == 0) {
    trainer->last_look_ns = now;
    return false;
  }
  const struct plm_grace grace = {
      .limit_s = limit_s,
      .since_stop_s = 1e-9 * (double)(now - trainer->last_look_ns),
      .step_s = 1e-9 * (double)(now - trainer->step_started_ns),
      .last_step_s = trainer->last_step_s,
      .publish_s = plm_publisher_outcome(trainer->publisher, false).seconds,
      .done = done,
      .total = total,
  };
  if (!plm_grace_is_short(&grace)) return false;
  plm_info("step %llu is abandoned after %u of %u micro-batches: trainer.stop_timeout_s is %g",
           (unsigned long long)trainer->state.step + 1, done, total, grace.limit_s);
  return true;
}

/* What the host does while the device runs the step. */
static void meanwhile(struct plm_trainer *trainer)
{
  hand_over_snapshot(trainer);
  const struct plm_input_slot *next = plm_input_peek(trainer->input);
  if (next != NULL) plm_step_stage(trainer->step, &next->input);
}

static plm_status compute(struct plm_trainer *trainer, struct plm_input_slot *slot,
                          struct plm_step_result *result, struct plm_error *error)
{
  struct plm_trainer_state *state = &trainer->state;
  static const struct plm_hash unknown = {0};
  PLM_ASSERT(slot->input.step == state->step && slot->batch.first_chunk == state->cursor.chunks);
  if (plm_hash_equal(state->cursor.fingerprint, unknown)) /* the first packer decides the corpus */
    state->cursor.fingerprint = slot->fingerprint;
  plm_debug("step %llu begins: %u micro-batches", (unsigned long long)state->step + 1,
            slot->input.micro_count);
  trainer->step_started_ns = trainer->last_look_ns = plm_clock_ns();
  PLM_TRY(plm_step_launch(trainer->step, &slot->input, give_up, trainer, error));
  meanwhile(trainer);
  PLM_TRY(plm_step_finish(trainer->step, &slot->input, result, error));
  trainer->last_step_s = seconds_since(trainer->step_started_ns);
  PLM_TRY(
      plm_data_cursor_consume(&state->cursor, &slot->batch, plm_input_epoch_chunks, slot, error));
  state->step++;
  state->tokens += result->real_tokens;
  state->skipped_updates += result->skipped;
  state->skipped_in_a_row = result->skipped ? state->skipped_in_a_row + 1 : 0;
  if (!trainer->tuning || result->skipped) return PLM_OK;
  trainer->tuning = false;
  return plm_tuning_end(state, trainer->ops, error);
}

static plm_status report_step(struct plm_trainer *trainer, const struct plm_step_result *result,
                              double step_s, double data_wait_s, struct plm_error *error)
{
  const struct plm_trainer_state *state = &trainer->state;
  const struct plm_step_line line = {
      .step = state->step,
      .result = result,
      .rates = plm_optimizer_rates(&trainer->config->trainer, state->step - 1),
      .mask_rate = plm_objective_mean_rate(&trainer->objective, state->step - 1),
      .tokens = state->tokens,
      .skipped_updates = state->skipped_updates,
      .exact = state->exact,
      .step_s = step_s,
      .data_wait_s = data_wait_s,
      .checkpoint_s = trainer->checkpoint_s,
      .product_flops = state->resolved.product_flops,
  };
  trainer->checkpoint_s = 0;
  PLM_TRY(plm_lock_watch(trainer->lock, error));
  return plm_step_report_write(trainer->report, &line, error);
}

static bool is_due(const struct plm_trainer *trainer)
{
  const uint64_t step = trainer->state.step, every = trainer->config->trainer.checkpoint.every;
  return (every != 0 && step % every == 0) || step == trainer->config->trainer.steps;
}

static plm_status check_skipped(const struct plm_trainer *trainer, struct plm_error *error)
{
  const uint32_t skipped = trainer->state.skipped_in_a_row;
  if (skipped < trainer->config->trainer.max_skipped_steps) return PLM_OK;
  plm_error_set(error, PLM_FAILURE,
                "%u steps in a row were skipped: the loss or the gradient is not finite, or no "
                "token was chosen",
                skipped);
  return plm_error_hint(error, "the last checkpoint is intact; lower the learning rates or set "
                               "trainer.clip, then start again");
}

static plm_status one_step(struct plm_trainer *trainer, struct plm_error *error)
{
  struct plm_input_slot *slot;
  struct plm_step_result result;
  const uint64_t started = plm_clock_ns();
  plm_status status = plm_input_next(trainer->input, &plm_stop_requested, &slot, error);
  if (status == PLM_NOT_FOUND) /* the split is empty, which a restart would not change */
    status = error->status = PLM_CONFIG;
  if (status != PLM_OK) return status;
  const double data_wait_s = seconds_since(started);
  status = compute(trainer, slot, &result, error);
  plm_input_release(trainer->input, slot);
  if (status != PLM_OK) return status;
  const double step_s = seconds_since(started);
  PLM_TRY(check_skipped(trainer, error));
  struct plm_snapshot *snapshot = is_due(trainer) ? take_snapshot(trainer) : NULL;
  const plm_status reported = report_step(trainer, &result, step_s, data_wait_s, error);
  if (snapshot != NULL) submit_snapshot(trainer, snapshot);
  if (reported != PLM_OK) return reported;
  return check_checkpoints(trainer, false, error);
}

/* ---- the run ------------------------------------------------------------------------------- */

static plm_status complete(struct plm_trainer *trainer, struct plm_error *error)
{
  PLM_TRY(publish_now(trainer, error));
  const struct plm_publisher_outcome outcome = plm_publisher_outcome(trainer->publisher, true);
  PLM_ASSERT(outcome.any && outcome.step == trainer->state.step);
  PLM_TRY(plm_done_write(trainer->run, outcome.step, outcome.identity, error));
  plm_info("complete at step %llu", (unsigned long long)outcome.step);
  return PLM_OK;
}

plm_status plm_trainer_run(struct plm_trainer *trainer, struct plm_error *error)
{
  if (trainer->complete) return PLM_OK;
  if (!trainer->saved) submit_snapshot(trainer, take_snapshot(trainer)); /* step 0 */
  plm_status status = PLM_OK;
  while (status == PLM_OK && plm_stop_requested == 0 &&
         trainer->state.step < trainer->config->trainer.steps)
    status = one_step(trainer, error);
  hand_over_snapshot(trainer);
  if (status == PLM_OK && trainer->state.step >= trainer->config->trainer.steps)
    return complete(trainer, error);
  if (status == PLM_OK || status == PLM_INTERRUPTED) {
    PLM_TRY(publish_now(trainer, error));
    plm_info("stopped after step %llu; the run resumes from there",
             (unsigned long long)trainer->state.step);
    return PLM_OK;
  }
  /* No packer, or packers that disagree: publish what was learnt so far. */
  struct plm_error ignored = {0};
  if (status == PLM_TIMEOUT || status == PLM_CORRUPT) publish_now(trainer, &ignored);
  return status;
}
