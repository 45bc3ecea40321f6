/* The emulated device's memory: one reserved range, closed to the host but while a kernel, a copy
 * or a product runs. Buffers lie one behind the other and never come again: tests are short. */
#include <sys/mman.h>

#include "kernels/cuda/emulation/emulation.h"

namespace plm::emulation
{

#if defined(__SANITIZE_ADDRESS__)

enum { ALIGNMENT = 256 };
constexpr size_t RESERVED = (size_t)64 << 30;

void *device_allocate(size_t bytes)
{
  void *buffer;
  if (posix_memalign(&buffer, ALIGNMENT, bytes > 0 ? bytes : 1) != 0) return nullptr;
  memset(buffer, 0xff, bytes);
  return buffer;
}

void device_release(void *buffer)
{
  free(buffer);
}

void device_size(uint64_t *free_bytes, uint64_t *total_bytes)
{
  *free_bytes = *total_bytes = RESERVED;
}

Reach::Reach()
{
}

Reach::~Reach()
{
}

#else

namespace
{

constexpr size_t RESERVED = (size_t)64 << 30, PAGE = 4096;
char *range;
size_t used;
int reaching; /* Reaches may be nested: a product inside a call */
int buffers;

void protect(int protection)
{
  if (used > 0 && mprotect(range, used, protection) != 0) stop("mprotect");
}

} // namespace

void *device_allocate(size_t bytes)
{
  if (range == nullptr) {
    range = (char *)mmap(nullptr, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1, 0);
    if (range == MAP_FAILED) stop("no address space for the device's memory");
  }
  const size_t rounded = (bytes + 2 * PAGE - 1) / PAGE * PAGE; /* and a hole behind it */
  if (used + rounded > RESERVED) return nullptr;
  char *buffer = range + used;
  used += rounded;
  buffers++;
  const Reach reach;
  memset(buffer, 0xff, bytes);
  return buffer;
}

void device_release(void *buffer)
{
  if (buffer == nullptr || --buffers > 0) return;
  madvise(range, used, MADV_DONTNEED); /* the last one: the range begins anew */
  used = 0;
}

void device_size(uint64_t *free_bytes, uint64_t *total_bytes)
{
  *free_bytes = RESERVED - used;
  *total_bytes = RESERVED;
}

Reach::Reach()
{
  if (reaching++ == 0) protect(PROT_READ | PROT_WRITE);
}

Reach::~Reach()
{
  if (--reaching == 0) protect(PROT_NONE);
}

#endif

} // namespace plm::emulation
