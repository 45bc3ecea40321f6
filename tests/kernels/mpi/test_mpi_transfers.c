/* What the engine asks MPI for, and when a transfer is done: the functions of MPI, and the two
 * files of the engine that agree on ranks and failures, are replaced here. test_engine.sh runs the
 * whole engine with the real MPI. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/text/text.h"
#include "kernels/mpi/mpi_engine.h"

enum { RANK = 2, RANKS = 6, PART = 64 << 20, MOST = 64 };

/* ---- MPI ------------------------------------------------------------------------------------- */

struct ompi_request_t {
  int asked; /* how often MPI_Test was called */
};
struct ompi_predefined_datatype_t {
  int unused;
};
struct ompi_predefined_datatype_t ompi_mpi_byte;
static struct ompi_predefined_datatype_t unit;

static struct ompi_request_t requests[MOST];
static int made, tests_needed = 1;
static uint64_t done_ns; /* when MPI last said that a request is done */
static bool test_fails;
static int call_fails; /* the call with this number, from 1; 0: none */
static struct plm_text asked;
static char comms[5]; /* steps, inputs, group, rail, notices */

static MPI_Comm comm_at(int i)
{
  return (MPI_Comm)(void *)&comms[i];
}

static const char *comm_name(MPI_Comm comm)
{
  static const char *const names[] = {"steps", "inputs", "group", "rail", "notices"};
  for (int i = 0; i < 5; i++)
    if (comm == comm_at(i)) return names[i];
  return "?";
}

/* Notes a call; an address is given as the distance from `memory`. */
static char memory[16];

static int noted(const char *what, const void *from, const void *to, int count, MPI_Datatype type,
                 MPI_Comm comm, int peer, MPI_Request *request)
{
  plm_text_printf(&asked, "%s of %d %s in %s", what, count, type == MPI_BYTE ? "bytes" : "units",
                  comm_name(comm));
  if (from != NULL) plm_text_printf(&asked, ", from %td", (const char *)from - memory);
  if (to != NULL) plm_text_printf(&asked, ", to %td", (const char *)to - memory);
  if (peer >= 0) plm_text_printf(&asked, ", peer %d", peer);
  plm_text_puts(&asked, "\n");
  PLM_ASSERT(made < MOST);
  requests[made].asked = 0;
  *request = &requests[made++];
  return made == call_fails ? MPI_ERR_OTHER : MPI_SUCCESS;
}

int MPI_Ialltoall(const void *from, int sent, MPI_Datatype from_type, void *to, int received,
                  MPI_Datatype to_type, MPI_Comm comm, MPI_Request *request)
{
  PLM_ASSERT(sent == received && from_type == to_type);
  return noted("all to all", from, to, sent, from_type, comm, -1, request);
}

int MPI_Iallgather(const void *from, int sent, MPI_Datatype from_type, void *to, int received,
                   MPI_Datatype to_type, MPI_Comm comm, MPI_Request *request)
{
  PLM_ASSERT(sent == received && from_type == to_type);
  return noted("gather", from, to, sent, from_type, comm, -1, request);
}

int MPI_Ibcast(void *to, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request *request)
{
  return noted("broadcast", NULL, to, count, type, comm, root, request);
}

int MPI_Isend(const void *from, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
  PLM_ASSERT(tag == 0);
  return noted("send", from, NULL, count, type, comm, peer, request);
}

int MPI_Irecv(void *to, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
  PLM_ASSERT(tag == 0);
  return noted("receive", NULL, to, count, type, comm, peer, request);
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
  (void)status;
  if (test_fails) return MPI_ERR_OTHER;
  const int times = __atomic_add_fetch(&(*request)->asked, 1, __ATOMIC_RELAXED);
  *done = times >= __atomic_load_n(&tests_needed, __ATOMIC_RELAXED);
  if (*done) done_ns = plm_clock_ns();
  return MPI_SUCCESS;
}

static int graces; /* sleeps of two seconds, which take no time here */

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
  (void)left;
  graces += wanted->tv_sec == 2;
  return wanted->tv_sec > 0 ? 0 : (int)syscall(SYS_nanosleep, wanted, NULL);
}

/* ---- the rest of the engine ------------------------------------------------------------------ */

static bool world_fails;
static int worlds_closed, farewells, looks;
static struct plm_mpi *last;  /* that was opened, or not */
static uint64_t waited_since; /* at the last look */

