/* Training: steps and checkpoints until the last step, a stop signal or an error. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/run/done.h"
#include "common/run/stop.h"
#include "trainer/checkpoint/stop_when.h"
#include "trainer/open/open_state.h"
#include "trainer/ranks/rank_tensors.h"
#include "trainer/trainer.h"
#include "trainer/trainer_save.h"
#include "trainer/tuning/tuning.h"

enum { COMPARE_EVERY = 100 }; /* steps between two comparisons of the ranks' weights */

/* ---- one step ------------------------------------------------------------------------------ */

bool plm_grace_is_short(const struct plm_grace *grace)
{
  const double pace_s = grace->done == 0 ? 0 : grace->step_s * grace->total / grace->done;
  const double expected_s = grace->last_step_s > 0 ? grace->last_step_s : pace_s;
  const double left_s = fmax(0, expected_s - grace->step_s);
  return grace->since_stop_s + left_s + grace->publish_s > grace->limit_s;
}

/* Whether too little of the grace time is left for the rest of the step. */
static bool give_up(struct plm_trainer *trainer, uint32_t done, uint32_t total)
{
  const double limit_s = trainer->config->trainer.stop_timeout_s;
  /* The device runs behind this thread. If a step may take long compared with the grace time, wait
   * for the device, so that `done` tells how far the step is. */
  if (plm_computes_beside(trainer) &&
      !(trainer->last_step_s > 0 && trainer->last_step_s < limit_s / 4))
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
      .publish_s =
          trainer->publisher == NULL ? 0 : plm_publisher_outcome(trainer->publisher, false).seconds,
      .done = done,
      .total = total,
  };
  return plm_grace_is_short(&grace);
}

/* Between micro-batches: abandons the step, on all ranks, if one of them wants it. */
static plm_status go_on(void *context, uint32_t done, uint32_t total, struct plm_error *error)
{
  struct plm_trainer *trainer = context;
  if (!trainer->stepped)
    plm_run_pulse(&trainer->pulse, true, "%s (%u of %u micro-batches)",
                  trainer->tuning ? "tuning products" : "computing the first step", done, total);
  enum plm_rank_vote decision = give_up(trainer, done, total) ? PLM_RANK_STOP : PLM_RANK_GO;
  const uint64_t begun_ns = plm_profile_clock(trainer->profile);
  PLM_TRY(plm_ranks_decide(trainer->ranks, decision, PLM_OK, &decision, error));
  if (!trainer->ranks->single)
    plm_profile_add(trainer->profile, PLM_TRACK_STEP, PLM_SPAN_EXCHANGE, "agree to go on", -1,
                    begun_ns);
  if (decision == PLM_RANK_GO) return PLM_OK;
  plm_info("step %llu is abandoned after %u of %u micro-batches: trainer.stop_timeout_s is %g",
           (unsigned long long)trainer->state.step + 1, done, total,
           trainer->config->trainer.stop_timeout_s);
  return plm_error_set(error, PLM_INTERRUPTED, "step %llu was abandoned",
                       (unsigned long long)trainer->state.step + 1);
}

/* What the host does while the device runs the step. */
static void meanwhile(struct plm_trainer *trainer)
{
  plm_save_hand_over(trainer);
  const struct plm_input_slot *next = plm_input_peek(trainer->input);
  if (next != NULL) plm_step_stage(trainer->step, &next->input);
}

/* Several ranks tune before the first step, because their algorithms must be the same in it. A rank
 * that is the only one tunes in the first step, and so saves computing one more. */
static plm_status rehearse(struct plm_trainer *trainer, const struct plm_step_input *input,
                           struct plm_error *error)
{
  struct plm_collective *collective = trainer->ranks->collective;
  collective->note(collective, "tuning products", trainer->state.step, true);
  trainer->tuning = false;
  if (!trainer->stepped) plm_run_pulse(&trainer->pulse, true, "tuning products");
  PLM_TRY(plm_step_rehearse(trainer->step, input, error));
  PLM_TRY(plm_tuning_end(&trainer->state, trainer->ops, trainer->ranks, error));
  collective->note(collective, "computing", trainer->state.step, false);
  return PLM_OK;
}

/* The first packer decides the corpus of a run that was not told it, and the root of a corpus that
 * was upgraded. From now on the run accepts no other, even if it is killed before its next
 * checkpoint. */
static plm_status accept_corpus(struct plm_trainer *trainer, struct plm_hash served,
                                struct plm_error *error)
{
  struct plm_hash *fingerprint = &trainer->state.cursor.sources[0].fingerprint;
  char hex[PLM_HASH_HEX_SIZE];
  if (!plm_hash_known(*fingerprint)) *fingerprint = served;
  trainer->roots[0] = served;
  plm_hash_to_hex(served, hex);
  plm_info("the run trains on corpus %s, which its first packer serves", hex);
  return plm_trainer_pin_corpus(trainer, error);
}

