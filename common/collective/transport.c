/* Chooses a transport, and the one that does nothing: the operators' memory is the host's. */
#include "common/collective/transport.h"

#include <stdlib.h>
#include <string.h>

#define VARIABLE "PLM_COLLECTIVE"

struct direct {
  struct plm_transport base;
  struct plm_collective *collective;
};

static void start(struct plm_transport *transport, struct plm_transfer *transfer)
{
  struct plm_collective *collective = ((struct direct *)transport)->collective;
  collective->start(collective, transfer);
}

static plm_status wait(struct plm_transport *transport, struct plm_transfer *transfer,
                       struct plm_error *error)
{
  struct plm_collective *collective = ((struct direct *)transport)->collective;
  return collective->wait(collective, transfer, error);
}

static void close_direct(struct plm_transport *transport)
{
  free(transport);
}

static plm_status open_direct(struct plm_collective *collective, struct plm_transport **transport,
                              struct plm_error *error)
{
  struct direct *direct = calloc(1, sizeof *direct);
  if (direct == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a transport");
  *direct = (struct direct){
      .base = {.name = "direct", .start = start, .wait = wait, .close = close_direct},
      .collective = collective};
  *transport = &direct->base;
  return PLM_OK;
}

plm_status plm_transport_open(struct plm_collective *collective, struct plm_ops *ops,
                              struct plm_transport **transport, struct plm_error *error)
{
  const char *chosen = getenv(VARIABLE);
  *transport = NULL;
  if (ops->open_nccl == NULL) return open_direct(collective, transport, error);
  if (chosen == NULL || *chosen == '\0' || strcmp(chosen, "nccl") == 0)
    return ops->open_nccl(ops, collective, transport, error);
  if (strcmp(chosen, "mpi") == 0)
    return plm_transport_open_staged(collective, ops, transport, error);
  plm_error_set(error, PLM_CONFIG, VARIABLE "=%.100s: no such transport", chosen);
  return plm_error_hint(error, "set it to nccl or mpi, or unset it for nccl"), PLM_CONFIG;
}
