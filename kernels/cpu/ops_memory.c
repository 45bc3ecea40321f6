/* Memory of the CPU backend. Device memory is host memory, so copies beside the computation are
 * done at once and nothing has to wait for them. There are no recordings, because calling the
 * operators of a step costs almost nothing here. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/process/memory.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/row_product.h"

enum { HUGE_PAGE = 2 << 20, LINE = 64 };

static plm_status ops_memory_allocate(struct plm_ops *ops, size_t bytes, void **buffer,
                                      struct plm_error *error)
{
  (void)ops;
  const size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : LINE;
  const size_t rounded = (bytes + alignment) / alignment * alignment;
  *buffer = aligned_alloc(alignment, rounded);
  if (*buffer == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for a buffer of %zu bytes", bytes);
  if (bytes >= HUGE_PAGE) madvise(*buffer, rounded, MADV_HUGEPAGE); /* advice, which may fail */
  return PLM_OK;
}

static void ops_memory_release(struct plm_ops *ops, void *buffer)
{
  (void)ops;
  free(buffer);
}

static void ops_memory_upload(struct plm_ops *ops, void *device, const void *host, size_t bytes)
{
  (void)ops;
  memcpy(device, host, bytes);
}

static void download(struct plm_ops *ops, void *host, const void *device, size_t bytes)
{
  (void)ops;
  memcpy(host, device, bytes);
}

enum { MEMORY_TILE = 1 << 20 };

struct memory_job {
  char *to;
  const char *from; /* NULL means zeros */
  size_t bytes;
};

static void memory_tile(void *context, int64_t tile, uint32_t thread)
{
  (void)thread;
  const struct memory_job *job = context;
  const size_t begin = (size_t)tile * MEMORY_TILE;
  const size_t size = job->bytes - begin < MEMORY_TILE ? job->bytes - begin : MEMORY_TILE;
  if (job->from == NULL)
    memset(job->to + begin, 0, size);
  else
    memcpy(job->to + begin, job->from + begin, size);
}

static void zero(struct plm_ops *ops, void *buffer, size_t bytes)
{
  struct memory_job job = {buffer, NULL, bytes};
  plm_pool_tiles(plm_cpu_of(ops)->pool, (int64_t)((bytes + MEMORY_TILE - 1) / MEMORY_TILE),
                 memory_tile, &job);
}

static void ops_memory_copy(struct plm_ops *ops, void *to, const void *from, size_t bytes)
{
  struct memory_job job = {to, from, bytes};
  plm_pool_tiles(plm_cpu_of(ops)->pool, (int64_t)((bytes + MEMORY_TILE - 1) / MEMORY_TILE),
                 memory_tile, &job);
}

static plm_status synchronize(struct plm_ops *ops, struct plm_error *error)
{
  const struct plm_cpu *cpu = plm_cpu_of(ops);
  if (cpu->error.status != PLM_OK) {
    if (error != NULL) *error = cpu->error;
    return cpu->error.status;
  }
  plm_status status = plm_attention_error(cpu->attention, error);
  if (status == PLM_OK) status = plm_row_products_error(cpu->row_products, error);
  return status != PLM_OK ? status : plm_products_error(cpu->products, error);
}

static void memory_size(struct plm_ops *ops, uint64_t *free_bytes, uint64_t *total_bytes)
{
  (void)ops;
  plm_memory_size(free_bytes, total_bytes);
}

/* ---- copies beside the computation, which are done at once ---- */
static void nothing(struct plm_ops *ops)
{
  (void)ops;
}

static plm_status wait_copies(struct plm_ops *ops, struct plm_error *error)
{
  (void)ops;
  (void)error;
  return PLM_OK;
}

void plm_cpu_memory_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->allocate = ops_memory_allocate;
  ops->release = ops_memory_release;
  ops->upload = ops_memory_upload;
  ops->download = download;
  ops->zero = zero;
  ops->copy = ops_memory_copy;
  ops->synchronize = synchronize;
  ops->memory_size = memory_size;
  ops->allocate_host = ops_memory_allocate;
  ops->release_host = ops_memory_release;
  ops->upload_beside = ops_memory_upload;
  ops->download_beside = ops_memory_copy; /* by all threads: a training waits for it */
  ops->compute_follows = nothing;
  ops->copies_follow = nothing;
  ops->wait_copies = wait_copies;
}
