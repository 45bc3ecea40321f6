/* Transfers that are waited for at once. */
#include "common/collective/collective.h"

#include <stdlib.h>

static plm_status collective_run(struct plm_collective *collective, struct plm_transfer *transfer,
                                 struct plm_error *error)
{
  collective->start(collective, transfer);
  return collective->wait(collective, transfer, error);
}

plm_status plm_collective_gather(struct plm_collective *collective, enum plm_lane lane, void *all,
                                 const void *mine, size_t bytes, struct plm_error *error)
{
  struct plm_transfer transfer = {
      .kind = PLM_ALL_GATHER, .lane = lane, .to = all, .from = mine, .bytes = bytes};
  return collective_run(collective, &transfer, error);
}

plm_status plm_collective_broadcast(struct plm_collective *collective, enum plm_lane lane,
                                    void *data, size_t bytes, struct plm_error *error)
{
  struct plm_transfer transfer = {.kind = PLM_BROADCAST, .lane = lane, .to = data, .bytes = bytes};
  return collective_run(collective, &transfer, error);
}

plm_status plm_collective_send(struct plm_collective *collective, enum plm_lane lane, uint32_t peer,
                               const void *data, size_t bytes, struct plm_error *error)
{
  PLM_ASSERT(peer < collective->place.ranks && peer != collective->place.rank);
  struct plm_transfer transfer = {
      .kind = PLM_SEND, .lane = lane, .peer = peer, .from = data, .bytes = bytes};
  return collective_run(collective, &transfer, error);
}

plm_status plm_collective_receive(struct plm_collective *collective, enum plm_lane lane,
                                  uint32_t peer, void *data, size_t bytes, struct plm_error *error)
{
  PLM_ASSERT(peer < collective->place.ranks && peer != collective->place.rank);
  struct plm_transfer transfer = {
      .kind = PLM_RECEIVE, .lane = lane, .peer = peer, .to = data, .bytes = bytes};
  return collective_run(collective, &transfer, error);
}

plm_status plm_collective_vote(struct plm_collective *collective, int64_t mine, int64_t *largest,
                               struct plm_error *error)
{
  const uint32_t ranks = collective->place.ranks;
  PLM_ASSERT(collective->place.rank < ranks);
  int64_t *all = calloc(ranks, sizeof *all);
  if (all == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a vote");
  const plm_status status =
      plm_collective_gather(collective, PLM_LANE_STEP, all, &mine, sizeof mine, error);
  *largest = mine;
  for (uint32_t r = 0; r < ranks && status == PLM_OK; r++)
    if (all[r] > *largest) *largest = all[r];
  free(all);
  return status;
}
