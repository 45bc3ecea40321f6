/* When a rank counts as silent or as late, and who says so: each limit is tried on both sides. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>

#include "tests/kernels/mpi/watched_ranks.h"

/* Rank `silent` sends one notice; `other` watches it in silence for `seconds`. */
static void silence(int other, int silent, double timeout, double seconds, int speaker)
{
  char text[200];
  const int third = POST_RANKS - other - silent;
  assert_int_equal(watched_begin(NULL), 0);
  watched_world[other].timeout_s = timeout;
  watched_world[silent].step = 4;
  watched_world[silent].phase = "resting";
  watched_watch(silent);
  watched_watch(other);
  watched_pass(seconds);
  watched_watch(third);
  watched_watch(other);
  snprintf(text, sizeof text,
           "rank %d on host-%d has been silent for %.0f s; it was in step 5 (resting)", silent,
           silent, seconds);
  watched_failed(other, speaker, text);
  if (speaker < 0) return;
  assert_string_equal(watched_world[other].error.hint,
                      "the process is stopped, or its host or the network is lost; the run resumes "
                      "from its newest checkpoint");
}

static void a_silent_rank_is_found(void **state)
{
  (void)state;
  silence(0, 1, 8, 8, -1);
  silence(0, 1, 8, 8.001, 0);
  silence(0, 2, 8, 8.001, 0);
  silence(2, 0, 8, 8.001, 1); /* the lowest other one says it */
  silence(1, 0, 8, 8.001, 1);
  silence(1, 2, 8, 8.001, 0);
  silence(0, 1, 300, 29.9, -1);
  silence(0, 1, 300, 30.1, 0);
  silence(0, 1, 30.5, 30.2, 0); /* at most 30 s */
  silence(0, 1, 29.5, 29.4, -1);
  silence(0, 1, 29.5, 29.7, 0);
}

/* ---- lateness -------------------------------------------------------------------------------- */

/* Rank `own` waits for 10.5 s, as do all others, which have started so many transfers. */
static void wait_for_ranks(int own, int a, int b, int c)
{
  const int started[POST_RANKS] = {a, b, c};
  assert_int_equal(watched_begin(NULL), 0);
  for (int r = 0; r < POST_RANKS; r++) {
    watched_world[r].started = (uint64_t)started[r];
    watched_world[r].timeout_s = 20;
  }
  watched_world[own].timeout_s = 10;
  watched_world[own].waiting_since_ns = post_now_ns;
  watched_pass(9);
  watched_watch_all();
  watched_pass(1);
  watched_watch_all();
  watched_watch_all();
  watched_failed(own, -1, ""); /* after 10 s */
  watched_pass(0.5);
}

static void late(int own, int a, int b, int c, int speaker, const char *what)
{
  wait_for_ranks(own, a, b, c);
  watched_watch(own);
  watched_failed(own, speaker, what);
  assert_string_equal(watched_world[own].error.hint,
                      "trainer.rank_timeout_s is 10; the run resumes from its newest checkpoint");
}

#define LATE(rank) \
  "rank " rank " on host-" rank " keeps the others waiting for 10 s; it is in step 1"
#define NONE "an exchange between the ranks did not end within 10 s"

static void the_rank_that_is_behind_is_late(void **state)
{
  (void)state;
  late(0, 5, 4, 5, 0, LATE("1") "2 (training)");
  late(0, 5, 5, 4, 0, LATE("2") "3 (training)");
  late(0, 5, 4, 3, 0, LATE("2") "3 (training)");
  late(0, 5, 3, 4, 0, LATE("1") "2 (training)");
  late(1, 4, 5, 5, 1, LATE("0") "1 (training)");
  late(2, 4, 5, 5, 1, LATE("0") "1 (training)");
  late(2, 5, 4, 5, 0, LATE("1") "2 (training)");
  late(0, 5, 4, 4, 0, LATE("1") "2 (training)");
}

static void if_no_rank_is_behind_rank_0_says_it(void **state)
{
  (void)state;
  late(0, 5, 5, 5, 0, NONE);
  late(1, 5, 5, 5, 0, NONE);
  late(2, 5, 5, 4, 0, NONE); /* this rank itself is behind */
  late(2, 6, 7, 5, 0, NONE);
}

static void a_rank_may_be_waited_for_patiently(void **state)
{
  (void)state;
  wait_for_ranks(0, 5, 4, 5);
  watched_peers[0][1].newest.patient = 1;
  watched_watch(0);
  watched_failed(0, -1, "");
  watched_peers[0][1].newest.patient = 0;
  watched_peers[0][2].newest.patient = 1; /* another one */
  watched_watch(0);
  watched_failed(0, 0, LATE("1") "2 (training)");
}

/* It may be silent soon, which is told by find_silent. */
static void a_late_rank_has_been_heard_within_two_seconds(void **state)
{
  (void)state;
  wait_for_ranks(0, 5, 4, 5);
  watched_peers[0][1].heard_ns = post_now_ns - 2 * WATCHED_SECOND_NS - 1000;
  watched_watch(0);
  watched_failed(0, -1, "");
  watched_peers[0][1].heard_ns = post_now_ns - 2 * WATCHED_SECOND_NS;
  watched_watch(0);
  watched_failed(0, 0, LATE("1") "2 (training)");
}

static void who_waits_for_nothing_finds_nobody_late(void **state)
{
  (void)state;
  wait_for_ranks(0, 5, 4, 5);
  watched_world[0].waiting_since_ns = 0;
  watched_watch(0);
  watched_failed(0, -1, "");
  watched_world[0].waiting_since_ns =
      post_now_ns + WATCHED_SECOND_NS; /* begun after this look at the clock */
  watched_watch(0);
  watched_failed(0, -1, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, watched_begin)
  const struct CMUnitTest tests[] = {
      TEST(a_silent_rank_is_found),
      TEST(the_rank_that_is_behind_is_late),
      TEST(if_no_rank_is_behind_rank_0_says_it),
      TEST(a_rank_may_be_waited_for_patiently),
      TEST(a_late_rank_has_been_heard_within_two_seconds),
      TEST(who_waits_for_nothing_finds_nobody_late),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
