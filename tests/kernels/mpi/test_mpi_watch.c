/* What ranks tell each other, and what follows from it: each limit is tried on both sides.
 * test_engine.sh runs the whole engine with the real MPI. */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>

#include "tests/kernels/mpi/watched_ranks.h"

/* ---- notices --------------------------------------------------------------------------------- */

static void each_rank_listens_to_the_others_until_the_end(void **state)
{
  (void)state;
  assert_int_equal(post_open_requests(), POST_RANKS * (POST_RANKS - 1));
  for (int r = 0; r < POST_RANKS; r++)
    for (int p = 0; p < POST_RANKS; p++) {
      const struct plm_mpi_peer *peer = &watched_peers[r][p];
      assert_int_equal(peer->heard_ns, WATCHED_SECOND_NS / 2);
      assert_int_equal(peer->newest.speaker, -1);
      assert_true(peer->send == MPI_REQUEST_NULL);
      assert_int_equal(peer->receive == MPI_REQUEST_NULL, p == r);
      if (p != r) assert_ptr_equal(post_bytes(peer->receive), &peer->incoming);
    }
  watched_watch_all(); /* messages are under way at the end */
  watched_watch_all();
  for (int r = 0; r < POST_RANKS; r++) plm_mpi_watch_end(&watched_world[r]);
  assert_int_equal(post_open_requests(), 0);
  for (int r = 0; r < POST_RANKS; r++)
    for (int p = 0; p < POST_RANKS; p++)
      assert_true(watched_peers[r][p].send == MPI_REQUEST_NULL &&
                  watched_peers[r][p].receive == MPI_REQUEST_NULL);
}

static void a_notice_has_all_that_others_need(void **state)
{
  (void)state;
  watched_world[0].started = 7;
  watched_world[0].step = 41;
  watched_world[0].patient = true;
  watched_world[0].phase = "a phase with a name that is longer than a notice has room for";
  watched_world[0].error.status = PLM_TIMEOUT; /* nothing has failed, so nobody learns of it */
  watched_watch(0);
  watched_pass(0.25);
  for (int r = 1; r < POST_RANKS; r++) {
    watched_watch(r);
    const struct plm_mpi_notice *newest = &watched_peers[r][0].newest;
    assert_int_equal(newest->started, 7);
    assert_int_equal(newest->step, 41);
    assert_int_equal(newest->patient, 1);
    assert_int_equal(newest->speaker, -1);
    assert_int_equal(newest->said, 0);
    assert_int_equal(newest->error.status, PLM_OK);
    assert_string_equal(newest->phase, "a phase with a name that is longer than a notic");
    assert_int_equal(watched_peers[r][0].heard_ns, post_now_ns);
    assert_int_equal(watched_peers[r][r == 1 ? 2 : 1].heard_ns,
                     r == 1 ? WATCHED_SECOND_NS / 2 : post_now_ns);
    watched_failed(r, -1, "");
    assert_false(watched_world[r].said);
  }
  watched_watch(0);
  assert_int_equal(watched_peers[0][1].newest.step, 11);
  assert_int_equal(watched_peers[0][2].newest.step, 12);
  assert_int_equal(watched_peers[0][1].newest.patient, 0);
}

static void notices_are_sent_each_second(void **state)
{
  (void)state;
  watched_watch(0);
  watched_sent(0, 1, 1);
  post_now_ns += WATCHED_SECOND_NS - 1;
  watched_watch(1);
  watched_watch(2);
  watched_sent(2, 2, 2);
  watched_watch(0);
  watched_sent(2, 2, 2);
  post_now_ns++;
  watched_watch(0);
  watched_sent(2, 3, 3);
  watched_watch(0);
  watched_sent(2, 3, 3);
}

/* The memory of a message stays as it is until the message has been taken. */
static void who_has_not_taken_a_notice_gets_no_further_one(void **state)
{
  (void)state;
  watched_world[0].started = 1;
  watched_watch(0);
  watched_watch(1);
  watched_world[0].started = 2;
  watched_pass(1);
  watched_watch(0);
  watched_sent(1, 2, 2); /* one of them by rank 1 */
  assert_int_equal(watched_peers[0][2].outgoing.started, 1);
  watched_watch(2);
  assert_int_equal(watched_peers[2][0].newest.started, 1);
  watched_pass(1);
  watched_watch(0);
  watched_watch(2);
  assert_int_equal(watched_peers[2][0].newest.started, 2);
}

/* Two messages that are there at once are both taken. */
static void the_newest_notice_counts(void **state)
{
  (void)state;
  for (int i = 1; i <= 2; i++) {
    struct plm_mpi_notice notice = {.started = (uint64_t)i, .speaker = -1};
    MPI_Request request;
    static struct plm_mpi_notice kept[3];
    kept[i] = notice;
    MPI_Isend(&kept[i], sizeof notice, MPI_BYTE, 0, 0, watched_world[1].notices, &request);
  }
  watched_watch(0);
  assert_int_equal(watched_peers[0][1].newest.started, 2);
}

