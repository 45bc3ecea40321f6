/* What ranks tell each other, and what follows from it: kernels/mpi/mpi_watch.c of three ranks in
 * this process. The clock stands still until a test advances it, and messages lie in a post office
 * (post_office.h) until their receiver asks for them. So each limit is tried on both sides.
 * test_engine.sh runs the whole engine with the real MPI. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "kernels/mpi/mpi_engine.h"
#include "tests/kernels/mpi/post_office.h"

enum { RANKS = POST_RANKS };

static const uint64_t second_ns = 1000000000;

static struct plm_mpi world[RANKS];
static struct plm_mpi_peer peers[RANKS][RANKS];

/* ---- the ranks ------------------------------------------------------------------------------- */

static int said[RANKS]; /* how often each said what happened */
static struct plm_error last_said;

static void count_said(uint32_t rank, const struct plm_error *error)
{
  said[rank]++;
  last_said = *error;
}
static void say_0(const struct plm_error *error)
{
  count_said(0, error);
}
static void say_1(const struct plm_error *error)
{
  count_said(1, error);
}
static void say_2(const struct plm_error *error)
{
  count_said(2, error);
}

static int begin(void **state)
{
  static const plm_collective_say say[RANKS] = {say_0, say_1, say_2};
  (void)state;
  post_open();
  post_now_ns = second_ns / 2; /* the first notice is sent within the first second */
  memset(peers, 0, sizeof peers);
  memset(said, 0, sizeof said);
  for (uint32_t r = 0; r < RANKS; r++) {
    world[r] = (struct plm_mpi){.base.place = {.rank = r, .ranks = RANKS},
                                .say = say[r],
                                .notices = post_comm(r),
                                .peers = peers[r],
                                .timeout_s = 300,
                                .phase = "training",
                                .step = 10 + r,
                                .speaker = -1};
    pthread_mutex_init(&world[r].mutex, NULL);
    pthread_cond_init(&world[r].changed, NULL);
    for (uint32_t p = 0; p < RANKS; p++)
      snprintf(peers[r][p].host, sizeof peers[r][p].host, "host-%u", p);
    plm_mpi_watch_begin(&world[r]);
  }
  return 0;
}

static void pass(double seconds)
{
  post_now_ns += (uint64_t)(seconds * 1e9);
}

static void watch(int rank)
{
  plm_mpi_watch(&world[rank], post_now_ns);
}

static void watch_all(void)
{
  for (int r = 0; r < RANKS; r++) watch(r);
}

static void sent(int to_0, int to_1, int to_2)
{
  assert_int_equal(post_sent_to[0], to_0);
  assert_int_equal(post_sent_to[1], to_1);
  assert_int_equal(post_sent_to[2], to_2);
}

static void failed(int rank, int speaker, const char *what)
{
  assert_int_equal(plm_mpi_speaker(&world[rank]), speaker);
  if (speaker >= 0) {
    assert_string_equal(world[rank].error.what, what);
    assert_int_equal(world[rank].error.status, PLM_FAILURE);
  }
}

/* ---- notices --------------------------------------------------------------------------------- */

static void each_rank_listens_to_the_others_until_the_end(void **state)
{
  (void)state;
  assert_int_equal(post_open_requests(), RANKS * (RANKS - 1));
  for (int r = 0; r < RANKS; r++)
    for (int p = 0; p < RANKS; p++) {
      const struct plm_mpi_peer *peer = &peers[r][p];
      assert_int_equal(peer->heard_ns, second_ns / 2);
      assert_int_equal(peer->newest.speaker, -1);
      assert_true(peer->send == MPI_REQUEST_NULL);
      assert_int_equal(peer->receive == MPI_REQUEST_NULL, p == r);
      if (p != r) assert_ptr_equal(post_bytes(peer->receive), &peer->incoming);
    }
  watch_all(); /* messages are under way at the end */
  watch_all();
  for (int r = 0; r < RANKS; r++) plm_mpi_watch_end(&world[r]);
  assert_int_equal(post_open_requests(), 0);
  for (int r = 0; r < RANKS; r++)
    for (int p = 0; p < RANKS; p++)
      assert_true(peers[r][p].send == MPI_REQUEST_NULL && peers[r][p].receive == MPI_REQUEST_NULL);
}

