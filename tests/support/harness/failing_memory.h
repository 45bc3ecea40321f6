/* Lets allocations of the code under test fail, one after another. Those that shared libraries make
 * for themselves never fail. A sanitizer brings its own malloc, so there the test is skipped. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_FAILING_MEMORY_H
#define PLM_TESTS_SUPPORT_HARNESS_FAILING_MEMORY_H

#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/fewer.h"

/* Work that takes memory and releases all of it, whether it fails or not. */
typedef plm_status failing_memory_work(void *context, struct plm_error *error);

/* One attempt, in which the allocation `at` fails. Returns whether the work got so far. */
static inline bool failing_memory_attempt(failing_memory_work *work, void *context, long at,
                                          plm_status *status)
{
  struct plm_error error = {0};
  plm_alloc_persist(0);
  checked_memory_fail(at);
  *status = work(context, &error);
  const bool failed = checked_memory_calls() > at;
  checked_memory_pause();
  if (*status == PLM_OK) return failed;
  if (*status != PLM_NO_MEMORY || error.status != PLM_NO_MEMORY || !failed)
    fail_msg("allocation %ld: status %d, \"%s\"", at, (int)*status, error.what);
  assert_true(error.what[0] != '\0');
  return failed;
}

/* Repeats the work until no allocation is left that could fail: the first one fails in the first
 * attempt, the second one in the second; from the 500th on some are left out, more and more,
 * because most are items of long JSON. Each attempt ends with PLM_NO_MEMORY and a message, or with
 * PLM_OK if the work can do without that memory, as the choice of a kernel can, or takes it again
 * because it is a small allocation (alloc.h); then the work itself checks its result. At least
 * `least` attempts have to fail. Libraries keep some memory for the next time, so an attempt that
 * leaves blocks behind is repeated: it must not leave more. `make test` tries every fourth
 * allocation after the first 64. */
static inline void failing_memory_try(failing_memory_work *work, void *context, long least)
{
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  /* Attempts take the same large blocks again and again: without new pages each time. */
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const long step = fewer_of(1, 4);
  long failures = 0;
  bool failed = true;
  for (long at = 0; failed; at += at < 64 ? 1 : step * (1 + at / 500)) {
    plm_status status;
    const long before = checked_memory_left();
    failed = failing_memory_attempt(work, context, at, &status);
    failures += status != PLM_OK;
    if (checked_memory_left() <= before) continue;
    const long kept = checked_memory_left();
    failing_memory_attempt(work, context, at, &status);
    if (checked_memory_left() > kept)
      fail_msg("allocation %ld: status %d, and %ld blocks are not released", at, (int)status,
               checked_memory_left() - kept);
  }
  if (failures * step < least) fail_msg("%ld attempts failed, fewer than %ld", failures, least);
}

#endif
