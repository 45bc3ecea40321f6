/* Three ranks without MPI: see watched_ranks.h. */
#include "tests/kernels/mpi/watched_ranks.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"

struct plm_mpi watched_world[POST_RANKS];
struct plm_mpi_peer watched_peers[POST_RANKS][POST_RANKS];

int watched_said[POST_RANKS]; /* how often each said what happened */
struct plm_error watched_last_said;

static void count_said(uint32_t rank, const struct plm_error *error)
{
  watched_said[rank]++;
  watched_last_said = *error;
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

int watched_begin(void **state)
{
  static const plm_collective_say say[POST_RANKS] = {say_0, say_1, say_2};
  (void)state;
  post_open();
  post_now_ns = WATCHED_SECOND_NS / 2; /* the first notice is sent within the first second */
  memset(watched_peers, 0, sizeof watched_peers);
  memset(watched_said, 0, sizeof watched_said);
  for (uint32_t r = 0; r < POST_RANKS; r++) {
    watched_world[r] = (struct plm_mpi){.base.place = {.rank = r, .ranks = POST_RANKS},
                                        .say = say[r],
                                        .notices = post_comm(r),
                                        .peers = watched_peers[r],
                                        .timeout_s = 300,
                                        .phase = "training",
                                        .step = 10 + r,
                                        .speaker = -1};
    pthread_mutex_init(&watched_world[r].mutex, NULL);
    pthread_cond_init(&watched_world[r].changed, NULL);
    for (uint32_t p = 0; p < POST_RANKS; p++)
      snprintf(watched_peers[r][p].host, sizeof watched_peers[r][p].host, "host-%u", p);
    plm_mpi_watch_begin(&watched_world[r]);
  }
  return 0;
}

void watched_pass(double seconds)
{
  post_now_ns += (uint64_t)(seconds * 1e9);
}

void watched_watch(int rank)
{
  plm_mpi_watch(&watched_world[rank], post_now_ns);
}

void watched_watch_all(void)
{
  for (int r = 0; r < POST_RANKS; r++) watched_watch(r);
}

void watched_sent(int to_0, int to_1, int to_2)
{
  assert_int_equal(post_sent_to[0], to_0);
  assert_int_equal(post_sent_to[1], to_1);
  assert_int_equal(post_sent_to[2], to_2);
}

void watched_failed(int rank, int speaker, const char *what)
{
  assert_int_equal(plm_mpi_speaker(&watched_world[rank]), speaker);
  if (speaker >= 0) {
    assert_string_equal(watched_world[rank].error.what, what);
    assert_int_equal(watched_world[rank].error.status, PLM_FAILURE);
  }
}