plm_status plm_mpi_check(int code, const char *what, struct plm_error *error)
{
  if (code == MPI_SUCCESS) return PLM_OK;
  return plm_error_set(error, PLM_FAILURE, "the ranks cannot %s", what);
}

plm_status plm_mpi_world_open(struct plm_mpi *mpi, struct plm_error *error)
{
  last = mpi;
  if (world_fails) return plm_error_set(error, PLM_CONFIG, "no world");
  mpi->base.place = (struct plm_rank_place){.rank = RANK, .ranks = RANKS, .group_size = 2};
  mpi->all[PLM_LANE_STEP] = comm_at(0);
  mpi->all[PLM_LANE_INPUT] = comm_at(1);
  mpi->group = comm_at(2);
  mpi->rail = comm_at(3);
  mpi->unit = (MPI_Datatype)(void *)&unit;
  return PLM_OK;
}

void plm_mpi_world_close(struct plm_mpi *mpi)
{
  (void)mpi;
  worlds_closed++;
}

void plm_mpi_watch_begin(struct plm_mpi *mpi)
{
  (void)mpi;
}

void plm_mpi_watch(struct plm_mpi *mpi, uint64_t now_ns)
{
  PLM_ASSERT(now_ns > 0);
  pthread_mutex_lock(&mpi->mutex);
  waited_since = mpi->waiting_since_ns;
  looks++;
  pthread_cond_broadcast(&mpi->changed);
  pthread_mutex_unlock(&mpi->mutex);
}

void plm_mpi_farewell(struct plm_mpi *mpi)
{
  pthread_mutex_lock(&mpi->mutex);
  farewells++;
  mpi->failed = true;
  pthread_cond_broadcast(&mpi->changed);
  pthread_mutex_unlock(&mpi->mutex);
}

void plm_mpi_set_failing(struct plm_mpi *mpi, uint32_t speaker, const struct plm_error *error)
{
  pthread_mutex_lock(&mpi->mutex);
  if (mpi->speaker < 0) mpi->speaker = (int32_t)speaker, mpi->error = *error;
  pthread_mutex_unlock(&mpi->mutex);
}

int32_t plm_mpi_speaker(struct plm_mpi *mpi)
{
  pthread_mutex_lock(&mpi->mutex);
  const int32_t speaker = mpi->speaker;
  pthread_mutex_unlock(&mpi->mutex);
  return speaker;
}

/* ---- transfers ------------------------------------------------------------------------------- */

static void say(const struct plm_error *error)
{
  (void)error;
}

static plm_status try_open(struct plm_collective **collective, struct plm_error *error)
{
  made = call_fails = worlds_closed = farewells = looks = graces = 0;
  tests_needed = 1;
  test_fails = false;
  return plm_collective_entry()->open(say, collective, error);
}

static struct plm_mpi *open_engine(void)
{
  struct plm_collective *collective;
  assert_int_equal(try_open(&collective, NULL), PLM_OK);
  return (struct plm_mpi *)collective;
}

static void expect_asked(const char *expected)
{
  assert_string_equal(asked.length > 0 ? asked.data : "", expected);
  plm_text_deinit(&asked);
}

static void close_engine(struct plm_mpi *mpi)
{
  mpi->base.close(&mpi->base);
  assert_true(worlds_closed == 1 && farewells == 0);
  plm_text_deinit(&asked);
}

static struct plm_transfer transfer_of(enum plm_transfer_kind kind, enum plm_lane lane,
                                       enum plm_scope scope, size_t bytes)
{
  const bool takes = kind != PLM_SEND, gives = kind != PLM_RECEIVE && kind != PLM_BROADCAST;
  return (struct plm_transfer){.kind = kind,
                               .lane = lane,
                               .scope = scope,
                               .peer = 5,
                               .to = takes ? memory + 8 : NULL,
                               .from = gives ? memory + 1 : NULL,
                               .bytes = bytes};
}

static void does(struct plm_mpi *mpi, struct plm_transfer transfer, const char *expected)
{
  mpi->base.start(&mpi->base, &transfer);
  assert_int_equal(mpi->base.wait(&mpi->base, &transfer, NULL), PLM_OK);
  assert_true(transfer.done && transfer.moved == transfer.bytes);
  assert_true(done_ns <= transfer.ended_ns && transfer.ended_ns <= plm_clock_ns());
  expect_asked(expected);
}

