/* Whole tensors, one after another in the order of the tables, which is the same on all ranks. */
#include "trainer/ranks/rank_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/numbers/hash.h"

/* ---- memory of a device ---------------------------------------------------------------------- */

enum way { BROADCAST, SEND, RECEIVE };

static plm_status move_host(struct plm_ranks *ranks, enum way way, uint32_t peer, void *memory,
                            size_t bytes, struct plm_error *error)
{
  struct plm_collective *collective = ranks->collective;
  if (way == BROADCAST)
    return plm_collective_broadcast(collective, PLM_LANE_STEP, memory, bytes, error);
  if (way == SEND)
    return plm_collective_send(collective, PLM_LANE_STEP, peer, memory, bytes, error);
  return plm_collective_receive(collective, PLM_LANE_STEP, peer, memory, bytes, error);
}

/* A hash of all that was moved, slice by slice. */
static void note_moved(uint64_t *moved, const char *from, size_t bytes)
{
  const uint64_t parts[2] = {*moved, plm_hash64_bytes(from, bytes)};
  *moved = plm_hash64_bytes(parts, sizeof parts);
}

/* room: of the host, or NULL if `memory` is the host's. Both sides cut in the same way, whatever
 * their memory is. A device that fails leaves old values in the room, so nothing is sent before it
 * has said that all went well. moved: NULL, or what note_moved keeps. */
static plm_status move_slices(struct plm_ranks *ranks, enum way way, uint32_t peer, char *memory,
                              char *room, size_t bytes, uint64_t *moved, struct plm_error *error)
{
  struct plm_ops *ops = ranks->ops;
  const bool sends = way == SEND || (way == BROADCAST && plm_ranks_first(ranks));
  for (size_t at = 0; at < bytes; at += PLM_RANK_ROOM) {
    const size_t slice = bytes - at < PLM_RANK_ROOM ? bytes - at : PLM_RANK_ROOM;
    char *from = room != NULL ? room : memory + at;
    if (room != NULL && sends) {
      ops->download(ops, room, memory + at, slice);
      PLM_TRY(ops->synchronize(ops, error));
    }
    if (moved != NULL && sends) note_moved(moved, from, slice);
    PLM_TRY(move_host(ranks, way, peer, from, slice, error));
    if (moved != NULL && !sends) note_moved(moved, from, slice);
    if (room != NULL && !sends) ops->upload(ops, memory + at, room, slice);
  }
  return PLM_OK;
}

/* Moves memory of operators. */
static plm_status rank_tensors_move(struct plm_ranks *ranks, enum way way, uint32_t peer,
                                    void *memory, size_t bytes, struct plm_error *error)
{
  return move_slices(ranks, way, peer, memory, ranks->room, bytes, NULL, error);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* room: on the other ranks, for the largest parameter */
static plm_status share_parameters(struct plm_ranks *ranks, struct plm_model *model,
                                   const float *values, float *room, struct plm_error *error)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(model, &count);
  for (size_t i = 0; i < count; i++) {
    float *from = room != NULL ? room : (float *)values + table[i].offset; /* rank 0 only sends */
    PLM_TRY(move_slices(ranks, BROADCAST, 0, (char *)from, NULL, table[i].count * sizeof *from,
                        NULL, error));
    plm_model_load_parameter(model, i, from);
  }
  plm_model_weights_changed(model);
  return PLM_OK;
}