static plm_status trainer_run_compute(struct plm_trainer *trainer, struct plm_input_slot *slot,
                                      struct plm_step_result *result, struct plm_error *error)
{
  struct plm_trainer_state *state = &trainer->state;
  PLM_ASSERT(slot->input.step == state->step);
  const bool first = plm_ranks_first(trainer->ranks); /* only rank 0 has a feed */
  PLM_ASSERT(!first || slot->batch.first_chunk == state->cursor.chunks);
  if (first && !state->cursor.mixed && !plm_hash_known(trainer->roots[0]))
    PLM_TRY(accept_corpus(trainer, slot->fingerprint, error));
  plm_debug("step %llu begins: %u micro-batches", (unsigned long long)state->step + 1,
            slot->input.micro_count);
  if (trainer->tuning && !trainer->ranks->single) PLM_TRY(rehearse(trainer, &slot->input, error));
  trainer->step_started_ns = trainer->last_look_ns = plm_clock_ns();
  PLM_TRY(plm_step_launch(trainer->step, &slot->input, go_on, trainer, error));
  meanwhile(trainer);
  PLM_TRY(plm_step_finish(trainer->step, &slot->input, result, error));
  trainer->last_step_s = plm_clock_seconds_since(trainer->step_started_ns);
  if (first) { /* only rank 0 has the whole batch */
    plm_data_cursor_consume(&state->cursor, &slot->batch, slot->next);
    plm_source_totals_count(&trainer->source_totals, &slot->batch, result->chunks);
    plm_health_count(&trainer->health, trainer->config->data.tokenizer, &slot->batch);
  }
  state->step++;
  state->tokens += result->totals.real_tokens;
  state->skipped_updates += result->skipped;
  state->skipped_in_a_row = result->skipped ? state->skipped_in_a_row + 1 : 0;
  if (!trainer->tuning || result->skipped) return PLM_OK;
  trainer->tuning = false;
  return plm_tuning_end(state, trainer->ops, trainer->ranks, error);
}

