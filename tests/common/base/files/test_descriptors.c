/* The reserve of descriptors: how many are open, and that only those are closed. */
#include "tests/support/harness/cmocka_all.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/files/descriptors.h"

static int open_now(void)
{
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count;
}

static void the_reserve_is_lent_and_taken_back(void **state)
{
  (void)state;
  const int before = open_now(), own = open("/dev/null", O_RDONLY | O_CLOEXEC);
  plm_descriptors_lend();
  plm_descriptors_reclaim(); /* nobody wants a reserve yet */
  assert_int_equal(open_now(), before + 1);
  plm_descriptors_reserve();
  assert_int_equal(open_now(), before + 1 + PLM_DESCRIPTORS_RESERVED);
  plm_descriptors_reserve();
  assert_int_equal(open_now(), before + 1 + PLM_DESCRIPTORS_RESERVED);
  plm_descriptors_lend();
  assert_int_equal(open_now(), before + 1);
  plm_descriptors_lend();
  plm_descriptors_reclaim();
  assert_int_equal(open_now(), before + 1); /* it is still lent */
  plm_descriptors_reserve();
  assert_int_equal(open_now(), before + 1);
  plm_descriptors_reclaim();
  assert_int_equal(open_now(), before + 1 + PLM_DESCRIPTORS_RESERVED);
  plm_descriptors_lend();
  for (int descriptor = 0; descriptor < 3; descriptor++)
    assert_true(fcntl(descriptor, F_GETFD) >= 0);
  assert_int_equal(close(own), 0);
  assert_int_equal(open_now(), before);
}

static void the_limit_is_raised(void **state)
{
  (void)state;
  struct rlimit limit, raised;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 100;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  plm_descriptors_raise();
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &raised), 0);
  assert_int_equal(raised.rlim_cur, limit.rlim_max);
  assert_int_equal(raised.rlim_max, limit.rlim_max);
  plm_descriptors_raise();
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &raised), 0);
  assert_int_equal(raised.rlim_cur, limit.rlim_max);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_reserve_is_lent_and_taken_back),
      cmocka_unit_test(the_limit_is_raised),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
