/* The processors near a GPU: how Linux lists them, and that all threads move there. */
#include "trainer/ranks/rank_cores.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "trainer/ranks/rank_start.h"

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
  assert_true(plm_cores_parse("1023", &set) && CPU_ISSET(1023, &set)); /* the last that fits */
  assert_true(plm_cores_parse("5-5\n7", &set));
  assert_true(CPU_COUNT(&set) == 1 && CPU_ISSET(5, &set)); /* only the first line */
  static const char *const wrong[] = {"",    "\n", "a",    "3-1",  "1-",  "-1",   "0-99999",  "0 1",
                                      "0x1", "0-", "0-,3", "0--1", "0-a", "1024", "1000-1024"};
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
  scratch_write(scratch_path("0000:3b:00.0/local_cpulist"), "4-\n", 3);
  assert_false(plm_cores_near(scratch_directory(), "0000:3B:00.0", &set));
}

/* An address of 31 characters is used as a whole, and a longer one up to there. */
static void a_long_address_is_cut(void **unused)
{
  (void)unused;
  static const char longest[] = "0123456789abcdef0123456789abcde";
  static const char longer[] = "0123456789abcdef0123456789abcdef";
  char list[64];
  cpu_set_t set;
  assert_int_equal(strlen(longest), PLM_PCI_SIZE - 1);
  assert_int_equal(mkdir(scratch_path(longest), 0700), 0);
  snprintf(list, sizeof list, "%s/local_cpulist", longest);
  scratch_write(scratch_path(list), "6\n", 2);
  assert_true(plm_cores_near(scratch_directory(), longest, &set) && CPU_ISSET(6, &set));
  assert_true(plm_cores_near(scratch_directory(), longer, &set) && CPU_ISSET(6, &set));
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

static bool no_folder; /* no folder can be opened */

/* Takes the place of libc's function in this program. */
DIR *opendir(const char *path)
{
  return no_folder ? NULL : fdopendir(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
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
  if (CPU_COUNT(&before) < 2) skip("it needs two processors");
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
  no_folder = true;
  assert_int_equal(plm_cores_stay(&near), 0); /* nobody knows the threads */
  no_folder = false;
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

/* The first `count` processors of a set. */
static cpu_set_t first_of(const cpu_set_t *set, int count)
{
  cpu_set_t first;
  CPU_ZERO(&first);
  for (int i = 0; CPU_COUNT(&first) < count; i++)
    if (CPU_ISSET(i, set)) CPU_SET(i, &first);
  return first;
}

static uint32_t threads_of_rank(uint32_t on_this_host, uint32_t wanted)
{
  struct plm_collective collective = {.place = {.ranks = 8, .on_this_host = on_this_host}};
  const struct plm_ranks ranks = {.collective = &collective};
  struct plm_ops_request request = {.threads = wanted};
  plm_rank_divide_threads(&ranks, &request);
  return request.threads;
}

static uint32_t threads_of_backend(uint32_t wanted)
{
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, wanted, NULL, &ops, NULL), PLM_OK);
  const uint32_t threads = ops->threads;
  ops->close(ops);
  return threads;
}

/* A backend has a thread for each processor that this process may use, and the ranks of a host
 * share them. */
static void threads_are_those_of_the_allowed_processors(void **unused)
{
  (void)unused;
  cpu_set_t before;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  const int most = CPU_COUNT(&before) < 5 ? CPU_COUNT(&before) : 5;
  for (int count = 1; count <= most; count++) {
    const cpu_set_t some = first_of(&before, count);
    assert_int_equal(sched_setaffinity(0, sizeof some, &some), 0);
    const uint32_t usable = (uint32_t)count, of_backend = threads_of_backend(0);
    const uint32_t alone = threads_of_rank(1, 0), of_two = threads_of_rank(2, 0);
    const uint32_t of_many = threads_of_rank(usable + 1, 0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(of_backend, usable);
    assert_int_equal(alone, usable);
    assert_int_equal(of_two, usable == 1 ? 1 : usable / 2);
    assert_int_equal(of_many, 1);
  }
  assert_int_equal(threads_of_backend(3), 3);
  assert_int_equal(threads_of_rank(2, 7), 7); /* the setting decides */
  struct plm_ops_request request = {.threads = 0};
  const struct plm_ranks alone = plm_ranks_single();
  plm_rank_divide_threads(&alone, &request); /* one process leaves it to the backend */
  assert_int_equal(request.threads, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_are_read),
      cmocka_unit_test(a_device_is_found_by_its_address),
      cmocka_unit_test(a_long_address_is_cut),
      cmocka_unit_test(all_threads_move),
      cmocka_unit_test(threads_are_those_of_the_allowed_processors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
