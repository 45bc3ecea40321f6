/* Copies through pinned memory of the host. It is simple rather than fast: start waits for the
 * computation, because a collective reads the host's memory at once. The transfers themselves still
 * run beside what is queued later. */
#include "common/collective/transport.h"

#include <stdlib.h>

#include "common/base/alloc.h"

enum { MOST = 64 }; /* transfers between their start and their wait */

/* A transfer that another one stands for. Its memory is kept for the next one that uses it. */
struct stage {
  struct plm_transfer inner, *outer; /* outer: NULL if it is free */
  void *from, *to;                   /* pinned */
  size_t from_bytes, to_bytes;       /* that there is room for */
};

struct staged {
  struct plm_transport base;
  struct plm_collective *collective;
  struct plm_ops *ops;
  struct stage stages[MOST];
  struct plm_error error; /* the first one; later waits fail with it */
  struct plm_transport_clock clock;
};

static uint32_t ranks_of(const struct staged *staged, enum plm_scope scope)
{
  const struct plm_rank_place *place = &staged->collective->place;
  PLM_ASSERT(place->group_size > 0 && place->ranks % place->group_size == 0);
  if (scope == PLM_SCOPE_ALL) return place->ranks;
  return scope == PLM_SCOPE_GROUP ? place->group_size : place->ranks / place->group_size;
}

static plm_status transport_staged_make_room(struct plm_ops *ops, void **buffer, size_t *room,
                                             size_t bytes, struct plm_error *error)
{
  if (bytes <= *room) return PLM_OK;
  ops->release_host(ops, *buffer);
  *room = 0;
  PLM_TRY(ops->allocate_host(ops, bytes, buffer, error));
  *room = bytes;
  return PLM_OK;
}

/* A free stage whose memory is large enough; else one that has none yet, because a release waits
 * for the device; else any free one. */
static struct stage *free_stage(struct staged *staged, size_t from_bytes, size_t to_bytes)
{
  struct stage *any = NULL;
  for (int i = 0; i < MOST; i++) {
    struct stage *stage = &staged->stages[i];
    if (stage->outer != NULL) continue;
    if (stage->from_bytes >= from_bytes && stage->to_bytes >= to_bytes) return stage;
    if (any == NULL || (any->to != NULL && stage->to == NULL)) any = stage;
  }
  PLM_ASSERT(any != NULL);
  return any;
}

static plm_status transport_staged_begin(struct staged *staged, struct plm_transfer *transfer,
                                         struct plm_error *error)
{
  struct plm_ops *ops = staged->ops;
  const uint32_t ranks = ranks_of(staged, transfer->scope);
  const bool all_to_all = transfer->kind == PLM_ALL_TO_ALL;
  const size_t from_bytes = transfer->bytes * (all_to_all ? ranks : 1);
  const size_t to_bytes = transfer->bytes * ranks;
  struct stage *stage = free_stage(staged, from_bytes, to_bytes);
  PLM_TRY(transport_staged_make_room(ops, &stage->from, &stage->from_bytes, from_bytes, error));
  PLM_TRY(transport_staged_make_room(ops, &stage->to, &stage->to_bytes, to_bytes, error));
  ops->download(ops, stage->from, transfer->from, from_bytes);
  PLM_TRY(ops->synchronize(ops, error)); /* reports an error of the device */
  stage->outer = transfer;
  stage->inner = *transfer;
  stage->inner.from = stage->from;
  stage->inner.to = stage->to;
  transfer->request = stage;
  staged->collective->start(staged->collective, &stage->inner);
  return PLM_OK;
}

static void transport_staged_start(struct plm_transport *transport, struct plm_transfer *transfer)
{
  struct staged *staged = (struct staged *)transport;
  struct plm_error error = {0};
  PLM_ASSERT(transfer->kind == PLM_ALL_TO_ALL || transfer->kind == PLM_ALL_GATHER);
  transfer->request = NULL;
  if (staged->error.status == PLM_OK && transport_staged_begin(staged, transfer, &error) != PLM_OK)
    staged->error = error;
}

static plm_status transport_staged_wait(struct plm_transport *transport,
                                        struct plm_transfer *transfer, struct plm_error *error)
{
  struct staged *staged = (struct staged *)transport;
  struct stage *stage = transfer->request;
  if (stage == NULL) { /* it could not be started */
    if (error != NULL) *error = staged->error;
    return staged->error.status;
  }
  PLM_ASSERT(stage->outer == transfer);
  plm_transport_clock_mark(&staged->clock, PLM_COMPUTE_PAUSES);
  const plm_status status = staged->collective->wait(staged->collective, &stage->inner, error);
  plm_transport_clock_mark(&staged->clock, PLM_COMPUTE_RESUMES);
  if (status != PLM_OK) return status;
  staged->ops->upload(staged->ops, transfer->to, stage->to,
                      transfer->bytes * ranks_of(staged, transfer->scope));
  stage->outer = NULL;
  return PLM_OK;
}

static void mark_staged(struct plm_transport *transport, enum plm_compute_mark mark)
{
  plm_transport_clock_mark(&((struct staged *)transport)->clock, mark);
}

static double transport_staged_computed(struct plm_transport *transport)
{
  return plm_transport_clock_computed(&((struct staged *)transport)->clock);
}

static void close_staged(struct plm_transport *transport)
{
  struct staged *staged = (struct staged *)transport;
  for (int i = 0; i < MOST; i++) {
    staged->ops->release_host(staged->ops, staged->stages[i].from);
    staged->ops->release_host(staged->ops, staged->stages[i].to);
  }
  free(staged);
}

struct plm_transport *plm_transport_open_staged(struct plm_collective *collective,
                                                struct plm_ops *ops)
{
  struct staged *staged = plm_alloc_zeroed(1, sizeof *staged);
  *staged = (struct staged){.base = {.name = "staged",
                                     .start = transport_staged_start,
                                     .wait = transport_staged_wait,
                                     .mark = mark_staged,
                                     .computed = transport_staged_computed,
                                     .close = close_staged},
                            .collective = collective,
                            .ops = ops};
  mark_staged(&staged->base, PLM_COMPUTE_BEGINS);
  return &staged->base;
}
