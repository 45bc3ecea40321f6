/* Transfers by NCCL, in the order in which they are started, and the thread that watches them. */
#include "kernels/cuda/nccl/nccl_transport.cuh"

#if PLM_HAS_NCCL

#include <cstdlib>

extern "C" {
#include "common/base/clock.h"
#include "common/base/process/thread.h"
}

namespace
{

enum { WATCH_MS = 50 }; /* between two looks at outstanding transfers */

struct plm_nccl *nccl_of(struct plm_transport *transport)
{
  return reinterpret_cast<struct plm_nccl *>(transport);
}

/* ---- the watch ---- */

/* Counts the transfers that have ended. Returns an error of the device. */
cudaError_t count_ended(struct plm_nccl *nccl)
{
  while (nccl->ended < nccl->started) {
    const cudaError_t code = cudaEventQuery(nccl->done[nccl->ended % PLM_NCCL_SLOTS]);
    if (code == cudaErrorNotReady) return cudaSuccess;
    if (code != cudaSuccess) return code;
    nccl->ended++;
    nccl->collective->ended_elsewhere(nccl->collective);
  }
  return cudaSuccess;
}

/* An error of this rank's device, in which `what` failed. */
plm_status device_error(const struct plm_nccl *nccl, const char *what, cudaError_t code,
                        struct plm_error *error)
{
  plm_error_set(error, PLM_FAILURE, "rank %u on %s: device %d: %s failed: %s",
                nccl->collective->place.rank, nccl->collective->place.host, nccl->cuda->device,
                what, cudaGetErrorString(code));
  return plm_error_hint(error, "if `dmesg | grep Xid` shows that the device itself failed, it "
                               "needs a reset or a restart of the machine; the run resumes from "
                               "its newest checkpoint");
}

/* Fills nccl->error if a communicator or the device has an error. The mutex is locked. */
void look_for_errors(struct plm_nccl *nccl)
{
  const cudaError_t device = count_ended(nccl);
  if (device != cudaSuccess) device_error(nccl, "the computation", device, &nccl->error);
  for (ncclComm_t comm : {nccl->group, nccl->rail}) {
    ncclResult_t state = ncclSuccess;
    if (comm == nullptr || nccl->error.status != PLM_OK) continue;
    const ncclResult_t code = nccl->functions->async_error(comm, &state);
    if (code != ncclSuccess) state = code;
    if (state != ncclSuccess && state != ncclInProgress)
      plm_nccl_error(nccl, comm, state, "an exchange between GPUs", &nccl->error);
  }
}

/* Tells the other ranks before the communicators are aborted, which gives them errors too. The
 * mutex is locked, but not meanwhile. */
void give_up(struct plm_nccl *nccl)
{
  nccl->failed = true;
  if (nccl->error.status != PLM_OK) {
    const struct plm_error error = nccl->error;
    pthread_mutex_unlock(&nccl->mutex);
    nccl->collective->fail(nccl->collective, &error);
    pthread_mutex_lock(&nccl->mutex);
  }
  plm_nccl_abort(nccl);
}

void *watch(void *context)
{
  struct plm_nccl *nccl = static_cast<struct plm_nccl *>(context);
  cudaSetDevice(nccl->cuda->device);
  pthread_mutex_lock(&nccl->mutex);
  while (!nccl->closing && !nccl->failed) {
    if (nccl->started == nccl->ended) {
      pthread_cond_wait(&nccl->changed, &nccl->mutex);
      continue;
    }
    look_for_errors(nccl);
    if (nccl->error.status != PLM_OK || nccl->collective->speaker(nccl->collective) >= 0) {
      give_up(nccl);
      break;
    }
    const struct timespec until = plm_clock_after_ms(WATCH_MS);
    pthread_cond_timedwait(&nccl->changed, &nccl->mutex, &until);
  }
  pthread_mutex_unlock(&nccl->mutex);
  return nullptr;
}

/* ---- transfers ---- */

void fail(struct plm_nccl *nccl, const struct plm_error *error)
{
  pthread_mutex_lock(&nccl->mutex);
  if (!nccl->failed) {
    /* Another rank's failure breaks our calls too; then that one is the reason. */
    if (nccl->collective->speaker(nccl->collective) < 0) nccl->error = *error;
    give_up(nccl);
  }
  pthread_mutex_unlock(&nccl->mutex);
}

bool has_failed(struct plm_nccl *nccl)
{
  pthread_mutex_lock(&nccl->mutex);
  const bool failed = nccl->failed;
  pthread_mutex_unlock(&nccl->mutex);
  return failed;
}

plm_status check(struct plm_nccl *nccl, cudaError_t code, struct plm_error *error)
{
  if (code == cudaSuccess) return PLM_OK;
  cudaGetLastError();
  return device_error(nccl, "an exchange", code, error);
}

/* NCCL's stream waits for the computation so far, and then has the transfer. */
plm_status send(struct plm_nccl *nccl, ncclComm_t comm, const struct plm_transfer *transfer,
                struct plm_error *error)
{
  PLM_TRY(check(nccl, cudaEventRecord(nccl->ready, nccl->cuda->stream), error));
  PLM_TRY(check(nccl, cudaStreamWaitEvent(nccl->stream, nccl->ready, 0), error));
  pthread_mutex_lock(&nccl->mutex);
  ncclResult_t code = ncclSuccess;
  if (!nccl->failed)
    code = transfer->kind == PLM_ALL_TO_ALL
               ? nccl->functions->all_to_all(transfer->from, transfer->to, transfer->bytes,
                                             ncclInt8, comm, nccl->stream)
               : nccl->functions->all_gather(transfer->from, transfer->to, transfer->bytes,
                                             ncclInt8, comm, nccl->stream);
  pthread_mutex_unlock(&nccl->mutex);
  /* A call may return before the stream has its work. The event below must come after it. */
  return plm_nccl_settle(nccl, comm, code, "an exchange between GPUs", error);
}

/* Makes room for one more transfer: the oldest one's event is used again. */
void wait_for_slot(struct plm_nccl *nccl)
{
  pthread_mutex_lock(&nccl->mutex);
  (void)count_ended(nccl);
  const bool full = nccl->started - nccl->ended == PLM_NCCL_SLOTS;
  const cudaEvent_t oldest = nccl->done[nccl->ended % PLM_NCCL_SLOTS];
  pthread_mutex_unlock(&nccl->mutex);
  if (!full) return;
  (void)cudaEventSynchronize(oldest); /* an error is found by what follows */
  pthread_mutex_lock(&nccl->mutex);
  (void)count_ended(nccl);
  pthread_mutex_unlock(&nccl->mutex);
}

void start(struct plm_transport *transport, struct plm_transfer *transfer)
{
  struct plm_nccl *nccl = nccl_of(transport);
  const bool in_group = transfer->scope == PLM_SCOPE_GROUP;
  struct plm_error error = {};
  PLM_ASSERT(transfer->kind == PLM_ALL_TO_ALL || transfer->kind == PLM_ALL_GATHER);
  PLM_ASSERT(in_group || transfer->scope == PLM_SCOPE_RAIL);
  transfer->moved = 0; /* number of the transfer, from 1; 0 if it could not be started */
  if (plm_cuda_forbids(nccl->cuda, "an exchange between ranks")) return;
  wait_for_slot(nccl);
  pthread_mutex_lock(&nccl->mutex);
  const ncclComm_t comm = in_group ? nccl->group : nccl->rail;
  const bool failed = nccl->failed;
  pthread_mutex_unlock(&nccl->mutex);
  if (failed) return;
  PLM_ASSERT(comm != nullptr);
  nccl->collective->began_elsewhere(nccl->collective);
  plm_status status = send(nccl, comm, transfer, &error);
  pthread_mutex_lock(&nccl->mutex);
  if (status == PLM_OK)
    status = check(nccl, cudaEventRecord(nccl->done[nccl->started % PLM_NCCL_SLOTS], nccl->stream),
                   &error);
  if (status == PLM_OK) transfer->moved = ++nccl->started;
  pthread_cond_broadcast(&nccl->changed);
  pthread_mutex_unlock(&nccl->mutex);
  if (status != PLM_OK) fail(nccl, &error);
}

/* ---- how long this rank computes ---- */

/* Milliseconds between two events; 0 if they have not come yet. */
double between(cudaEvent_t from, cudaEvent_t to)
{
  float ms = 0;
  const cudaError_t code = cudaEventElapsedTime(&ms, from, to);
  if (code != cudaSuccess) cudaGetLastError();
  return code == cudaSuccess ? static_cast<double>(ms) : 0;
}

/* An error of the device is found by what follows. */
void mark(struct plm_transport *transport, enum plm_compute_mark mark)
{
  struct plm_nccl *nccl = nccl_of(transport);
  const cudaStream_t stream = nccl->cuda->stream;
  struct plm_nccl_pause *pause = &nccl->pauses[nccl->paused % PLM_NCCL_SLOTS];
  if (mark == PLM_COMPUTE_BEGINS) {
    nccl->paused = 0;
    nccl->pauses_ms = 0;
    (void)cudaEventRecord(nccl->begun, stream);
  } else if (mark == PLM_COMPUTE_PAUSES) {
    if (nccl->paused >= PLM_NCCL_SLOTS) nccl->pauses_ms += between(pause->from, pause->to);
    (void)cudaEventRecord(pause->from, stream);
  } else {
    (void)cudaEventRecord(pause->to, stream);
    nccl->paused++;
  }
}

double computed(struct plm_transport *transport)
{
  struct plm_nccl *nccl = nccl_of(transport);
  double pauses_ms = nccl->pauses_ms;
  if (cudaEventRecord(nccl->now, nccl->cuda->stream) != cudaSuccess) return 0;
  (void)cudaEventSynchronize(nccl->now);
  for (uint64_t i = 0; i < nccl->paused && i < PLM_NCCL_SLOTS; i++)
    pauses_ms += between(nccl->pauses[i].from, nccl->pauses[i].to);
  const double all_ms = between(nccl->begun, nccl->now);
  return all_ms > pauses_ms ? 1e-3 * (all_ms - pauses_ms) : 0;
}

/* ---- waiting ---- */

plm_status wait(struct plm_transport *transport, struct plm_transfer *transfer,
                struct plm_error *error)
{
  struct plm_nccl *nccl = nccl_of(transport);
  PLM_TRY(plm_cuda_permits(nccl->cuda, "a wait for an exchange between ranks", error));
  if (has_failed(nccl)) return plm_nccl_reason(nccl, error);
  if (transfer->moved == 0) /* started while a recording was made */
    return plm_error_set(error, PLM_FAILURE, "an exchange between ranks was not started");
  const cudaEvent_t done = nccl->done[(transfer->moved - 1) % PLM_NCCL_SLOTS];
  mark(transport, PLM_COMPUTE_PAUSES);
  PLM_TRY(check(nccl, cudaStreamWaitEvent(nccl->cuda->stream, done, 0), error));
  mark(transport, PLM_COMPUTE_RESUMES);
  return PLM_OK;
}

plm_status make_clock(struct plm_nccl *nccl, struct plm_error *error)
{
  for (cudaEvent_t *event : {&nccl->begun, &nccl->now})
    PLM_TRY(check(nccl, cudaEventCreateWithFlags(event, cudaEventDefault), error));
  for (struct plm_nccl_pause &pause : nccl->pauses)
    for (cudaEvent_t *event : {&pause.from, &pause.to})
      PLM_TRY(check(nccl, cudaEventCreateWithFlags(event, cudaEventDefault), error));
  return PLM_OK;
}

void close_nccl(struct plm_transport *transport)
{
  struct plm_nccl *nccl = nccl_of(transport);
  plm_nccl_end(nccl);
  plm_nccl_free(nccl);
}

} // namespace

