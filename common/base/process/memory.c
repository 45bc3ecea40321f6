/* The memory of this machine. */
#include "common/base/process/memory.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/process/cgroup.h"

static void host_memory(uint64_t *free_bytes, uint64_t *total_bytes)
{
  unsigned long long kib;
  char line[256];
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  *free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
  *total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
  FILE *file = fopen("/proc/meminfo", "re");
  if (file == NULL) return;
  while (fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) *free_bytes = (uint64_t)kib << 10;
  fclose(file);
}

void plm_memory_size(uint64_t *free_bytes, uint64_t *total_bytes)
{
  struct plm_cgroup_limits limits;
  host_memory(free_bytes, total_bytes);
  plm_cgroup_read(&limits);
  if (limits.memory_free_bytes < *free_bytes) *free_bytes = limits.memory_free_bytes;
  if (limits.memory_bytes < *total_bytes) *total_bytes = limits.memory_bytes;
}