plm_status plm_rank_share_weights(struct plm_ranks *ranks, struct plm_model *model,
                                  const float *values, struct plm_error *error)
{
  if (ranks->ranks == 1) {
    plm_model_load(model, values);
    return ranks->ops->synchronize(ranks->ops, error);
  }
  float *room = NULL;
  if (values == NULL) PLM_TRY(plm_model_parameter_room(model, &room, error));
  plm_status status = share_parameters(ranks, model, values, room, error);
  if (status == PLM_OK) status = ranks->ops->synchronize(ranks->ops, error);
  free(room);
  return status;
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
  if (plm_ranks_first(ranks) && to != NULL) ranks->ops->upload(ranks->ops, to, data, bytes);
  if (owner == PLM_OWNED_BY_ALL) return rank_tensors_move(ranks, BROADCAST, 0, to, bytes, error);
  if (owner == 0) return PLM_OK;
  if (plm_ranks_first(ranks)) /* `data` is the host's, and is only read */
    return move_slices(ranks, SEND, owner, (char *)data, NULL, bytes, NULL, error);
  if (owner != ranks->rank) return PLM_OK;
  return rank_tensors_move(ranks, RECEIVE, 0, to, bytes, error);
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

/* Brings what `owner` has at `from` to rank 0's `to`. moved: for each rank, the hash of what it has
 * sent, which the rank itself and rank 0 keep. */
static plm_status rank_tensors_collect(struct plm_ranks *ranks, uint32_t owner, float *to,
                                       float *from, size_t count, uint64_t *moved,
                                       struct plm_error *error)
{
  const size_t bytes = count * sizeof(float);
  if (owner == 0 || owner == PLM_OWNED_BY_ALL) {
    if (to != NULL) ranks->ops->download(ranks->ops, to, from, bytes);
    return PLM_OK;
  }
  if (plm_ranks_first(ranks)) /* a snapshot is in the host's memory */
    return move_slices(ranks, RECEIVE, owner, (char *)to, NULL, bytes, &moved[owner], error);
  if (owner != ranks->rank) return PLM_OK;
  return move_slices(ranks, SEND, 0, (char *)from, ranks->room, bytes, &moved[owner], error);
}

/* Rank 0 copies the values itself if it keeps all that are trained. */
static plm_status collect_weights(struct plm_ranks *ranks, const uint32_t *owners,
                                  struct plm_model *model, float *weights, uint64_t *moved,
                                  struct plm_error *error)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(model, &count);
  for (size_t i = 0; i < count && plm_model_trained_arena(model) == NULL; i++) {
    if (table[i].frozen) continue;
    float *to = weights != NULL ? weights + table[i].offset : NULL;
    PLM_TRY(rank_tensors_collect(ranks, owners[i], to, plm_model_parameter(model, i),
                                 table[i].count, moved, error));
  }
  return PLM_OK;
}

static plm_status collect_all(struct plm_ranks *ranks, const uint32_t *owners,
                              struct plm_model *model, struct plm_optimizer *optimizer,
                              struct plm_snapshot *snapshot, uint64_t *moved,
                              struct plm_error *error)
{
  size_t count, parameters;
  const struct plm_parameter *table = plm_model_table(model, &parameters);
  PLM_TRY(collect_weights(ranks, owners, model, snapshot != NULL ? snapshot->weights : NULL, moved,
                          error));
  const struct plm_optimizer_tensor *tensors = plm_optimizer_tensors(optimizer, &count);
  for (size_t i = 0; i < count; i++) {
    float *to = NULL;
    if (snapshot != NULL)
      to = (tensors[i].second ? snapshot->second : snapshot->first) + tensors[i].offset;
    PLM_TRY(rank_tensors_collect(ranks, owners[tensors[i].parameter], to,
                                 plm_optimizer_tensor_data(optimizer, i), tensors[i].count, moved,
                                 error));
  }
  if (plm_optimizer_sizes(optimizer).average == 0) return PLM_OK;
  for (size_t i = 0; i < parameters; i++) {
    if (table[i].frozen) continue;
    float *to = snapshot != NULL ? snapshot->average + table[i].offset : NULL;
    PLM_TRY(rank_tensors_collect(ranks, owners[i], to, plm_optimizer_average_data(optimizer, i),
                                 table[i].count, moved, error));
  }
  return PLM_OK;
}