/* MPI may be unable to receive more. Then the rank is not heard any more. */
static void what_cannot_be_received_is_not_heard(void **state)
{
  (void)state;
  watched_watch(1);
  post_refuses = true;
  watched_watch(0);
  assert_int_equal(watched_peers[0][1].newest.step, 11);
  assert_true(watched_peers[0][1].receive == MPI_REQUEST_NULL);
  watched_pass(3);
  watched_watch(0);
  assert_int_equal(watched_peers[0][1].heard_ns, WATCHED_SECOND_NS / 2);
}

/* Rank 1 of another build sends `speaker`. */
static void strange_notice(int32_t speaker, int32_t expected)
{
  static struct plm_mpi_notice strange;
  MPI_Request request;
  assert_int_equal(watched_begin(NULL), 0);
  memset(&strange, 'x', sizeof strange);
  strange.speaker = speaker;
  strange.said = 0;
  MPI_Isend(&strange, sizeof strange, MPI_BYTE, 0, 0, watched_world[1].notices, &request);
  watched_watch(0);
  const struct plm_mpi_notice *newest = &watched_peers[0][1].newest;
  assert_int_equal(newest->speaker, expected);
  assert_int_equal(plm_mpi_speaker(&watched_world[0]), expected);
  assert_int_equal(strlen(newest->phase), sizeof newest->phase - 1);
  assert_int_equal(strlen(newest->error.what), sizeof newest->error.what - 1);
  assert_int_equal(strlen(newest->error.where), sizeof newest->error.where - 1);
  assert_int_equal(strlen(newest->error.hint), sizeof newest->error.hint - 1);
  if (expected >= 0)
    assert_memory_equal(&watched_world[0].error, &newest->error, sizeof newest->error);
}

static void strange_notices_are_made_safe(void **state)
{
  (void)state;
  strange_notice(-7, -1);
  strange_notice(-1, -1);
  strange_notice(0, 0);
  strange_notice(POST_RANKS - 1, POST_RANKS - 1);
  strange_notice(POST_RANKS, 0);
  strange_notice(INT32_MAX, 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void fail_rank(int rank, const char *what)
{
  struct plm_error error = {0};
  plm_error_set(&error, PLM_FAILURE, "%s", what);
  plm_error_where(&error, "where");
  plm_mpi_set_failing(&watched_world[rank], (uint32_t)rank, &error);
}

static void the_first_failure_is_told_at_once(void **state)
{
  (void)state;
  watched_watch_all();
  watched_watch(0);
  watched_sent(2, 2, 2);
  watched_pass(0.01);
  fail_rank(0, "tired");
  fail_rank(0, "too late");
  watched_failed(0, 0, "tired");
  watched_watch(0);
  watched_sent(2, 3, 3);
  assert_int_equal(watched_world[0].told, 1);
  watched_watch(1);
  watched_watch(2);
  watched_sent(4, 4, 4); /* the others pass it on */
  for (int r = 1; r < POST_RANKS; r++) {
    watched_failed(r, 0, "tired");
    assert_string_equal(watched_world[r].error.where, "where");
    assert_int_equal(watched_world[r].told, 1);
    assert_false(watched_world[r].said);
  }
  watched_watch(0);
  watched_sent(4, 4, 4); /* this was told */
  watched_world[0].said = true;
  watched_watch(0);
  watched_sent(4, 5, 5);
  assert_int_equal(watched_world[0].told, 2);
  watched_watch(1);
  assert_true(watched_world[1].said);
  watched_watch(0);
  watched_sent(5, 5, 6); /* rank 1 knows now that it was said, and tells it */
  assert_int_equal(watched_world[1].told, 2);
}

/* Rank 2 takes nothing for a while. */
static void a_failure_is_told_again_until_all_have_got_it(void **state)
{
  (void)state;
  watched_watch(0);
  watched_watch(1);
  watched_watch(0);
  fail_rank(0, "tired");
  watched_watch(0);
  assert_int_equal(watched_world[0].told, 0);
  watched_sent(1, 2, 2);
  watched_watch(1);
  watched_watch(0);
  assert_int_equal(watched_world[0].told, 0);
  watched_watch(1);
  watched_watch(2);
  watched_watch(0);
  assert_int_equal(watched_world[0].told, 1);
  watched_watch(2);
  watched_failed(2, 0, "tired");
}

static void *wait_for_failure(void *context)
{
  struct plm_mpi *mpi = context;
  pthread_mutex_lock(&mpi->mutex);
  while (mpi->speaker < 0) pthread_cond_wait(&mpi->changed, &mpi->mutex);
  while (!mpi->failed) pthread_cond_wait(&mpi->changed, &mpi->mutex);
  pthread_mutex_unlock(&mpi->mutex);
  return NULL;
}

/* All ranks are there. post_on_pause lets the others answer. */
static void watch_others(void)
{
  watched_watch(1);
  watched_watch(2);
}

static void the_rank_that_failed_says_it_and_leaves_when_all_know(void **state)
{
  (void)state;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, wait_for_failure, &watched_world[0]), 0);
  post_on_pause = watch_others;
  fail_rank(0, "tired");
  const uint64_t begun_ns = post_now_ns;
  plm_mpi_farewell(&watched_world[0]);
  pthread_join(thread, NULL);
  assert_true(post_now_ns - begun_ns < WATCHED_SECOND_NS / 10);
  assert_true(watched_world[0].failed && watched_world[0].said);
  assert_int_equal(watched_world[0].told, 2);
  assert_int_equal(watched_said[0], 1);
  assert_string_equal(watched_last_said.what, "tired");
  post_on_pause = NULL;
  watch_others(); /* the last notice was sent before the farewell ended */
  for (int r = 1; r < POST_RANKS; r++) {
    watched_failed(r, 0, "tired");
    assert_true(watched_world[r].said && watched_said[r] == 0 && !watched_world[r].failed);
  }
  plm_mpi_farewell(&watched_world[1]);
  assert_true(watched_world[1].failed);
  assert_int_equal(watched_said[0] + watched_said[1] + watched_said[2], 1);
}

