/* What a container may use: the limits that control groups (cgroup v1 and v2, also mixed) set for
 * this process. A limit counts at every level, from the group of the process up to the root of what
 * is mounted here. Groups that cannot be read set no limit. */
#ifndef PLM_COMMON_BASE_PROCESS_CGROUP_H
#define PLM_COMMON_BASE_PROCESS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

enum { PLM_CGROUP_PATH_SIZE = 4096 };

struct plm_cgroup_limits {
  /* The level that has least memory left: its limit in bytes (UINT64_MAX: no level has a limit),
   * how much of it is not in use, where pages of files that can be dropped are not counted as used,
   * and its folder. v1: memory.limit_in_bytes. v2: memory.max or memory.high, whichever is less. */
  uint64_t memory_bytes, memory_free_bytes;
  char memory_folder[PLM_CGROUP_PATH_SIZE];
  /* The least quota of any level, in processors, rounded up (0: none). v1: cpu.cfs_quota_us, v2:
   * cpu.max. The set of processors (cpuset) is not part of it: sched_getaffinity knows it. */
  uint32_t cores;
  /* How many processes the system has killed for lack of memory: in the group of this process if
   * the group counts them, else on the whole host. */
  bool counts_kills; /* the group does */
  uint64_t kills;
};

/* Reads /proc/self/mountinfo, /proc/self/cgroup, the groups, and /proc/vmstat. */
void plm_cgroup_read(struct plm_cgroup_limits *limits);

/* For tests: all of these are read below a folder, which is borrowed. "": as usual. */
void plm_cgroup_read_below(const char *root);

/* The processors that this process may keep busy: those that it may run on, and no more than the
 * quota. At least 1. */
uint32_t plm_usable_cores(void);

#endif
