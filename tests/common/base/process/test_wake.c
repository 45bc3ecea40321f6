/* A descriptor that is readable from a wake until it is cleared. */
#include "common/base/process/wake.h"

#include <poll.h>
#include <unistd.h>

#include "tests/support/harness/cmocka_all.h"

static bool readable(int descriptor)
{
  struct pollfd polled = {.fd = descriptor, .events = POLLIN};
  return poll(&polled, 1, 0) == 1;
}

static void a_wake_lasts_until_it_is_cleared(void **state)
{
  int descriptor;
  (void)state;
  assert_int_equal(plm_wake_open(&descriptor, NULL), PLM_OK);
  for (int round = 0; round < 2; round++) {
    assert_false(readable(descriptor));
    plm_wake_clear(descriptor); /* does not wait */
    for (int wakes = 0; wakes <= round; wakes++) plm_wake(descriptor);
    assert_true(readable(descriptor));
    plm_wake_clear(descriptor);
  }
  assert_false(readable(descriptor));
  close(descriptor);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_wake_lasts_until_it_is_cleared)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
