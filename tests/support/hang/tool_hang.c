/* A test program with faults that test_limits.sh looks for: tests that never end, in a function
 * whose name says what they wait for, and one that is skipped.
 *
 *   tool_hang [GROUP]      with GROUP, the preparation of all tests hangs as well */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/cmocka_all.h"

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

int main(int argc, char **argv)
{
  (void)argv;
  static char text[] = "state";
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(passes, text), cmocka_unit_test(never_waits_long_enough),
      cmocka_unit_test(joins_nobody),          cmocka_unit_test_setup(passes, hang_first),
      cmocka_unit_test(is_left_out),           cmocka_unit_test_prestate(fails, text),
  };
  return cmocka_run_group_tests(tests, argc > 1 ? hang_first : NULL, NULL);
}