static void a_notice_has_all_that_others_need(void **state)
{
  (void)state;
  world[0].started = 7;
  world[0].step = 41;
  world[0].patient = true;
  world[0].phase = "a phase with a name that is longer than a notice has room for";
  world[0].error.status = PLM_TIMEOUT; /* nothing has failed, so nobody learns of it */
  watch(0);
  pass(0.25);
  for (int r = 1; r < RANKS; r++) {
    watch(r);
    const struct plm_mpi_notice *newest = &peers[r][0].newest;
    assert_int_equal(newest->started, 7);
    assert_int_equal(newest->step, 41);
    assert_int_equal(newest->patient, 1);
    assert_int_equal(newest->speaker, -1);
    assert_int_equal(newest->said, 0);
    assert_int_equal(newest->error.status, PLM_OK);
    assert_string_equal(newest->phase, "a phase with a name that is longer than a notic");
    assert_int_equal(peers[r][0].heard_ns, post_now_ns);
    assert_int_equal(peers[r][r == 1 ? 2 : 1].heard_ns, r == 1 ? second_ns / 2 : post_now_ns);
    failed(r, -1, "");
    assert_false(world[r].said);
  }
  watch(0);
  assert_int_equal(peers[0][1].newest.step, 11);
  assert_int_equal(peers[0][2].newest.step, 12);
  assert_int_equal(peers[0][1].newest.patient, 0);
}

static void notices_are_sent_each_second(void **state)
{
  (void)state;
  watch(0);
  sent(0, 1, 1);
  post_now_ns += second_ns - 1;
  watch(1);
  watch(2);
  sent(2, 2, 2);
  watch(0);
  sent(2, 2, 2);
  post_now_ns++;
  watch(0);
  sent(2, 3, 3);
  watch(0);
  sent(2, 3, 3);
}

/* The memory of a message stays as it is until the message has been taken. */
static void who_has_not_taken_a_notice_gets_no_further_one(void **state)
{
  (void)state;
  world[0].started = 1;
  watch(0);
  watch(1);
  world[0].started = 2;
  pass(1);
  watch(0);
  sent(1, 2, 2); /* one of them by rank 1 */
  assert_int_equal(peers[0][2].outgoing.started, 1);
  watch(2);
  assert_int_equal(peers[2][0].newest.started, 1);
  pass(1);
  watch(0);
  watch(2);
  assert_int_equal(peers[2][0].newest.started, 2);
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
    MPI_Isend(&kept[i], sizeof notice, MPI_BYTE, 0, 0, world[1].notices, &request);
  }
  watch(0);
  assert_int_equal(peers[0][1].newest.started, 2);
}

/* MPI may be unable to receive more. Then the rank is not heard any more. */
static void what_cannot_be_received_is_not_heard(void **state)
{
  (void)state;
  watch(1);
  post_refuses = true;
  watch(0);
  assert_int_equal(peers[0][1].newest.step, 11);
  assert_true(peers[0][1].receive == MPI_REQUEST_NULL);
  pass(3);
  watch(0);
  assert_int_equal(peers[0][1].heard_ns, second_ns / 2);
}

/* Rank 1 of another build sends `speaker`. */
static void strange_notice(int32_t speaker, int32_t expected)
{
  static struct plm_mpi_notice strange;
  MPI_Request request;
  assert_int_equal(begin(NULL), 0);
  memset(&strange, 'x', sizeof strange);
  strange.speaker = speaker;
  strange.said = 0;
  MPI_Isend(&strange, sizeof strange, MPI_BYTE, 0, 0, world[1].notices, &request);
  watch(0);
  const struct plm_mpi_notice *newest = &peers[0][1].newest;
  assert_int_equal(newest->speaker, expected);
  assert_int_equal(plm_mpi_speaker(&world[0]), expected);
  assert_int_equal(strlen(newest->phase), sizeof newest->phase - 1);
  assert_int_equal(strlen(newest->error.what), sizeof newest->error.what - 1);
  assert_int_equal(strlen(newest->error.where), sizeof newest->error.where - 1);
  assert_int_equal(strlen(newest->error.hint), sizeof newest->error.hint - 1);
  if (expected >= 0) assert_memory_equal(&world[0].error, &newest->error, sizeof newest->error);
}

