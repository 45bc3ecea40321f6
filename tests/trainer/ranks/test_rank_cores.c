/* The processors near a GPU: how Linux lists them, and that all threads move there. */
#include "trainer/ranks/rank_cores.h"

#include <pthread.h>
#include <sys/stat.h>

#include "tests/support/cmocka_all.h"
#include "tests/support/scratch.h"

static void lists_are_read(void **unused)
{
  (void)unused;
  cpu_set_t set;
  assert_true(plm_cores_parse("0-3,8,10-11\n", &set));
  assert_int_equal(CPU_COUNT(&set), 7);
  assert_true(CPU_ISSET(0, &set) && CPU_ISSET(3, &set) && CPU_ISSET(8, &set));
  assert_true(CPU_ISSET(10, &set) && CPU_ISSET(11, &set) && !CPU_ISSET(9, &set));
  assert_true(plm_cores_parse("7", &set));
  assert_int_equal(CPU_COUNT(&set), 1);
  static const char *const wrong[] = {"", "\n", "a", "3-1", "1-", "-1", "0-99999", "0 1", "0x1"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
    assert_false(plm_cores_parse(wrong[i], &set));
}

static void a_device_is_found_by_its_address(void **unused)
{
  (void)unused;
  cpu_set_t set;
  assert_int_equal(mkdir(scratch_path("0000:3b:00.0"), 0700), 0);
  assert_false(plm_cores_near(scratch_directory(), "0000:3B:00.0", &set));
  scratch_write(scratch_path("0000:3b:00.0/local_cpulist"), "4-5\n", 4);
  assert_true(plm_cores_near(scratch_directory(), "0000:3B:00.0", &set));
  assert_int_equal(CPU_COUNT(&set), 2);
  assert_true(CPU_ISSET(4, &set) && CPU_ISSET(5, &set));
  assert_false(plm_cores_near(scratch_directory(), "0000:3c:00.0", &set));
}

struct other {
  pthread_barrier_t started, moved;
  cpu_set_t set;
};

static void *look(void *context)
{
  struct other *other = context;
  pthread_barrier_wait(&other->started);
  pthread_barrier_wait(&other->moved);
  sched_getaffinity(0, sizeof other->set, &other->set);
  return NULL;
}

static void all_threads_move(void **unused)
{
  (void)unused;
  cpu_set_t before, near, after, nowhere;
  struct other other;
  pthread_t thread;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  assert_int_equal(plm_cores_stay(&before), 0); /* they are there already */
  CPU_ZERO(&nowhere);
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (!CPU_ISSET(i, &before)) CPU_SET(i, &nowhere);
  assert_int_equal(plm_cores_stay(&nowhere), 0); /* none of them may be used */
  if (CPU_COUNT(&before) < 2) skip();
  near = nowhere;
  for (int i = 0, found = 0; found == 0; i++)
    if (CPU_ISSET(i, &before)) {
      CPU_SET(i, &near);
      found = 1;
    }
  pthread_barrier_init(&other.started, NULL, 2);
  pthread_barrier_init(&other.moved, NULL, 2);
  assert_int_equal(pthread_create(&thread, NULL, look, &other), 0);
  pthread_barrier_wait(&other.started);
  assert_int_equal(plm_cores_stay(&near), 1);
  pthread_barrier_wait(&other.moved);
  pthread_join(thread, NULL);
  assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
  assert_int_equal(CPU_COUNT(&after), 1);
  assert_true(CPU_EQUAL(&after, &other.set));
  pthread_barrier_destroy(&other.started);
  pthread_barrier_destroy(&other.moved);
  assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_are_read),
      cmocka_unit_test(a_device_is_found_by_its_address),
      cmocka_unit_test(all_threads_move),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