static void each_kind_has_its_call(void **state)
{
  (void)state;
  struct plm_mpi *mpi = open_engine();
  does(mpi, transfer_of(PLM_ALL_TO_ALL, PLM_LANE_STEP, PLM_SCOPE_GROUP, 192),
       "all to all of 3 units in group, from 1, to 8\n");
  does(mpi, transfer_of(PLM_ALL_TO_ALL, PLM_LANE_STEP, PLM_SCOPE_RAIL, 64),
       "all to all of 1 units in rail, from 1, to 8\n");
  does(mpi, transfer_of(PLM_ALL_GATHER, PLM_LANE_STEP, PLM_SCOPE_ALL, 128),
       "gather of 2 units in steps, from 1, to 8\n");
  does(mpi, transfer_of(PLM_ALL_GATHER, PLM_LANE_INPUT, PLM_SCOPE_ALL, 65),
       "gather of 65 bytes in inputs, from 1, to 8\n");
  does(mpi, transfer_of(PLM_ALL_GATHER, PLM_LANE_STEP, PLM_SCOPE_GROUP, PART - 1),
       "gather of 67108863 bytes in group, from 1, to 8\n");
  does(mpi, transfer_of(PLM_BROADCAST, PLM_LANE_INPUT, PLM_SCOPE_ALL, 7),
       "broadcast of 7 bytes in inputs, to 8, peer 0\n");
  does(mpi, transfer_of(PLM_SEND, PLM_LANE_STEP, PLM_SCOPE_ALL, 64),
       "send of 64 bytes in steps, from 1, peer 5\n");
  does(mpi, transfer_of(PLM_RECEIVE, PLM_LANE_INPUT, PLM_SCOPE_ALL, 3),
       "receive of 3 bytes in inputs, to 8, peer 5\n");
  does(mpi, transfer_of(PLM_BROADCAST, PLM_LANE_STEP, PLM_SCOPE_ALL, 0),
       "broadcast of 0 bytes in steps, to 8, peer 0\n");
  close_engine(mpi);
}

/* Much memory goes in parts, one after another; all to all and gather go as a whole. */
static void large_transfers_are_cut(void **state)
{
  (void)state;
  struct plm_mpi *mpi = open_engine();
  tests_needed = 3;
  does(mpi, transfer_of(PLM_SEND, PLM_LANE_STEP, PLM_SCOPE_ALL, PART),
       "send of 67108864 bytes in steps, from 1, peer 5\n");
  does(mpi, transfer_of(PLM_SEND, PLM_LANE_STEP, PLM_SCOPE_ALL, 2ull * PART + 9),
       "send of 67108864 bytes in steps, from 1, peer 5\n"
       "send of 67108864 bytes in steps, from 67108865, peer 5\n"
       "send of 9 bytes in steps, from 134217729, peer 5\n");
  does(mpi, transfer_of(PLM_RECEIVE, PLM_LANE_STEP, PLM_SCOPE_ALL, PART + 1),
       "receive of 67108864 bytes in steps, to 8, peer 5\n"
       "receive of 1 bytes in steps, to 67108872, peer 5\n");
  does(mpi, transfer_of(PLM_BROADCAST, PLM_LANE_STEP, PLM_SCOPE_ALL, PART + 1),
       "broadcast of 67108864 bytes in steps, to 8, peer 0\n"
       "broadcast of 1 bytes in steps, to 67108872, peer 0\n");
  does(mpi, transfer_of(PLM_ALL_GATHER, PLM_LANE_STEP, PLM_SCOPE_ALL, 2ull * PART),
       "gather of 2097152 units in steps, from 1, to 8\n");
  does(mpi, transfer_of(PLM_ALL_TO_ALL, PLM_LANE_STEP, PLM_SCOPE_ALL, 2ull * PART),
       "all to all of 2097152 units in steps, from 1, to 8\n");
  close_engine(mpi);
}

/* Several may be under way; they are given to MPI in their order. */
static void several_are_under_way(void **state)
{
  (void)state;
  struct plm_mpi *mpi = open_engine();
  struct plm_transfer transfers[4];
  tests_needed = 20;
  for (int i = 0; i < 4; i++) {
    transfers[i] = transfer_of(PLM_SEND, i % 2 == 0 ? PLM_LANE_STEP : PLM_LANE_INPUT, PLM_SCOPE_ALL,
                               (size_t)i + 1);
    mpi->base.start(&mpi->base, &transfers[i]);
  }
  for (int i = 3; i >= 0; i--)
    assert_int_equal(mpi->base.wait(&mpi->base, &transfers[i], NULL), PLM_OK);
  expect_asked(
      "send of 1 bytes in steps, from 1, peer 5\nsend of 2 bytes in inputs, from 1, peer 5\n"
      "send of 3 bytes in steps, from 1, peer 5\nsend of 4 bytes in inputs, from 1, peer "
      "5\n");
  assert_int_equal(mpi->started, 2); /* of steps */
  assert_null(mpi->queue);
  assert_ptr_equal(mpi->queue_end, &mpi->queue);
  close_engine(mpi);
}

