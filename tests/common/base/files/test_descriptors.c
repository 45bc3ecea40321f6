/* The reserve of descriptors: how many are open, and that only those are closed. */
#include "tests/support/harness/cmocka_all.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
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

enum { FEW = 64 };

/* Takes every descriptor that is left below a limit of FEW, as many connections would. */
static int take_all(int taken[FEW])
{
  int count = 0, descriptor;
  const struct rlimit limit = {FEW, FEW};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  while (count < FEW && (descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
    taken[count++] = descriptor;
  assert_int_equal(errno, EMFILE);
  return count;
}

static void *close_later(void *descriptor)
{
  (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
  (void)close(*(int *)descriptor);
  return NULL;
}

/* In a process of its own, because the limit cannot be raised again. Without a reserve, open says
 * EMFILE at once. With one, a file takes the place of a reserved descriptor; and if even those are
 * gone, one that is closed a little later. */
static void files_are_opened_in_the_reserve(void **state)
{
  (void)state;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    int taken[FEW], last = -1;
    plm_descriptors_reclaim(); /* what the tests before have lent */
    plm_descriptors_reserve();
    (void)take_all(taken);
    for (int i = 0; i < PLM_DESCRIPTORS_RESERVED; i++) {
      const int descriptor = plm_descriptors_open("/dev/null", O_RDONLY, 0);
      if (descriptor < 0 || fcntl(descriptor, F_GETFD) != FD_CLOEXEC) _exit(1);
      if (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) _exit(4); /* the others are taken back */
      last = descriptor;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, close_later, &last) != 0) _exit(2);
    if (plm_descriptors_open("/dev/null", O_RDONLY, 0) != last) _exit(3);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* In a process of its own: descriptors that could not be opened are opened by the next call. */
static void the_reserve_is_filled_later(void **state)
{
  (void)state;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    int taken[FEW];
    const int count = take_all(taken);
    plm_descriptors_reclaim(); /* what the tests before have lent */
    plm_descriptors_reserve();
    for (int i = 0; i < count; i++) close(taken[i]);
    const int before = open_now();
    plm_descriptors_reserve();
    _exit(open_now() == before + PLM_DESCRIPTORS_RESERVED ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void without_a_reserve_nothing_is_waited_for(void **state)
{
  (void)state;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    int taken[FEW];
    (void)take_all(taken);
    _exit(plm_descriptors_open("/dev/null", O_RDONLY, 0) < 0 && errno == EMFILE ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_a_reserve_nothing_is_waited_for),
      cmocka_unit_test(the_reserve_is_lent_and_taken_back),
      cmocka_unit_test(files_are_opened_in_the_reserve),
      cmocka_unit_test(the_reserve_is_filled_later),
      cmocka_unit_test(the_limit_is_raised),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
