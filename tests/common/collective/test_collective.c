/* Transfers that are waited for at once, and the transports that need no device. */
#include "common/collective/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/collective/transport.h"
#include "common/ops/open.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_collective.h"

static void transfers_are_described_in_full(void **state)
{
  (void)state;
  struct fake_collective fake;
  const uint32_t answers[3] = {10, 99, 30}, mine = 20;
  uint32_t all[3] = {0}, word = 5;
  fake_collective_init(&fake, 1, 3);
  fake.answers = answers;
  assert_int_equal(plm_collective_gather(&fake.base, PLM_LANE_INPUT, all, &mine, sizeof mine, NULL),
                   PLM_OK);
  assert_string_equal(fake_collective_told(&fake), "gather of 4 on lane 1\n");
  assert_true(all[0] == 10 && all[1] == 20 && all[2] == 30);
  assert_int_equal(plm_collective_send(&fake.base, PLM_LANE_STEP, 2, &word, sizeof word, NULL),
                   PLM_OK);
  assert_string_equal(fake_collective_told(&fake), "send of 4 on lane 0, rank 2\n");
  assert_int_equal(plm_collective_receive(&fake.base, PLM_LANE_INPUT, 2, &word, sizeof word, NULL),
                   PLM_OK);
  assert_string_equal(fake_collective_told(&fake), "receive of 4 on lane 1, rank 2\n");
  assert_int_equal(word, 20); /* what was sent first: the gather's */
  word = 0;
  assert_int_equal(plm_collective_broadcast(&fake.base, PLM_LANE_INPUT, &word, sizeof word, NULL),
                   PLM_OK);
  assert_string_equal(fake_collective_told(&fake), "broadcast of 4 on lane 1\n");
  assert_int_equal(word, 5);
  fake_collective_deinit(&fake);
}

/* What one process sends to all is what it has. */
static void a_group_of_one_has_everything(void **state)
{
  struct plm_collective *single = plm_collective_single();
  const uint32_t mine = 20;
  uint32_t all = 0, word = 5;
  int64_t largest = 0;
  (void)state;
  assert_int_equal(single->place.ranks, 1);
  assert_int_equal(plm_collective_gather(single, PLM_LANE_INPUT, &all, &mine, sizeof mine, NULL),
                   PLM_OK);
  assert_int_equal(all, 20);
  assert_int_equal(plm_collective_broadcast(single, PLM_LANE_STEP, &word, sizeof word, NULL),
                   PLM_OK);
  assert_int_equal(word, 5);
  assert_int_equal(plm_collective_vote(single, -3, &largest, NULL), PLM_OK);
  assert_int_equal(largest, -3);
  single->note(single, "computing", 3, true);
  (single->fail)(single, &(struct plm_error){.status = PLM_IO});
  assert_int_equal(single->speaker(single), -1);
  single->close(single);
}

static void the_largest_vote_counts(void **state)
{
  (void)state;
  static const struct {
    int64_t all[3], largest;
  } rows[] = {{{-5, -9, -7}, -5}, {{-9, -5, -7}, -5}, {{-9, -7, -5}, -5}, {{4, 4, 4}, 4}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct fake_collective fake;
    struct plm_error error = {0};
    int64_t largest = 77;
    fake_collective_init(&fake, 1, 3);
    fake.answers = rows[i].all;
    assert_int_equal(plm_collective_vote(&fake.base, rows[i].all[1], &largest, &error), PLM_OK);
    assert_int_equal(largest, rows[i].largest);
    assert_string_equal(fake_collective_told(&fake), "gather of 8 on lane 0\n");
    fake.wait_fails = PLM_TIMEOUT;
    assert_int_equal(plm_collective_vote(&fake.base, 3, &largest, &error), PLM_TIMEOUT);
    assert_int_equal(largest, 3);
    assert_string_equal(error.what, "the exchange has failed");
    fake_collective_deinit(&fake);
  }
}

static void the_engine_lies_beside_the_programs(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  unsetenv("PLM_MPI_LIBRARY");
  assert_int_equal(plm_collective_path(path, NULL), PLM_OK);
  assert_non_null(strstr(path, "/lib/plm-pipeline/libplm_mpi.so"));
  setenv("PLM_MPI_LIBRARY", "/elsewhere/engine.so", 1);
  assert_int_equal(plm_collective_path(path, NULL), PLM_OK);
  assert_string_equal(path, "/elsewhere/engine.so");
}

