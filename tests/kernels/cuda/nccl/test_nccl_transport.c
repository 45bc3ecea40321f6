/* NCCL as the transport between ranks, which are children of this program with an emulated NCCL:
 * the bytes, what the collective is told of them, how long a rank computes, and what ends them.
 * With the engine of MPI: tests/kernels/test_transport.sh. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/collective/transport.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/fake_collective.h"

enum { MOST = 4, CARD = 1 << 13, UNIT = PLM_SLICE_UNIT, SLOTS = 64, ALL = SLOTS + 9 };
enum { WORK_US = 100, LIMIT_MS = 60000 };

static const struct plm_rank_place alone = {.ranks = 1, .group_size = 1};

/* What the children share. */
static struct room {
  pthread_barrier_t door;
  char cards[MOST][CARD];
} * room;

/* One rank, of which a process has one. */
static struct fake_collective fake;
static atomic_int began, ended, failed;
static atomic_int messages_left; /* then another rank has failed */
static int fails_after = 99;     /* messages */
static struct plm_error failure; /* the last one that this rank told the others */
static struct plm_ops *ops;
static struct plm_transport *transport;

static void begins(struct plm_collective *collective)
{
  (void)collective;
  began++;
}

static void ends(struct plm_collective *collective)
{
  (void)collective;
  ended++;
}

static void fails(struct plm_collective *collective, const struct plm_error *error)
{
  (void)collective;
  failure = *error;
  failed++;
}

static int32_t speaker(struct plm_collective *collective)
{
  (void)collective;
  return messages_left == 0 ? 1 : -1;
}

static plm_status gather(struct plm_collective *collective, struct plm_transfer *transfer,
                         struct plm_error *error)
{
  if (messages_left == 0) return plm_error_set(error, PLM_TIMEOUT, "rank 1 has failed");
  PLM_ASSERT(transfer->kind == PLM_ALL_GATHER && transfer->bytes <= CARD);
  memcpy(room->cards[collective->place.rank], transfer->from, transfer->bytes);
  pthread_barrier_wait(&room->door);
  for (uint32_t r = 0; r < collective->place.ranks; r++)
    memcpy((char *)transfer->to + r * transfer->bytes, room->cards[r], transfer->bytes);
  pthread_barrier_wait(&room->door);
  messages_left--;
  return PLM_OK;
}

static plm_status open_rank(struct plm_rank_place place, int device, uint64_t order,
                            struct plm_error *error)
{
  fake_collective_init(&fake, place.rank, place.ranks);
  fake.base.place.group_size = place.group_size;
  if (place.host[0] != '\0') fake.base.place = place;
  if (place.ranks == 1) pthread_barrier_init(&room->door, NULL, 1);
  fake.base.began_elsewhere = begins, fake.base.ended_elsewhere = ends;
  fake.base.wait = gather, fake.base.speaker = speaker, fake.base.fail = fails;
  began = ended = failed = 0;
  messages_left = fails_after;
  plm_emulation_order(order);
  PLM_ASSERT(plm_ops_cuda_open(PLM_PRECISION_FP32, device, &ops, NULL) == PLM_OK);
  *error = (struct plm_error){0};
  return ops->open_nccl(ops, &fake.base, &transport, error);
}

/* Sleeps until the next look at what is waited for. Counts them: a limited number may be in vain.
 */
static void wait_for(const char *what, int *looks)
{
  if ((*looks)++ == LIMIT_MS) plm_assert_failed(what, __FILE__, __LINE__);
  usleep(1000);
}

static void close_rank(void)
{
  ops->close(ops);
  fake_collective_deinit(&fake);
}

/* Runs each rank in a child. The first that fails ends the others. */
static void gang(uint32_t ranks, uint32_t group_size, void (*run)(struct plm_rank_place place))
{
  pid_t children[MOST];
  pthread_barrierattr_t shared;
  bool broken = false;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&room->door, &shared, ranks);
  for (uint32_t r = 0; r < ranks; r++) {
    children[r] = fork();
    if (children[r] != 0) continue;
    run((struct plm_rank_place){.rank = r, .ranks = ranks, .group_size = group_size});
    _exit(0);
  }
  for (uint32_t left = ranks; left > 0; left--) {
    int status;
    assert_true(wait(&status) > 0);
    for (uint32_t r = 0; r < ranks && status != 0 && !broken; r++) kill(children[r], SIGKILL);
    broken = broken || status != 0;
  }
  assert_false(broken);
}

/* ---- what arrives ---- */

static float value(uint32_t sender, int transfer, uint32_t slice, uint32_t i)
{
  return (float)(sender * 100000 + (uint32_t)transfer * 1000 + slice * 100 + i);
}

