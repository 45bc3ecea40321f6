/* See failing_starts.h. plm_thread_start sets the size of a stack before it starts a thread. */
#include "tests/support/harness/failing_starts.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"

static atomic_int left = -1; /* threads that start before one does not; -1: all do */

/* Takes the place of libc's function in this program. Threads get the usual size. */
int pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size)
{
  (void)attributes, (void)size;
  return left >= 0 && left-- == 0 ? EAGAIN : 0;
}

int failing_starts_try(failing_starts_work *work, void *context)
{
  for (int started = 0;; started++) {
    struct plm_error error = {0};
    left = started;
    const plm_status status = work(context, &error);
    const int more = left;
    left = -1;
    if (status == PLM_OK && more >= 0) return started;
    if (status != PLM_IO || more >= 0 || strncmp(error.what, "cannot start the thread \"", 25) != 0)
      fail_msg("thread %d: status %d, \"%s\"", started, (int)status, error.what);
  }
}