/* Waits until the carrier has looked this often. Its first look may have begun before the call; the
 * second one sees what happened before. */
static uint64_t waited_after_looks(struct plm_mpi *mpi, int count)
{
  pthread_mutex_lock(&mpi->mutex);
  const int end = looks + count;
  while (looks < end) pthread_cond_wait(&mpi->changed, &mpi->mutex);
  const uint64_t since = waited_since;
  pthread_mutex_unlock(&mpi->mutex);
  return since;
}

/* What is under way when the engine is closed is brought to its end. */
static void closing_waits(void **state)
{
  (void)state;
  struct plm_mpi *mpi = open_engine();
  struct plm_transfer transfer = transfer_of(PLM_SEND, PLM_LANE_STEP, PLM_SCOPE_ALL, 1);
  tests_needed = 1 << 30;
  mpi->base.start(&mpi->base, &transfer);
  while (waited_after_looks(mpi, 1) == 0) continue; /* it has begun */
  const int so_far = __atomic_load_n(&requests[0].asked, __ATOMIC_RELAXED);
  __atomic_store_n(&tests_needed, so_far + 500, __ATOMIC_RELAXED);
  close_engine(mpi);
  assert_true(transfer.done);
}

/* ---- what others see ------------------------------------------------------------------------- */

/* The time since which a transfer of steps is unfinished, here or in another engine. */
static void a_wait_has_a_beginning(void **state)
{
  (void)state;
  struct plm_mpi *mpi = open_engine();
  assert_true(waited_after_looks(mpi, 1) == 0);
  tests_needed = 1 << 30;
  struct plm_transfer input = transfer_of(PLM_SEND, PLM_LANE_INPUT, PLM_SCOPE_ALL, 1),
                      step = transfer_of(PLM_SEND, PLM_LANE_STEP, PLM_SCOPE_ALL, 2);
  mpi->base.start(&mpi->base, &input);
  assert_true(waited_after_looks(mpi, 2) == 0); /* inputs may take long */
  const uint64_t begun_ns = plm_clock_ns();
  mpi->base.start(&mpi->base, &step);
  const uint64_t since = waited_after_looks(mpi, 2);
  assert_true(since >= begun_ns);
  assert_true(waited_after_looks(mpi, 2) == since);
  __atomic_store_n(&tests_needed, 1, __ATOMIC_RELAXED);
  assert_int_equal(mpi->base.wait(&mpi->base, &step, NULL), PLM_OK);
  assert_int_equal(mpi->base.wait(&mpi->base, &input, NULL), PLM_OK);
  assert_true(waited_after_looks(mpi, 1) == 0);
  mpi->base.began_elsewhere(&mpi->base);
  mpi->base.began_elsewhere(&mpi->base);
  assert_true(mpi->started == 3 && mpi->elsewhere == 2);
  assert_true(waited_after_looks(mpi, 2) > 0);
  mpi->base.ended_elsewhere(&mpi->base);
  assert_true(waited_after_looks(mpi, 2) > 0);
  mpi->base.ended_elsewhere(&mpi->base);
  assert_true(waited_after_looks(mpi, 1) == 0);
  assert_true(mpi->started == 3 && mpi->elsewhere == 0);
  close_engine(mpi);
}

