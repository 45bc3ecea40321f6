/* clang-format off */
/* NCCL on the CPU, as far as kernels/cuda needs it: a shared object that takes the place of
 * libnccl.so.2 (PLM_NCCL_LIBRARY) beside the emulated backend. Its ranks are processes of one host.
 *
 * A receive buffer is NaN from the moment at which a device might begin the transfer until it is
 * done. What is sent is read early or late, and buffers are filled late, as a device might.
 * The process ends with a message if a stream is captured, if a communicator is used while it is
 * busy, or if ranks do not make the same calls in the same order.
 *
 * The environment variable PLM_EMULATED_NCCL is a seed, from which is drawn
 *   - whether a call returns ncclInProgress and reaches the stream only while ncclCommGetAsyncError
 *     is called,
 *   - whether what is sent is read early, and how long a rank takes.
 * PLM_EMULATED_NCCL_FAULT says what happens to one rank, in a transfer that is drawn as well:
 *   error   ncclCommGetAsyncError reports an error, and the transfer does not end
 *   hang    the transfer does not end
 * PLM_EMULATED_NCCL_VERSION is what ncclGetVersion returns (22809). */
/* clang-format on */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include <unistd.h>

#include "tests/emulation/emulated_nccl.h"
#include "tests/emulation/nccl/communicator.h"

using namespace plm::emulated_nccl;

namespace
{

enum { FIRST_FAULT = 3, FAULTY_CALLS = 4, LONGEST_US = 20000 };

uint64_t number_of(const char *variable, uint64_t otherwise)
{
  const char *said = getenv(variable);
  return said != nullptr ? strtoull(said, nullptr, 10) : otherwise;
}

/* splitmix64 of the seed and of what is drawn */
uint64_t draw(uint64_t what, uint64_t rank, uint64_t number)
{
  uint64_t x = number_of("PLM_EMULATED_NCCL", 0) * 0x9e3779b97f4a7c15u +
               (what << 48 ^ rank << 32 ^ number) * 0xbf58476d1ce4e5b9u + 0x94d049bb133111ebu;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}
enum { IN_PROGRESS = 1, EARLY, DELAY, FAULTY_RANK, FAULTY_CALL };

bool is_fault(const char *kind)
{
  const char *said = getenv("PLM_EMULATED_NCCL_FAULT");
  return said != nullptr && strcmp(said, kind) == 0;
}

/* Whether this rank's transfer is the one that does not end. */
bool is_faulty(const Communicator &communicator, uint64_t number)
{
  if (!is_fault("error") && !is_fault("hang")) return false;
  return communicator.rank == (int)(draw(FAULTY_RANK, 0, 0) % (uint64_t)communicator.ranks) &&
         number == FIRST_FAULT + draw(FAULTY_CALL, 0, 0) % FAULTY_CALLS;
}

} // namespace

struct ncclComm {
  std::shared_ptr<Communicator> communicator; /* transfers that are under way have it too */
  ncclResult_t state = ncclInProgress;
  bool is_connected = false, is_finalizing = false;
  uint64_t calls = 0;
  std::function<void()> pending; /* a call that has not reached the stream yet */
  std::thread::id caller;        /* of it */
};

ncclResult_t ncclGetVersion(int *version)
{
  *version = (int)number_of("PLM_EMULATED_NCCL_VERSION", 22809);
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
  return result == ncclSystemError ? "unhandled system error" : "an error";
}

const char *ncclGetLastError(ncclComm_t)
{
  return "an emulated error";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
  snprintf(id->internal, sizeof id->internal, "%s", make_board().c_str());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
  if (config->blocking != 0) stop("a communicator that blocks");
  *comm = new ncclComm;
  (*comm)->communicator = std::make_shared<Communicator>(id.internal, ranks, rank);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
  if (!comm->is_connected && comm->communicator->connected()) {
    comm->is_connected = true;
    comm->state = ncclSuccess;
  }
  if (comm->is_finalizing && comm->communicator->finalized()) comm->state = ncclSuccess;
  if (comm->pending && comm->caller == std::this_thread::get_id()) {
    const std::function<void()> pending = std::move(comm->pending);
    comm->pending = nullptr;
    comm->state = ncclSuccess;
    pending();
  }
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
  comm->is_finalizing = true;
  return comm->state = ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
  if (!comm->is_finalizing || comm->state != ncclSuccess)
    stop("ncclCommDestroy of a communicator that was not finalized");
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
  comm->communicator->aborted = true;
  delete comm;
  return ncclSuccess;
}

/* Half of the transfers are sent when the device begins them, the others when somebody waits. */
static void send(ncclComm_t comm, const Transfer &transfer, cudaStream_t stream)
{
  const std::shared_ptr<Communicator> communicator = comm->communicator;
  const uint64_t rank = (uint64_t)communicator->rank;
  const bool early = draw(EARLY, rank, transfer.number) % 2 == 0;
  const bool faulty = is_faulty(*communicator, transfer.number);
  const uint64_t drawn = draw(DELAY, rank, transfer.number);
  const unsigned delay_us = drawn % 4 == 0 ? (unsigned)(drawn / 4 % LONGEST_US) : 0;
  if (faulty && is_fault("error")) comm->state = ncclSystemError;
  stream->exchange(
      transfer.bytes,
      [=] {
        communicator->fill(transfer);
        if (early && !faulty) communicator->post(transfer);
      },
      [=] {
        usleep(delay_us);
        if (faulty) return communicator->wait_for_abort();
        if (!early) communicator->post(transfer);
        communicator->receive(transfer);
      });
}

static ncclResult_t call(ncclComm_t comm, Transfer transfer, cudaStream_t stream)
{
  if (comm->state == ncclInProgress) stop("a call of a communicator that is busy");
  if (comm->state != ncclSuccess) return comm->state; /* nobody has asked for it since then */
  transfer.number = ++comm->calls;
  const uint64_t rank = (uint64_t)comm->communicator->rank;
  if (draw(IN_PROGRESS, rank, transfer.number) % 2 == 0) {
    send(comm, transfer, stream);
    return ncclSuccess;
  }
  comm->pending = [=] { send(comm, transfer, stream); };
  comm->caller = std::this_thread::get_id();
  return comm->state = ncclInProgress;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t,
                           ncclComm_t comm, cudaStream_t stream)
{
  return call(
      comm, {0, Kind::ALL_GATHER, count, static_cast<const char *>(from), static_cast<char *>(to)},
      stream);
}

ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t, ncclComm_t comm,
                          cudaStream_t stream)
{
  return call(
      comm, {0, Kind::ALL_TO_ALL, count, static_cast<const char *>(from), static_cast<char *>(to)},
      stream);
}
