/* What connects a feed to its run folder: who serves the feed, and what is said if that cannot be
 * written. The test says how each attempt to write ends, and its thread makes no pause between two
 * rounds. */
#include "common/feed/feed_run.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/feed/feed_handle.h"
#include "common/run/run.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_starts.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/fake_packer.h"
#include "tests/support/peers/packers.h"

enum { HANGS_S = 60 };

/* An attempt arrives, and waits for the test to say how it ends, unless `free_to_write`. */
static sem_t arrived, decided;
static atomic_bool fails, free_to_write = true, slow;
static atomic_bool writing;

static bool is_of_feed_run(void)
{
  char name[16];
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         strcmp(name, "feed-run") == 0;
}

static void await(sem_t *what, const char *name)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += HANGS_S;
  while (sem_timedwait(what, &until) != 0)
    if (errno != EINTR) {
      (void)captured_end();
      fail_msg("no %s within %d s", name, HANGS_S);
    }
}

/* The file gets its name by this call. */
int rename(const char *from, const char *to)
{
  const struct timespec pause = {.tv_nsec = 200000000};
  writing = true;
  if (is_of_feed_run() && !free_to_write) {
    sem_post(&arrived);
    while (sem_wait(&decided) != 0) {
    }
  }
  if (slow) nanosleep(&pause, NULL);
  writing = false;
  if (fails) {
    errno = EIO;
    return -1;
  }
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* The next round of the thread is due at once. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_MONOTONIC && is_of_feed_run()) now->tv_sec -= 10;
  return result;
}

/* Lets the attempt that has arrived end, and waits for the next one. */
static void go_on(bool failing)
{
  fails = failing;
  sem_post(&decided);
  await(&arrived, "further attempt");
}

/* One warning for each time in which it cannot be written, however long that lasts. */
static void a_failure_is_told_once_until_it_ends(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_feed_run *feed_run;
  char run[PLM_PATH_SIZE], *json;
  scratch_run(run);
  fake_meet(&meeting, 1, 0);
  const struct plm_feed_run_options options = {.run = run,
                                               .role = "trainer",
                                               .feed = meeting.feed,
                                               .other_key = "evaluation_feed",
                                               .other_bind = "tcp://127.0.0.1:*"};
  assert_int_equal(sem_init(&arrived, 0, 0) | sem_init(&decided, 0, 0), 0);
  captured_begin(STDERR_FILENO);
  fails = true;
  const plm_status opened = plm_feed_run_open(&options, &feed_run, NULL);
  free_to_write = false;
  await(&arrived, "attempt");
  go_on(true);
  go_on(true);
  go_on(false);
  const plm_status read = plm_peers_read(run, "trainer", &json, NULL);
  go_on(true);
  go_on(true);
  free_to_write = slow = true;
  sem_post(&decided);
  plm_feed_run_close(feed_run); /* awaits the attempt */
  const bool awaited = !writing;
  slow = false;
  const char *said = captured_end();
  assert_true(awaited);
  assert_int_equal(opened, PLM_OK);
  assert_int_equal(read, PLM_OK);
  assert_int_equal(captured_times(json, "\"packer\""), 1);
  free(json);
  if (captured_times(said, "warning: ") != 2) fail_msg("not two warnings: %s", said);
  assert_int_equal(captured_times(said, "peers.trainer.json: Input/output error\n"), 2);
  assert_int_equal(plm_peers_read(run, "trainer", &json, NULL), PLM_NOT_FOUND);
  sem_destroy(&arrived);
  sem_destroy(&decided);
  fails = false;
  fake_part(&meeting);
}

/* The address of the other consumer that the packers are told; "": none. */
static void expect_other(const struct plm_feed_run_options *options, const char *expected)
{
  struct plm_feed_options of = packers_options();
  struct plm_feed_run_options told = *options;
  struct plm_feed_run *feed_run;
  told.feed = packers_feed(&of);
  assert_int_equal(plm_feed_run_open(&told, &feed_run, NULL), PLM_OK);
  pthread_mutex_lock(&told.feed->mutex);
  const struct plm_welcome welcome = told.feed->lanes[0].welcome;
  pthread_mutex_unlock(&told.feed->mutex);
  plm_feed_run_close(feed_run);
  plm_feed_close(told.feed);
  assert_int_equal(welcome.peers, expected[0] != '\0');
  if (expected[0] != '\0') assert_string_equal(welcome.address[0], expected);
}