static void strange_notices_are_made_safe(void **state)
{
  (void)state;
  strange_notice(-7, -1);
  strange_notice(-1, -1);
  strange_notice(0, 0);
  strange_notice(RANKS - 1, RANKS - 1);
  strange_notice(RANKS, 0);
  strange_notice(INT32_MAX, 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void fail_rank(int rank, const char *what)
{
  struct plm_error error = {0};
  plm_error_set(&error, PLM_FAILURE, "%s", what);
  plm_error_where(&error, "where");
  plm_mpi_set_failing(&world[rank], (uint32_t)rank, &error);
}

static void the_first_failure_is_told_at_once(void **state)
{
  (void)state;
  watch_all();
  watch(0);
  sent(2, 2, 2);
  pass(0.01);
  fail_rank(0, "tired");
  fail_rank(0, "too late");
  failed(0, 0, "tired");
  watch(0);
  sent(2, 3, 3);
  assert_int_equal(world[0].told, 1);
  watch(1);
  watch(2);
  sent(4, 4, 4); /* the others pass it on */
  for (int r = 1; r < RANKS; r++) {
    failed(r, 0, "tired");
    assert_string_equal(world[r].error.where, "where");
    assert_int_equal(world[r].told, 1);
    assert_false(world[r].said);
  }
  watch(0);
  sent(4, 4, 4); /* this was told */
  world[0].said = true;
  watch(0);
  sent(4, 5, 5);
  assert_int_equal(world[0].told, 2);
  watch(1);
  assert_true(world[1].said);
  watch(0);
  sent(5, 5, 6); /* rank 1 knows now that it was said, and tells it */
  assert_int_equal(world[1].told, 2);
}

/* Rank 2 takes nothing for a while. */
static void a_failure_is_told_again_until_all_have_got_it(void **state)
{
  (void)state;
  watch(0);
  watch(1);
  watch(0);
  fail_rank(0, "tired");
  watch(0);
  assert_int_equal(world[0].told, 0);
  sent(1, 2, 2);
  watch(1);
  watch(0);
  assert_int_equal(world[0].told, 0);
  watch(1);
  watch(2);
  watch(0);
  assert_int_equal(world[0].told, 1);
  watch(2);
  failed(2, 0, "tired");
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
  watch(1);
  watch(2);
}

static void the_rank_that_failed_says_it_and_leaves_when_all_know(void **state)
{
  (void)state;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, wait_for_failure, &world[0]), 0);
  post_on_pause = watch_others;
  fail_rank(0, "tired");
  const uint64_t begun_ns = post_now_ns;
  plm_mpi_farewell(&world[0]);
  pthread_join(thread, NULL);
  assert_true(post_now_ns - begun_ns < second_ns / 10);
  assert_true(world[0].failed && world[0].said);
  assert_int_equal(world[0].told, 2);
  assert_int_equal(said[0], 1);
  assert_string_equal(last_said.what, "tired");
  post_on_pause = NULL;
  watch_others(); /* the last notice was sent before the farewell ended */
  for (int r = 1; r < RANKS; r++) {
    failed(r, 0, "tired");
    assert_true(world[r].said && said[r] == 0 && !world[r].failed);
  }
  plm_mpi_farewell(&world[1]);
  assert_true(world[1].failed);
  assert_int_equal(said[0] + said[1] + said[2], 1);
}

/* Nobody answers the rank that has failed. */
static void it_waits_two_seconds_for_others(void **state)
{
  (void)state;
  fail_rank(0, "tired");
  const uint64_t begun_ns = post_now_ns;
  plm_mpi_farewell(&world[0]);
  assert_int_equal(post_now_ns - begun_ns, 2 * second_ns);
  assert_int_equal(said[0], 1);
  assert_true(world[0].failed);
}

/* All know of the failure, but rank 2 does not take the notice that it was said. */
static void watch_one(void)
{
  watch(1);
}

