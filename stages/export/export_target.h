/* The folder of an export. It is written under a temporary name beside its place and then renamed.
 * An existing folder is kept, unless it is an earlier export that nobody has changed.
 *
 * An export is recognised by its model.safetensors, or by the adapter_model.safetensors of
 * adapters, whose metadata `plm_export` holds the XXH3-128 of every other file that was written.
 * transformers' save_pretrained writes other metadata, so a model that was fine-tuned from an
 * export is never taken for one. */
#ifndef PLM_STAGES_EXPORT_EXPORT_TARGET_H
#define PLM_STAGES_EXPORT_EXPORT_TARGET_H

#include <stdbool.h>

#include "common/base/files/file.h"
#include "common/base/status.h"

#define PLM_EXPORT_KEY "plm_export"

struct plm_export_target {
  char final[PLM_PATH_SIZE];     /* its place, with links followed */
  char temporary[PLM_PATH_SIZE]; /* where it is written; made by _open */
  bool earlier;                  /* an earlier export is at its place and will be replaced */
  int lock;                      /* held on the temporary folder while it is written */
  bool aside;                    /* something else is there and will be moved aside (force) */
};

/* Checks what is at output, makes the folders above it and a temporary folder beside it, and
 * removes what killed exports left there. PLM_EXISTS if a file, a checkpoint, a run, a corpus or a
 * Git repository is at output; and, without force, if it is a folder other than an unchanged
 * export. */
plm_status plm_export_target_open(const char *output, bool force, struct plm_export_target *target,
                                  struct plm_error *error);

/* The text for PLM_EXPORT_KEY, which lists what the temporary folder holds now:
 * {"README.md": "hash", …}. The caller frees *text. */
plm_status plm_export_target_list(const struct plm_export_target *target, char **text,
                                  struct plm_error *error);

/* Renames the temporary folder and removes an earlier export. moved (PLM_PATH_SIZE bytes) receives
 * the path to which something else was moved aside, or "". */
plm_status plm_export_target_publish(struct plm_export_target *target, char *moved,
                                     struct plm_error *error);

/* Removes the temporary folder. */
void plm_export_target_abandon(struct plm_export_target *target);

#endif
