/* Memory, copies and recordings of the emulated device: what memory.cu and streams.cu are for the
 * real one. */
#include <new>

#include "kernels/cuda/cuda_ops.cuh"

struct plm_recording {
  plm::emulation::Recording works;
};

namespace
{

plm_status allocate(struct plm_ops *ops, size_t bytes, void **buffer, struct plm_error *error)
{
  plm_cuda_forbids(plm_cuda_of(ops), "an allocation");
  *buffer = plm::emulation::device_allocate(bytes);
  return *buffer != nullptr ? PLM_OK : plm_cuda_no_memory(error, bytes, "no memory");
}

/* Waits, as cudaFree does. */
void release(struct plm_ops *ops, void *buffer)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a release");
  if (cuda->stream != nullptr) {
    cuda->stream->finish_computation();
    cuda->stream->finish_copies();
  }
  plm::emulation::device_release(buffer);
}

void upload(struct plm_ops *ops, void *device, const void *host, size_t bytes)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "an upload");
  const char *from = static_cast<const char *>(host);
  const std::vector<char> staged(from, from + bytes);
  plm_enqueue(cuda->stream, [=] {
    const plm::emulation::Reach reach;
    memcpy(device, staged.data(), bytes);
  });
}

void download(struct plm_ops *ops, void *host, const void *device, size_t bytes)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a download");
  cuda->stream->finish_computation();
  const plm::emulation::Reach reach;
  memcpy(host, device, bytes);
}

void zero(struct plm_ops *ops, void *buffer, size_t bytes)
{
  plm_enqueue(plm_cuda_of(ops)->stream, [=] {
    const plm::emulation::Reach reach;
    memset(buffer, 0, bytes);
  });
}

void copy(struct plm_ops *ops, void *to, const void *from, size_t bytes)
{
  plm_enqueue(plm_cuda_of(ops)->stream, [=] {
    const plm::emulation::Reach reach;
    memcpy(to, from, bytes);
  });
}

plm_status synchronize(struct plm_ops *ops, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a synchronize");
  cuda->stream->finish_computation();
  if (cuda->error.status != PLM_OK && error != nullptr) *error = cuda->error;
  return cuda->error.status;
}

void memory_size(struct plm_ops *, uint64_t *free_bytes, uint64_t *total_bytes)
{
  plm::emulation::device_size(free_bytes, total_bytes);
}

/* ---- copies beside the computation ---- */

plm_status allocate_host(struct plm_ops *ops, size_t bytes, void **buffer, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "an allocation of the host's memory");
  *buffer = cuda->stream->allocate_host(bytes);
  if (*buffer != nullptr) return PLM_OK;
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for a buffer of %zu bytes", bytes);
}

void release_host(struct plm_ops *ops, void *buffer)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a release of the host's memory");
  cuda->stream->release_host(buffer);
}

void upload_beside(struct plm_ops *ops, void *device, const void *host, size_t bytes)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a copy beside the computation");
  cuda->stream->copy_beside(device, host, bytes, false);
}

void download_beside(struct plm_ops *ops, void *host, const void *device, size_t bytes)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a copy beside the computation");
  cuda->stream->copy_beside(host, device, bytes, true);
}

void compute_follows(struct plm_ops *ops)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a wait");
  cuda->stream->compute_follows();
}

void copies_follow(struct plm_ops *ops)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a wait");
  cuda->stream->copies_follow();
}

plm_status wait_copies(struct plm_ops *ops, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a wait for copies");
  cuda->stream->finish_copies();
  if (cuda->error.status != PLM_OK && error != nullptr) *error = cuda->error;
  return cuda->error.status;
}

/* ---- recordings ---- */

plm_status record_begin(struct plm_ops *ops, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a second recording");
  if (cuda->error.status != PLM_OK) {
    if (error != nullptr) *error = cuda->error;
    return cuda->error.status;
  }
  cuda->open = new (std::nothrow) struct plm_recording;
  if (cuda->open == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  cuda->stream->record_into(&cuda->open->works);
  cuda->recording = true;
  return PLM_OK;
}

plm_status record_end(struct plm_ops *ops, struct plm_recording **recording,
                      struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  PLM_ASSERT(cuda->recording);
  cuda->stream->record_into(nullptr);
  cuda->recording = false;
  *recording = cuda->open;
  cuda->open = nullptr;
  if (cuda->error.status == PLM_OK) return PLM_OK;
  delete *recording;
  *recording = nullptr;
  if (error != nullptr) *error = cuda->error;
  return cuda->error.status;
}

void replay(struct plm_ops *ops, struct plm_recording *recording)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_cuda_forbids(cuda, "a replay");
  for (const plm::emulation::Work &work : recording->works) cuda->stream->compute(work);
}

void release_recording(struct plm_ops *ops, struct plm_recording *recording)
{
  plm_cuda_forbids(plm_cuda_of(ops), "a release of a recording");
  delete recording;
}

} // namespace

bool plm_cuda_forbids(struct plm_cuda *cuda, const char *what)
{
  if (cuda->recording) plm::emulation::stop("%s while operators are recorded", what);
  return false;
}

plm_status plm_cuda_streams_open(struct plm_cuda *cuda, struct plm_error *error)
{
  cuda->stream = new (std::nothrow) plm::emulation::Queues;
  return cuda->stream != nullptr ? PLM_OK : plm_error_set(error, PLM_NO_MEMORY, "out of memory");
}

void plm_cuda_streams_close(struct plm_cuda *cuda)
{
  delete cuda->stream;
}

void plm_cuda_memory_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->allocate = allocate;
  ops->release = release;
  ops->upload = upload;
  ops->download = download;
  ops->zero = zero;
  ops->copy = copy;
  ops->synchronize = synchronize;
  ops->memory_size = memory_size;
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
