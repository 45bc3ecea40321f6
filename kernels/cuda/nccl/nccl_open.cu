/* Opening NCCL: every rank tells the others what it has, so that an error of one is the error of
 * all, and the first rank of each communicator sends the others its id. */
#include "kernels/cuda/nccl/nccl_transport.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <time.h>

extern "C" {
#include "common/base/clock.h"
}

namespace
{

#if PLM_HAS_NCCL

enum { GOODBYE_S = 5, PAUSE_NS = 200000, BUS_SIZE = 32 };

/* What a rank tells the others. */
struct Card {
  char host[PLM_HOST_NAME_SIZE], bus[BUS_SIZE];
  int32_t version;
  ncclUniqueId group, rail; /* filled by the first rank of each */
  struct plm_error error;
};

void pause_a_little()
{
  const struct timespec pause = {0, PAUSE_NS};
  (void)nanosleep(&pause, nullptr);
}

plm_status make_ids(struct plm_nccl *nccl, struct Card *card)
{
  const struct plm_rank_place *place = &nccl->collective->place;
  ncclResult_t code = ncclSuccess;
  if (place->rank % place->group_size == 0) code = nccl->functions->get_unique_id(&card->group);
  if (place->rank < place->group_size && code == ncclSuccess)
    code = nccl->functions->get_unique_id(&card->rail);
  if (code == ncclSuccess) return PLM_OK;
  return plm_nccl_error(nccl, nullptr, code, "preparing an exchange between GPUs", &card->error);
}

void describe(struct plm_nccl *nccl, struct Card *card)
{
  snprintf(card->host, sizeof card->host, "%s", nccl->collective->place.host);
  if (cudaDeviceGetPCIBusId(card->bus, BUS_SIZE - 1, nccl->cuda->device) != cudaSuccess) {
    cudaGetLastError();
    card->bus[0] = 0;
  }
  if (plm_nccl_load(&nccl->functions, &card->version, &card->error) == PLM_OK)
    (void)make_ids(nccl, card);
}

plm_status compare_two(const struct Card *a, uint32_t rank_a, const struct Card *b, uint32_t rank_b,
                       struct plm_error *error)
{
  if (a->version != b->version) {
    plm_error_set(error, PLM_CONFIG,
                  "rank %u on %s has version %d of NCCL, but rank %u on %s has %d", rank_a, a->host,
                  a->version, rank_b, b->host, b->version);
    plm_error_hint(error, "all ranks need the same libraries");
    return error->status;
  }
  if (a->bus[0] == 0 || strcmp(a->bus, b->bus) != 0 || strcmp(a->host, b->host) != 0) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "ranks %u and %u on %s use the same GPU (%s), which NCCL cannot",
                rank_a, rank_b, a->host, a->bus);
  plm_error_hint(error,
                 "each rank needs a GPU of its own; `nvidia-smi -L` lists those of a host. If "
                 "one is missing, restart that host, or lower trainer.ranks (and the slots "
                 "in trainer.hosts). PLM_COLLECTIVE=mpi works with fewer GPUs, but is slow");
  return error->status;
}

plm_status compare(const struct Card *cards, uint32_t ranks, struct plm_error *error)
{
  for (uint32_t r = 0; r < ranks; r++) {
    if (cards[r].error.status == PLM_OK) continue;
    *error = cards[r].error;
    if (error->where[0] == 0) plm_error_where(error, "rank %u on %.60s", r, cards[r].host);
    return error->status;
  }
  for (uint32_t r = 1; r < ranks; r++)
    for (uint32_t earlier = 0; earlier < r; earlier++)
      PLM_TRY(compare_two(&cards[earlier], earlier, &cards[r], r, error));
  return PLM_OK;
}

/* Makes a communicator of `ranks`, in which this one is `rank`. */
plm_status join(struct plm_nccl *nccl, ncclComm_t *comm, uint32_t ranks, uint32_t rank,
                const ncclUniqueId *id, struct plm_error *error)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (ranks == 1 && nccl->collective->place.ranks > 1) return PLM_OK; /* is not used */
  nccl->collective->began_elsewhere(nccl->collective);
  const ncclResult_t code = nccl->functions->init(comm, (int)ranks, *id, (int)rank, &config);
  const plm_status status =
      plm_nccl_settle(nccl, *comm, code, "connecting the GPUs of the ranks", error);
  nccl->collective->ended_elsewhere(nccl->collective);
  return status;
}

plm_status join_all(struct plm_nccl *nccl, const struct Card *cards, struct plm_error *error)
{
  const struct plm_rank_place *place = &nccl->collective->place;
  const uint32_t size = place->group_size, in_group = place->rank % size;
  PLM_TRY(join(nccl, &nccl->group, size, in_group, &cards[place->rank - in_group].group, error));
  return join(nccl, &nccl->rail, place->ranks / size, place->rank / size, &cards[in_group].rail,
              error);
}

plm_status meet(struct plm_nccl *nccl, struct Card *cards, struct plm_error *error)
{
  struct plm_collective *collective = nccl->collective;
  const uint32_t ranks = collective->place.ranks;
  struct Card mine = {};
  describe(nccl, &mine);
  PLM_TRY(plm_collective_gather(collective, PLM_LANE_STEP, cards, &mine, sizeof mine, error));
  PLM_TRY(compare(cards, ranks, error));
  return join_all(nccl, cards, error);
}

