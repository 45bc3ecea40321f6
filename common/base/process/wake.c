/* Waking by an event descriptor. */
#include "common/base/process/wake.h"

#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

plm_status plm_wake_open(int *descriptor, struct plm_error *error)
{
  *descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return *descriptor >= 0 ? PLM_OK : plm_error_errno(error, "cannot make an event descriptor");
}

void plm_wake(int descriptor)
{
  const uint64_t one = 1;
  const ssize_t ignored = write(descriptor, &one, sizeof one);
  (void)ignored; /* it only fails if the counter is full, and then the descriptor is readable */
}

void plm_wake_clear(int descriptor)
{
  uint64_t count;
  const ssize_t ignored = read(descriptor, &count, sizeof count);
  (void)ignored; /* it fails if nobody has called plm_wake */
}
