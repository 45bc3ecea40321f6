/* Gathers a run's checkpoints, has retention decide and deletes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/run/run.h"
#include "trainer/checkpoint/retention_apply.h"

/* Whether this is a folder, not a link, whose MANIFEST has the step of its name. Only such folders
 * are ever deleted. Fills in the identity. */
static bool retention_apply_is_ours(const char *directory, struct plm_retained *checkpoint)
{
  struct stat information;
  if (lstat(directory, &information) != 0 || !S_ISDIR(information.st_mode)) return false;
  struct plm_manifest *manifest = plm_alloc(sizeof *manifest);
  const bool ours =
      plm_manifest_read(directory, manifest, NULL) == PLM_OK && manifest->step == checkpoint->step;
  if (ours) checkpoint->identified = plm_manifest_identity(manifest, &checkpoint->identity);
  free(manifest);
  return ours;
}

static plm_status retention_apply_gather(const char *folder, uint64_t newest_valid,
                                         struct plm_retained **checkpoints, size_t *count,
                                         struct plm_error *error)
{
  uint64_t *steps = NULL;
  size_t found = 0;
  PLM_TRY(plm_checkpoint_list(folder, &steps, &found, error));
  *count = 0;
  *checkpoints = plm_alloc_zeroed(found, sizeof **checkpoints);
  for (size_t i = 0; i < found; i++) {
    char name[PLM_CHECKPOINT_NAME_SIZE], path[PLM_PATH_SIZE];
    plm_checkpoint_name(steps[i], name);
    struct plm_retained *checkpoint = &(*checkpoints)[*count];
    *checkpoint = (struct plm_retained){
        .step = steps[i], .loss = NAN, .value = NAN, .newest_valid = steps[i] == newest_valid};
    if (plm_path_join(path, folder, name, NULL) != PLM_OK ||
        !retention_apply_is_ours(path, checkpoint))
      continue;
    ++*count;
  }
  free(steps);
  return PLM_OK;
}

static plm_status delete_checkpoint(const char *folder, uint64_t step, struct plm_error *error)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], doomed[PLM_CHECKPOINT_NAME_SIZE + 16];
  char from[PLM_PATH_SIZE], to[PLM_PATH_SIZE];
  plm_checkpoint_name(step, name);
  snprintf(doomed, sizeof doomed, ".tmp-delete-%s", name);
  PLM_TRY(plm_path_join(from, folder, name, error));
  PLM_TRY(plm_path_join(to, folder, doomed, error));
  PLM_TRY(plm_path_remove(to, error));
  if (rename(from, to) != 0) return plm_error_errno(error, "cannot rename %s to %s", from, to);
  return plm_path_remove(to, error);
}

/* A report that decides must survive a power cut, as the deletion does. */
static plm_status sync_reports(const char *reports, struct plm_error *error)
{
  bool exists;
  PLM_TRY(plm_file_look(reports, &exists, error));
  return exists ? plm_file_sync(reports, error) : PLM_OK;
}

plm_status plm_retention_apply(const char *run, const struct plm_config_checkpoint *rules,
                               const struct plm_retention_judge *judge, uint64_t newest_valid,
                               struct plm_error *error)
{
  char folder[PLM_PATH_SIZE], reports[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(folder, run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_path_join(reports, run, PLM_RUN_EVALUATOR_METRICS, error));
  struct plm_retained *checkpoints = NULL;
  size_t count;
  PLM_TRY(retention_apply_gather(folder, newest_valid, &checkpoints, &count, error));
  plm_status status = plm_retention_read_reports(reports, judge, checkpoints, count, error);
  if (status == PLM_OK)
    plm_retention_decide(rules, plm_retention_has_evaluator(run), checkpoints, count);
  if (status == PLM_OK) status = sync_reports(reports, error);
  for (size_t i = 0; i < count && status == PLM_OK; i++)
    if (checkpoints[i].remove) {
      status = delete_checkpoint(folder, checkpoints[i].step, error);
      plm_debug("checkpoint %llu deleted", (unsigned long long)checkpoints[i].step);
    }
  free(checkpoints);
  return status;
}
