/* Snapshots of the training state, and what becomes of them. */
#include "trainer/trainer_save.h"

#include "common/base/clock.h"
#include "trainer/ranks/rank_tensors.h"

bool plm_computes_beside(const struct plm_trainer *trainer)
{
  return trainer->ops->record_begin != NULL;
}

void plm_save_tell_profile(struct plm_trainer *trainer, bool wait)
{
  if (trainer->profile == NULL || trainer->publisher == NULL) return;
  const struct plm_publisher_outcome outcome = plm_publisher_outcome(trainer->publisher, wait);
  if (outcome.ended_ns == trainer->write_profiled_ns) return;
  trainer->write_profiled_ns = outcome.ended_ns;
  plm_profile_record(trainer->profile,
                     &(struct plm_profile_event){.track = PLM_TRACK_WRITER,
                                                 .kind = PLM_SPAN_CHECKPOINT,
                                                 .name = "write checkpoint",
                                                 .number = (int64_t)outcome.written_step,
                                                 .begin_ns = outcome.began_ns,
                                                 .end_ns = outcome.ended_ns});
}

/* Waits for the copies of the pending snapshot, if there is one, and gives it to the writer. */
void plm_save_hand_over(struct plm_trainer *trainer)
{
  struct plm_error error = {0};
  const uint64_t started = plm_clock_ns();
  if (!trainer->snapshot_on_its_way) return;
  trainer->snapshot_on_its_way = false;
  if (trainer->ops->wait_copies(trainer->ops, &error) == PLM_OK)
    plm_publisher_submit(trainer->publisher);
  else
    plm_publisher_fail(trainer->publisher, &error);
  trainer->checkpoint_s += plm_clock_seconds_since(started);
}

/* Copies the whole state of a rank that is the only one: beside the computation, and in three
 * pieces. */
static void copy_state(struct plm_trainer *trainer, struct plm_snapshot *snapshot)
{
  struct plm_ops *ops = trainer->ops;
  const struct plm_optimizer_state state = plm_optimizer_state(trainer->optimizer);
  const struct plm_optimizer_sizes sizes = plm_optimizer_sizes(trainer->optimizer);
  ops->download_beside(ops, snapshot->first, state.first, sizes.first * sizeof(float));
  if (sizes.second > 0)
    ops->download_beside(ops, snapshot->second, state.second, sizes.second * sizeof(float));
  if (state.average != NULL)
    ops->download_beside(ops, snapshot->average, state.average, sizes.average * sizeof(float));
}

/* Rank 0 receives the other ranks' part of the state. All ranks first make sure that they have the
 * same weights, so that no checkpoint contains the results of a faulty machine. */
static plm_status collect_state(struct plm_trainer *trainer, struct plm_snapshot *snapshot,
                                struct plm_error *error)
{
  PLM_TRY(plm_rank_compare_weights(trainer->ranks, trainer->owners, trainer->model, error));
  return plm_rank_collect(trainer->ranks, trainer->owners, trainer->model, trainer->optimizer,
                          snapshot, error);
}

static void trainer_save_note(struct plm_trainer *trainer, const char *phase, bool patient)
{
  struct plm_collective *collective = trainer->ranks->collective;
  collective->note(collective, phase, trainer->state.step, patient);
}

plm_status plm_save_begin(struct plm_trainer *trainer, struct plm_snapshot **out,
                          struct plm_error *error)
{
  *out = NULL;
  plm_save_hand_over(trainer);
  const uint64_t started = plm_clock_ns();
  struct plm_ops *ops = trainer->ops;
  plm_status status = PLM_OK;
  if (!plm_ranks_first(trainer->ranks)) return collect_state(trainer, NULL, error);
  trainer_save_note(trainer, "waiting for the writer of checkpoints", true);
  struct plm_snapshot *snapshot = plm_publisher_begin(trainer->publisher);
  plm_save_tell_profile(trainer, false);
  trainer_save_note(trainer, "collecting a checkpoint", false);
  snapshot->step = trainer->state.step;
  ops->copies_follow(ops);
  const float *trained = plm_model_trained_arena(trainer->model);
  if (trained != NULL)
    ops->download_beside(ops, snapshot->weights, trained,
                         plm_model_trained_elements(trainer->model) * sizeof(float));
  if (trainer->ranks->single)
    copy_state(trainer, snapshot);
  else
    status = collect_state(trainer, snapshot, error);
  if (status != PLM_OK) { /* the run ends, and says why */
    plm_publisher_cancel(trainer->publisher);
    return status;
  }
  snapshot->clip_count = plm_clip_export(&trainer->clip, snapshot->clip_norms);
  trainer->checkpoint_s += plm_clock_seconds_since(started);
  *out = snapshot;
  return PLM_OK;
}

/* Records in the state's history that a checkpoint could not be published; otherwise nobody could
 * tell it from a deleted one. The writer is idle, because the trainer owns the snapshot. */
static void remember_failure(struct plm_trainer *trainer)
{
  const struct plm_publisher_outcome outcome = plm_publisher_outcome(trainer->publisher, false);
  if (outcome.failures == trainer->failures_remembered) return;
  trainer->failures_remembered = outcome.failures;
  plm_trainer_state_remember_failure(&trainer->state, outcome.failed_step, outcome.error.what);
}

void plm_save_submit(struct plm_trainer *trainer, struct plm_snapshot *snapshot)
{
  struct plm_error error = {0};
  struct plm_trainer_state *state = &trainer->state;
  trainer->saved = true;
  trainer->saved_step = state->step;
  state->updates = plm_optimizer_updates(trainer->optimizer);
  if (snapshot == NULL) return; /* rank 0 writes it */
  /* Before anything of this checkpoint can fail, because the outcome holds only one failure. */
  remember_failure(trainer);
  const plm_status status = plm_step_report_flush(trainer->report, &error);
  if (status == PLM_OK) {
    state->metrics_bytes = plm_metrics_size(plm_step_report_file(trainer->report));
    snapshot->trainer_json = plm_trainer_state_print(state, trainer->config, trainer->run_id);
  }
  trainer->snapshot_on_its_way = status == PLM_OK;
  if (status != PLM_OK) plm_publisher_fail(trainer->publisher, &error);
  if (!plm_computes_beside(trainer)) plm_save_hand_over(trainer);
}

plm_status plm_save_check(struct plm_trainer *trainer, bool wait, struct plm_error *error)
{
  if (!plm_ranks_first(trainer->ranks)) return PLM_OK;
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

plm_status plm_save_now(struct plm_trainer *trainer, struct plm_error *error)
{
  if (!trainer->saved || trainer->saved_step != trainer->state.step) {
    struct plm_snapshot *snapshot;
    PLM_TRY(plm_save_begin(trainer, &snapshot, error));
    plm_save_submit(trainer, snapshot);
  }
  plm_save_hand_over(trainer);
  trainer_save_note(trainer, "writing a checkpoint", true);
  return plm_save_check(trainer, true, error);
}