static struct plm_transfer transfer_of(int k, bool rail, char *from, char *to)
{
  return (struct plm_transfer){.kind = k % 3 == 0 ? PLM_ALL_GATHER : PLM_ALL_TO_ALL,
                               .scope = rail ? PLM_SCOPE_RAIL : PLM_SCOPE_GROUP,
                               .from = from + (size_t)k * MOST * UNIT,
                               .to = to + (size_t)k * MOST * UNIT,
                               .bytes = UNIT};
}

/* More transfers at once than there are events for them: of those that are under way, the oldest is
 * waited for, and no other. */
static void exchange_all(struct plm_rank_place place)
{
  enum { N = UNIT / sizeof(float) };
  static float host[ALL][MOST][N];
  static struct plm_transfer transfers[ALL];
  const uint32_t size = place.group_size, groups = place.ranks / size, at = place.rank / size;
  const int opened = began;
  void *from, *to;
  PLM_ASSERT(opened == (place.ranks == 1 ? 2 : (size > 1) + (groups > 1)) && ended == opened);
  PLM_ASSERT(ops->allocate(ops, sizeof host, &from, NULL) == PLM_OK);
  PLM_ASSERT(ops->allocate(ops, sizeof host, &to, NULL) == PLM_OK);
  for (int k = 0; k < ALL; k++)
    for (uint32_t s = 0; s < MOST; s++)
      for (uint32_t i = 0; i < N; i++) host[k][s][i] = value(place.rank, k, s, i);
  ops->upload(ops, from, host, sizeof host);
  for (int k = 0; k < ALL; k++) {
    transfers[k] = transfer_of(k, size == 1 || (groups > 1 && k % 2 == 1), from, to);
    transport->start(transport, &transfers[k]);
    PLM_ASSERT(began == opened + k + 1);
    PLM_ASSERT(place.ranks > 1 || ended == opened + (k < SLOTS ? 0 : k + 1 - SLOTS));
  }
  for (int k = 0; k < ALL; k++)
    PLM_ASSERT(transport->wait(transport, &transfers[k], NULL) == PLM_OK);
  ops->download(ops, host, to, sizeof host);
  PLM_ASSERT(ops->synchronize(ops, NULL) == PLM_OK);
  for (int looks = 0; ended < opened + ALL;) wait_for("the watch counts all transfers", &looks);
  for (int k = 0; k < ALL; k++) {
    const bool rail = transfers[k].scope == PLM_SCOPE_RAIL;
    const uint32_t count = rail ? groups : size, mine = rail ? at : place.rank % size;
    for (uint32_t r = 0; r < count; r++)
      for (uint32_t i = 0; i < N; i++)
        PLM_ASSERT(host[k][r][i] == value(rail ? r * size + place.rank % size : at * size + r, k,
                                          k % 3 == 0 ? 0 : mine, i));
  }
  ops->release(ops, from);
  ops->release(ops, to);
}

static void right(struct plm_rank_place place)
{
  struct plm_error error;
  PLM_ASSERT(open_rank(place, (int)place.rank, 1 + place.rank, &error) == PLM_OK);
  exchange_all(place);
  transport->close(transport);
  close_rank();
}

static void choose_seed(int seed)
{
  char text[8];
  snprintf(text, sizeof text, "%d", seed);
  setenv("PLM_EMULATED_NCCL", text, 1);
}

static void all_that_is_sent_arrives(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  scratch_run(folder);
  setenv("PLM_TMP", folder, 1); /* of the files of communicators */
  choose_seed(1);
  gang(4, 2, right);
  assert_true(scratch_is_empty(folder)); /* no rank has made an id that is not used */
  gang(2, 2, right);
  gang(3, 1, right);
  right(alone); /* in this process, so that nothing may be left */
}

/* ---- how long a rank computes ---- */

static void *buffer;

/* Each part takes WORK_US by the card's clock, as do the events between. */
static void work(int parts)
{
  for (int i = 0; i < parts; i++) ops->zero(ops, buffer, UNIT);
}

static void computed(double parts)
{
  const double got = transport->computed(transport) * 1e6 / WORK_US;
  if (!(fabs(got - parts) < 0.1)) fail_msg("computed for %g parts, not %g", got, parts);
}

/* A pause begins and ends with an event, of which the second one counts. */
static void pauses(int count)
{
  for (int i = 0; i < count; i++) {
    work(2);
    transport->mark(transport, PLM_COMPUTE_PAUSES);
    work(i % 7);
    transport->mark(transport, PLM_COMPUTE_RESUMES);
  }
}

