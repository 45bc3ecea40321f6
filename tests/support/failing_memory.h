/* Lets allocations of the code under test fail, one after another, and finds what is written behind
 * the end of a block. A test program includes it in its one source. It replaces malloc, calloc,
 * realloc, free, strdup and strndup; those that shared libraries call for themselves never fail. A
 * sanitizer brings its own, so there the test is skipped. */
#ifndef PLM_TESTS_SUPPORT_FAILING_MEMORY_H
#define PLM_TESTS_SUPPORT_FAILING_MEMORY_H

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/support/cmocka_all.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FAILING_MEMORY = 0 };
static atomic_long failing_memory_calls, failing_memory_at, failing_memory_blocks;
#else
enum { FAILING_MEMORY = 1 };
static atomic_long failing_memory_calls;   /* since the attempt began */
static atomic_long failing_memory_at = -1; /* the call that fails; -1: none */
static atomic_long failing_memory_blocks;  /* that were allocated and not released yet */

extern char __executable_start, etext;
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *block);

static bool failing_memory_fails(const char *caller)
{
  if (caller < &__executable_start || caller >= &etext || failing_memory_at < 0) return false;
  if (failing_memory_calls++ != failing_memory_at) return false;
  errno = ENOMEM;
  return true;
}

#define FAILING_MEMORY_FAILS() failing_memory_fails(__builtin_return_address(0))

/* A block ends with bytes 0xA5, which nobody may write, and its size with a mark in the last eight
 * bytes. Blocks without the mark come from elsewhere. */
enum { FAILING_MEMORY_BEHIND = 16, FAILING_MEMORY_BYTE = 0xA5 };
static const uint64_t failing_memory_mark = UINT64_C(0x5A17) << 48;

static void *failing_memory_close(void *block, size_t size)
{
  if (block == NULL) return NULL;
  const size_t usable = malloc_usable_size(block);
  const uint64_t number = failing_memory_mark | size;
  memset((char *)block + size, FAILING_MEMORY_BYTE, usable - size);
  memcpy((char *)block + usable - sizeof number, &number, sizeof number);
  failing_memory_blocks++;
  return block;
}

static void failing_memory_check(void *block)
{
  uint64_t number;
  if (block == NULL) return;
  const size_t usable = malloc_usable_size(block);
  const unsigned char *bytes = block;
  if (usable < FAILING_MEMORY_BEHIND) return;
  memcpy(&number, bytes + usable - sizeof number, sizeof number);
  if (number >> 48 != failing_memory_mark >> 48) return;
  const size_t size = (size_t)(number ^ failing_memory_mark), end = usable - sizeof number;
  PLM_ASSERT(size < end);
  for (size_t i = size; i < end; i++) PLM_ASSERT(bytes[i] == FAILING_MEMORY_BYTE);
  memset((char *)block + end, 0, sizeof number);
  failing_memory_blocks--;
}

void *malloc(size_t size)
{
  if (FAILING_MEMORY_FAILS()) return NULL;
  return failing_memory_close(__libc_malloc(size + FAILING_MEMORY_BEHIND), size);
}

void *calloc(size_t count, size_t size)
{
  size_t bytes;
  if (FAILING_MEMORY_FAILS() || __builtin_mul_overflow(count, size, &bytes)) return NULL;
  return failing_memory_close(__libc_calloc(1, bytes + FAILING_MEMORY_BEHIND), bytes);
}

void *realloc(void *old, size_t size)
{
  if (FAILING_MEMORY_FAILS()) return NULL;
  failing_memory_check(old);
  return failing_memory_close(__libc_realloc(old, size + FAILING_MEMORY_BEHIND), size);
}

void free(void *block)
{
  failing_memory_check(block);
  __libc_free(block);
}

char *strndup(const char *text, size_t most)
{
  const size_t size = strnlen(text, most);
  char *copy = calloc(size + 1, 1);
  if (copy != NULL) memcpy(copy, text, size);
  return copy;
}

char *strdup(const char *text)
{
  return strndup(text, strlen(text));
}
#endif

/* Between the two, no allocation fails, and none is counted. */
static inline long failing_memory_pause(void)
{
  return atomic_exchange(&failing_memory_at, -1);
}

static inline void failing_memory_resume(long at)
{
  failing_memory_at = at;
}

/* Work that takes memory and releases all of it, whether it fails or not. */
typedef plm_status failing_memory_work(void *context, struct plm_error *error);

/* One attempt, in which the allocation `at` fails. Returns whether the work got so far. */
static inline bool failing_memory_attempt(failing_memory_work *work, void *context, long at,
                                          plm_status *status)
{
  struct plm_error error = {0};
  failing_memory_calls = 0;
  failing_memory_at = at;
  *status = work(context, &error);
  const bool failed = failing_memory_calls > at;
  failing_memory_at = -1;
  if (*status == PLM_OK) return failed;
  if (*status != PLM_NO_MEMORY || error.status != PLM_NO_MEMORY || !failed)
    fail_msg("allocation %ld: status %d, \"%s\"", at, (int)*status, error.what);
  assert_true(error.what[0] != '\0');
  return failed;
}

/* Repeats the work until no allocation is left that could fail: the first one fails in the first
 * attempt, the second one in the second. Each attempt ends with PLM_NO_MEMORY and a message, or
 * with PLM_OK if the work can do without that memory, as the choice of a kernel can; then the work
 * itself checks its result. At least `least` attempts have to fail. Libraries keep some memory for
 * the next time, so an attempt that leaves blocks behind is repeated: it must not leave more. */
static inline void failing_memory_try(failing_memory_work *work, void *context, long least)
{
  if (!FAILING_MEMORY) skip("a sanitizer brings its own malloc");
  long failures = 0;
  bool failed = true;
  for (long at = 0; failed; at++) {
    plm_status status;
    const long before = failing_memory_blocks;
    failed = failing_memory_attempt(work, context, at, &status);
    failures += status != PLM_OK;
    if (failing_memory_blocks <= before) continue;
    const long kept = failing_memory_blocks;
    failing_memory_attempt(work, context, at, &status);
    if (failing_memory_blocks > kept)
      fail_msg("allocation %ld: status %d, and %ld blocks are not released", at, (int)status,
               failing_memory_blocks - kept);
  }
  assert_true(failures >= least);
}

#endif
