/* Preparing a run folder for `up`. */
#include "stages/supervisor/run_prepare.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/strict_json.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/corpus/corpus.h"
#include "common/huggingface/model_folder.h"
#include "common/run/run.h"

enum { CONFIG_LIMIT = 1 << 20, METRICS_LIMIT = 1 << 30 };

/* ---- inspecting ---------------------------------------------------------------------------- */

static plm_status list_checkpoints(const char *run, uint64_t **steps, size_t *count,
                                   struct plm_error *error)
{
  char folder[PLM_PATH_SIZE];
  *steps = NULL;
  *count = 0;
  PLM_TRY(plm_path_join(folder, run, PLM_RUN_CHECKPOINTS, error));
  if (!plm_file_exists(folder)) return PLM_OK;
  return plm_checkpoint_list(folder, steps, count, error);
}

/* Verifies the checkpoint at path, which must be one of this run. */
static plm_status find_checkpoint(const struct plm_config *config, const char *path, uint64_t *step,
                                  struct plm_error *error)
{
  char own[PLM_PATH_SIZE], folder[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  struct stat given, ours;
  struct plm_hash identity;
  if (stat(path, &given) != 0) {
    plm_error_set(error, PLM_USAGE, "--resume needs auto, never or a checkpoint folder, not %.200s",
                  path);
    return plm_error_hint(error, "`plm-pipeline checkpoints` lists the checkpoints of the run");
  }
  PLM_TRY(plm_checkpoint_verify(path, step, &identity, error));
  plm_checkpoint_name(*step, name);
  PLM_TRY(plm_path_join(folder, config->run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_path_join(own, folder, name, error));
  if (stat(own, &ours) == 0 && given.st_ino == ours.st_ino && given.st_dev == ours.st_dev) {
    return PLM_OK;
  }
  plm_error_set(error, PLM_USAGE, "%s is not a checkpoint of this run (%s)", path, config->run);
  return plm_error_hint(error, "to start another run from its weights, set trainer.init_from");
}

/* Another path may hold the same documents. If the old corpus is gone, the trainer decides, since
 * its checkpoint knows the fingerprint. */
static plm_status check_corpus(const char *before, const char *now, struct plm_error *error)
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

/* Compares with the configuration that the run was last started with. */
static plm_status check_before(const struct plm_config *config, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  struct plm_config before;
  struct plm_text changes = {0};
  PLM_TRY(plm_path_join(path, config->run, PLM_RUN_CONFIG, error));
  if (!plm_file_exists(path)) return PLM_OK;
  PLM_TRY(plm_file_read(path, CONFIG_LIMIT, &text, &size, error));
  plm_status status = plm_config_load_text(text, size, &before, error);
  free(text);
  if (status != PLM_OK) return plm_error_where(error, "%s", path);
  status = check_corpus(before.corpus, config->corpus, error);
  if (status == PLM_OK) status = plm_config_check_resume(&before, config, &changes, error);
  if (status == PLM_OK && changes.length > 0) {
    plm_info("the resumed run differs from before:\n%.*s", (int)changes.length - 1, changes.data);
  }
  plm_text_deinit(&changes);
  plm_config_deinit(&before);
  return status;
}

/* Whether DONE covers all steps and the checkpoint that it names is valid. If not, the run
 * continues from an earlier checkpoint. */
static bool is_complete(const struct plm_config *config, uint64_t *step)
{
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  struct plm_hash identity, standing;
  if (plm_done_read(config->run, step, &identity, NULL) != PLM_OK ||
      *step < config->trainer.steps) {
    return false;
  }
  plm_checkpoint_name(*step, name);
  return plm_path_join(folder, config->run, PLM_RUN_CHECKPOINTS, NULL) == PLM_OK &&
         plm_path_join(path, folder, name, NULL) == PLM_OK &&
         plm_checkpoint_verify(path, NULL, &standing, NULL) == PLM_OK &&
         plm_hash_equal(standing, identity);
}

/* Checks trainer.init_from as the trainer of a fresh run would, but before any stage starts. */
static plm_status check_first_weights(const struct plm_config *config, struct plm_error *error)
{
  struct plm_model_folder folder;
  if (config->trainer.init_from == NULL) return PLM_OK;
  plm_status status = plm_model_folder_check(config->trainer.init_from, &folder, error);
  if (status == PLM_OK) status = plm_model_folder_fits(&folder, &config->model, NULL, error);
  if (status == PLM_OK || status == PLM_NO_MEMORY) return status;
  if (error == NULL) return PLM_CONFIG;
  char where[sizeof error->where];
  snprintf(where, sizeof where, "%s", error->where);
  plm_error_where(error, "trainer.init_from%s%s", where[0] != '\0' ? ": " : "", where);
  return error->status = PLM_CONFIG;
}

plm_status plm_run_inspect(const struct plm_config *config, enum plm_resume_mode mode,
                           const char *path, struct plm_prepared *prepared, struct plm_error *error)
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
  } else if (is_complete(config, &done_step)) {
    prepared->complete = true;
    prepared->step = done_step;
  }
  return prepared->resumes ? check_before(config, error) : check_first_weights(config, error);
}

