/* See failing_device.h. */
#include "tests/support/operators/failing_device.h"

#include <stdbool.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"

static struct plm_ops real;      /* functions of the backend */
static long left = -1, held = 0; /* calls that succeed before one fails; buffers */
static plm_status expected;      /* of the call that failed; PLM_OK: none */

static bool fails(plm_status status)
{
  if (left < 0 || left-- > 0) return false;
  expected = status;
  return true;
}

static plm_status device_allocate(struct plm_ops *ops, size_t bytes, void **buffer,
                                  struct plm_error *error)
{
  *buffer = NULL;
  if (fails(PLM_NO_MEMORY))
    return plm_error_set(error, PLM_NO_MEMORY, "the device of the test fails");
  const plm_status status = real.allocate(ops, bytes, buffer, error);
  held += status == PLM_OK;
  return status;
}

static void device_release(struct plm_ops *ops, void *buffer)
{
  real.release(ops, buffer);
  held--;
}

static plm_status device_synchronize(struct plm_ops *ops, struct plm_error *error)
{
  if (expected == PLM_FAILURE || fails(PLM_FAILURE)) /* a device stays lost */
    return plm_error_set(error, PLM_FAILURE, "the device of the test fails");
  return real.synchronize(ops, error);
}

bool failing_device_failed(void)
{
  return expected != PLM_OK;
}

long failing_device_pause(void)
{
  const long at = left;
  left = -1;
  return at;
}

void failing_device_resume(long at)
{
  left = at;
}

void failing_device_try(enum plm_precision precision, failing_device_work *work, void *context,
                        int calls)
{
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(precision, 1, NULL, &ops, NULL), PLM_OK);
  real = *ops;
  ops->allocate = device_allocate;
  ops->release = device_release;
  ops->synchronize = device_synchronize;
  assert_int_equal(work(ops, context, NULL), PLM_OK); /* operators keep what they allocate */
  const long kept = held;
  int at = 0;
  for (bool more = true; more; at += more) {
    struct plm_error error = {0};
    expected = PLM_OK;
    left = at;
    const plm_status status = work(ops, context, &error);
    more = failing_device_pause() < 0;
    const bool said = !more || strcmp(error.what, "the device of the test fails") == 0;
    if (status != expected || !said)
      fail_msg("%d: status %d instead of %d, \"%s\"", at, (int)status, (int)expected, error.what);
    if (held != kept) fail_msg("%d: %ld buffers are not released", at, held - kept);
  }
  if (at != calls) fail_msg("%d calls have failed instead of %d", at, calls);
  ops->close(ops);
}