/* Compares what each rank says that it has sent with what rank 0 has received. */
static plm_status compare_moved(struct plm_ranks *ranks, const uint64_t *moved, uint64_t *said,
                                struct plm_error *error)
{
  PLM_TRY(plm_collective_gather(ranks->collective, PLM_LANE_STEP, said, &moved[ranks->rank],
                                sizeof *said, error));
  for (uint32_t r = 1; r < ranks->ranks && plm_ranks_first(ranks); r++) {
    if (said[r] == moved[r]) continue;
    plm_error_set(error, PLM_FAILURE,
                  "what rank %u sent for the checkpoint arrived with other bytes", r);
    return plm_error_hint(error, "the memory or the network of one of these hosts is probably "
                                 "faulty, or its Open MPI; the newest checkpoint is intact");
  }
  return PLM_OK;
}

plm_status plm_rank_collect(struct plm_ranks *ranks, const uint32_t *owners,
                            struct plm_model *model, struct plm_optimizer *optimizer,
                            struct plm_snapshot *snapshot, struct plm_error *error)
{
  uint64_t *moved = plm_alloc_zeroed(2 * (size_t)ranks->ranks, sizeof *moved);
  plm_status status = collect_all(ranks, owners, model, optimizer, snapshot, moved, error);
  if (status == PLM_OK) status = compare_moved(ranks, moved, moved + ranks->ranks, error);
  free(moved);
  return status;
}

static uint64_t sum_of_bits(const char *bytes, size_t count)
{
  uint64_t sum = 0;
  for (size_t i = 0; i + sizeof(uint16_t) <= count; i += sizeof(uint16_t)) {
    uint16_t bits;
    memcpy(&bits, bytes + i, sizeof bits);
    sum += bits;
  }
  return sum;
}

static uint64_t sum_memory(struct plm_ranks *ranks, const char *memory, size_t bytes)
{
  struct plm_ops *ops = ranks->ops;
  uint64_t sum = 0;
  if (ranks->room == NULL) return sum_of_bits(memory, bytes);
  for (size_t at = 0; at < bytes; at += PLM_RANK_ROOM) {
    const size_t slice = bytes - at < PLM_RANK_ROOM ? bytes - at : PLM_RANK_ROOM;
    ops->download(ops, ranks->room, memory + at, slice);
    sum += sum_of_bits(ranks->room, slice);
  }
  return sum;
}

/* Of what all ranks have: the weights as used, and the fp32 values that every rank keeps. */
static uint64_t sum_weights(struct plm_ranks *ranks, const uint32_t *owners,
                            struct plm_model *model)
{
  const size_t act_bytes = ranks->ops->act_bytes;
  size_t count;
  const struct plm_parameter *table = plm_model_table(model, &count);
  uint64_t sum = 0;
  if (plm_model_keeps_all(model))
    return sum_memory(ranks, (const char *)plm_model_parameter_arena(model),
                      plm_model_arena_elements(model) * sizeof(float));
  for (size_t i = 0; i < count; i++) {
    const char *used = plm_model_used(model, i),
               *value = (const char *)plm_model_parameter(model, i);
    sum += sum_memory(ranks, used, plm_parameter_used_bytes(&table[i], act_bytes));
    if (!plm_has_owner(owners[i]) && value != NULL && used != value)
      sum += sum_memory(ranks, value, table[i].count * sizeof(float));
  }
  return sum;
}

plm_status plm_rank_compare_weights(struct plm_ranks *ranks, const uint32_t *owners,
                                    struct plm_model *model, struct plm_error *error)
{
  if (ranks->ranks == 1) return PLM_OK; /* without reading all of them */
  const uint64_t mine = sum_weights(ranks, owners, model);
  char list[128] = "";
  size_t length = 0;
  PLM_TRY(ranks->ops->synchronize(ranks->ops, error)); /* after an error the sum is of no use */
  uint64_t *all = plm_alloc_zeroed(ranks->ranks, sizeof *all);
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
