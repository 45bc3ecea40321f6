/* The workspace that operators share from call to call. */
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
