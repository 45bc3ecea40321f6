/* See checked_memory.h. It is linked into the test programs themselves, so that the linker takes
 * these functions and not those of the C library. */
#include "tests/support/harness/checked_memory.h"

#if CHECKED_MEMORY
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/support/harness/guarded_blocks.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);
extern char __executable_start, etext; /* of the linker */

/* Of each block that these functions gave out. Those of the C library end with it; before it are
 * bytes GUARD, at least GUARD_BYTES of them, behind those that the caller asked for. A block
 * without the mark comes from elsewhere. */
struct tail {
  struct tail *previous, *next; /* only blocks of the program are in the list */
  void *caller;
  uint64_t number; /* 0: a library's */
  uint64_t mark;   /* MARK and the size */
};
enum { GUARD = 0xA5, GUARD_BYTES = 16, BEHIND = GUARD_BYTES + sizeof(struct tail) };
/* What is in memory that was not yet written, or is released: as a number of 32 bits -6,328.7 or
 * -976,894,523. So many bytes of a block are filled. */
enum { UNSET = 0xC5, MOST_UNSET = 4096, MOST_UNSET_GUARDED = 1 << 20 };
static const uint64_t MARK = UINT64_C(0x5A17) << 48;

static struct tail first = {.previous = &first, .next = &first};
static uint64_t taken;
static long left;
static atomic_flag busy = ATOMIC_FLAG_INIT;

/* The blocks that end at a closed page (guarded_blocks.h), by their slot. */
static struct guarded {
  struct tail tail;
  char *block, *behind; /* behind it, or behind the bytes GUARD that align it, is the closed page */
  atomic_bool live;
} guarded[GUARDED_SLOTS];

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
  guarded_reserve();
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
  const int slot = guarded_slot_of(block);
  if (slot >= 0) return &guarded[slot].tail;
  return (struct tail *)((char *)block + malloc_usable_size(block) - sizeof(struct tail));
}

