/* Compares the folder of checkpoints with evaluator.jsonl. */
#include "common/checkpoint/unevaluated.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/history.h"
#include "common/run/run.h"

/* Whether the MANIFEST of a checkpoint says which weights it has. One that cannot be read is
 * compared by its step alone. */
static bool identify(const char *folder, uint64_t step, struct plm_manifest *manifest,
                     struct plm_hash *identity)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], path[PLM_PATH_SIZE];
  plm_checkpoint_name(step, name);
  return plm_path_join(path, folder, name, NULL) == PLM_OK &&
         plm_manifest_read(path, manifest, NULL) == PLM_OK &&
         plm_manifest_identity(manifest, identity);
}

static void unevaluated_compare(const char *folder, const uint64_t *steps, size_t count,
                                const struct plm_history *history, unsigned wanted,
                                struct plm_unevaluated *left)
{
  struct plm_manifest *manifest = plm_alloc(sizeof *manifest);
  for (size_t i = 0; i < count; i++) {
    struct plm_hash identity;
    const bool identified = identify(folder, steps[i], manifest, &identity);
    if (plm_history_settled(history, steps[i], identified ? &identity : NULL, wanted)) continue;
    if (left->count++ == 0) left->first = steps[i];
  }
  free(manifest);
}

plm_status plm_unevaluated_read(const char *run, const struct plm_config_evaluator *evaluator,
                                struct plm_unevaluated *left, struct plm_error *error)
{
  char folder[PLM_PATH_SIZE], reports[PLM_PATH_SIZE];
  struct plm_history history = {.evaluator = evaluator};
  uint64_t *steps = NULL;
  size_t count = 0;
  unsigned wanted;
  *left = (struct plm_unevaluated){0};
  PLM_TRY(plm_history_wanted(evaluator, &wanted, error));
  PLM_TRY(plm_path_join(folder, run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_path_join(reports, run, PLM_RUN_EVALUATOR_METRICS, error));
  plm_status status = plm_checkpoint_list(folder, &steps, &count, error);
  if (status == PLM_NOT_FOUND) return PLM_OK; /* nothing is published yet */
  if (status == PLM_OK) status = plm_history_read(&history, reports, error);
  if (status == PLM_OK) unevaluated_compare(folder, steps, count, &history, wanted, left);
  plm_history_deinit(&history);
  free(steps);
  return status;
}
