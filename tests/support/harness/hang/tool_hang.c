/* A test program with faults that test_limits.sh looks for: tests that never end, in a function
 * whose name says what they wait for, one that is skipped, and some that leave something behind.
 *
 *   tool_hang [GROUP]      with GROUP, the preparation of all tests hangs as well */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness/checked_memory.h"
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
  checked_memory_guard(false);
  kept = calloc(3, 1);
  kept[3] = 'x';
  free(kept);
}

static void writes_behind_aligned(void **state)
{
  (void)state;
  kept = aligned_alloc(64, 72);
  kept[72] = 'x';
  free(kept);
}

static void reads_behind(void **state)
{
  (void)state;
  uint32_t *values = calloc(3, sizeof *values); /* not a multiple of 8 bytes */
  kept = (char *)values;
  kept[0] = (char)((volatile uint32_t *)values)[3];
}

static void writes_before(void **state)
{
  (void)state;
  kept = malloc(8);
  kept[-1] = 'x';
  free(kept);
}

/* Two blocks that fill their slots, which are neighbours. */
static void reads_before(void **state)
{
  (void)state;
  char *volatile first = malloc(4096);
  kept = malloc(4096);
  assert_ptr_equal(kept - first, 2 * 4096);
  kept[0] = kept[-1];
}

static void reads_what_is_released(void **state)
{
  (void)state;
  kept = malloc(100000);
  free(kept);
  kept[99999]++;
}

static void reads_what_was_moved(void **state)
{
  (void)state;
  kept = malloc(100);
  char *volatile moved = realloc(kept, 101);
  kept[0] = moved[0];
}

static void releases_twice(void **state)
{
  (void)state;
  kept = malloc(24);
  free(kept);
  free(kept);
}

/* New memory has the pattern, except where it was written. */
static void reads_what_was_not_written(void **state)
{
  static const size_t sizes[] = {1, 40, 5000, 100000};
  (void)state;
  for (int guard = 0; guard < 2; guard++) {
    checked_memory_guard(guard == 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      unsigned char *volatile block = malloc(sizes[i]);
      assert_int_equal(block[0], 0xC5);
      assert_int_equal(block[sizes[i] < 4096 ? sizes[i] - 1 : 4095], 0xC5);
      memset(block, 1, sizes[i]);
      block = realloc(block, 2 * sizes[i]);
      assert_int_equal(block[sizes[i] - 1], 1);
      assert_int_equal(block[sizes[i]], 0xC5);
      free(block);
      block = calloc(sizes[i], 1);
      for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(block[k], 0);
      free(block);
    }
  }
}

/* What is impossible is refused as C says, and the old block stays. */
static void takes_too_much(void **state)
{
  static volatile size_t sizes[] = {SIZE_MAX, SIZE_MAX - 8, SIZE_MAX / 4};
  (void)state;
  for (int guard = 0; guard < 2; guard++) {
    checked_memory_guard(guard == 1);
    char *volatile block = malloc(24);
    memset(block, 1, 24);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      void *none = NULL;
      errno = 0;
      assert_null(malloc(sizes[i]));
      assert_int_equal(errno, ENOMEM);
      errno = 0;
      assert_null(calloc(sizes[i], 9));
      assert_int_equal(errno, ENOMEM);
      errno = 0;
      assert_null(realloc(block, sizes[i]));
      assert_int_equal(errno, ENOMEM);
      assert_int_equal(posix_memalign(&none, 64, sizes[i]), ENOMEM);
    }
    for (int k = 0; k < 24; k++) assert_int_equal(block[k], 1);
    free(block);
  }
}

static void writes_behind_what_stayed(void **state)
{
  static volatile size_t most = SIZE_MAX / 4;
  (void)state;
  checked_memory_guard(false);
  kept = malloc(24);
  assert_null(realloc(kept, most));
  kept[24] = 'x';
  free(kept);
}

static void raises_a_fault(void **state)
{
  (void)state;
  raise(SIGSEGV);
}

/* Memory that is aligned more than its size is, and more blocks than there are slots. */
static void takes_many(void **state)
{
  enum { MANY = 20000 };
  static char *blocks[MANY];
  (void)state;
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < MANY; i++) {
      if (i % 50 == 0) checked_memory_begin_test();
      blocks[i] = i % 2 == 0 ? malloc(10) : aligned_alloc(64, 72);
      assert_true(blocks[i] != NULL && (uintptr_t)blocks[i] % (i % 2 == 0 ? 2 : 64) == 0);
      blocks[i][0] = (char)i;
    }
    for (int i = 0; i < MANY; i++) assert_int_equal(blocks[i][0], (char)i);
    for (int i = 0; i < MANY; i++) free(blocks[i]);
  }
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
      cmocka_unit_test_prestate(passes, text),
      cmocka_unit_test(never_waits_long_enough),
      cmocka_unit_test(joins_nobody),
      cmocka_unit_test_setup(passes, hang_first),
      cmocka_unit_test(is_left_out),
      cmocka_unit_test_prestate(fails, text),
      cmocka_unit_test(leaves_memory),
      cmocka_unit_test(writes_behind),
      cmocka_unit_test(locks_twice),
      cmocka_unit_test(unlocks_another_s),
      cmocka_unit_test(leaves_a_descriptor),
      cmocka_unit_test(leaves_a_child),
      cmocka_unit_test(reads_behind),
      cmocka_unit_test(writes_before),
      cmocka_unit_test(reads_what_is_released),
      cmocka_unit_test(reads_what_was_moved),
      cmocka_unit_test(releases_twice),
      cmocka_unit_test(reads_what_was_not_written),
      cmocka_unit_test(writes_behind_aligned),
      cmocka_unit_test(takes_many),
      cmocka_unit_test(takes_too_much),
      cmocka_unit_test(writes_behind_what_stayed),
      cmocka_unit_test(reads_before),
      cmocka_unit_test(raises_a_fault),
  };
  return cmocka_run_group_tests(tests, argc > 1 ? hang_first : NULL, NULL);
}
