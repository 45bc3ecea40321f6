/* The workspace that operators share from call to call, until it is released. */
#include <stdlib.h>

#include "kernels/cpu/cpu_ops.h"

void *plm_cpu_workspace(struct plm_cpu *cpu, size_t bytes)
{
  if (bytes <= cpu->workspace_bytes) return cpu->workspace;
  free(cpu->workspace);
  cpu->workspace_bytes = 0;
  if (cpu->ops.allocate(&cpu->ops, bytes, &cpu->workspace, &cpu->error) != PLM_OK) return NULL;
  cpu->workspace_bytes = bytes;
  return cpu->workspace;
}

static void release_workspace(struct plm_ops *ops)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  free(cpu->workspace);
  cpu->workspace = NULL;
  cpu->workspace_bytes = 0;
}

void plm_cpu_workspace_register(struct plm_cpu *cpu)
{
  cpu->ops.release_workspace = release_workspace;
}