static plm_status report_step(struct plm_trainer *trainer, const struct plm_step_result *result,
                              double step_s, double data_wait_s, struct plm_error *error)
{
  const struct plm_trainer_state *state = &trainer->state;
  const struct plm_health_step looked = {.step = state->step,
                                         .loss = result->loss,
                                         .grad_norm = result->grad_norm,
                                         .skipped = result->skipped};
  const struct plm_step_line line = {
      .step = state->step,
      .result = result,
      .warning = plm_health_judge(&trainer->health, &trainer->config->trainer, &looked),
      .rates = plm_optimizer_rates(&trainer->config->trainer, state->step - 1),
      .mask_rate = plm_objective_mean_rate(&trainer->objective, state->step - 1),
      .tokens = state->tokens,
      .by_source = &trainer->source_totals,
      .epoch = plm_data_cursor_epochs(&state->cursor),
      .skipped_updates = state->skipped_updates,
      .exact = state->exact,
      .step_s = step_s,
      .data_wait_s = data_wait_s,
      .checkpoint_s = trainer->checkpoint_s,
      .product_flops = state->resolved.product_flops * state->resolved.ranks,
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
  plm_ranks_agree(trainer->ranks);
  const unsigned long long last = trainer->state.step, first = last - skipped + 1;
  const bool labels = plm_objective_is_labels(trainer->config->trainer.objective);
  plm_error_set(error, PLM_NOT_FINITE,
                "%u steps in a row were skipped, %llu to %llu: the loss or the gradient is not "
                "finite, or no %s",
                skipped, first, last, labels ? "document has a label" : "token was chosen");
  if (labels)
    return plm_error_hint(error,
                          "the last checkpoint is intact. If few documents have labels, raise "
                          "trainer.batch_tokens or trainer.max_skipped_steps; otherwise lower the "
                          "learning rates (trainer.optimizer.lr_*). `plm-pipeline trace --step "
                          "%llu` shows the sequences",
                          first);
  return plm_error_hint(error,
                        "the last checkpoint is intact. Lower the learning rates "
                        "(trainer.optimizer.lr_*) or set trainer.clip.norm, and look at the "
                        "sequences with `plm-pipeline trace --step %llu`; then start again",
                        first);
}

/* A sign of life while no input is ready. This thread waits for the one that fills inputs, so that
 * one must live as well, and wait for packers. */
static void trainer_run_tell_waiting(struct plm_trainer *trainer)
{
  const uint32_t turns = trainer->feed_turns;
  if (turns == trainer->turns_seen) return;
  trainer->turns_seen = turns;
  plm_run_pulse_wait(&trainer->pulse,
                     trainer->feed_packers == 0 ? "waiting for packers" : "waiting for chunks");
}

/* Waits a little. True if the next input, or the reason why there is none, is ready. */
static bool wait_for_input(struct plm_trainer *trainer)
{
  if (plm_input_wait(trainer->input, &plm_stop_requested)) return true;
  trainer_run_tell_waiting(trainer);
  return false;
}

/* Takes the input of the next step on all ranks. PLM_INTERRUPTED if one of them was asked to stop;
 * an error if one of them has an error. A rank without its input asks again and again, so that
 * waiting for chunks is not mistaken for a rank that hangs. */
static plm_status next_on_all(struct plm_trainer *trainer, struct plm_input_slot **slot,
                              struct plm_error *error)
{
  struct plm_collective *collective = trainer->ranks->collective;
  enum plm_rank_vote decision = PLM_RANK_WAIT;
  plm_status status = PLM_OK;
  *slot = NULL;
  collective->note(collective, "waiting for chunks", trainer->state.step, false);
  while (decision == PLM_RANK_WAIT) {
    if (*slot == NULL && plm_stop_requested == 0 && !trainer->stops_early &&
        wait_for_input(trainer))
      status = plm_input_next(trainer->input, slot, error);
    if (status == PLM_INTERRUPTED) status = PLM_OK; /* rank 0 sends no more and says why */
    const enum plm_rank_vote vote = status != PLM_OK ? PLM_RANK_ERROR
                                    : plm_stop_requested != 0 || trainer->stops_early
                                        ? PLM_RANK_STOP
                                    : *slot != NULL ? PLM_RANK_GO
                                                    : PLM_RANK_WAIT;
    PLM_TRY(plm_ranks_decide(trainer->ranks, vote, status, &decision, error));
  }
  collective->note(collective, "computing", trainer->state.step, false);
  return decision == PLM_RANK_GO ? PLM_OK : plm_error_set(error, PLM_INTERRUPTED, "interrupted");
}

static plm_status next_input(struct plm_trainer *trainer, struct plm_input_slot **slot,
                             struct plm_error *error)
{
  const plm_status status = next_on_all(trainer, slot, error);
  if (status == PLM_NOT_FOUND) { /* the split is empty, which a restart would not change */
    error->status = PLM_CONFIG;
    return PLM_CONFIG;
  }
  return status;
}

/* Called after each step; rank 0 reports it. */
static plm_status trainer_run_report(struct plm_trainer *trainer,
                                     const struct plm_step_result *result, double step_s,
                                     double data_wait_s, struct plm_error *error)
{
  if (!plm_ranks_first(trainer->ranks)) return PLM_OK;
  return report_step(trainer, result, step_s, data_wait_s, error);
}

/* What was done between two steps, since begun_ns, for the profile. */
static void tell_between(struct plm_trainer *trainer, enum plm_span kind, const char *what,
                         uint64_t begun_ns)
{
  plm_profile_add(trainer->profile, PLM_TRACK_STEP, kind, what, -1, begun_ns);
}

/* Writes the profile, with the checkpoint that is being written. All ranks call it. */
static plm_status finish_profile(struct plm_trainer *trainer, bool measure, struct plm_error *error)
{
  struct plm_collective *collective = trainer->ranks->collective;
  if (!plm_profile_is_pending(trainer->profile)) return PLM_OK;
  plm_save_hand_over(trainer);
  collective->note(collective, "writing a profile", trainer->state.step, true);
  plm_save_tell_profile(trainer, true);
  return plm_profile_finish(trainer->profile, measure, error);
}

static plm_status one_step(struct plm_trainer *trainer, struct plm_error *error)
{
  struct plm_input_slot *slot = NULL;
  struct plm_step_result result;
  struct plm_snapshot *snapshot = NULL;
  const uint64_t started = plm_clock_ns();
  plm_profile_step_begins(trainer->profile, trainer->state.step + 1, started);
  if (!trainer->stepped) plm_run_pulse(&trainer->pulse, true, "waiting for the first chunks");
  PLM_TRY(next_input(trainer, &slot, error));
  PLM_ASSERT(slot != NULL);
  if (trainer->stepped) plm_run_pulse_suspend(&trainer->pulse); /* it waits no more */
  const double data_wait_s = plm_clock_seconds_since(started);
  plm_profile_add(trainer->profile, PLM_TRACK_STEP, PLM_SPAN_DATA, "data wait", -1, started);
  const plm_status status = trainer_run_compute(trainer, slot, &result, error);
  plm_input_release(trainer->input, slot);
  if (status != PLM_OK) return status;
  const uint64_t ended = plm_clock_ns();
  const double step_s = 1e-9 * (double)(ended - started);
  plm_profile_step_ended(trainer->profile, ended);
  trainer->stepped = true;
  plm_run_pulse_suspend(&trainer->pulse); /* from here on, steps are the signs of life */
  PLM_TRY(check_skipped(trainer, error));
  const bool due = is_due(trainer);
  const uint64_t saving = plm_profile_clock(trainer->profile);
  if (due) PLM_TRY(plm_save_begin(trainer, &snapshot, error));
  const uint64_t reporting = plm_profile_clock(trainer->profile);
  if (due) tell_between(trainer, PLM_SPAN_CHECKPOINT, "take a snapshot", saving);
  const plm_status reported = trainer_run_report(trainer, &result, step_s, data_wait_s, error);
  tell_between(trainer, PLM_SPAN_REPORT, "report the step", reporting);
  if (due) plm_save_submit(trainer, snapshot);
  if (reported != PLM_OK) return reported;
  if (!due && trainer->state.step % COMPARE_EVERY == 0)
    PLM_TRY(plm_rank_compare_weights(trainer->ranks, trainer->owners, trainer->model, error));
  if (due && plm_ranks_first(trainer->ranks) && !plm_trainer_is_complete(trainer))
    trainer->stops_early =
        plm_stop_when(trainer->run, trainer->config, trainer->state.step, &trainer->reports);
  if (plm_profile_is_due(trainer->profile)) PLM_TRY(finish_profile(trainer, true, error));
  return plm_save_check(trainer, false, error);
}

/* ---- the run ------------------------------------------------------------------------------- */

static plm_status trainer_run_complete(struct plm_trainer *trainer, struct plm_error *error)
{
  PLM_TRY(plm_save_now(trainer, error));
  if (!plm_ranks_first(trainer->ranks)) return PLM_OK;
  const struct plm_publisher_outcome outcome = plm_publisher_outcome(trainer->publisher, true);
  PLM_ASSERT(outcome.any && outcome.step == trainer->state.step);
  struct plm_done done = {.step = outcome.step, .identity = outcome.identity};
  if (trainer->stops_early) plm_stop_when_note(trainer->config, &done);
  PLM_TRY(plm_done_write(trainer->run, &done, error));
  plm_info("complete at step %llu", (unsigned long long)outcome.step);
  return PLM_OK;
}

/* From here on, the run keeps the corpus that it was told, if it was. */
static plm_status save_step_0(struct plm_trainer *trainer, struct plm_error *error)
{
  struct plm_snapshot *snapshot;
  if (plm_ranks_first(trainer->ranks)) PLM_TRY(plm_trainer_pin_corpus(trainer, error));
  PLM_TRY(plm_save_begin(trainer, &snapshot, error));
  plm_save_submit(trainer, snapshot);
  return PLM_OK;
}

/* Publishes the state of a run that has ended after its last step, PLM_OK, or else was asked to
 * stop. */
static plm_status publish_end(struct plm_trainer *trainer, plm_status ended,
                              struct plm_error *error)
{
  if (ended == PLM_OK || trainer->stops_early) return trainer_run_complete(trainer, error);
  PLM_TRY(plm_save_now(trainer, error));
  plm_info("stopped after step %llu; the run resumes from there",
           (unsigned long long)trainer->state.step);
  return PLM_OK;
}

bool plm_trainer_is_complete(const struct plm_trainer *trainer)
{
  return trainer->complete || trainer->stops_early ||
         trainer->state.step >= trainer->config->trainer.steps;
}

plm_status plm_trainer_run(struct plm_trainer *trainer, struct plm_error *error)
{
  if (trainer->complete) return PLM_OK;
  plm_status status = PLM_OK;
  if (!trainer->saved) PLM_TRY(save_step_0(trainer, error));
  while (status == PLM_OK && trainer->state.step < trainer->config->trainer.steps)
    status = one_step(trainer, error); /* asks all ranks whether to stop */
  plm_save_hand_over(trainer);
  /* A profile of a run that ends within its steps comes last: a stop has a limit of time, and the
   * disk may be nearly full. */
  if (status == PLM_OK || status == PLM_INTERRUPTED) {
    PLM_TRY(publish_end(trainer, status, error));
    return finish_profile(trainer, false, error);
  }
  /* No packer, none that is honest, or a malformed corpus: publish what was learnt so far. */
  struct plm_error ignored = {0};
  if (status == PLM_TIMEOUT || status == PLM_CORRUPT || status == PLM_FORMAT) {
    plm_save_now(trainer, &ignored);
    finish_profile(trainer, false, &ignored);
  }
  return status;
}
