/* The CUDA runtime as far as kernels/cuda calls it, on the CPU, under its own names: memory,
 * streams, events, graphs.
 *
 * What a stream has to wait for of another is what events say, and no more: so a missing wait
 * shows. Copies from and to pinned memory are done as late as that allows. Other work is done at
 * once under the orders 0 and 1 (plm_emulation_order); under any other order it is drawn for
 * each piece of work whether it is done now or later, of what is no copy once there is pinned
 * memory. Pinned memory that a copy writes to is NaN until then, and so is a device buffer when
 * nothing else is under way.
 *
 * What ends the process with a message: pinned memory released while a copy is under way, and
 * whatever has no place while a stream is captured.
 *
 * If the environment's PLM_EMULATED_TRACE names a file, a line is appended to it for each
 *   upload BYTES overlaps N   copy from pinned memory. N is 1 if another stream was sent kernels
 * that neither the host nor the copy's stream has waited for, so that a device may run them during
 * the copy, else 0. record WORKS              captured graph, of so many pieces of work replay
 * WORKS              launched graph
 */
#ifndef PLM_TESTS_EMULATION_RUNTIME_H
#define PLM_TESTS_EMULATION_RUNTIME_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

namespace plm::emulation
{

typedef std::function<void()> Work;

struct Graph {
  std::vector<Work> works;
};

class Stream
{
public:
  void add(const Work &work);            /* a kernel, a product, … */
  void add(const Work &work, bool late); /* late: not before somebody waits for it */
  void follow(Stream *other, uint64_t count);
  void finish(uint64_t count); /* so many of what was sent */
  void finish();
  bool idle() const; /* nothing but waits is to be done */
  void host_waited()
  {
    awaited = sent;
  }
  bool overlaps() const; /* something sent now may run beside kernels of another stream */
  uint64_t sent = 0;
  Graph *capture = nullptr;

private:
  struct Item {
    Work work;     /* NULL: a wait … */
    Stream *other; /* … for so many of this one's */
    uint64_t count;
  };
  std::deque<Item> items; /* not done yet */
  uint64_t done = 0;
  uint64_t computed = 0; /* items up to the last one that is neither pinned copy nor wait */
  uint64_t awaited = 0;  /* items that the host has waited for */
  std::map<const Stream *, uint64_t> followed; /* items of others that this one waits for */
};

struct Event {
  Stream *stream;
  uint64_t count; /* how many were sent when it was recorded */
};

/* Ends the process when these bytes are not all pinned. */
void require_pinned(const void *host, size_t bytes);
/* Ends the process when the kernel may not have so much shared memory. */
void require_shared(const void *kernel, size_t bytes);

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
  cudaErrorNotReady
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
enum { cudaStreamNonBlocking, cudaEventDisableTiming };
struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
};
struct cudaPointerAttributes {
  cudaMemoryType type;
};

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char *cudaGetErrorString(cudaError_t code);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceReset();
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetName(const char **name, const void *kernel);

cudaError_t cudaMalloc(void **buffer, size_t bytes);
cudaError_t cudaFree(void *buffer);
cudaError_t cudaMallocHost(void **buffer, size_t bytes);
cudaError_t cudaFreeHost(void *buffer);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *buffer, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream); /* all work has ended when it is asked */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

#endif
