/* See checked_memory.h. It is linked into the test programs themselves, so that the linker takes
 * these functions and not those of the C library. */
#include "tests/support/harness/checked_memory.h"

#include <stdatomic.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(PLM_SANITIZED)
uint64_t checked_memory_taken(void)
{
  return 0;
}

long checked_memory_left(void)
{
  return 0;
}

long checked_memory_origins(uint64_t since, void **callers, size_t *sizes, long most)
{
  (void)since, (void)callers, (void)sizes, (void)most;
  return 0;
}

void checked_memory_keep(void *block)
{
  (void)block;
}

void checked_memory_fail(long at)
{
  (void)at;
}

void checked_memory_fail_here(long at)
{
  (void)at;
}

long checked_memory_calls(void)
{
  return 0;
}

long checked_memory_pause(void)
{
  return -1;
}

void checked_memory_resume(long at)
{
  (void)at;
}
#else
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);
extern char __executable_start, etext; /* of the linker */

/* The last bytes of each block that these functions gave out. Before them are bytes GUARD, at least
 * GUARD_BYTES of them, behind those that the caller asked for. A block without the mark comes from
 * elsewhere. */
struct tail {
  struct tail *previous, *next; /* only blocks of the program are in the list */
  void *caller;
  uint64_t number; /* 0: a library's */
  uint64_t mark;   /* MARK and the size */
};
enum { GUARD = 0xA5, GUARD_BYTES = 16, BEHIND = GUARD_BYTES + sizeof(struct tail) };
static const uint64_t MARK = UINT64_C(0x5A17) << 48;

static struct tail first = {.previous = &first, .next = &first};
static uint64_t taken;
static long left;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static atomic_long calls, fail_at = -1;

/* ---- the list of blocks ---------------------------------------------------------------------- */

static void lock(void)
{
  while (atomic_flag_test_and_set(&busy)) sched_yield();
}

static void unlock(void)
{
  atomic_flag_clear(&busy);
}

/* The code of the project's shared libraries. */
enum { MOST_LIBRARIES = 8 };
static struct {
  uintptr_t begin, end;
} libraries[MOST_LIBRARIES];
static int library_count;

static int note_library(struct dl_phdr_info *info, size_t size, void *context)
{
  (void)size, (void)context;
  if (strstr(info->dlpi_name, "libplm_") == NULL) return 0;
  for (int i = 0; i < info->dlpi_phnum && library_count < MOST_LIBRARIES; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
    libraries[library_count].begin = info->dlpi_addr + segment->p_vaddr;
    libraries[library_count].end = libraries[library_count].begin + segment->p_memsz;
    library_count++;
  }
  return 0;
}

__attribute__((constructor)) static void prepare(void)
{
  pthread_atfork(lock, unlock, unlock);
  dl_iterate_phdr(note_library, NULL);
}

static bool is_of_program(const void *caller)
{
  return (const char *)caller >= &__executable_start && (const char *)caller < &etext;
}

static bool is_ours(const void *caller)
{
  if (is_of_program(caller)) return true;
  for (int i = 0; i < library_count; i++)
    if ((uintptr_t)caller >= libraries[i].begin && (uintptr_t)caller < libraries[i].end)
      return true;
  return false;
}

static struct tail *tail_of(void *block)
{
  return (struct tail *)((char *)block + malloc_usable_size(block) - sizeof(struct tail));
}

static void *give(void *block, size_t size, void *caller)
{
  if (block == NULL) return NULL;
  struct tail *tail = tail_of(block);
  memset((char *)block + size, GUARD, (size_t)((char *)tail - (char *)block) - size);
  *tail = (struct tail){.caller = caller, .mark = MARK | size};
  if (!is_ours(caller)) return block;
  lock();
  tail->number = ++taken;
  left++;
  tail->previous = first.previous;
  tail->next = &first;
  first.previous->next = tail;
  first.previous = tail;
  unlock();
  return block;
}

static void forget(struct tail *tail)
{
  if (tail->number == 0) return;
  lock();
  tail->previous->next = tail->next;
  tail->next->previous = tail->previous;
  left--;
  unlock();
  tail->number = 0;
}