/* Nobody answers the rank that has failed. */
static void it_waits_two_seconds_for_others(void **state)
{
  (void)state;
  fail_rank(0, "tired");
  const uint64_t begun_ns = post_now_ns;
  plm_mpi_farewell(&watched_world[0]);
  assert_int_equal(post_now_ns - begun_ns, 2 * WATCHED_SECOND_NS);
  assert_int_equal(watched_said[0], 1);
  assert_true(watched_world[0].failed);
}

/* All know of the failure, but rank 2 does not take the notice that it was said. */
static void watch_one(void)
{
  watched_watch(1);
}

static void it_waits_two_seconds_for_the_last_notice(void **state)
{
  (void)state;
  watched_watch(0); /* lies there, untaken by rank 2 */
  static struct plm_mpi_notice notice = {.speaker = 0};
  MPI_Request request;
  MPI_Isend(&notice, sizeof notice, MPI_BYTE, 0, 0, watched_world[2].notices, &request);
  fail_rank(0, "tired");
  post_on_pause = watch_one;
  const uint64_t begun_ns = post_now_ns;
  plm_mpi_farewell(&watched_world[0]);
  assert_int_equal(post_now_ns - begun_ns, 2 * WATCHED_SECOND_NS);
  assert_int_equal(watched_world[0].told, 0);
  assert_int_equal(watched_peers[0][1].newest.speaker, 0);
  assert_int_equal(watched_peers[0][2].newest.speaker, 0);
}

/* The rank that should say it is there, but says nothing. */
static void another_one_says_it_after_twenty_seconds(void **state)
{
  (void)state;
  struct plm_error error = {0};
  plm_error_set(&error, PLM_FAILURE, "tired");
  plm_mpi_set_failing(&watched_world[0], 1, &error);
  post_on_pause = watch_others;
  const uint64_t begun_ns = post_now_ns;
  plm_mpi_farewell(&watched_world[0]);
  assert_int_equal(post_now_ns - begun_ns, 20 * WATCHED_SECOND_NS);
  assert_int_equal(watched_said[0], 1);
  assert_int_equal(watched_said[1] + watched_said[2], 0);
  assert_true(watched_world[0].failed && watched_world[0].said);
  watched_failed(1, 1, "tired");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, watched_begin)
  const struct CMUnitTest tests[] = {
      TEST(each_rank_listens_to_the_others_until_the_end),
      TEST(a_notice_has_all_that_others_need),
      TEST(notices_are_sent_each_second),
      TEST(who_has_not_taken_a_notice_gets_no_further_one),
      TEST(the_newest_notice_counts),
      TEST(what_cannot_be_received_is_not_heard),
      TEST(strange_notices_are_made_safe),
      TEST(the_first_failure_is_told_at_once),
      TEST(a_failure_is_told_again_until_all_have_got_it),
      TEST(the_rank_that_failed_says_it_and_leaves_when_all_know),
      TEST(it_waits_two_seconds_for_others),
      TEST(it_waits_two_seconds_for_the_last_notice),
      TEST(another_one_says_it_after_twenty_seconds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
