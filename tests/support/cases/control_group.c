/* The files are those of version 2, below a folder of their own. */
#include "tests/support/cases/control_group.h"

#include <stdio.h>
#include <string.h>

#include "common/base/process/cgroup.h"
#include "common/base/status.h"
#include "tests/support/harness/scratch.h"

char control_group_folder[PLM_PATH_SIZE];

static void put(const char *folder, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  PLM_ASSERT(plm_directory_make(folder, NULL) == PLM_OK);
  PLM_ASSERT(plm_path_join(path, folder, name, NULL) == PLM_OK);
  scratch_write(path, text, strlen(text));
}

void control_group_begin(void)
{
  static char root[PLM_PATH_SIZE]; /* it is read later */
  char process[PLM_PATH_SIZE];
  scratch_run(root);
  PLM_ASSERT(plm_path_join(process, root, "proc/self", NULL) == PLM_OK);
  PLM_ASSERT(plm_path_join(control_group_folder, root, "sys/fs/cgroup/own", NULL) == PLM_OK);
  put(process, "mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put(process, "cgroup", "0::/own\n");
  PLM_ASSERT(plm_directory_make(control_group_folder, NULL) == PLM_OK);
  plm_cgroup_read_below(root);
}

void control_group_put(const char *file, const char *text)
{
  put(control_group_folder, file, text);
}

void control_group_end(void)
{
  plm_cgroup_read_below("");
}