static void a_rank_computes_except_in_pauses(void **state)
{
  (void)state;
  static const int counts[] = {1, 5, SLOTS - 1, SLOTS, SLOTS + 1, 2 * SLOTS + 3, 0};
  struct plm_error error;
  struct plm_transfer transfer;
  char card[32];
  snprintf(card, sizeof card, "work_us=%d", WORK_US);
  plm_emulation_card(card);
  assert_int_equal(open_rank(alone, 0, 1, &error), PLM_OK);
  assert_int_equal(ops->allocate(ops, 2 * MOST * UNIT, &buffer, NULL), PLM_OK);
  computed(0); /* nothing has begun */
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    transport->mark(transport, PLM_COMPUTE_BEGINS);
    pauses(counts[i]);
    work(3);
    computed(4 + 3 * counts[i]);
  }
  transport->mark(transport, PLM_COMPUTE_BEGINS);
  transfer = transfer_of(0, false, buffer, (char *)buffer + MOST * UNIT);
  transport->start(transport, &transfer);
  work(5);
  assert_int_equal(transport->wait(transport, &transfer, NULL), PLM_OK);
  computed(1 + 5 + 1 + 1); /* also events, and of the transfer what is not waited for */
  transport->close(transport);
  ops->release(ops, buffer);
  close_rank();
  plm_emulation_card("work_us=0");
}

/* ---- what ends an exchange ---- */

enum ending { AN_ERROR, ANOTHER_RANK, A_LOST_DEVICE, A_LOST_COMPUTATION };
static enum ending ending;

/* After a failure nothing is started any more, and every wait says why. */
static void check_ended(char *memory, const struct plm_error *error)
{
  struct plm_transfer late = transfer_of(1, false, memory, memory);
  struct plm_error again = {0};
  const int so_far = began;
  transport->start(transport, &late);
  PLM_ASSERT(began == so_far && late.moved == 0);
  PLM_ASSERT(transport->wait(transport, &late, &again) == error->status);
  PLM_ASSERT(strcmp(again.what, error->what) == 0);
}

static void until_it_ends(struct plm_rank_place place)
{
  static const struct {
    plm_status status;
    const char *what;
  } expected[] = {{PLM_FAILURE,
                   "rank 0 on here: an exchange between GPUs failed: unhandled system error: an "
                   "emulated error"},
                  {PLM_TIMEOUT, "rank 1 has failed"},
                  {PLM_FAILURE, "rank 0 on here: device 0: an exchange failed: unknown error"},
                  {PLM_FAILURE, "rank 0 on here: device 0: the computation failed: unknown error"}};
  struct plm_error error;
  char *memory;
  PLM_ASSERT(open_rank(place, 0, 1, &error) == PLM_OK);
  PLM_ASSERT(ops->allocate(ops, 8 * MOST * UNIT, (void **)&memory, NULL) == PLM_OK);
  struct plm_transfer transfer = transfer_of(3, false, memory, memory);
  if (ending == A_LOST_DEVICE) {
    plm_emulation_card("lost=1");
    ops->zero(ops, memory, UNIT);
  }
  transport->start(transport, &transfer);
  for (int looks = 0; transport->wait(transport, &transfer, &error) == PLM_OK;) {
    if (ending == AN_ERROR) {
      (void)ops->synchronize(ops, NULL);
      transport->start(transport, &transfer);
    }
    if (ending == ANOTHER_RANK) messages_left = 0;
    if (ending == A_LOST_COMPUTATION) {
      plm_emulation_card("lost=1");
      ops->zero(ops, memory, UNIT);
      for (int others = 0; failed == 0;) wait_for("the lost device is noticed", &others);
    }
    wait_for("the exchange ends", &looks);
  }
  PLM_ASSERT(error.status == expected[ending].status);
  PLM_ASSERT(strcmp(error.what, expected[ending].what) == 0);
  check_ended(memory, &error);
  transport->close(transport);
  PLM_ASSERT(failed == (ending != ANOTHER_RANK));
  PLM_ASSERT(failed == 0 || strcmp(failure.what, error.what) == 0);
  ops->release(ops, memory);
  close_rank();
}

static void what_ends_an_exchange_is_said(void **state)
{
  (void)state;
  for (ending = ANOTHER_RANK; ending <= A_LOST_COMPUTATION; ending++) gang(1, 1, until_it_ends);
  ending = AN_ERROR;
  setenv("PLM_EMULATED_NCCL_FAULT", "error", 1);
  for (int seed = 0; seed < 4; seed++) { /* it is found at once, or by the watch */
    choose_seed(seed);
    gang(1, 1, until_it_ends);
  }
  unsetenv("PLM_EMULATED_NCCL_FAULT");
}

