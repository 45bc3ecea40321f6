/* Takes the run folder, and finds the state of the run and its corpora. */
#include "trainer/open/open_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/plan/batch_history.h"
#include "common/plan/plan.h"
#include "common/run/done.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/resume.h"
#include "trainer/checkpoint/stop_when.h"
#include "trainer/ranks/rank_start.h"
#include "trainer/trainer_options.h"

/* ---- the folder ---------------------------------------------------------------------------- */

/* `plm-pipeline up` writes the run's pipeline.yaml; a trainer that was started without it does so
 * here. */
static plm_status write_configuration(const struct plm_config *config, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  bool exists;
  PLM_TRY(plm_path_join(path, config->run, PLM_RUN_CONFIG, error));
  PLM_TRY(plm_file_look(path, &exists, error));
  if (exists) return PLM_OK;
  char *yaml = plm_config_print(config);
  const plm_status status = plm_file_replace(path, yaml, strlen(yaml), 0644, error);
  free(yaml);
  return status;
}

static plm_status take_folder(struct plm_trainer *trainer, struct plm_error *error)
{
  char checkpoints[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(checkpoints, trainer->run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_run_check_moved(trainer->run, error));
  PLM_TRY(plm_directory_make(checkpoints, error));
  PLM_TRY(plm_lock_acquire(trainer->run, "trainer", &trainer->lock, error));
  plm_run_pulse_begin(&trainer->pulse, trainer->run, "trainer");
  plm_run_pulse(&trainer->pulse, true, "reading the newest checkpoint");
  PLM_TRY(plm_checkpoint_folder_clean(checkpoints, error));
  PLM_TRY(write_configuration(trainer->config, error));
  PLM_TRY(plm_run_keys(trainer->run, trainer->config->network.keys, trainer->keys, error));
  return plm_run_id(trainer->run, &trainer->run_id, error);
}

/* ---- the state of the run ------------------------------------------------------------------ */

/* Whether DONE names the checkpoint that was found. One without an identity is compared by its
 * step alone. */
static bool is_of_done(const char *directory, uint64_t step, const struct plm_done *done)
{
  struct plm_hash identity;
  struct plm_manifest *manifest = plm_alloc(sizeof *manifest);
  const bool other = plm_manifest_read(directory, manifest, NULL) == PLM_OK &&
                     plm_manifest_identity(manifest, &identity) &&
                     !plm_hash_equal(identity, done->identity);
  free(manifest);
  return done->step == step && !other;
}

/* Whether DONE says that the run is complete at this checkpoint. If not, *why is the reason, which
 * means something only if the file exists. */
static bool done_holds(const struct plm_trainer *trainer, const char *directory,
                       char why[PLM_DONE_WHY_SIZE])
{
  struct plm_done done;
  const struct plm_config_trainer *config = &trainer->config->trainer;
  if (plm_done_read(trainer->run, &done, NULL) != PLM_OK) {
    snprintf(why, PLM_DONE_WHY_SIZE, "DONE cannot be read");
    return false;
  }
  if (is_of_done(directory, trainer->state.step, &done))
    return plm_done_holds(&done, config->steps, plm_stop_metric_names[config->stop_when.metric],
                          config->stop_when.patience, why);
  snprintf(why, PLM_DONE_WHY_SIZE, "DONE is about another checkpoint, of step %llu",
           (unsigned long long)done.step);
  return false;
}

/* Writes DONE about the checkpoint that was found: the trainer was killed before it did, or DONE
 * says something else. */
static plm_status renew_done(struct plm_trainer *trainer, const char *directory, bool stopped,
                             struct plm_error *error)
{
  struct plm_done done = {.step = trainer->state.step};
  struct plm_advance advance = plm_run_pulse_reading(&trainer->pulse);
  PLM_TRY(plm_checkpoint_verify(directory, NULL, &done.identity, &advance, error));
  if (stopped) plm_stop_when_note(trainer->config, &done);
  return plm_done_write(trainer->run, &done, error);
}

/* DONE says that the run is complete. If it does not hold, the steps and the reports of the
 * evaluator decide, and DONE is written anew or removed. */
static plm_status check_done(struct plm_trainer *trainer, const char *directory,
                             struct plm_error *error)
{
  char path[PLM_PATH_SIZE], why[PLM_DONE_WHY_SIZE];
  const uint64_t step = trainer->state.step;
  PLM_TRY(plm_path_join(path, trainer->run, PLM_RUN_DONE, error));
  if (!done_holds(trainer, directory, why)) {
    const bool all = step >= trainer->config->trainer.steps;
    if (!all && !plm_stop_when(trainer->run, trainer->config, step, &trainer->reports)) {
      if (unlink(path) == 0)
        plm_info("the run continues after step %llu: %s", (unsigned long long)step, why);
      return PLM_OK;
    }
    PLM_TRY(renew_done(trainer, directory, !all, error));
  }
  trainer->complete = true;
  plm_info("complete at step %llu", (unsigned long long)step);
  return PLM_OK;
}

/* If a trainer is killed after it named a checkpoint, `latest` still points to the previous one. */
static plm_status repair_latest(const struct plm_trainer *trainer, struct plm_error *error)
{
  char checkpoints[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  plm_checkpoint_name(trainer->saved_step, name);
  PLM_TRY(plm_path_join(checkpoints, trainer->run, PLM_RUN_CHECKPOINTS, error));
  return plm_checkpoint_point_latest(checkpoints, name, error);
}

/* What an earlier start has pinned: the corpus, if no checkpoint names it, and its root, if the
 * caller does not know it. */
static plm_status find_corpus(struct plm_trainer *trainer, const struct plm_fingerprints *given,
                              struct plm_error *error)
{
  struct plm_run_corpus pinned;
  struct plm_hash *fingerprint = &trainer->state.cursor.sources[0].fingerprint;
  PLM_TRY(plm_run_corpus_read(trainer->run, &pinned, error));
  if (!plm_hash_known(*fingerprint)) *fingerprint = pinned.fingerprint;
  memcpy(trainer->roots, given->of, sizeof trainer->roots);
  if (given->count == 0 && plm_hash_equal(*fingerprint, pinned.fingerprint))
    trainer->roots[0] = pinned.root;
  return PLM_OK;
}

/* Whether the corpora are those that the run was trained on; new ones are added to the cursor. The
 * checkpoint of a run on one corpus has no history of its sources, but one of its batches. */
static plm_status open_state_check_corpora(struct plm_trainer *trainer,
                                           const struct plm_fingerprints *fingerprints,
                                           struct plm_error *error)
{
  const struct plm_data_sources sources = plm_data_sources_of(trainer->config);
  struct plm_trainer_state *state = &trainer->state;
  if (!state->cursor.mixed && state->step > 0)
    PLM_TRY(plm_batch_history_read(&state->cursor.mixture, state->history,
                                   trainer->config->data.max_length, state->resolved.step_chunks,
                                   error));
  return plm_data_mixture_begin(&state->cursor, &sources, fingerprints, state->step, error);
}

plm_status plm_trainer_pin_corpus(const struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_run_corpus corpus = {trainer->state.cursor.sources[0].fingerprint,
                                        trainer->roots[0]};
  return plm_run_corpus_write(trainer->run, &corpus, error);
}

static plm_status find_state(struct plm_trainer *trainer,
                             const struct plm_fingerprints *fingerprints,
                             char directory[PLM_PATH_SIZE], bool *resumed, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  struct plm_trainer_state *state = &trainer->state;
  const struct plm_plan_parameters plan = plm_config_training_plan(config);
  plm_data_cursor_init(&state->cursor, plm_plan_hash(&plan), config->seed);
  state->exact = true;
  struct plm_advance advance = plm_run_pulse_reading(&trainer->pulse);
  PLM_TRY(plm_resume_find(trainer->run, resumed, &trainer->saved_step, directory, &advance, error));
  if (*resumed) PLM_TRY(plm_resume_read_state(directory, config, state, error));
  PLM_TRY(find_corpus(trainer, fingerprints, error));
  PLM_TRY(open_state_check_corpora(trainer, fingerprints, error));
  trainer->source_totals = plm_source_totals_of(config);
  if (!*resumed) return PLM_OK;
  trainer->saved = true;
  PLM_TRY(plm_trainer_pin_corpus(trainer, error));
  PLM_TRY(repair_latest(trainer, error));
  return check_done(trainer, directory, error);
}

/* ---- opening and closing ------------------------------------------------------------------- */

/* What only the first rank has: the run folder and the state in it. */
static plm_status open_folder(struct plm_trainer *trainer,
                              const struct plm_fingerprints *fingerprints,
                              char directory[PLM_PATH_SIZE], bool *resumed, struct plm_error *error)
{
  PLM_TRY(take_folder(trainer, error));
  return find_state(trainer, fingerprints, directory, resumed, error);
}

static plm_status share_state(struct plm_trainer *trainer, bool *resumed, struct plm_error *error)
{
  struct plm_trainer_state *state = &trainer->state;
  struct plm_rank_found found = {.complete = trainer->complete,
                                 .resumed = *resumed,
                                 .saved_step = trainer->saved_step,
                                 .anew = state->resolved.anew};
  if (!plm_ranks_first(trainer->ranks)) {
    const struct plm_plan_parameters plan = plm_config_training_plan(trainer->config);
    plm_data_cursor_init(&state->cursor, plm_plan_hash(&plan), trainer->config->seed);
    state->exact = true;
  }
  PLM_TRY(plm_rank_share_state(trainer->ranks, trainer->config, &found, state, error));
  state->resolved.anew = found.anew;
  trainer->complete = found.complete;
  *resumed = trainer->saved = found.resumed;
  trainer->saved_step = found.saved_step;
  return PLM_OK;
}

plm_status plm_open_state(struct plm_trainer *trainer, const struct plm_fingerprints *fingerprints,
                          char directory[PLM_PATH_SIZE], bool *resumed, struct plm_error *error)
{
  *resumed = false;
  if (plm_ranks_first(trainer->ranks))
    PLM_TRY(open_folder(trainer, fingerprints, directory, resumed, error));
  return share_state(trainer, resumed, error);
}

void plm_close_state(struct plm_trainer *trainer)
{
  plm_trainer_state_deinit(&trainer->state);
  plm_run_pulse_end(&trainer->pulse);
  plm_lock_release(trainer->lock);
}
