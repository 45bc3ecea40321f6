/* The emulated device's memory: one reserved range that is open to the host only while a kernel, a
 * copy or a product runs. It is closed by a protection key if the processor has them, which needs
 * no system call and applies to the running thread only; otherwise by mprotect. Buffers follow each
 * other, and their addresses are not reused while any buffer exists. After each buffer there are
 * one to two pages with a pattern of signalling NaN; a release checks that nobody has written
 * there. */
#include <sys/mman.h>

#include <map>

#include "tests/emulation/emulation.h"

namespace plm::emulation
{

#if defined(__SANITIZE_ADDRESS__)

enum { ALIGNMENT = 256 };
constexpr size_t RESERVED = (size_t)64 << 30;

void *device_allocate(size_t bytes)
{
  void *buffer;
  if (bytes > RESERVED) return nullptr; /* ASan would end the process */
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

void device_forget()
{
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

constexpr size_t RESERVED = (size_t)64 << 30, PAGE = 4096, HUGE_PAGE = (size_t)2 << 20;
constexpr size_t KEPT = 8 * HUGE_PAGE; /* that the process keeps when no buffer is left */
char *range;
size_t used;
struct Buffer {
  size_t bytes;
  void *handle; /* allocated by malloc, so that a test finds the buffer if it is not released */
};
std::map<const char *, Buffer> buffers;
int key = -1;              /* of the range; -1 if there is none */
thread_local int reaching; /* Reaches that exist; they may be nested */

size_t whole_pages(size_t bytes)
{
  return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void set_open(bool open)
{
#ifdef PKEY_DISABLE_ACCESS
  if (key >= 0) {
    pkey_set(key, open ? 0 : PKEY_DISABLE_ACCESS);
    return;
  }
#endif
  if (used > 0 &&
      mprotect(range, whole_pages(used), open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    stop("mprotect");
}

void reserve()
{
  range = (char *)mmap(nullptr, RESERVED + HUGE_PAGE, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) stop("no address space for the device's memory");
  range += HUGE_PAGE - (uintptr_t)range % HUGE_PAGE;
#ifdef PKEY_DISABLE_ACCESS
  key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  if (key >= 0 && pkey_mprotect(range, RESERVED, PROT_READ | PROT_WRITE, key) != 0) {
    pkey_free(key); /* a system that counts reserved memory as used */
    key = -1;
  }
#endif
  /* mprotect changes each page, so it is much faster if there are few */
  if (key < 0) (void)madvise(range, RESERVED, MADV_HUGEPAGE);
}

char behind(size_t i)
{
  return (char)(i % 2 != 0 ? 0xff : 0xa5);
}

/* Begins again at the range's begin. Its pages go back to the system, except the first ones, which
 * most tests use again at once; and none in part, since that would split it. */
void use_again()
{
  const size_t end = whole_pages(used);
  if (end > KEPT) madvise(range + KEPT, end - KEPT, MADV_DONTNEED);
  used = 0;
}

/* The room of a buffer with the pattern after it. */
size_t room_for(size_t bytes)
{
  return (bytes + 2 * PAGE - 1) / PAGE * PAGE;
}

} // namespace

void *device_allocate(size_t bytes)
{
  if (range == nullptr) reserve();
  if (room_for(bytes) > RESERVED - used) return nullptr;
  char *buffer = range + used;
  used += room_for(bytes);
  buffers[buffer] = {bytes, malloc(1)};
  const Reach reach;
  memset(buffer, 0xff, bytes);
  for (size_t i = bytes; i < room_for(bytes); i++) buffer[i] = behind(i);
  return buffer;
}

void device_release(void *released)
{
  const auto found = buffers.find((const char *)released);
  if (released == nullptr) return;
  if (found == buffers.end()) stop("a release of an address that is not a buffer");
  {
    const Reach reach;
    const char *buffer = found->first;
    const size_t bytes = found->second.bytes;
    for (size_t i = bytes; i < room_for(bytes); i++)
      if (buffer[i] != behind(i))
        stop("a write %zu bytes beyond the end of a buffer of %zu bytes", i - bytes, bytes);
  }
  free(found->second.handle);
  buffers.erase(found);
  if (buffers.empty()) use_again();
}

void device_size(uint64_t *free_bytes, uint64_t *total_bytes)
{
  *free_bytes = RESERVED - used;
  *total_bytes = RESERVED;
}

void device_forget()
{
  for (const auto &each : buffers) free(each.second.handle);
  buffers.clear();
  use_again();
}

Reach::Reach()
{
  if (reaching++ == 0) set_open(true);
}

Reach::~Reach()
{
  if (--reaching == 0) set_open(false);
}

#endif

} // namespace plm::emulation