static void nothing_is_exchanged_in_a_recording(void **state)
{
  (void)state;
  struct plm_error error;
  struct plm_recording *recording;
  char bytes[UNIT];
  struct plm_transfer transfer = transfer_of(0, false, bytes, bytes);
  assert_int_equal(open_rank(alone, 0, 1, &error), PLM_OK);
  assert_int_equal(ops->record_begin(ops, &error), PLM_OK);
  transport->start(transport, &transfer);
  assert_int_equal(transport->wait(transport, &transfer, &error), PLM_FAILURE);
  assert_string_equal(error.what, "device 0: an exchange between ranks is not allowed while "
                                  "operators are recorded");
  assert_int_equal(ops->record_end(ops, &recording, &error), PLM_FAILURE);
  assert_int_equal(transport->wait(transport, &transfer, &error), PLM_FAILURE);
  assert_string_equal(error.what, "an exchange between ranks was not started");
  assert_true(began == 2 && ended == 2);
  transport->close(transport);
  close_rank();
}

/* ---- what is refused ---- */

static const struct refusal {
  const char *what, *where; /* NULL: nothing is wrong */
  int versions[3], devices[3];
  const char *library;
  bool far; /* the last rank is on another host */
} refusals[] = {
    {"NCCL cannot be loaded: none.so", "rank 0 on here", .library = "none.so"},
    {"libm.so.6 is not NCCL", "rank 0 on here", .library = "libm.so.6"},
    {".so is NCCL 2.27.99, but", "rank 1 on here", .versions = {22900, 22799, 22900}},
    {"rank 0 on here has version 22800 of NCCL, but rank 2 on there has 22801", .where = "",
     .versions = {22800, 22800, 22801}, .far = true},
    {"ranks 1 and 2 on here use the same GPU (emulated:3), which", "", .devices = {1, 3, 3}},
    {.versions = {22800, 22800, 22800}, .devices = {1, 3, 3}, .far = true}};
static const struct refusal *refusal;

static void open_refused(struct plm_rank_place place)
{
  struct plm_error error;
  char version[16];
  if (refusal->library != NULL) setenv("PLM_NCCL_LIBRARY", refusal->library, 1);
  snprintf(version, sizeof version, "%d", refusal->versions[place.rank]);
  if (refusal->versions[place.rank] != 0) setenv("PLM_EMULATED_NCCL_VERSION", version, 1);
  if (refusal->far && place.rank == 2) snprintf(place.host, sizeof place.host, "there");
  const int device = refusal->devices[0] != 0 ? refusal->devices[place.rank] : (int)place.rank;
  const plm_status status = open_rank(place, device, 1, &error);
  PLM_ASSERT(status == (refusal->what != NULL ? PLM_CONFIG : PLM_OK));
  if (status == PLM_OK) {
    transport->close(transport);
    setenv("PLM_NCCL_LIBRARY", "none.so", 1); /* it is loaded already */
    PLM_ASSERT(ops->open_nccl(ops, &fake.base, &transport, &error) == PLM_OK);
    transport->close(transport);
  } else {
    PLM_ASSERT(strstr(error.what, refusal->what) != NULL && began == 0);
    PLM_ASSERT(strcmp(error.where, refusal->where) == 0);
  }
  close_rank();
}

/* Another rank has failed since this one told what it has. */
static void open_beside_a_failure(struct plm_rank_place place)
{
  struct plm_error error;
  fails_after = 1;
  PLM_ASSERT(open_rank(place, (int)place.rank, 1, &error) == PLM_TIMEOUT);
  PLM_ASSERT(strcmp(error.what, "rank 1 has failed") == 0 && began == 1 && ended == 1);
  close_rank();
}

static void an_error_of_one_is_the_error_of_all(void **state)
{
  (void)state;
  for (refusal = refusals; refusal < refusals + sizeof refusals / sizeof *refusals; refusal++)
    gang(3, 1, open_refused);
  gang(2, 1, open_beside_a_failure);
}

int main(void)
{
  const char *build = getenv("PLM_BUILD") != NULL ? getenv("PLM_BUILD") : "build";
  char library[4096];
  snprintf(library, sizeof library, "%.4000s/tests/lib/libnccl_emulated.so", build);
  setenv("PLM_NCCL_LIBRARY", library, 1);
  setenv("PLM_EMULATED_DEVICES", "4", 1);
  room = mmap(NULL, sizeof *room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_error_of_one_is_the_error_of_all), /* before this process has loaded it */
      cmocka_unit_test(all_that_is_sent_arrives),
      cmocka_unit_test(a_rank_computes_except_in_pauses),
      cmocka_unit_test(what_ends_an_exchange_is_said),
      cmocka_unit_test(nothing_is_exchanged_in_a_recording),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