static bool launched(const char *mpirun, const char *srun)
{
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("SLURM_STEP_NUM_TASKS");
  if (mpirun != NULL) setenv("OMPI_COMM_WORLD_SIZE", mpirun, 1);
  if (srun != NULL) setenv("SLURM_STEP_NUM_TASKS", srun, 1);
  return plm_collective_launched();
}

static void several_processes_are_noticed(void **state)
{
  (void)state;
  assert_false(launched(NULL, NULL) || launched("1", NULL) || launched(NULL, "1"));
  assert_false(launched("1", "1") || launched("", "") || launched("x", NULL));
  assert_true(launched("2", NULL) && launched(NULL, "2") && launched("1", "2"));
  assert_true(launched("16", "1"));
  launched(NULL, NULL);
}

static void say_nothing(const struct plm_error *error)
{
  (void)error;
}

/* Without an engine, or with something else in its place. */
static void what_is_wrong_with_the_engine(void **state)
{
  (void)state;
  struct plm_collective *collective = NULL;
  struct plm_error error = {0};
  setenv("PLM_MPI_LIBRARY", "/nowhere/engine.so", 1);
  assert_int_equal(plm_collective_open(say_nothing, &collective, &error), PLM_CONFIG);
  assert_string_equal(error.what, "this build cannot train with several ranks");
  assert_string_equal(error.where, "/nowhere/engine.so");
  setenv("PLM_MPI_LIBRARY", "/dev/null", 1);
  assert_int_equal(plm_collective_open(say_nothing, &collective, &error), PLM_CONFIG);
  assert_memory_equal(error.what, "the MPI engine cannot be loaded: ", 33);
  assert_string_equal(error.where, "/dev/null");
  char path[PLM_PATH_SIZE + 1]; /* longer than a path may be */
  memset(path, 'x', PLM_PATH_SIZE);
  path[PLM_PATH_SIZE] = '\0';
  setenv("PLM_MPI_LIBRARY", path, 1);
  assert_int_equal(plm_collective_open(say_nothing, &collective, &error), PLM_LIMIT);
  assert_null(collective);
}

/* ---- transports ------------------------------------------------------------------------------ */

static const char *opened; /* the last transport that open_stub was asked for */

static plm_status open_stub(struct plm_ops *ops, struct plm_collective *collective,
                            struct plm_transport **transport, struct plm_error *error)
{
  (void)ops, (void)collective, (void)transport, (void)error;
  opened = "nccl";
  return PLM_AGAIN;
}

static plm_status open_transport(struct fake_collective *fake, struct plm_ops *ops,
                                 const char *variable, struct plm_transport **transport,
                                 struct plm_error *error)
{
  opened = "";
  *error = (struct plm_error){0};
  unsetenv("PLM_COLLECTIVE");
  if (variable != NULL) setenv("PLM_COLLECTIVE", variable, 1);
  const plm_status status = plm_transport_open(&fake->base, ops, transport, error);
  unsetenv("PLM_COLLECTIVE");
  return status;
}