/* Its address, or where it binds, or what it has written into the run. */
static void the_address_of_the_other_is_found(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], longest[513];
  scratch_run(run);
  struct plm_feed_run_options options = {.run = run,
                                         .role = "trainer",
                                         .other_key = "evaluation_feed",
                                         .other_bind = "tcp://127.0.0.1:*"};
  expect_other(&options, "");
  assert_int_equal(plm_endpoint_write(run, "evaluation_feed", "tcp://127.0.0.1:77", NULL), PLM_OK);
  expect_other(&options, "tcp://127.0.0.1:77");
  options.other_bind = "tcp://127.0.0.1:78";
  expect_other(&options, "tcp://127.0.0.1:78");
  options.other_address = "tcp://other:79";
  expect_other(&options, "tcp://other:79");
  memset(longest, 'x', sizeof longest - 1);
  longest[512] = '\0'; /* without room for its end, it is not told */
  options.other_address = longest;
  expect_other(&options, "tcp://127.0.0.1:77");
  longest[511] = '\0';
  char cut[256] = ""; /* of what fits, the message has a part */
  memcpy(cut, longest, sizeof cut - 1);
  expect_other(&options, cut);
  longest[511] = 'x'; /* without room for its end, that in the run is not told either */
  assert_int_equal(plm_endpoint_write(run, "evaluation_feed", longest, NULL), PLM_OK);
  expect_other(&options, "");
}

/* The supervisor says in the run that it starts no packer any more. */
static void the_feed_learns_that_packers_are_given_up(void **state)
{
  (void)state;
  for (int fatal = 0; fatal < 2; fatal++) {
    char run[PLM_PATH_SIZE];
    struct plm_feed_options of = packers_options();
    struct plm_feed *feed = packers_feed(&of);
    struct plm_feed_run *feed_run;
    scratch_run(run);
    const struct plm_feed_run_options options = {.run = run,
                                                 .role = "trainer",
                                                 .feed = feed,
                                                 .other_key = "evaluation_feed",
                                                 .other_bind = "tcp://127.0.0.1:*"};
    assert_int_equal(plm_endpoint_write(run, "packers", fatal ? "fatal" : "starting", NULL),
                     PLM_OK);
    plm_feed_packers_given_up(feed, !fatal);
    assert_int_equal(plm_feed_run_open(&options, &feed_run, NULL), PLM_OK);
    plm_feed_run_close(feed_run);
    assert_int_equal(feed->packers_given_up, fatal);
    plm_feed_close(feed);
  }
}

static plm_status open_feed(void *context, struct plm_error *error)
{
  const struct plm_feed_options options = packers_options();
  struct plm_feed *feed = NULL;
  PLM_TRY(plm_feed_open(&options, &feed, error));
  const struct plm_feed_run_options of = {.run = context,
                                          .role = "trainer",
                                          .feed = feed,
                                          .other_key = "evaluation_feed",
                                          .other_bind = "tcp://127.0.0.1:*"};
  struct plm_feed_run *feed_run;
  const plm_status status = plm_feed_run_open(&of, &feed_run, error);
  if (status == PLM_OK) plm_feed_run_close(feed_run);
  plm_feed_close(feed);
  return status;
}

/* Those that check answers, that of the feed, and that of its run. */
static void threads_that_do_not_start_are_an_error(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE];
  scratch_run(run);
  assert_in_range(failing_starts_try(open_feed, run), 3, 100);
}

int main(void)
{
  plm_log_init("t", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_failure_is_told_once_until_it_ends),
                                     cmocka_unit_test(the_address_of_the_other_is_found),
                                     cmocka_unit_test(the_feed_learns_that_packers_are_given_up),
                                     cmocka_unit_test(threads_that_do_not_start_are_an_error)};
  return cmocka_run_group_tests(tests, fake_corpus_open, NULL);
}
