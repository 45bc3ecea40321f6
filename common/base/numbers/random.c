/* Random bytes from the kernel. */
#include "common/base/numbers/random.h"

#include <errno.h>
#include <sys/random.h>

plm_status plm_random_bytes(void *bytes, size_t size, struct plm_error *error)
{
  char *next = bytes;
  while (size > 0) {
    const ssize_t got = getrandom(next, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return plm_error_errno(error, "cannot draw random bytes");
    next += got;
    size -= (size_t)got;
  }
  return PLM_OK;
}