static void remember(struct tail *tail)
{
  lock();
  tail->number = ++taken;
  left++;
  tail->previous = first.previous;
  tail->next = &first;
  first.previous->next = tail;
  first.previous = tail;
  unlock();
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

static size_t smaller(size_t a, size_t b)
{
  return a < b ? a : b;
}

static void check_guard(const char *block, size_t size, const char *from, const char *to)
{
  for (const char *at = from; at < to; at++) {
    if ((unsigned char)*at == GUARD) continue;
    fprintf(stderr, "FAILED: byte %td of a block of %zu bytes was written\n", at - block, size);
    abort();
  }
}

/* ---- blocks of the C library ----------------------------------------------------------------- */

/* from: what is before it has been written. */
static void *give(void *block, size_t from, size_t size, void *caller)
{
  if (block == NULL) return NULL;
  struct tail *tail = tail_of(block);
  memset((char *)block + size, GUARD, (size_t)((char *)tail - (char *)block) - size);
  *tail = (struct tail){.caller = caller, .mark = MARK | size};
  if (!is_ours(caller)) return block;
  if (from < size) memset((char *)block + from, UNSET, smaller(size - from, MOST_UNSET));
  remember(tail);
  return block;
}

/* The size of a block, or -1 if it comes from elsewhere. */
static ssize_t size_of(void *block)
{
  if (malloc_usable_size(block) < BEHIND) return -1;
  const uint64_t mark = tail_of(block)->mark;
  return mark >> 48 == MARK >> 48 ? (ssize_t)(mark ^ MARK) : -1;
}

/* Checks a block that is released or moved, and forgets it. */
static void check_released(void *block)
{
  if (block == NULL || size_of(block) < 0) return;
  struct tail *tail = tail_of(block);
  const size_t size = (size_t)size_of(block);
  PLM_ASSERT((char *)block + size < (char *)tail);
  check_guard(block, size, (char *)block + size, (char *)tail);
  tail->mark = 0;
  forget(tail);
}

/* ---- blocks that end at a closed page -------------------------------------------------------- */

/* Of the blocks that a place of the program takes during a test, the first ones are guarded, then
 * some, and then few: opening and closing a page takes 5 us. Places share a count if their hash is
 * the same. */
enum { OFTEN = 64, SOMETIMES = 8192, COUNTS = 4096 };
static uint32_t counts[COUNTS];
static bool unguarded;

static bool is_chosen(const void *caller)
{
  const uint32_t count = counts[((uintptr_t)caller * UINT64_C(0x9E3779B97F4A7C15)) >> 52]++;
  const uint32_t each = count < OFTEN ? 1 : count < SOMETIMES ? 64 : 4096;
  return !unguarded && count % each == 0;
}

void checked_memory_begin_test(void)
{
  lock();
  memset(counts, 0, sizeof counts);
  unguarded = false;
  unlock();
}

void checked_memory_guard(bool on)
{
  lock();
  unguarded = !on;
  unlock();
}

/* The bytes before a block, in its first page, that are GUARD. */
static char *begin_of_guard(const struct guarded *g)
{
  const size_t before = (uintptr_t)g->block % GUARDED_PAGE;
  return g->block == g->behind ? g->block : g->block - smaller(before, GUARD_BYTES);
}

/* alignment: 0 is that of any object of this size (checked_memory.h). Returns NULL if the block is
 * not chosen, or if there is no room. */
static void *take_guarded(size_t size, size_t alignment, bool zeroed, void *caller)
{
  if (alignment == 0) alignment = size % 16 == 0 ? 16 : size & -size;
  if (alignment > GUARDED_PAGE || size > SIZE_MAX / 2 || !is_ours(caller)) return NULL;
  const size_t bytes = (size + alignment - 1) / alignment * alignment;
  bool fresh;
  lock();
  const int slot = is_chosen(caller) ? guarded_take(bytes, &fresh) : -1;
  unlock();
  if (slot < 0) return NULL;
  struct guarded *g = &guarded[slot];
  g->behind = guarded_open(slot, bytes);
  if (g->behind == NULL) {
    lock();
    guarded_give_back(slot);
    unlock();
    return NULL;
  }
  g->block = g->behind - bytes;
  char *const before = begin_of_guard(g);
  memset(before, GUARD, (size_t)(g->block - before));
  memset(g->block + size, GUARD, bytes - size);
  if (!zeroed)
    memset(g->block, UNSET, smaller(size, MOST_UNSET_GUARDED));
  else if (!fresh)
    memset(g->block, 0, size);
  g->tail = (struct tail){.caller = caller, .mark = MARK | size};
  g->live = true;
  remember(&g->tail);
  return g->block;
}

static void release_guarded(int slot, void *block)
{
  struct guarded *g = &guarded[slot];
  const size_t size = (size_t)(g->tail.mark ^ MARK);
  if (block != g->block || !atomic_exchange(&g->live, false)) {
    fprintf(stderr, "FAILED: byte %td of a block of %zu bytes is released%s\n",
            (char *)block - g->block, size, block == g->block ? " again" : "");
    abort();
  }
  check_guard(g->block, size, begin_of_guard(g), g->block);
  check_guard(g->block, size, g->block + size, g->behind);
  forget(&g->tail);
  guarded_close(slot, (size_t)(g->behind - g->block));
  lock();
  guarded_give_back(slot);
  unlock();
}

/* The block of the slot. Before the one of the next slot may lie nothing but the closed page of
 * this one: then the closer one of both. */
static const struct guarded *closest(int slot, const char *address)
{
  const struct guarded *g = &guarded[slot], *next = g + 1;
  if (slot + 1 == GUARDED_SLOTS || !next->live) return g;
  return g->block == NULL || address - g->behind > next->block - address ? next : g;
}

bool checked_memory_find(const void *address, struct checked_memory_place *place)
{
  const int slot = guarded_slot_of(address);
  const struct guarded *g = slot < 0 ? NULL : closest(slot, address);
  if (g == NULL || g->block == NULL) return false;
  *place = (struct checked_memory_place){.byte = (const char *)address - g->block,
                                         .size = (size_t)(g->tail.mark ^ MARK),
                                         .released = !g->live,
                                         .caller = g->tail.caller};
  return true;
}

/* ---- what tests ask -------------------------------------------------------------------------- */

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

/* Whether a block of this size and what is behind it is impossible. */
static bool is_too_much(size_t size)
{
  if (size <= SIZE_MAX - BEHIND) return false;
  errno = ENOMEM;
  return true;
}

/* alignment: 0 is any */
static void *take(size_t size, size_t alignment, bool zeroed, void *caller)
{
  if (is_too_much(size)) return NULL;
  void *block = take_guarded(size, alignment, zeroed, caller);
  if (block != NULL) return block;
  if (zeroed) return give(__libc_calloc(1, size + BEHIND), size, size, caller);
  return give(alignment == 0 ? __libc_malloc(size + BEHIND)
                             : __libc_memalign(alignment, size + BEHIND),
              0, size, caller);
}

static void release(void *block)
{
  const int slot = guarded_slot_of(block);
  if (slot >= 0) {
    release_guarded(slot, block);
    return;
  }
  if (block != NULL && size_of(block) > 0 && tail_of(block)->number != 0)
    memset(block, UNSET, smaller((size_t)size_of(block), MOST_UNSET));
  check_released(block);
  __libc_free(block);
}

void *malloc(size_t size)
{
  return fails(CALLER) ? NULL : take(size, 0, false, CALLER);
}

static void *take_zeroed(size_t count, size_t size, void *caller)
{
  size_t bytes;
  if (fails(caller)) return NULL;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
  return take(bytes, 0, true, caller);
}

void *calloc(size_t count, size_t size)
{
  return take_zeroed(count, size, CALLER);
}

static void *move(void *old, size_t old_size, void *block, size_t size)
{
  if (block == NULL) return NULL;
  memcpy(block, old, smaller(old_size, size));
  release(old);
  return block;
}

/* A block that is guarded, or will be, is moved. */
void *realloc(void *old, size_t size)
{
  if (fails(CALLER)) return NULL;
  if (old == NULL || is_too_much(size)) return take(size, 0, false, CALLER);
  const int slot = guarded_slot_of(old);
  if (slot >= 0)
    return move(old, (size_t)(guarded[slot].tail.mark ^ MARK), take(size, 0, false, CALLER), size);
  const ssize_t known = size_of(old);
  const size_t old_size = known < 0 ? malloc_usable_size(old) : (size_t)known;
  void *block = take_guarded(size, 0, false, CALLER);
  if (block != NULL) return move(old, old_size, block, size);
  check_released(old);
  block = __libc_realloc(old, size + BEHIND);
  if (block == NULL && known >= 0) (void)give(old, old_size, old_size, CALLER); /* it stays */
  return give(block, smaller(old_size, size), size, CALLER);
}

void *aligned_alloc(size_t alignment, size_t size)
{
  return fails(CALLER) ? NULL : take(size, alignment, false, CALLER);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
  if (fails(CALLER)) return ENOMEM;
  *block = take(size, alignment, false, CALLER);
  return *block == NULL ? ENOMEM : 0;
}

void free(void *block)
{
  const int before = errno;
  release(block);
  errno = before;
}

static char *copy_text(const char *text, size_t most, void *caller)
{
  const size_t size = strnlen(text, most);
  char *copy = take_zeroed(size + 1, 1, caller);
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
