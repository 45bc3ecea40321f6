/* Preparing a run folder for `up`. */
#include "stages/supervisor/prepare/run_prepare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/corpus/corpus.h"
#include "common/corpus/corpus_description.h"
#include "common/huggingface/model_folder.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "stages/supervisor/prepare/run_aside.h"

enum { CONFIG_LIMIT = 1 << 20 };

/* ---- inspecting ---------------------------------------------------------------------------- */

static plm_status list_checkpoints(const char *run, uint64_t **steps, size_t *count,
                                   struct plm_error *error)
{
  char folder[PLM_PATH_SIZE];
  bool exists;
  *steps = NULL;
  *count = 0;
  PLM_TRY(plm_path_join(folder, run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_file_look(folder, &exists, error));
  if (!exists) return PLM_OK;
  return plm_checkpoint_list(folder, steps, count, error);
}

static bool is_missing(int number)
{
  return number == ENOENT || number == ENOTDIR;
}

/* Verifies the checkpoint at path, which must be one of this run. */
static plm_status find_checkpoint(const struct plm_config *config, const char *path, uint64_t *step,
                                  struct plm_error *error)
{
  char own[PLM_PATH_SIZE], folder[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  struct stat given, ours = {0};
  struct plm_hash identity;
  if (stat(path, &given) != 0) {
    if (!is_missing(errno)) return plm_error_errno(error, "cannot stat %.200s", path);
    plm_error_set(error, PLM_USAGE, "--resume needs auto, never or a checkpoint folder, not %.200s",
                  path);
    return plm_error_hint(error, "`plm-pipeline checkpoints` lists the checkpoints of the run");
  }
  PLM_TRY(plm_checkpoint_verify(path, step, &identity, NULL, error));
  plm_checkpoint_name(*step, name);
  PLM_TRY(plm_path_join(folder, config->run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_path_join(own, folder, name, error));
  if (stat(own, &ours) != 0 && !is_missing(errno))
    return plm_error_errno(error, "cannot stat %s", own);
  if (given.st_ino == ours.st_ino && given.st_dev == ours.st_dev) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "%s is not a checkpoint of this run (%s)", path, config->run);
  return plm_error_hint(error, "to start another run from its weights, set trainer.init_from");
}

/* Another path may hold the same documents. If the old corpus is gone, the trainer decides, since
 * its checkpoint knows the fingerprint. */
static plm_status run_prepare_check_corpus(const char *before, const char *now,
                                           struct plm_error *error)
{
  const char *const paths[2] = {before, now};
  const struct plm_corpus_options options = {.allow_remote = true};
  struct plm_hash fingerprints[2];
  if (before == NULL || now == NULL || strcmp(before, now) == 0) return PLM_OK;
  for (int i = 0; i < 2; i++) {
    struct plm_corpus *corpus;
    if (plm_corpus_open(paths[i], &options, &corpus, NULL) != PLM_OK) return PLM_OK;
    fingerprints[i] = plm_corpus_info(corpus)->fingerprint;
    plm_corpus_close(corpus);
  }
  if (plm_hash_equal(fingerprints[0], fingerprints[1])) return PLM_OK;
  plm_error_set(error, PLM_CONFIG,
                "corpus changed from %s to %s, which holds other documents; this "
                "would be another run",
                before, now);
  return plm_error_hint(error, "put the old corpus back, or start another run (run: …) with "
                               "trainer.init_from: CHECKPOINT");
}

/* The corpus that CORPUS names must be the one that is here now, also if the path is the same. A
 * complete run starts no trainer, which would refuse another. */
static plm_status check_pinned(const struct plm_config *config, struct plm_error *error)
{
  static const struct plm_hash unknown;
  struct plm_corpus_description description;
  struct plm_run_corpus pinned;
  PLM_TRY(plm_run_corpus_read(config->run, &pinned, error));
  if (plm_hash_equal(pinned.fingerprint, unknown) || config->corpus == NULL) return PLM_OK;
  const char *path = plm_config_source(config, 0).path;
  if (plm_corpus_description_read(path, &description, NULL) != PLM_OK) return PLM_OK;
  const struct plm_hash now = description.info.fingerprint;
  const bool same = plm_hash_equal(pinned.fingerprint, now) ||
                    plm_hash_equal(pinned.fingerprint, description.info.upgraded_from);
  plm_corpus_description_deinit(&description);
  if (same) return PLM_OK;
  char was[PLM_HASH_HEX_SIZE], is[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(pinned.fingerprint, was);
  plm_hash_to_hex(now, is);
  plm_error_set(error, PLM_CONFIG, "the run was trained on corpus %s, but this corpus is %s", was,
                is);
  plm_error_hint(error, "put the old corpus back, or start another run (run: …)");
  return plm_error_where(error, "corpus %s", path);
}

/* Reads the configuration that the run was last started with. *exists: there is one, which the
 * caller deinits. */
static plm_status read_before(const char *run, struct plm_config *before, bool *exists,
                              struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  PLM_TRY(plm_path_join(path, run, PLM_RUN_CONFIG, error));
  PLM_TRY(plm_file_look(path, exists, error));
  if (!*exists) return PLM_OK;
  PLM_TRY(plm_file_read(path, CONFIG_LIMIT, &text, &size, error));
  const plm_status status = plm_config_load_text(text, size, before, error);
  free(text);
  return status == PLM_OK ? status : plm_error_where(error, "%s", path);
}

/* Compares with the configuration that the run was last started with. */
static plm_status check_before(const struct plm_config *config, bool steps, struct plm_error *error)
{
  struct plm_config before;
  struct plm_text changes = {0};
  bool exists;
  PLM_TRY(read_before(config->run, &before, &exists, error));
  if (!exists) return PLM_OK;
  plm_status status = PLM_OK;
  const uint32_t old = plm_config_source_count(&before), count = plm_config_source_count(config);
  for (uint32_t k = 0; k < old && k < count && status == PLM_OK; k++)
    status = run_prepare_check_corpus(plm_config_source(&before, k).path,
                                      plm_config_source(config, k).path, error);
  if (status == PLM_OK) status = check_pinned(config, error);
  if (status == PLM_OK) status = plm_config_check_resume(&before, config, &changes, error);
  if (status == PLM_OK && changes.length > 0) {
    plm_info("%s:\n%.*s",
             steps ? "the resumed run differs from before"
                   : "no step runs, so these changes have no effect and are not recorded",
             (int)changes.length - 1, changes.data);
  }
  plm_text_deinit(&changes);
  plm_config_deinit(&before);
  return status;
}

/* Whether DONE holds under this configuration and the checkpoint that it names is valid. If not,
 * the run continues from its newest valid checkpoint. */
static bool run_prepare_is_complete(const struct plm_config *config, uint64_t *step)
{
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  char why[PLM_DONE_WHY_SIZE];
  struct plm_done done;
  struct plm_hash standing;
  const struct plm_config_stop_when *when = &config->trainer.stop_when;
  if (plm_done_read(config->run, &done, NULL) != PLM_OK ||
      !plm_done_holds(&done, config->trainer.steps, plm_stop_metric_names[when->metric],
                      when->patience, why)) {
    return false;
  }
  *step = done.step;
  plm_checkpoint_name(done.step, name);
  return plm_path_join(folder, config->run, PLM_RUN_CHECKPOINTS, NULL) == PLM_OK &&
         plm_path_join(path, folder, name, NULL) == PLM_OK &&
         plm_checkpoint_verify(path, NULL, &standing, NULL, NULL) == PLM_OK &&
         plm_hash_equal(standing, done.identity);
}

/* Says what a run from scratch may not mean to train. */
static void note_first_settings(const struct plm_config *config)
{
  struct plm_text notes = {0};
  plm_config_advise_dropout(config, &notes);
  if (notes.length > 0) plm_info("%.*s", (int)notes.length - 1, notes.data);
  plm_text_deinit(&notes);
}

/* Checks trainer.init_from as the trainer of a fresh run would, but before any stage starts. */
static plm_status check_first_weights(const struct plm_config *config, struct plm_error *error)
{
  struct plm_model_folder folder;
  struct plm_text notes = {0};
  if (config->trainer.init_from == NULL) {
    note_first_settings(config);
    return PLM_OK;
  }
  plm_status status = plm_model_folder_check(config->trainer.init_from, &folder, NULL, error);
  if (status == PLM_OK) status = plm_model_folder_can_start(&folder, &config->model, &notes, error);
  if (status == PLM_OK) plm_model_folder_log_notes(&notes);
  plm_text_deinit(&notes);
  if (status == PLM_OK || status == PLM_NO_MEMORY) return status;
  if (error == NULL) return PLM_CONFIG;
  char where[sizeof error->where];
  snprintf(where, sizeof where, "%s", error->where);
  plm_error_where(error, "trainer.init_from%s%s", where[0] != '\0' ? ": " : "", where);
  return error->status = PLM_CONFIG;
}

plm_status plm_run_inspect(const struct plm_config *config, enum plm_resume_mode mode,
                           const char *path, bool trains, struct plm_prepared *prepared,
                           struct plm_error *error)
{
  uint64_t *steps, done_step;
  size_t count;
  *prepared = (struct plm_prepared){0};
  if (mode == PLM_RESUME_NEVER) return check_first_weights(config, error);
  PLM_TRY(list_checkpoints(config->run, &steps, &count, error));
  if (count > 0) {
    prepared->resumes = true;
    prepared->step = steps[count - 1];
  }
  free(steps);
  if (mode == PLM_RESUME_PATH) {
    PLM_TRY(find_checkpoint(config, path, &prepared->step, error));
  } else if (run_prepare_is_complete(config, &done_step)) {
    prepared->complete = true;
    prepared->step = done_step;
  }
  return prepared->resumes ? check_before(config, trains && !prepared->complete, error)
                           : check_first_weights(config, error);
}

/* ---- preparing ----------------------------------------------------------------------------- */

/* kept: what the run's pipeline.yaml says about training stays. */
static plm_status write_configuration(const struct plm_config *config, bool kept,
                                      struct plm_error *error)
{
  char file[PLM_PATH_SIZE], *yaml;
  struct plm_config before;
  bool exists = false;
  PLM_TRY(plm_path_join(file, config->run, PLM_RUN_CONFIG, error));
  if (kept) PLM_TRY(read_before(config->run, &before, &exists, error));
  plm_status status = PLM_OK;
  if (exists)
    status = plm_config_print_kept(&before, config, &yaml, error);
  else
    yaml = plm_config_print(config);
  if (exists) plm_config_deinit(&before);
  if (status != PLM_OK) return status;
  status = plm_file_replace(file, yaml, strlen(yaml), 0644, error);
  free(yaml);
  return status;
}

plm_status plm_run_prepare(const struct plm_config *config, enum plm_resume_mode mode,
                           const char *path, bool trains, struct plm_prepared *prepared,
                           struct plm_error *error)
{
  char file[PLM_PATH_SIZE];
  PLM_TRY(plm_run_finish_move(config->run, error));
  PLM_TRY(plm_run_inspect(config, mode, path, trains, prepared, error));
  plm_run_failure_remove(config->run);
  if (mode != PLM_RESUME_AUTO)
    PLM_TRY(plm_run_move_aside(config->run, mode == PLM_RESUME_NEVER, prepared->step, error));
  PLM_TRY(plm_path_join(file, config->run, PLM_RUN_LOGS, error));
  PLM_TRY(plm_directory_make(file, error));
  PLM_TRY(plm_path_join(file, config->run, PLM_RUN_DONE, error));
  if (!prepared->complete && unlink(file) != 0 && errno != ENOENT) {
    return plm_error_errno(error, "%s", file);
  }
  return write_configuration(config, prepared->resumes && (prepared->complete || !trains), error);
}

plm_status plm_run_prepare_apart(const struct plm_config *config, struct plm_error *error)
{
  char file[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(file, config->run, PLM_RUN_LOGS, error));
  PLM_TRY(plm_directory_make(file, error));
  PLM_TRY(plm_path_join(file, config->run, PLM_RUN_CONFIG_APART, error));
  char *yaml = plm_config_print(config);
  const plm_status status = plm_file_replace(file, yaml, strlen(yaml), 0644, error);
  free(yaml);
  return status;
}