static void the_environment_chooses_the_transport(void **state)
{
  (void)state;
  struct fake_collective fake;
  struct plm_transport *transport = NULL;
  struct plm_error error;
  struct plm_ops *cpu;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &cpu, NULL), PLM_OK);
  struct plm_ops device = *cpu;
  device.open_nccl = open_stub;
  fake_collective_init(&fake, 1, 2);
  /* on the host, it has no influence, and nothing is compared */
  assert_int_equal(open_transport(&fake, cpu, "pigeon", &transport, &error), PLM_OK);
  assert_string_equal(transport->name, "direct");
  assert_string_equal(fake_collective_told(&fake), "");
  transport->close(transport);
  static const char *const nccl[] = {NULL, "", "nccl"};
  for (size_t i = 0; i < sizeof nccl / sizeof *nccl; i++) {
    assert_int_equal(open_transport(&fake, &device, nccl[i], &transport, &error), PLM_AGAIN);
    assert_string_equal(opened, "nccl");
    assert_null(transport);
    assert_string_equal(fake_collective_told(&fake), "gather of 128 on lane 0\n");
  }
  assert_int_equal(open_transport(&fake, &device, "mpi", &transport, &error), PLM_OK);
  assert_string_equal(transport->name, "staged");
  assert_string_equal(opened, "");
  transport->close(transport);
  assert_int_equal(open_transport(&fake, &device, "pigeon", &transport, &error), PLM_CONFIG);
  assert_string_equal(error.what, "PLM_COLLECTIVE=pigeon: no such transport");
  assert_null(transport);
  /* both ranks see the difference */
  char choices[2][128] = {"there", "here"};
  snprintf(choices[0] + 64, 64, "mpi");
  fake.answers = choices;
  assert_int_equal(open_transport(&fake, &device, NULL, &transport, &error), PLM_CONFIG);
  assert_string_equal(error.what,
                      "rank 0 on there has PLM_COLLECTIVE=mpi, but rank 1 on here has nccl");
  assert_string_equal(error.hint, "set it to nccl or mpi for all ranks, or unset it for nccl");
  fake.wait_fails = PLM_FAILURE;
  assert_int_equal(open_transport(&fake, &device, "mpi", &transport, &error), PLM_FAILURE);
  fake_collective_deinit(&fake);
  cpu->close(cpu);
}

enum { SLICE = 2 * PLM_SLICE_UNIT, RANKS = 6 };

/* Moves a slice for each of the `ranks` of the scope, of which this one is `mine`, and checks what
 * arrives: of the other ranks what the test says, of this one its own. */
static void exchange(struct plm_transport *transport, struct fake_collective *fake,
                     enum plm_transfer_kind kind, enum plm_scope scope, uint32_t ranks,
                     uint32_t mine)
{
  unsigned char from[RANKS * SLICE], to[RANKS * SLICE + 1], answers[RANKS * SLICE];
  for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)(i + i / SLICE);
  for (size_t i = 0; i < sizeof answers; i++) answers[i] = (unsigned char)(200 - i / SLICE - i % 7);
  memset(to, 0xee, sizeof to);
  fake->answers = answers;
  struct plm_transfer transfer = {
      .kind = kind, .lane = PLM_LANE_STEP, .scope = scope, .to = to, .from = from, .bytes = SLICE};
  transport->start(transport, &transfer);
  assert_int_equal(transport->wait(transport, &transfer, NULL), PLM_OK);
  for (uint32_t r = 0; r < ranks; r++) {
    const unsigned char *own = from + (kind == PLM_ALL_TO_ALL ? r * SLICE : 0);
    assert_memory_equal(to + r * SLICE, r == mine ? own : answers + r * SLICE, SLICE);
  }
  assert_int_equal(to[ranks * SLICE], 0xee); /* and nothing behind it */
}

static void both_transports_move_the_same_bytes(void **state)
{
  (void)state;
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  for (int staged = 0; staged < 2; staged++) {
    struct fake_collective fake;
    struct plm_transport *transport;
    fake_collective_init(&fake, 3, RANKS);
    fake.base.place.group_size = 2;
    if (staged)
      transport = plm_transport_open_staged(&fake.base, ops);
    else
      assert_int_equal(plm_transport_open(&fake.base, ops, &transport, NULL), PLM_OK);
    for (int kind = PLM_ALL_TO_ALL; kind <= PLM_ALL_GATHER; kind++) {
      exchange(transport, &fake, (enum plm_transfer_kind)kind, PLM_SCOPE_GROUP, 2, 1);
      exchange(transport, &fake, (enum plm_transfer_kind)kind, PLM_SCOPE_RAIL, 3, 1);
      exchange(transport, &fake, (enum plm_transfer_kind)kind, PLM_SCOPE_ALL, 6, 3);
    }
    fake.wait_fails = PLM_TIMEOUT;
    unsigned char bytes[2 * RANKS * SLICE] = {0};
    struct plm_transfer transfer = {.kind = PLM_ALL_GATHER,
                                    .to = bytes,
                                    .from = bytes + RANKS * SLICE,
                                    .scope = PLM_SCOPE_ALL,
                                    .bytes = SLICE};
    struct plm_error error = {0};
    transport->start(transport, &transfer);
    assert_int_equal(transport->wait(transport, &transfer, &error), PLM_TIMEOUT);
    assert_string_equal(error.what, "the exchange has failed");
    transport->close(transport);
    fake_collective_deinit(&fake);
  }
  ops->close(ops);
}

