/* Looks into run folders for `runs` and `report`. */
#include "stages/views/run_state.h"

#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"

const char *plm_run_state(const char *run)
{
  struct plm_lock_holder holder;
  struct plm_done done;
  struct plm_run_failure failure;
  if (plm_lock_holder(run, "trainer", &holder, NULL) == PLM_OK ||
      plm_lock_holder(run, "supervisor", &holder, NULL) == PLM_OK)
    return "running";
  if (plm_run_failure_read(run, &failure)) return "failed";
  return plm_done_read(run, &done, NULL) == PLM_OK ? "complete" : "stopped";
}

bool plm_is_run(const char *directory)
{
  char path[PLM_PATH_SIZE];
  return plm_path_join(path, directory, PLM_RUN_CONFIG, NULL) == PLM_OK && plm_file_exists(path);
}