/* ---- moving aside -------------------------------------------------------------------------- */

static plm_status make_previous(const char *run, char folder[PLM_PATH_SIZE],
                                struct plm_error *error)
{
  for (unsigned n = 1;; n++) {
    char name[32];
    snprintf(name, sizeof name, "previous-%u", n);
    PLM_TRY(plm_path_join(folder, run, name, error));
    if (mkdir(folder, 0755) == 0) return PLM_OK;
    if (errno != EEXIST) return plm_error_errno(error, "%s", folder);
  }
}

static plm_status move_one(const char *from, const char *to, const char *name,
                           struct plm_error *error)
{
  char source[PLM_PATH_SIZE], target[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(source, from, name, error));
  PLM_TRY(plm_path_join(target, to, name, error));
  if (rename(source, target) != 0 && errno != ENOENT) {
    return plm_error_errno(error, "cannot move %s to %s", source, to);
  }
  return PLM_OK;
}

static plm_status move_everything(const char *run, const char *previous, struct plm_error *error)
{
  static const char *const names[] = {PLM_RUN_CHECKPOINTS,
                                      PLM_RUN_TRAINER_METRICS,
                                      PLM_RUN_EVALUATOR_METRICS,
                                      PLM_RUN_PACKER_METRICS,
                                      PLM_RUN_TENSORBOARD,
                                      PLM_RUN_LOGS,
                                      PLM_RUN_CONFIG,
                                      PLM_RUN_DONE,
                                      "run_id"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    PLM_TRY(move_one(run, previous, names[i], error));
  }
  return PLM_OK;
}

static bool is_later(const char *line, uint64_t step)
{
  cJSON *json = plm_json_line(line);
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "step");
  const bool later = cJSON_IsNumber(item) && item->valuedouble > (double)step;
  cJSON_Delete(json);
  return later;
}

/* Moves lines after `step` to previous/NAME. They are written there before the file is replaced. */
static plm_status move_lines(const char *run, const char *previous, const char *name, uint64_t step,
                             struct plm_error *error)
{
  char source[PLM_PATH_SIZE], target[PLM_PATH_SIZE], *text, *rest, *line;
  size_t size;
  struct plm_text kept = {0}, later = {0};
  PLM_TRY(plm_path_join(source, run, name, error));
  PLM_TRY(plm_path_join(target, previous, name, error));
  if (!plm_file_exists(source)) return PLM_OK;
  PLM_TRY(plm_file_read(source, METRICS_LIMIT, &text, &size, error));
  rest = text;
  while ((line = strsep(&rest, "\n")) != NULL && rest != NULL) { /* a torn last line is dropped */
    plm_text_printf(is_later(line, step) ? &later : &kept, "%s\n", line);
  }
  free(text);
  plm_status status = PLM_OK;
  if (kept.failed || later.failed) status = plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  if (status == PLM_OK && later.length > 0) {
    status = plm_file_write(target, later.data, later.length, 0644, error);
  }
  if (status == PLM_OK && later.length > 0) {
    status = plm_file_replace(source, kept.data != NULL ? kept.data : "", kept.length, 0644, error);
  }
  plm_text_deinit(&kept);
  plm_text_deinit(&later);
  return status;
}