plm_status plm_nccl_begin(struct plm_nccl *nccl, struct plm_error *error)
{
  nccl->base.name = "nccl";
  nccl->base.start = start;
  nccl->base.wait = wait;
  nccl->base.mark = mark;
  nccl->base.computed = computed;
  nccl->base.close = close_nccl;
  pthread_mutex_init(&nccl->mutex, nullptr);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&nccl->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  PLM_TRY(check(nccl, cudaStreamCreateWithFlags(&nccl->stream, cudaStreamNonBlocking), error));
  PLM_TRY(check(nccl, cudaEventCreateWithFlags(&nccl->ready, cudaEventDisableTiming), error));
  for (cudaEvent_t &event : nccl->done)
    PLM_TRY(check(nccl, cudaEventCreateWithFlags(&event, cudaEventDisableTiming), error));
  PLM_TRY(make_clock(nccl, error));
  PLM_TRY(plm_thread_start(&nccl->watch, "nccl watch", watch, nccl, error));
  nccl->watched = true;
  return PLM_OK;
}

void plm_nccl_free(struct plm_nccl *nccl)
{
  for (cudaEvent_t event : nccl->done)
    if (event != nullptr) cudaEventDestroy(event);
  for (cudaEvent_t event : {nccl->ready, nccl->begun, nccl->now})
    if (event != nullptr) cudaEventDestroy(event);
  for (const struct plm_nccl_pause &pause : nccl->pauses)
    for (cudaEvent_t event : {pause.from, pause.to})
      if (event != nullptr) cudaEventDestroy(event);
  if (nccl->stream != nullptr) cudaStreamDestroy(nccl->stream);
  pthread_mutex_destroy(&nccl->mutex);
  pthread_cond_destroy(&nccl->changed);
  free(nccl);
}

#endif
