/* Copies beside the computation, and recordings. There are two streams, which events order. A
 * recording is a graph that is captured from the computation's stream. */
#include "kernels/cuda/device/cuda_ops.cuh"

#include <cstdlib>

struct plm_recording {
  cudaGraphExec_t graph;
};

namespace
{

plm_status allocate_host(struct plm_ops *ops, size_t bytes, void **buffer, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  *buffer = nullptr;
  PLM_TRY(plm_cuda_permits(cuda, "an allocation of the host's memory", error));
  cudaSetDevice(cuda->device);
  const cudaError_t code = cudaMallocHost(buffer, bytes > 0 ? bytes : 1);
  if (code == cudaSuccess) return PLM_OK;
  cudaGetLastError();
  plm_error_set(error, PLM_NO_MEMORY, "no pinned host memory for a buffer of %zu bytes: %s", bytes,
                cudaGetErrorString(code));
  return plm_error_hint(error, "the host has too little free memory for the buffers of device "
                               "copies; see `free -m` and the container's memory limit");
}

void release_host(struct plm_ops *ops, void *buffer)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (buffer == nullptr || plm_cuda_forbids(cuda, "a release of the host's memory")) return;
  plm_cuda_remember(cuda, cudaFreeHost(buffer), "freeing the host's memory");
}

void copy_beside(struct plm_ops *ops, void *to, const void *from, size_t bytes, bool to_host)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (bytes == 0 || plm_cuda_forbids(cuda, "a copy beside the computation")) return;
  plm_platform_require_pinned(to_host ? to : from, bytes);
  plm_cuda_remember(cuda,
                    cudaMemcpyAsync(to, from, bytes,
                                    to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                                    cuda->copies),
                    to_host ? "a copy from the device" : "a copy to the device");
}

void upload_beside(struct plm_ops *ops, void *device, const void *host, size_t bytes)
{
  copy_beside(ops, device, host, bytes, false);
}

void download_beside(struct plm_ops *ops, void *host, const void *device, size_t bytes)
{
  copy_beside(ops, host, device, bytes, true);
}

/* A wait uses the event's state at the call, so one event serves all waits in a direction. */
void follow(struct plm_cuda *cuda, cudaStream_t stream, cudaStream_t ahead, cudaEvent_t event)
{
  if (plm_cuda_forbids(cuda, "a wait")) return;
  plm_cuda_remember(cuda, cudaEventRecord(event, ahead), "an event");
  plm_cuda_remember(cuda, cudaStreamWaitEvent(stream, event, 0), "an event");
}

void compute_follows(struct plm_ops *ops)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  follow(cuda, cuda->stream, cuda->copies, cuda->copied);
}

void copies_follow(struct plm_ops *ops)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  follow(cuda, cuda->copies, cuda->stream, cuda->computed);
}

plm_status wait_copies(struct plm_ops *ops, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  PLM_TRY(plm_cuda_permits(cuda, "a wait for copies", error));
  plm_cuda_remember(cuda, cudaStreamSynchronize(cuda->copies), "a copy beside the computation");
  if (cuda->error.status != PLM_OK && error != nullptr) *error = cuda->error;
  return cuda->error.status;
}

/* ---- recordings ---- */

/* ThreadLocal: unsafe calls are refused only in this thread; others may allocate meanwhile. */
plm_status record_begin(struct plm_ops *ops, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  PLM_TRY(plm_cuda_permits(cuda, "a second recording", error));
  plm_cuda_remember(cuda, cudaGetLastError(), "a launch");
  if (cuda->error.status != PLM_OK) {
    if (error != nullptr) *error = cuda->error;
    return cuda->error.status;
  }
  const cudaError_t code = cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal);
  cuda->recording = true;
  cuda->recording_error = {};
  plm_cuda_remember(cuda, code, "the beginning of a recording");
  cuda->recording = code == cudaSuccess;
  if (code != cudaSuccess && error != nullptr) *error = cuda->recording_error;
  return cuda->recording_error.status;
}

plm_status record_end(struct plm_ops *ops, struct plm_recording **recording,
                      struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  PLM_ASSERT(cuda->recording);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  *recording = nullptr;
  plm_cuda_remember(cuda, cudaGetLastError(), "a launch");
  plm_cuda_remember(cuda, cudaStreamEndCapture(cuda->stream, &graph), "the end of a recording");
  struct plm_error *first = cuda->error.status != PLM_OK ? &cuda->error : &cuda->recording_error;
  if (first->status == PLM_OK)
    plm_cuda_remember(cuda, cudaGraphInstantiate(&executable, graph, 0), "making a recording");
  cuda->recording = false;
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (first->status != PLM_OK) {
    if (error != nullptr) *error = *first;
    return first->status;
  }
  *recording = static_cast<struct plm_recording *>(calloc(1, sizeof **recording));
  if (*recording == nullptr) {
    cudaGraphExecDestroy(executable);
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  }
  (*recording)->graph = executable;
  return PLM_OK;
}

void replay(struct plm_ops *ops, struct plm_recording *recording)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (plm_cuda_forbids(cuda, "a replay")) return;
  plm_cuda_remember(cuda, cudaGraphLaunch(recording->graph, cuda->stream), "a replay");
}

void release_recording(struct plm_ops *ops, struct plm_recording *recording)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (recording == nullptr || plm_cuda_forbids(cuda, "a release of a recording")) return;
  plm_cuda_remember(cuda, cudaStreamSynchronize(cuda->stream),
                    "a kernel"); /* the recording may be running */
  plm_cuda_remember(cuda, cudaGraphExecDestroy(recording->graph), "freeing a recording");
  free(recording);
}

} // namespace

plm_status plm_cuda_streams_open(struct plm_cuda *cuda, struct plm_error *error)
{
  cudaError_t code = cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking);
  if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&cuda->copies, cudaStreamNonBlocking);
  if (code == cudaSuccess) code = cudaEventCreateWithFlags(&cuda->computed, cudaEventDisableTiming);
  if (code == cudaSuccess) code = cudaEventCreateWithFlags(&cuda->copied, cudaEventDisableTiming);
  if (code == cudaSuccess) return PLM_OK;
  return plm_error_set(error, PLM_FAILURE, "CUDA device %d: no streams: %s", cuda->device,
                       cudaGetErrorString(code));
}

void plm_cuda_streams_close(struct plm_cuda *cuda)
{
  if (cuda->computed != nullptr) cudaEventDestroy(cuda->computed);
  if (cuda->copied != nullptr) cudaEventDestroy(cuda->copied);
  if (cuda->copies != nullptr) cudaStreamDestroy(cuda->copies);
  if (cuda->stream != nullptr) cudaStreamDestroy(cuda->stream);
}

void plm_cuda_streams_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->allocate_host = allocate_host;
  ops->release_host = release_host;
  ops->upload_beside = upload_beside;
  ops->download_beside = download_beside;
  ops->compute_follows = compute_follows;
  ops->copies_follow = copies_follow;
  ops->wait_copies = wait_copies;
  ops->record_begin = record_begin;
  ops->record_end = record_end;
  ops->replay = replay;
  ops->release_recording = release_recording;
}