static plm_status move_later(const char *run, const char *previous, uint64_t step,
                             struct plm_error *error)
{
  char folder[PLM_PATH_SIZE], aside[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  uint64_t *steps;
  size_t count;
  plm_status status = PLM_OK;
  PLM_TRY(plm_path_join(folder, run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_path_join(aside, previous, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_directory_make(aside, error));
  PLM_TRY(move_one(run, previous, PLM_RUN_DONE, error));
  PLM_TRY(list_checkpoints(run, &steps, &count, error));
  /* newest first, so that an interrupted move leaves a run that simply ends earlier */
  for (size_t i = count; i-- > 0 && steps[i] > step && status == PLM_OK;) {
    plm_checkpoint_name(steps[i], name);
    status = move_one(folder, aside, name, error);
  }
  free(steps);
  if (status != PLM_OK) return status;
  char link[PLM_PATH_SIZE], fresh[PLM_PATH_SIZE];
  plm_checkpoint_name(step, name);
  PLM_TRY(plm_path_join(link, folder, "latest", error));
  PLM_TRY(plm_path_join(fresh, folder, ".tmp-latest", error));
  unlink(fresh);
  if (symlink(name, fresh) != 0 || rename(fresh, link) != 0) {
    return plm_error_errno(error, "%s", link);
  }
  PLM_TRY(move_lines(run, previous, PLM_RUN_TRAINER_METRICS, step, error));
  return move_lines(run, previous, PLM_RUN_EVALUATOR_METRICS, step, error);
}

static plm_status move_aside(const char *run, enum plm_resume_mode mode, uint64_t step,
                             struct plm_error *error)
{
  char previous[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, run, PLM_RUN_CONFIG, error));
  if (!plm_file_exists(path)) return PLM_OK; /* no run was ever started here */
  PLM_TRY(make_previous(run, previous, error));
  plm_info("moving %s to %s",
           mode == PLM_RESUME_NEVER ? "the earlier run" : "everything after that step", previous);
  return mode == PLM_RESUME_NEVER ? move_everything(run, previous, error)
                                  : move_later(run, previous, step, error);
}

/* ---- preparing ----------------------------------------------------------------------------- */

plm_status plm_run_prepare(const struct plm_config *config, enum plm_resume_mode mode,
                           const char *path, struct plm_prepared *prepared, struct plm_error *error)
{
  char file[PLM_PATH_SIZE], *yaml;
  PLM_TRY(plm_run_inspect(config, mode, path, prepared, error));
  if (mode != PLM_RESUME_AUTO) PLM_TRY(move_aside(config->run, mode, prepared->step, error));
  PLM_TRY(plm_path_join(file, config->run, PLM_RUN_LOGS, error));
  PLM_TRY(plm_directory_make(file, error));
  PLM_TRY(plm_path_join(file, config->run, PLM_RUN_DONE, error));
  if (!prepared->complete && unlink(file) != 0 && errno != ENOENT) {
    return plm_error_errno(error, "%s", file);
  }
  PLM_TRY(plm_path_join(file, config->run, PLM_RUN_CONFIG, error));
  PLM_TRY(plm_config_print(config, &yaml, error));
  const plm_status status = plm_file_replace(file, yaml, strlen(yaml), 0644, error);
  free(yaml);
  return status;
}
