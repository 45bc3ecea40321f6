/* What a feed draws, whom it asks about keys, how many sources and threads it has, and its batches.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/feed/feed_batch.h"
#include "common/feed/feed_handle.h"
#include "common/feed/feed_work.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/peers/packers.h"

static bool random_fails;
static long processors; /* 0: those of this machine */
long __sysconf(int name);

/* These take the place of libc's functions in this program. */
ssize_t getrandom(void *bytes, size_t size, unsigned flags)
{
  if (!random_fails) return syscall(SYS_getrandom, bytes, size, flags);
  errno = ENOSYS;
  return -1;
}

long sysconf(int name)
{
  return name == _SC_NPROCESSORS_ONLN && processors > 0 ? processors : __sysconf(name);
}

/* They come from the system's randomness: a clock, which counts from the start of the machine, does
 * not reach the uppermost byte. None is 0, which stands for no request. */
static void numbers_cannot_be_guessed(void **state)
{
  (void)state;
  enum { DRAWS = 16 };
  struct plm_feed feed = {0};
  const struct feed_network network = feed_handle_network(&feed);
  uint64_t drawn[DRAWS], together = 0;
  for (int i = 0; i < DRAWS; i++) {
    drawn[i] = network.draw(network.context);
    assert_true(drawn[i] % 2 == 1);
    for (int k = 0; k < i; k++) assert_true(drawn[k] != drawn[i]);
    together |= drawn[i];
  }
  assert_true(together >> 56 != 0);
}

/* If there is no randomness, they differ all the same. */
static void numbers_differ_without_randomness(void **state)
{
  (void)state;
  struct plm_feed feed = {0};
  const struct feed_network network = feed_handle_network(&feed);
  const uint64_t before = plm_clock_ns();
  random_fails = true;
  const uint64_t first = network.draw(network.context);
  while (plm_clock_ns() < before + 1000) continue; /* numbers are odd */
  const uint64_t second = network.draw(network.context);
  random_fails = false;
  assert_true(first % 2 == 1 && second % 2 == 1);
  assert_true(first >= before && second > first);
}

static int threads(void)
{
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  assert_non_null(folder);
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
    count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

/* One for each four processors, from 1 to 4. */
static void threads_check_answers(void **state)
{
  static const struct {
    long processors;
    int threads;
  } rows[] = {{1, 1}, {3, 1}, {7, 1}, {8, 2}, {16, 4}, {19, 4}, {20, 4}, {400, 4}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct feed_work *work;
    const int before = threads();
    processors = rows[i].processors;
    assert_int_equal(feed_work_open(-1, &work, NULL), PLM_OK);
    processors = 0;
    assert_int_equal(threads(), before + rows[i].threads);
    feed_work_close(work);
    for (int waits = 0; waits < 10000 && threads() != before; waits++) /* they leave the list */
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(threads(), before);
  }
}

/* Without keys, nobody is asked who may connect. */
static void only_a_gate_refuses(void **state)
{
  (void)state;
  struct plm_feed feed = {0};
  assert_true(feed_handle_network(&feed).allows == NULL);
  feed.gate = (struct plm_gate *)(void *)&feed;
  const struct feed_network network = feed_handle_network(&feed);
  assert_true(network.allows != NULL && network.context == &feed);
}

static void a_feed_may_have_16_sources(void **state)
{
  struct plm_feed_options options = packers_options();
  struct plm_feed_source_options sources[PLM_MAX_SOURCES];
  (void)state;
  for (int k = 0; k < PLM_MAX_SOURCES; k++)
    sources[k] = (struct plm_feed_source_options){.plan = options.plan};
  options.sources = sources;
  options.source_count = PLM_MAX_SOURCES;
  plm_feed_close(packers_feed(&options));
}

static plm_status take_batches(void *context, struct plm_error *error)
{
  struct feed_batches batches = {0};
  struct feed_batch *batch;
  plm_status status = PLM_OK;
  (void)context;
  for (uint32_t chunks = 1; chunks < 64 && status == PLM_OK; chunks *= 4) {
    status = feed_batch_acquire(&batches, chunks, 64, 2, &batch, error);
    if (status == PLM_OK) memset(batch->tokens, 1, (size_t)chunks * 64 * 2);
    if (status == PLM_OK) feed_batch_give(&batches, batch->tokens);
  }
  feed_batches_deinit(&batches);
  return status;
}

/* One batch is used again and grows. */
static void a_lack_of_memory_is_said(void **state)
{
  failing_memory_try(take_batches, state, 6);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_cannot_be_guessed),
      cmocka_unit_test(numbers_differ_without_randomness),
      cmocka_unit_test(threads_check_answers),
      cmocka_unit_test(only_a_gate_refuses),
      cmocka_unit_test(a_feed_may_have_16_sources),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