static void it_waits_two_seconds_for_the_last_notice(void **state)
{
  (void)state;
  watch(0); /* lies there, untaken by rank 2 */
  static struct plm_mpi_notice notice = {.speaker = 0};
  MPI_Request request;
  MPI_Isend(&notice, sizeof notice, MPI_BYTE, 0, 0, world[2].notices, &request);
  fail_rank(0, "tired");
  post_on_pause = watch_one;
  const uint64_t begun_ns = post_now_ns;
  plm_mpi_farewell(&world[0]);
  assert_int_equal(post_now_ns - begun_ns, 2 * second_ns);
  assert_int_equal(world[0].told, 0);
  assert_int_equal(peers[0][1].newest.speaker, 0);
  assert_int_equal(peers[0][2].newest.speaker, 0);
}

/* The rank that should say it is there, but says nothing. */
static void another_one_says_it_after_twenty_seconds(void **state)
{
  (void)state;
  struct plm_error error = {0};
  plm_error_set(&error, PLM_FAILURE, "tired");
  plm_mpi_set_failing(&world[0], 1, &error);
  post_on_pause = watch_others;
  const uint64_t begun_ns = post_now_ns;
  plm_mpi_farewell(&world[0]);
  assert_int_equal(post_now_ns - begun_ns, 20 * second_ns);
  assert_int_equal(said[0], 1);
  assert_int_equal(said[1] + said[2], 0);
  assert_true(world[0].failed && world[0].said);
  failed(1, 1, "tired");
}

/* ---- silence --------------------------------------------------------------------------------- */

/* Rank `silent` sends one notice; `other` watches it in silence for `seconds`. */
static void silence(int other, int silent, double timeout, double seconds, int speaker)
{
  char text[200];
  const int third = RANKS - other - silent;
  assert_int_equal(begin(NULL), 0);
  world[other].timeout_s = timeout;
  world[silent].step = 4;
  world[silent].phase = "resting";
  watch(silent);
  watch(other);
  pass(seconds);
  watch(third);
  watch(other);
  snprintf(text, sizeof text,
           "rank %d on host-%d has been silent for %.0f s; it was in step 5 (resting)", silent,
           silent, seconds);
  failed(other, speaker, text);
  if (speaker < 0) return;
  assert_string_equal(world[other].error.hint,
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
  const int started[RANKS] = {a, b, c};
  assert_int_equal(begin(NULL), 0);
  for (int r = 0; r < RANKS; r++) {
    world[r].started = (uint64_t)started[r];
    world[r].timeout_s = 20;
  }
  world[own].timeout_s = 10;
  world[own].waiting_since_ns = post_now_ns;
  pass(9);
  watch_all();
  pass(1);
  watch_all();
  watch_all();
  failed(own, -1, ""); /* after 10 s */
  pass(0.5);
}

static void late(int own, int a, int b, int c, int speaker, const char *what)
{
  wait_for_ranks(own, a, b, c);
  watch(own);
  failed(own, speaker, what);
  assert_string_equal(world[own].error.hint,
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
  peers[0][1].newest.patient = 1;
  watch(0);
  failed(0, -1, "");
  peers[0][1].newest.patient = 0;
  peers[0][2].newest.patient = 1; /* another one */
  watch(0);
  failed(0, 0, LATE("1") "2 (training)");
}

/* It may be silent soon, which is told by find_silent. */
static void a_late_rank_has_been_heard_within_two_seconds(void **state)
{
  (void)state;
  wait_for_ranks(0, 5, 4, 5);
  peers[0][1].heard_ns = post_now_ns - 2 * second_ns - 1000;
  watch(0);
  failed(0, -1, "");
  peers[0][1].heard_ns = post_now_ns - 2 * second_ns;
  watch(0);
  failed(0, 0, LATE("1") "2 (training)");
}

static void who_waits_for_nothing_finds_nobody_late(void **state)
{
  (void)state;
  wait_for_ranks(0, 5, 4, 5);
  world[0].waiting_since_ns = 0;
  watch(0);
  failed(0, -1, "");
  world[0].waiting_since_ns = post_now_ns + second_ns; /* begun after this look at the clock */
  watch(0);
  failed(0, -1, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
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
      TEST(a_silent_rank_is_found),
      TEST(the_rank_that_is_behind_is_late),
      TEST(if_no_rank_is_behind_rank_0_says_it),
      TEST(a_rank_may_be_waited_for_patiently),
      TEST(a_late_rank_has_been_heard_within_two_seconds),
      TEST(who_waits_for_nothing_finds_nobody_late),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
