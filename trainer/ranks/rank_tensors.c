/* Whole tensors, one after another in the order of the tables, which is the same on all ranks. */
#include "trainer/ranks/rank_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

plm_status plm_rank_share_weights(struct plm_ranks *ranks, struct plm_model *model,
                                  struct plm_error *error)
{
  PLM_TRY(plm_collective_broadcast(ranks->collective, PLM_LANE_STEP,
                                   plm_model_parameter_arena(model),
                                   plm_model_arena_elements(model) * sizeof(float), error));
  plm_model_weights_changed(model);
  return PLM_OK;
}

plm_status plm_rank_place_tensor(struct plm_ranks *ranks, const uint32_t *owners,
                                 struct plm_optimizer *optimizer, size_t i, const void *data,
                                 struct plm_error *error)
{
  size_t count;
  const struct plm_optimizer_tensor *tensor = &plm_optimizer_tensors(optimizer, &count)[i];
  const uint32_t owner = owners[tensor->parameter];
  const size_t bytes = tensor->count * sizeof(float);
  float *to = plm_optimizer_tensor_data(optimizer, i);
  if (plm_ranks_first(ranks) && to != NULL) memcpy(to, data, bytes);
  if (owner == PLM_OWNED_BY_ALL)
    return plm_collective_broadcast(ranks->collective, PLM_LANE_STEP, to, bytes, error);
  if (owner == 0) return PLM_OK;
  if (plm_ranks_first(ranks))
    return plm_collective_send(ranks->collective, PLM_LANE_STEP, owner, data, bytes, error);
  if (owner != ranks->rank) return PLM_OK;
  return plm_collective_receive(ranks->collective, PLM_LANE_STEP, 0, to, bytes, error);
}

plm_status plm_rank_share_clip(struct plm_ranks *ranks, struct plm_clip *clip,
                               struct plm_error *error)
{
  struct {
    double norms[PLM_CLIP_HISTORY];
    uint32_t count;
  } history = {0};
  if (plm_ranks_first(ranks)) history.count = plm_clip_export(clip, history.norms);
  PLM_TRY(
      plm_collective_broadcast(ranks->collective, PLM_LANE_STEP, &history, sizeof history, error));
  if (!plm_ranks_first(ranks)) plm_clip_import(clip, history.norms, history.count);
  return PLM_OK;
}

/* Brings what `owner` has at `from` to rank 0's `to`. */
static plm_status collect(struct plm_ranks *ranks, uint32_t owner, float *to, const float *from,
                          size_t count, struct plm_error *error)
{
  const size_t bytes = count * sizeof(float);
  if (owner == 0 || owner == PLM_OWNED_BY_ALL) {
    if (to != NULL) memcpy(to, from, bytes);
    return PLM_OK;
  }
  if (plm_ranks_first(ranks))
    return plm_collective_receive(ranks->collective, PLM_LANE_STEP, owner, to, bytes, error);
  if (owner != ranks->rank) return PLM_OK;
  return plm_collective_send(ranks->collective, PLM_LANE_STEP, 0, from, bytes, error);
}

plm_status plm_rank_collect(struct plm_ranks *ranks, const uint32_t *owners, size_t parameters,
                            const struct plm_parameter *table, struct plm_optimizer *optimizer,
                            struct plm_snapshot *snapshot, struct plm_error *error)
{
  size_t count;
  const struct plm_optimizer_tensor *tensors = plm_optimizer_tensors(optimizer, &count);
  for (size_t i = 0; i < count; i++) {
    float *to = NULL;
    if (snapshot != NULL)
      to = (tensors[i].second ? snapshot->second : snapshot->first) + tensors[i].offset;
    PLM_TRY(collect(ranks, owners[tensors[i].parameter], to,
                    plm_optimizer_tensor_data(optimizer, i), tensors[i].count, error));
  }
  if (plm_optimizer_sizes(optimizer).average == 0) return PLM_OK;
  for (size_t i = 0; i < parameters; i++) {
    float *to = snapshot != NULL ? snapshot->average + table[i].offset : NULL;
    PLM_TRY(collect(ranks, owners[i], to, plm_optimizer_average_data(optimizer, i), table[i].count,
                    error));
  }
  return PLM_OK;
}

static uint64_t sum_of_bits(const float *values, size_t count)
{
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    sum += bits;
  }
  return sum;
}

plm_status plm_rank_compare_weights(struct plm_ranks *ranks, struct plm_model *model,
                                    struct plm_error *error)
{
  const uint64_t mine =
      sum_of_bits(plm_model_parameter_arena(model), plm_model_arena_elements(model));
  uint64_t *all = calloc(ranks->ranks, sizeof *all);
  char list[128] = "";
  size_t length = 0;
  if (all == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %u ranks", ranks->ranks);
  const plm_status status =
      plm_collective_gather(ranks->collective, PLM_LANE_STEP, all, &mine, sizeof mine, error);
  for (uint32_t r = 1; r < ranks->ranks && status == PLM_OK; r++)
    if (all[r] != all[0] && length + 12 < sizeof list)
      length += (size_t)snprintf(list + length, sizeof list - length, " %u", r);
  free(all);
  if (status != PLM_OK || length == 0) return status;
  plm_ranks_agree(ranks);
  plm_error_set(error, PLM_CORRUPT, "the weights of rank 0 differ from those of rank%s", list);
  return plm_error_hint(error,
                        "the memory or a processor of one of these hosts is probably faulty; "
                        "the newest checkpoint was compared before it was published");
}
