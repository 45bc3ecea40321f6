/* The link `latest` beside the checkpoints. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/checkpoint.h"

plm_status plm_checkpoint_point_latest(const char *checkpoints_directory, const char *name,
                                       struct plm_error *error)
{
  char fresh[PLM_PATH_SIZE], latest[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(fresh, checkpoints_directory, PLM_CHECKPOINT_TEMPORARY "latest", error));
  PLM_TRY(plm_path_join(latest, checkpoints_directory, "latest", error));
  if (unlink(fresh) != 0 && errno != ENOENT)
    return plm_error_errno(error, "cannot remove %s", fresh);
  if (symlink(name, fresh) != 0) return plm_error_errno(error, "cannot create %s", fresh);
  if (rename(fresh, latest) != 0) return plm_error_errno(error, "cannot replace %s", latest);
  return plm_directory_sync(checkpoints_directory, error);
}
