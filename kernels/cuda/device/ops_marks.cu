/* Marks: events that note when the device has come to a point of a stream, for profiles. */
#include "kernels/cuda/device/cuda_ops.cuh"

#include <cmath>
#include <cstdlib>

namespace
{

plm_status reserve_marks(struct plm_ops *ops, uint32_t count, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (count <= cuda->mark_count) return PLM_OK;
  PLM_TRY(plm_cuda_permits(cuda, "making marks", error));
  cudaEvent_t *marks =
      static_cast<cudaEvent_t *>(realloc(cuda->marks, count * sizeof *cuda->marks));
  if (marks == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "no memory for %u marks", count);
  cuda->marks = marks;
  while (cuda->mark_count < count) {
    const cudaError_t code = cudaEventCreate(&marks[cuda->mark_count]);
    if (code != cudaSuccess) {
      cudaGetLastError();
      return plm_error_set(error, PLM_FAILURE, "device %d: %u marks could not be made: %s",
                           cuda->device, count, cudaGetErrorString(code));
    }
    cuda->mark_count++;
  }
  return PLM_OK;
}

void mark(struct plm_ops *ops, uint32_t number, bool beside)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  PLM_ASSERT(number < cuda->mark_count);
  if (plm_cuda_forbids(cuda, "a mark")) return;
  plm_cuda_remember(
      cuda, cudaEventRecord(cuda->marks[number], beside ? cuda->copies : cuda->stream), "a mark");
}

double between_marks(struct plm_ops *ops, uint32_t from, uint32_t to)
{
  const struct plm_cuda *cuda = plm_cuda_of(ops);
  float ms = 0;
  PLM_ASSERT(from < cuda->mark_count && to < cuda->mark_count);
  if (cudaEventElapsedTime(&ms, cuda->marks[from], cuda->marks[to]) != cudaSuccess) {
    cudaGetLastError();
    return NAN;
  }
  return 1e6 * static_cast<double>(ms);
}

} // namespace

void plm_cuda_marks_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->reserve_marks = reserve_marks;
  ops->mark = mark;
  ops->between_marks = between_marks;
}

void plm_cuda_marks_close(struct plm_cuda *cuda)
{
  for (uint32_t i = 0; i < cuda->mark_count; i++) cudaEventDestroy(cuda->marks[i]);
  free(cuda->marks);
}