static int failing; /* 1: no memory of the host; 2: the device fails */

static plm_status allocate_nothing(struct plm_ops *ops, size_t bytes, void **buffer,
                                   struct plm_error *error)
{
  (void)ops;
  if (failing == 1) return plm_error_set(error, PLM_NO_MEMORY, "no room for %zu", bytes);
  *buffer = malloc(bytes);
  return PLM_OK;
}

static void release(struct plm_ops *ops, void *buffer)
{
  (void)ops;
  free(buffer);
}

static plm_status synchronize(struct plm_ops *ops, struct plm_error *error)
{
  (void)ops;
  return failing == 2 ? plm_error_set(error, PLM_FAILURE, "the device is gone") : PLM_OK;
}

/* What could not be started fails when it is waited for, and so does everything after it. */
static void an_error_of_the_device_ends_the_staged_transport(void **state)
{
  (void)state;
  struct plm_ops *cpu;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &cpu, NULL), PLM_OK);
  struct plm_ops ops = *cpu;
  ops.allocate_host = allocate_nothing;
  ops.release_host = release;
  ops.synchronize = synchronize;
  for (failing = 1; failing <= 2; failing++) {
    struct fake_collective fake;
    struct plm_transport *transport;
    struct plm_error error = {0};
    unsigned char bytes[3 * SLICE] = {0};
    fake_collective_init(&fake, 0, 2);
    transport = plm_transport_open_staged(&fake.base, &ops);
    struct plm_transfer transfer = {
        .kind = PLM_ALL_GATHER, .to = bytes, .from = bytes + 2 * SLICE, .bytes = SLICE};
    const int cause = failing;
    for (int attempt = 0; attempt < 2; attempt++) {
      transport->start(transport, &transfer);
      assert_int_equal(transport->wait(transport, &transfer, &error),
                       cause == 1 ? PLM_NO_MEMORY : PLM_FAILURE);
      assert_string_equal(error.what, cause == 1 ? "no room for 128" : "the device is gone");
      assert_string_equal(fake_collective_told(&fake), "");
      failing = 0; /* the first error stays */
    }
    failing = cause;
    transport->close(transport);
    fake_collective_deinit(&fake);
  }
  cpu->close(cpu);
}

/* A time of the clock that this test chooses: `ago` seconds before now. */
static uint64_t before_now(double ago)
{
  return plm_clock_ns() - (uint64_t)(1e9 * ago);
}

static void pauses_are_not_counted(void **state)
{
  (void)state;
  struct plm_transport_clock clock = {.pauses_ns = 5};
  plm_transport_clock_mark(&clock, PLM_COMPUTE_BEGINS);
  assert_int_equal(clock.pauses_ns, 0);
  assert_in_range(clock.begun_ns, before_now(60), plm_clock_ns());
  clock.begun_ns = before_now(1000);
  clock.paused_ns = 0;
  plm_transport_clock_mark(&clock, PLM_COMPUTE_PAUSES);
  assert_in_range(clock.paused_ns, before_now(60), plm_clock_ns());
  assert_in_range(clock.begun_ns, 0, before_now(999));
  clock.paused_ns = before_now(300);
  plm_transport_clock_mark(&clock, PLM_COMPUTE_RESUMES);
  clock.paused_ns = before_now(200);
  plm_transport_clock_mark(&clock, PLM_COMPUTE_RESUMES);
  const double computed = plm_transport_clock_computed(&clock);
  if (computed < 440 || computed > 560) fail_msg("%g s of 500 s", computed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transfers_are_described_in_full),
      cmocka_unit_test(a_group_of_one_has_everything),
      cmocka_unit_test(the_largest_vote_counts),
      cmocka_unit_test(the_engine_lies_beside_the_programs),
      cmocka_unit_test(several_processes_are_noticed),
      cmocka_unit_test(what_is_wrong_with_the_engine),
      cmocka_unit_test(the_environment_chooses_the_transport),
      cmocka_unit_test(both_transports_move_the_same_bytes),
      cmocka_unit_test(an_error_of_the_device_ends_the_staged_transport),
      cmocka_unit_test(pauses_are_not_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
