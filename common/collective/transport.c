/* Chooses a transport, and the one that does nothing: the operators' memory is the host's. */
#include "common/collective/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

#define VARIABLE "PLM_COLLECTIVE"

/* ---- direct -------------------------------------------------------------------------------- */

struct direct {
  struct plm_transport base;
  struct plm_collective *collective;
  struct plm_transport_clock clock;
};

static void transport_start(struct plm_transport *transport, struct plm_transfer *transfer)
{
  struct plm_collective *collective = ((struct direct *)transport)->collective;
  collective->start(collective, transfer);
}

static plm_status transport_wait(struct plm_transport *transport, struct plm_transfer *transfer,
                                 struct plm_error *error)
{
  struct direct *direct = (struct direct *)transport;
  plm_transport_clock_mark(&direct->clock, PLM_COMPUTE_PAUSES);
  const plm_status status = direct->collective->wait(direct->collective, transfer, error);
  plm_transport_clock_mark(&direct->clock, PLM_COMPUTE_RESUMES);
  return status;
}

static void mark_direct(struct plm_transport *transport, enum plm_compute_mark mark)
{
  plm_transport_clock_mark(&((struct direct *)transport)->clock, mark);
}

static double transport_computed(struct plm_transport *transport)
{
  return plm_transport_clock_computed(&((struct direct *)transport)->clock);
}

static void close_direct(struct plm_transport *transport)
{
  free(transport);
}

static struct plm_transport *open_direct(struct plm_collective *collective)
{
  struct direct *direct = plm_alloc_zeroed(1, sizeof *direct);
  *direct = (struct direct){.base = {.name = "direct",
                                     .start = transport_start,
                                     .wait = transport_wait,
                                     .mark = mark_direct,
                                     .computed = transport_computed,
                                     .close = close_direct},
                            .collective = collective};
  mark_direct(&direct->base, PLM_COMPUTE_BEGINS);
  return &direct->base;
}

/* ---- the choice ----------------------------------------------------------------------------- */

struct choice {
  char host[PLM_HOST_NAME_SIZE], transport[PLM_HOST_NAME_SIZE];
};

static struct choice choice_of(const struct plm_collective *collective)
{
  struct choice choice = {0};
  const char *chosen = getenv(VARIABLE);
  snprintf(choice.host, sizeof choice.host, "%s", collective->place.host);
  snprintf(choice.transport, sizeof choice.transport, "%s",
           chosen != NULL && *chosen != '\0' ? chosen : "nccl");
  return choice;
}

static plm_status transport_compare(const struct choice *all, uint32_t ranks,
                                    struct plm_error *error)
{
  for (uint32_t r = 1; r < ranks; r++) {
    if (strncmp(all[0].transport, all[r].transport, sizeof all[r].transport) == 0) continue;
    plm_error_set(error, PLM_CONFIG,
                  "rank 0 on %.63s has " VARIABLE "=%.63s, but rank %u on %.63s has %.63s",
                  all[0].host, all[0].transport, r, all[r].host, all[r].transport);
    return plm_error_hint(error, "set it to nccl or mpi for all ranks, or unset it for nccl");
  }
  return PLM_OK;
}

/* Other ranks may have another environment. Each transport begins with messages of its own. */
static plm_status choose_together(struct plm_collective *collective, const struct choice *mine,
                                  struct plm_error *error)
{
  const uint32_t ranks = collective->place.ranks;
  struct choice *all = plm_alloc_zeroed(ranks, sizeof *all);
  plm_status status =
      plm_collective_gather(collective, PLM_LANE_STEP, all, mine, sizeof *mine, error);
  if (status == PLM_OK) status = transport_compare(all, ranks, error);
  free(all);
  return status;
}

plm_status plm_transport_open(struct plm_collective *collective, struct plm_ops *ops,
                              struct plm_transport **transport, struct plm_error *error)
{
  const struct choice mine = choice_of(collective);
  const char *chosen = mine.transport;
  *transport = NULL;
  if (ops->open_nccl == NULL) {
    *transport = open_direct(collective);
    return PLM_OK;
  }
  PLM_TRY(choose_together(collective, &mine, error));
  if (strcmp(chosen, "nccl") == 0) return ops->open_nccl(ops, collective, transport, error);
  if (strcmp(chosen, "mpi") == 0) {
    *transport = plm_transport_open_staged(collective, ops);
    return PLM_OK;
  }
  plm_error_set(error, PLM_CONFIG, VARIABLE "=%.100s: no such transport", chosen);
  return plm_error_hint(error, "set it to nccl or mpi, or unset it for nccl"), PLM_CONFIG;
}