/* Checks a block that is released or moved, and forgets it. */
static void check_released(void *block)
{
  if (block == NULL || malloc_usable_size(block) < BEHIND) return;
  struct tail *tail = tail_of(block);
  const unsigned char *bytes = block;
  if (tail->mark >> 48 != MARK >> 48) return;
  const size_t size = (size_t)(tail->mark ^ MARK), end = (size_t)((char *)tail - (char *)block);
  PLM_ASSERT(size < end);
  for (size_t i = size; i < end; i++) {
    if (bytes[i] == GUARD) continue;
    fprintf(stderr, "FAILED: byte %zu of a block of %zu bytes was written\n", i, size);
    abort();
  }
  tail->mark = 0;
  forget(tail);
}

void checked_memory_keep(void *block)
{
  forget(tail_of(block));
}

uint64_t checked_memory_taken(void)
{
  lock();
  const uint64_t count = taken;
  unlock();
  return count;
}

long checked_memory_left(void)
{
  lock();
  const long count = left;
  unlock();
  return count;
}

long checked_memory_origins(uint64_t since, void **callers, size_t *sizes, long most)
{
  long count = 0;
  lock();
  for (const struct tail *t = first.next; t != &first; t = t->next) {
    if (t->number < since) continue;
    if (count < most) {
      callers[count] = t->caller;
      sizes[count] = (size_t)(t->mark ^ MARK);
    }
    count++;
  }
  unlock();
  return count;
}

/* ---- calls that fail ------------------------------------------------------------------------- */

static atomic_bool only_here;
static _Thread_local bool is_here;

static bool fails(const void *caller)
{
  if (!is_of_program(caller) || fail_at < 0 || (only_here && !is_here)) return false;
  if (calls++ != fail_at) return false;
  errno = ENOMEM;
  return true;
}

void checked_memory_fail(long at)
{
  only_here = false;
  calls = 0;
  fail_at = at;
}

void checked_memory_fail_here(long at)
{
  checked_memory_fail(-1);
  only_here = is_here = true;
  fail_at = at;
}

long checked_memory_calls(void)
{
  return calls;
}

long checked_memory_pause(void)
{
  return atomic_exchange(&fail_at, -1);
}

void checked_memory_resume(long at)
{
  fail_at = at;
}

/* ---- the functions that replace those of the C library ----------------------------------------
 */

#define CALLER __builtin_return_address(0)

void *malloc(size_t size)
{
  if (fails(CALLER)) return NULL;
  return give(__libc_malloc(size + BEHIND), size, CALLER);
}

static void *allocate_zeroed(size_t count, size_t size, void *caller)
{
  size_t bytes;
  if (fails(caller) || __builtin_mul_overflow(count, size, &bytes)) return NULL;
  return give(__libc_calloc(1, bytes + BEHIND), bytes, caller);
}

void *calloc(size_t count, size_t size)
{
  return allocate_zeroed(count, size, CALLER);
}

void *realloc(void *old, size_t size)
{
  if (fails(CALLER)) return NULL;
  check_released(old);
  return give(__libc_realloc(old, size + BEHIND), size, CALLER);
}

void *aligned_alloc(size_t alignment, size_t size)
{
  if (fails(CALLER)) return NULL;
  return give(__libc_memalign(alignment, size + BEHIND), size, CALLER);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
  if (fails(CALLER)) return ENOMEM;
  *block = give(__libc_memalign(alignment, size + BEHIND), size, CALLER);
  return *block == NULL ? ENOMEM : 0;
}

void free(void *block)
{
  check_released(block);
  __libc_free(block);
}

static char *copy_text(const char *text, size_t most, void *caller)
{
  const size_t size = strnlen(text, most);
  char *copy = allocate_zeroed(size + 1, 1, caller);
  if (copy != NULL) memcpy(copy, text, size);
  return copy;
}

char *strndup(const char *text, size_t most)
{
  return copy_text(text, most, CALLER);
}

char *strdup(const char *text)
{
  return copy_text(text, SIZE_MAX / 2, CALLER);
}
#endif