plm_status open(struct plm_nccl *nccl, struct plm_error *error)
{
  PLM_TRY(plm_nccl_begin(nccl, error));
  struct Card *cards =
      static_cast<struct Card *>(calloc(nccl->collective->place.ranks, sizeof *cards));
  if (cards == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "no memory for the ranks");
  const plm_status status = meet(nccl, cards, error);
  free(cards);
  return status;
}

plm_status open_nccl(struct plm_ops *ops, struct plm_collective *collective,
                     struct plm_transport **transport, struct plm_error *error)
{
  struct plm_error own = {};
  if (error == nullptr) error = &own;
  struct plm_nccl *nccl = static_cast<struct plm_nccl *>(calloc(1, sizeof *nccl));
  if (nccl == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a transport");
  nccl->cuda = plm_cuda_of(ops);
  nccl->collective = collective;
  const plm_status status = open(nccl, error);
  if (status == PLM_OK) {
    *transport = &nccl->base;
    return PLM_OK;
  }
  pthread_mutex_lock(&nccl->mutex);
  nccl->failed = true;
  plm_nccl_abort(nccl);
  pthread_mutex_unlock(&nccl->mutex);
  plm_nccl_end(nccl);
  plm_nccl_free(nccl);
  return status;
}

#else

plm_status open_nccl(struct plm_ops *, struct plm_collective *, struct plm_transport **,
                     struct plm_error *error)
{
  plm_error_set(error, PLM_CONFIG, "this build of the CUDA backend cannot use NCCL");
  plm_error_hint(error, "install NCCL 2.28 or later with its header (nccl.h) and run `make` again; "
                        "PLM_COLLECTIVE=mpi works without it, but is slow");
  return PLM_CONFIG;
}

#endif

} // namespace

#if PLM_HAS_NCCL

plm_status plm_nccl_error(struct plm_nccl *nccl, ncclComm_t comm, ncclResult_t code,
                          const char *what, struct plm_error *error)
{
  const struct plm_rank_place *place = &nccl->collective->place;
  const char *more = nccl->functions->last_error(comm);
  plm_error_set(error, PLM_FAILURE, "rank %u on %s: %s failed: %s%s%.200s", place->rank,
                place->host, what, nccl->functions->error_string(code),
                more != nullptr && more[0] != 0 ? ": " : "", more != nullptr ? more : "");
  plm_error_hint(error, "set NCCL_DEBUG=INFO in the environment to see what NCCL does; the run "
                        "resumes from its newest checkpoint");
  return error->status;
}

plm_status plm_nccl_reason(struct plm_nccl *nccl, struct plm_error *error)
{
  int64_t ignored;
  pthread_mutex_lock(&nccl->mutex);
  const struct plm_error here = nccl->error;
  pthread_mutex_unlock(&nccl->mutex);
  if (here.status ==
      PLM_OK) /* then the collective has failed, and with it every further transfer */
    return plm_collective_vote(nccl->collective, 0, &ignored, error);
  if (error != nullptr) *error = here;
  return here.status;
}

plm_status plm_nccl_settle(struct plm_nccl *nccl, ncclComm_t comm, ncclResult_t code,
                           const char *what, struct plm_error *error)
{
  while (code == ncclInProgress) {
    pthread_mutex_lock(&nccl->mutex);
    const bool failed = nccl->failed; /* then the watch has aborted the communicator */
    const ncclResult_t asked = failed ? ncclSuccess : nccl->functions->async_error(comm, &code);
    pthread_mutex_unlock(&nccl->mutex);
    if (failed || nccl->collective->speaker(nccl->collective) >= 0)
      return plm_nccl_reason(nccl, error);
    if (asked != ncclSuccess) code = asked;
    if (code == ncclInProgress) pause_a_little();
  }
  return code == ncclSuccess ? PLM_OK : plm_nccl_error(nccl, comm, code, what, error);
}

void plm_nccl_abort(struct plm_nccl *nccl)
{
  for (ncclComm_t *comm : {&nccl->group, &nccl->rail}) {
    if (*comm != nullptr) nccl->functions->abort(*comm);
    *comm = nullptr;
  }
}

/* Whether the communicator could be ended; waits for a few seconds. */
static bool finalize(struct plm_nccl *nccl, ncclComm_t comm)
{
  const uint64_t until = plm_clock_ns() + GOODBYE_S * 1000000000ull;
  ncclResult_t state = nccl->functions->finalize(comm);
  while (state == ncclInProgress && plm_clock_ns() < until) {
    pause_a_little();
    if (nccl->functions->async_error(comm, &state) != ncclSuccess) return false;
  }
  return state == ncclSuccess;
}

void plm_nccl_end(struct plm_nccl *nccl)
{
  pthread_mutex_lock(&nccl->mutex);
  nccl->closing = true;
  pthread_cond_broadcast(&nccl->changed);
  pthread_mutex_unlock(&nccl->mutex);
  if (nccl->watched) pthread_join(nccl->watch, nullptr);
  if (nccl->collective->speaker(nccl->collective) >= 0) plm_nccl_abort(nccl);
  for (ncclComm_t *comm : {&nccl->group, &nccl->rail}) {
    if (*comm == nullptr || !finalize(nccl, *comm)) continue;
    nccl->functions->destroy(*comm);
    *comm = nullptr;
  }
  plm_nccl_abort(nccl);
}

#endif

void plm_cuda_nccl_register(struct plm_cuda *cuda)
{
  cuda->ops.open_nccl = open_nccl;
}
