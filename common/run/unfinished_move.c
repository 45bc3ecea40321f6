/* Finding the record of a move to previous-N/ that was interrupted. */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/run/run.h"

plm_status plm_run_find_move(const char *run, char previous[PLM_PATH_SIZE], bool *found,
                             struct plm_error *error)
{
  char record[PLM_PATH_SIZE];
  const struct dirent *entry;
  plm_status status = PLM_OK;
  *found = false;
  DIR *folder = opendir(run);
  if (folder == NULL && errno == ENOENT) return PLM_OK;
  if (folder == NULL) return plm_error_errno(error, "cannot open %s", run);
  while (status == PLM_OK && !*found) {
    status = plm_directory_next(folder, run, &entry, error);
    if (status != PLM_OK || entry == NULL) break;
    if (strncmp(entry->d_name, PLM_RUN_PREVIOUS, strlen(PLM_RUN_PREVIOUS)) != 0) continue;
    status = plm_path_join(previous, run, entry->d_name, error);
    if (status == PLM_OK) status = plm_path_join(record, previous, PLM_RUN_MOVING, error);
    if (status == PLM_OK) status = plm_file_look(record, found, error);
  }
  closedir(folder);
  return status;
}

plm_status plm_run_check_moved(const char *run, struct plm_error *error)
{
  char previous[PLM_PATH_SIZE];
  bool found;
  PLM_TRY(plm_run_find_move(run, previous, &found, error));
  if (!found) return PLM_OK;
  plm_error_set(error, PLM_BUSY,
                "`plm-pipeline up --resume` was interrupted while it moved the earlier run here, "
                "so the run folder is incomplete");
  plm_error_where(error, "%s", previous);
  return plm_error_hint(error, "run `plm-pipeline up`, which finishes the move");
}