static void the_engine_begins_patiently(void **state)
{
  (void)state;
  struct plm_mpi *mpi = open_engine();
  assert_string_equal(mpi->base.name, "mpi");
  assert_true(mpi->say == say && mpi->timeout_s == 300 && mpi->patient && mpi->step == 0);
  assert_string_equal(mpi->phase, "starting");
  assert_int_equal(mpi->base.speaker(&mpi->base), -1);
  mpi->base.note(&mpi->base, "computing", 7, false);
  assert_string_equal(mpi->phase, "computing");
  assert_true(mpi->step == 7 && !mpi->patient);
  mpi->base.set_timeout(&mpi->base, 12.5);
  assert_true(mpi->timeout_s == 12.5);
  close_engine(mpi);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* An engine that has failed keeps its memory until the process ends; here it is freed. */
static void close_failed(struct plm_mpi *mpi)
{
  mpi->base.close(&mpi->base);
  assert_true(worlds_closed == 0 && farewells == 1);
  pthread_mutex_destroy(&mpi->mutex);
  pthread_cond_destroy(&mpi->changed);
  free(mpi);
  plm_text_deinit(&asked);
}

/* When a call of MPI fails, this rank has failed, and so does every wait. */
static void calls_that_fail(void **state)
{
  (void)state;
  for (int what = 0; what < 3; what++) {
    struct plm_mpi *mpi = open_engine();
    struct plm_error error = {0};
    struct plm_transfer transfer = transfer_of(PLM_SEND, PLM_LANE_STEP, PLM_SCOPE_ALL, PART + 1);
    call_fails = what == 2 ? 0 : what + 1; /* the first part, or the second one */
    test_fails = what == 2;
    mpi->base.start(&mpi->base, &transfer);
    assert_int_equal(mpi->base.wait(&mpi->base, &transfer, &error), PLM_FAILURE);
    assert_string_equal(error.what, "the ranks cannot exchange data");
    assert_int_equal(mpi->base.speaker(&mpi->base), RANK);
    assert_int_equal(mpi->base.wait(&mpi->base, &transfer, NULL), PLM_FAILURE);
    close_failed(mpi);
  }
}

static void this_rank_fails(void **state)
{
  (void)state;
  struct plm_mpi *mpi = open_engine();
  const struct plm_error error = {.status = PLM_NO_SPACE, .what = "the disk is full"};
  struct plm_error other = {0};
  struct plm_transfer transfer = transfer_of(PLM_SEND, PLM_LANE_STEP, PLM_SCOPE_ALL, 1);
  tests_needed = 1 << 30;
  mpi->base.start(&mpi->base, &transfer);
  (mpi->base.fail)(&mpi->base, &error);
  assert_true(mpi->failed && farewells == 1);
  assert_int_equal(mpi->base.speaker(&mpi->base), RANK);
  assert_int_equal(mpi->base.wait(&mpi->base, &transfer, &other), PLM_NO_SPACE);
  assert_string_equal(other.what, "the disk is full");
  close_failed(mpi);
}

/* Then the rank that said it exits first, and the others two seconds later. */
static void another_rank_fails(void **state)
{
  (void)state;
  for (uint32_t speaker = RANK; speaker <= RANK + 1; speaker++) {
    struct plm_mpi *mpi = open_engine();
    const struct plm_error error = {.status = PLM_NO_SPACE, .what = "the disk is full"};
    struct plm_transfer transfer = transfer_of(PLM_SEND, PLM_LANE_STEP, PLM_SCOPE_ALL, 1);
    __atomic_store_n(&tests_needed, 1 << 30, __ATOMIC_RELAXED);
    mpi->base.start(&mpi->base, &transfer);
    plm_mpi_set_failing(mpi, speaker, &error);
    assert_int_equal(mpi->base.wait(&mpi->base, &transfer, NULL), PLM_NO_SPACE);
    assert_int_equal(mpi->base.speaker(&mpi->base), speaker);
    close_failed(mpi);
    assert_int_equal(graces, speaker != RANK);
  }
}

/* Without a world there is no engine. */
static void a_world_that_cannot_be_opened(void **state)
{
  (void)state;
  struct plm_collective *collective = NULL;
  struct plm_error error = {0};
  world_fails = true;
  assert_int_equal(try_open(&collective, &error), PLM_CONFIG);
  world_fails = false;
  assert_string_equal(error.what, "no world");
  assert_null(collective);
  assert_true(worlds_closed == 0 && farewells == 0 && looks == 0);
  free(last);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_kind_has_its_call), cmocka_unit_test(large_transfers_are_cut),
      cmocka_unit_test(several_are_under_way),  cmocka_unit_test(closing_waits),
      cmocka_unit_test(a_wait_has_a_beginning), cmocka_unit_test(the_engine_begins_patiently),
      cmocka_unit_test(calls_that_fail),        cmocka_unit_test(this_rank_fails),
      cmocka_unit_test(another_rank_fails),     cmocka_unit_test(a_world_that_cannot_be_opened),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
