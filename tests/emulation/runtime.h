/* clang-format off */
/* The functions of the CUDA runtime that kernels/cuda calls, on the CPU: memory, streams, events,
 * graphs.
 *
 * A stream waits for another one only as far as events demand, so a missing wait changes results.
 * Copies from and to pinned memory, and from pageable memory, are done as late as events allow
 * under the orders 0 and 1 (plm_emulation_order), where other work is done at once. Under other
 * orders it is drawn for each copy, and, once there is pinned memory, for each other work item,
 * whether it is done now or later. Pinned memory that a copy will write is NaN until then; so is
 * the device buffer of an upload from it if nothing else is under way.
 *
 * After a fault of the device (card.h) no work is done any more, and every call returns the fault.
 *
 * The process ends with a message if pinned memory is released while a copy is under way, or if
 * something is done that is not allowed while a stream is captured.
 *
 * If the environment variable PLM_EMULATED_TRACE names a file, lines are appended to it:
 *   upload BYTES overlaps N   a copy from pinned memory; N is 1 if another stream was sent work
 *                             that neither the host nor the copy's stream has waited for, so that
 *                             a device may do it during the copy, else 0
 *   exchange BYTES under N    a transfer of NCCL; N work items were sent between its start and
 *                             the wait for it, so that a device may do them during the transfer
 *   record WORKS              a captured graph of so many work items
 *   replay WORKS              a launched graph
 *   works WORKS               a destroyed stream; what the process has done so far */
/* clang-format on */
#ifndef PLM_TESTS_EMULATION_RUNTIME_H
#define PLM_TESTS_EMULATION_RUNTIME_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace plm::emulation
{

typedef std::function<void()> Work;

/* What the caller has to destroy. It is allocated by malloc, so that a test finds what is not
 * (tests/support/harness/checked_memory.h). */
struct Handle {
  static void *operator new(size_t bytes)
  {
    return malloc(bytes);
  }
  static void operator delete(void *handle)
  {
    free(handle);
  }
};

struct Graph : Handle {
  std::vector<Work> works;
  bool invalid = false; /* the capture of it has failed */
};

/* Its virtual functions are what an emulated library in another shared object calls. */
class Stream : public Handle
{
public:
  virtual ~Stream() = default;
  /* Sends the two halves of a transfer between processes: `early` as any other work, `late` only
   * when somebody waits for it. Both may use the device's memory. */
  virtual void exchange(size_t bytes, const Work &early, const Work &late);
  void add(const Work &work);            /* a kernel, a product, … */
  void add(const Work &work, bool late); /* late: done only when somebody waits for it */
  void follow(Stream *other, uint64_t count);
  void finish(uint64_t count); /* does the first `count` of what was sent */
  void finish();
  bool empty() const /* nothing is left to do, no wait either */
  {
    return items.empty();
  }
  bool idle() const; /* nothing is left to do, except waits */
  void host_waited()
  {
    awaited = sent;
  }
  bool has_done(uint64_t count) const
  {
    return done >= count;
  }
  bool overlaps() const; /* something sent now may run beside kernels of another stream */
  uint64_t sent = 0;
  Graph *capture = nullptr;
  bool forgotten = false; /* the device was reset, and the stream is no more */

private:
  void capture_work(const Work &work);
  struct Item {
    Work work;     /* NULL for a wait … */
    Stream *other; /* … for the first `count` of this stream */
    uint64_t count;
  };
  std::deque<Item> items;         /* that are not done yet */
  std::atomic<uint64_t> done = 0; /* other threads may query events */
  uint64_t computed = 0; /* items up to the last one that is neither pinned copy nor wait */
  uint64_t awaited = 0;  /* items that the host has waited for */
  std::map<const Stream *, uint64_t> followed; /* items of others that this one waits for */
  struct Exchange {
    uint64_t item, works_before; /* and works that all streams had been sent */
    size_t bytes;
  };
  std::deque<Exchange> exchanges; /* that nobody was told to wait for yet */
  void trace_exchanges(uint64_t count);
};

struct Event : Handle {
  Stream *stream;
  uint64_t count;               /* what the stream had been sent when the event was recorded */
  bool timed;                   /* made without cudaEventDisableTiming */
  std::shared_ptr<uint64_t> ns; /* when the stream came to the event */
};

/* Ends the process if these bytes are not all pinned. */
void require_pinned(const void *host, size_t bytes);
/* Ends the process if the kernel has not been allowed so much shared memory. No kernel is allowed
 * more than the card has (card.h). */
void require_shared(const void *kernel, size_t bytes);
/* After the device's reset no stream may be used. */
void streams_forget();

} // namespace plm::emulation

typedef plm::emulation::Stream *cudaStream_t;
typedef plm::emulation::Event *cudaEvent_t;
typedef plm::emulation::Graph *cudaGraph_t, *cudaGraphExec_t;

enum { CUDART_VERSION = 12000 };
enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInsufficientDriver,
  cudaErrorNotReady,
  cudaErrorIllegalAddress,
  cudaErrorNoDevice,
  cudaErrorDevicesUnavailable,
  cudaErrorStreamCaptureInvalidated,
  cudaErrorUnknown,
  cudaErrorInitializationError,
  cudaErrorSystemNotReady,
  cudaErrorSystemDriverMismatch
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
enum { cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };
struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
  size_t sharedMemPerBlockOptin;
};

namespace plm::emulation
{
/* Keeps an error as the last one and returns it; after a fault of the device, the fault. */
cudaError_t result(cudaError_t code);
} // namespace plm::emulation

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char *cudaGetErrorString(cudaError_t code);
/* One, or as many as the environment variable PLM_EMULATED_DEVICES says. */
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceReset();
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetName(const char **name, const void *kernel);

cudaError_t cudaMalloc(void **buffer, size_t bytes);
cudaError_t cudaFree(void *buffer);
cudaError_t cudaMallocHost(void **buffer, size_t bytes);
cudaError_t cudaFreeHost(void *buffer);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *buffer, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(
    cudaStream_t stream); /* does all work first, so it never returns cudaErrorNotReady */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event); /* lets nothing happen */
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
/* By the clock of the host, which does the work, or by that of the card (card.h). */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

#endif
