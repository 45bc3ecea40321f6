/* A test program with faults that test_limits.sh looks for: tests that never end, in a function
 * whose name says what they wait for, one that is skipped, and some that leave something behind.
 *
 *   tool_hang [GROUP]      with GROUP, the preparation of all tests hangs as well */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness/cmocka_all.h"

static void *pause_for_ever(void *unused)
{
  for (;;) pause();
  return unused;
}

static __attribute__((noinline)) void wait_for_a_child(void)
{
  int status;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pause_for_ever(NULL);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
}

static __attribute__((noinline)) void wait_for_a_thread(void)
{
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, pause_for_ever, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
}

static void passes(void **state)
{
  assert_string_equal(*state, "state");
}

static void never_waits_long_enough(void **state)
{
  (void)state;
  wait_for_a_child();
}

static void joins_nobody(void **state)
{
  (void)state;
  wait_for_a_thread();
}

static int hang_first(void **state)
{
  (void)state;
  wait_for_a_child();
  return 0;
}

static void is_left_out(void **state)
{
  (void)state;
  skip("this machine lacks it");
}

static void fails(void **state)
{
  assert_string_equal(*state, "another state");
}

static char *volatile kept;

static void leaves_memory(void **state)
{
  (void)state;
  kept = malloc(100);
  kept = strdup("four"); /* of five bytes with its end */
}

static void writes_behind(void **state)
{
  (void)state;
  kept = calloc(3, 1);
  kept[3] = 'x';
  free(kept);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void locks_twice(void **state)
{
  (void)state;
  pthread_mutex_lock(&mutex);
  pthread_mutex_lock(&mutex);
}

static void unlocks_another_s(void **state)
{
  (void)state;
  pthread_mutex_unlock(&mutex);
}

static void leaves_a_descriptor(void **state)
{
  (void)state;
  assert_true(open("/proc/self/exe", O_RDONLY) >= 0);
}

static void leaves_a_child(void **state)
{
  (void)state;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pause_for_ever(NULL);
  }
  assert_true(child > 0);
}

int main(int argc, char **argv)
{
  (void)argv;
  static char text[] = "state";
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(passes, text), cmocka_unit_test(never_waits_long_enough),
      cmocka_unit_test(joins_nobody),          cmocka_unit_test_setup(passes, hang_first),
      cmocka_unit_test(is_left_out),           cmocka_unit_test_prestate(fails, text),
      cmocka_unit_test(leaves_memory),         cmocka_unit_test(writes_behind),
      cmocka_unit_test(locks_twice),           cmocka_unit_test(unlocks_another_s),
      cmocka_unit_test(leaves_a_descriptor),   cmocka_unit_test(leaves_a_child),
  };
  return cmocka_run_group_tests(tests, argc > 1 ? hang_first : NULL, NULL);
}
