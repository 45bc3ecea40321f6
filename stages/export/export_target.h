/* The folder that an export becomes: written beside it, then given its name at once. What stands
 * there is kept unless it is an earlier export that nobody has changed.
 *
 * An export is known by its model.safetensors: its metadata `plm_export` holds the XXH3-128 of
 * every other file that was written. transformers' save_pretrained writes other metadata, so that a
 * model trained on from an export is never taken for one. */
#ifndef PLM_STAGES_EXPORT_EXPORT_TARGET_H
#define PLM_STAGES_EXPORT_EXPORT_TARGET_H

#include <stdbool.h>

#include "common/base/file.h"
#include "common/base/status.h"

#define PLM_EXPORT_KEY "plm_export"

struct plm_export_target {
  char final[PLM_PATH_SIZE];     /* its place, links followed */
  char temporary[PLM_PATH_SIZE]; /* where it is written: made by _open */
  bool earlier;                  /* an earlier export stands there: to be replaced */
  int lock;                      /* held on the temporary folder while it is written */
  bool aside;                    /* something else stands there: to be moved aside (force) */
};

/* Looks at what stands at output and makes the temporary folder beside it, with the folders above;
 * what an export that was killed left there is removed.
 * PLM_EXISTS: something that is no earlier export, or one that was changed, and !force; a
 * checkpoint, a file or a run folder always. */
plm_status plm_export_target_open(const char *output, bool force, struct plm_export_target *target,
                                  struct plm_error *error);

/* Text for PLM_EXPORT_KEY of what the temporary folder holds now: {"README.md": "hash", …}. The
 * caller frees *text. */
plm_status plm_export_target_list(const struct plm_export_target *target, char **text,
                                  struct plm_error *error);

/* Gives the temporary folder its name; an earlier export is gone then. moved (PLM_PATH_SIZE bytes)
 * receives where something else went, "" for nothing. */
plm_status plm_export_target_publish(struct plm_export_target *target, char *moved,
                                     struct plm_error *error);

/* Removes what was not published. */
void plm_export_target_abandon(struct plm_export_target *target);

#endif
