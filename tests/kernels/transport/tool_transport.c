/* Exchanges memory of operators between ranks in every way that a step does, and checks each
 * element that arrives. Started by mpirun (tests/support/shell/transport.sh).
 *
 *   tool_transport DEVICE ROUNDS KIND [PASS...]
 *
 * DEVICE is cpu or cuda. Each PASS opens the transport anew: `mpi` is the staged one, a number is
 * NCCL with this seed of its emulation; without one, the environment says which. KIND:
 *
 *   right      nothing is wrong
 *   slow       rank 1 computes longer than the others, which the transport must tell from waiting
 *   unequal    in the last round, rank 1 sends a slice of another size
 *   order      it begins another kind of transfer
 *   late       it begins nothing more
 *   hesitant   the same, and the rank that says what happened takes its time, in whatever way this
 *              fails
 *   busy       the same, and the main thread of rank 0 computes meanwhile
 *   recorded   rank 1 begins a transfer while a recording is made
 *   unwaited   it looks at what arrives without a wait for it
 *   pigeon     it has PLM_COLLECTIVE=pigeon
 *
 * PLM_TEST_TIMEOUT_S is how long a rank may keep the others waiting (60). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/collective/transport.h"
#include "common/ops/open.h"
#include "common/run/stop.h"
#include "trainer/ranks/ranks.h"

enum { IN_FLIGHT = 4, FLOATS = 4096, MOST_RANKS = 16, TIMEOUT_S = 60 };
enum { FOREVER_S = 3600, HESITATION_S = 7 };
enum { SLOW_ROUNDS = 20, SLOW_US = 200000 };

static const char *kind; /* of this run */

static bool is_kind(const char *name)
{
  return strcmp(kind, name) == 0;
}

struct exchange {
  struct plm_ranks ranks;
  struct plm_collective *collective; /* of the ranks */
  struct plm_ops *ops;
  struct plm_transport *transport;
  float *from[IN_FLIGHT], *to[IN_FLIGHT], *next; /* device */
  float host[FLOATS * MOST_RANKS];
};

/* What the rank sends in this transfer to the receiver at place `slice` of its group or rail. */
static float value(uint32_t rank, int round, int transfer, uint32_t slice, size_t i)
{
  return (float)((rank * 7919 + (uint32_t)round * 104729 + (uint32_t)transfer * 1299709 +
                  slice * 15485863 + (uint32_t)i) %
                 8388608);
}

static struct plm_transfer transfer_of(const struct exchange *exchange, int round, int k,
                                       uint32_t *ranks)
{
  const struct plm_rank_place *place = &exchange->collective->place;
  const uint32_t groups = place->ranks / place->group_size;
  bool rail = (round + k) % 2 == 1;
  if (groups == 1) rail = false;
  if (place->group_size == 1 && groups > 1) rail = true;
  *ranks = rail ? groups : place->group_size;
  return (struct plm_transfer){.kind = (round + k) % 3 == 0 ? PLM_ALL_GATHER : PLM_ALL_TO_ALL,
                               .lane = PLM_LANE_STEP,
                               .scope = rail ? PLM_SCOPE_RAIL : PLM_SCOPE_GROUP,
                               .to = exchange->to[k],
                               .from = exchange->from[k],
                               .bytes = sizeof(float) * (size_t)(FLOATS >> k)};
}

static uint32_t sender_of(const struct exchange *exchange, enum plm_scope scope, uint32_t i)
{
  const struct plm_rank_place *place = &exchange->collective->place;
  const uint32_t size = place->group_size;
  return scope == PLM_SCOPE_GROUP ? place->rank / size * size + i : i * size + place->rank % size;
}

/* Computes what transfer k sends, and starts it. */
static void begin(struct exchange *exchange, struct plm_transfer *transfer, int round, int k)
{
  struct plm_ops *ops = exchange->ops;
  uint32_t ranks;
  *transfer = transfer_of(exchange, round, k, &ranks);
  const uint32_t slices = transfer->kind == PLM_ALL_TO_ALL ? ranks : 1;
  const size_t n = transfer->bytes / sizeof(float);
  for (uint32_t slice = 0; slice < slices; slice++)
    for (size_t i = 0; i < n; i++)
      exchange->host[slice * n + i] = value(exchange->collective->place.rank, round, k, slice, i);
  ops->upload(ops, exchange->next, exchange->host, slices * transfer->bytes);
  ops->copy(ops, exchange->from[k], exchange->next, slices * transfer->bytes);
  exchange->transport->start(exchange->transport, transfer);
}

static plm_status check(struct exchange *exchange, const struct plm_transfer *transfer, int round,
                        int k, struct plm_error *error)
{
  struct plm_ops *ops = exchange->ops;
  const struct plm_rank_place *place = &exchange->collective->place;
  const bool group = transfer->scope == PLM_SCOPE_GROUP;
  const uint32_t ranks = group ? place->group_size : place->ranks / place->group_size;
  const uint32_t mine = group ? place->rank % place->group_size : place->rank / place->group_size;
  const size_t n = transfer->bytes / sizeof(float);
  ops->copy(ops, exchange->next, exchange->to[k], ranks * transfer->bytes);
  ops->download(ops, exchange->host, exchange->next, ranks * transfer->bytes);
  PLM_TRY(ops->synchronize(ops, error));
  for (uint32_t r = 0; r < ranks; r++) {
    const uint32_t sender = sender_of(exchange, transfer->scope, r);
    const uint32_t slice = transfer->kind == PLM_ALL_TO_ALL ? mine : 0;
    for (size_t i = 0; i < n; i++)
      if (exchange->host[r * n + i] != value(sender, round, k, slice, i))
        return plm_error_set(error, PLM_CORRUPT, "round %d, transfer %d: element %zu of rank %u",
                             round, k, i, sender);
  }
  return PLM_OK;
}

/* Until mpirun ends this process; no signal ends it before. */
static void compute_forever(void)
{
  const uint64_t until = plm_clock_ns() + FOREVER_S * 1000000000ull;
  while (plm_clock_ns() < until) usleep(1000);
}

/* Several transfers are under way at once; each is waited for after another one was started.
 * last: this is the round of the kind that the program was started for. */
static plm_status run_round(struct exchange *exchange, int round, bool last,
                            struct plm_error *error)
{
  const bool wrong = last && exchange->ranks.rank == 1;
  struct plm_transfer transfers[IN_FLIGHT];
  if (wrong && (is_kind("late") || is_kind("hesitant") || is_kind("busy"))) sleep(FOREVER_S);
  for (int k = 0; k < IN_FLIGHT; k++) {
    if (wrong && is_kind("recorded")) {
      struct plm_recording *recording;
      struct plm_transfer refused;
      PLM_TRY(exchange->ops->record_begin(exchange->ops, error));
      begin(exchange, &refused, round, k);
      return exchange->ops->record_end(exchange->ops, &recording, error);
    }
    begin(exchange, &transfers[k], round, k);
  }
  if (last && is_kind("busy") && exchange->ranks.rank == 0) compute_forever();
  for (int k = 0; k < IN_FLIGHT && !(wrong && is_kind("unwaited")); k++)
    PLM_TRY(exchange->transport->wait(exchange->transport, &transfers[k], error));
  for (int k = 0; k < IN_FLIGHT; k++) PLM_TRY(check(exchange, &transfers[k], round, k, error));
  return PLM_OK;
}

/* Rank 1 pauses before it sends, so the others wait for it. What is measured is noisy on a busy
 * machine, so one clear round of several is enough; if waits were counted, there would be none. */
static plm_status run_slow(struct exchange *exchange, struct plm_error *error)
{
  struct plm_collective *collective = exchange->collective;
  struct plm_transport *transport = exchange->transport;
  double all[MOST_RANKS];
  for (int attempt = 0; attempt < SLOW_ROUNDS; attempt++) {
    struct plm_transfer transfer;
    double mine = 0;
    PLM_TRY(exchange->ops->synchronize(exchange->ops, error));
    PLM_TRY(plm_collective_gather(collective, PLM_LANE_STEP, all, &mine, sizeof mine,
                                  error)); /* meet */
    transport->mark(transport, PLM_COMPUTE_BEGINS);
    transport->mark(transport, PLM_COMPUTE_PAUSES);
    usleep(SLOW_US); /* of all ranks: what they pause is not counted */
    transport->mark(transport, PLM_COMPUTE_RESUMES);
    if (collective->place.rank == 1) usleep(SLOW_US);
    begin(exchange, &transfer, 0, 0);
    PLM_TRY(transport->wait(transport, &transfer, error));
    PLM_TRY(exchange->ops->synchronize(exchange->ops, error));
    mine = transport->computed(transport);
    PLM_TRY(plm_collective_gather(collective, PLM_LANE_STEP, all, &mine, sizeof mine, error));
    if (all[0] > 0 && all[0] < 0.5e-6 * SLOW_US && all[1] > 1e-6 * SLOW_US &&
        all[1] < 1.5e-6 * SLOW_US) {
      if (collective->place.rank == 0) printf("%s: rank 1 is the slowest\n", transport->name);
      return PLM_OK;
    }
  }
  return plm_error_set(error, PLM_FAILURE, "rank 0 computed for %g s, rank 1 for %g s", all[0],
                       all[1]);
}

/* One transfer that differs from the other ranks' in its size or kind. */
static plm_status run_unequal(struct exchange *exchange, struct plm_error *error)
{
  uint32_t ranks;
  struct plm_transfer transfer = transfer_of(exchange, 1, 0, &ranks);
  if (exchange->ranks.rank == 1 && is_kind("unequal")) transfer.bytes -= PLM_SLICE_UNIT;
  if (exchange->ranks.rank == 1 && is_kind("order")) transfer.kind = PLM_ALL_GATHER;
  exchange->transport->start(exchange->transport, &transfer);
  PLM_TRY(exchange->transport->wait(exchange->transport, &transfer, error));
  return exchange->ops->synchronize(exchange->ops, error);
}

static plm_status run_rounds(struct exchange *exchange, int rounds, struct plm_error *error)
{
  const uint32_t rank = exchange->ranks.rank;
  for (int round = 0; round < rounds; round++) PLM_TRY(run_round(exchange, round, false, error));
  if (rank == 0) printf("%s: %d rounds are right\n", exchange->transport->name, rounds);
  if (is_kind("right")) return PLM_OK;
  if (is_kind("slow")) return run_slow(exchange, error);
  if (is_kind("unequal") || is_kind("order")) return run_unequal(exchange, error);
  return run_round(exchange, rounds, true, error);
}

/* After a failure of the exchange, what arrives is wrong, and the next transfer says why. */
static plm_status confirm(struct exchange *exchange, plm_status status, struct plm_error *error)
{
  struct plm_collective *collective = exchange->collective;
  int64_t largest;
  if (status != PLM_OK && collective->speaker(collective) < 0) return status;
  return plm_collective_vote(collective, 0, &largest, error);
}

/* The transport is closed even so after an error, but later. */
static plm_status run_pass(struct exchange *exchange, const char *pass, int rounds,
                           struct plm_error *error)
{
  const bool staged = pass != NULL && strcmp(pass, "mpi") == 0;
  if (pass != NULL) setenv("PLM_COLLECTIVE", staged ? "mpi" : "nccl", 1);
  if (pass != NULL && !staged) setenv("PLM_EMULATED_NCCL", pass, 1);
  if (is_kind("pigeon") && exchange->ranks.rank == 1) setenv("PLM_COLLECTIVE", "pigeon", 1);
  const plm_status status =
      plm_transport_open(exchange->collective, exchange->ops, &exchange->transport, error);
  if (status == PLM_CONFIG) plm_ranks_agree(&exchange->ranks);
  PLM_TRY(status);
  PLM_TRY(confirm(exchange, run_rounds(exchange, rounds, error), error));
  exchange->transport->close(exchange->transport);
  exchange->transport = NULL;
  return PLM_OK;
}

static void say(const struct plm_error *error)
{
  const uint64_t until = plm_clock_ns() + HESITATION_S * 1000000000ull;
  while (is_kind("hesitant") && plm_clock_ns() < until) usleep(1000);
  plm_error_print("tool_transport", error);
}

static plm_status open_all(struct exchange *exchange, const char *device, struct plm_error *error)
{
  const char *timeout = getenv("PLM_TEST_TIMEOUT_S");
  PLM_TRY(plm_ranks_open(&exchange->ranks, say, error));
  exchange->collective = exchange->ranks.collective;
  const struct plm_rank_place *place = &exchange->collective->place;
  exchange->collective->set_timeout(exchange->collective,
                                    timeout != NULL ? atoi(timeout) : TIMEOUT_S);
  exchange->collective->note(exchange->collective, "exchanging", 0, false);
  const struct plm_ops_request request = {.device = strcmp(device, "cuda") == 0 ? PLM_DEVICE_CUDA
                                                                                : PLM_DEVICE_CPU,
                                          .precision = PLM_PRECISION_FP32,
                                          .threads = 1,
                                          .ordinal = (int)place->local,
                                          .of_rank = true};
  PLM_TRY(plm_ops_open(&request, &exchange->ops, error));
  struct plm_ops *ops = exchange->ops;
  const size_t bytes = sizeof exchange->host;
  for (int k = 0; k < IN_FLIGHT; k++) {
    PLM_TRY(ops->allocate(ops, bytes, (void **)&exchange->from[k], error));
    PLM_TRY(ops->allocate(ops, bytes, (void **)&exchange->to[k], error));
  }
  return ops->allocate(ops, bytes, (void **)&exchange->next, error);
}

static plm_status run(struct exchange *exchange, char **arguments, struct plm_error *error)
{
  const int rounds = atoi(arguments[1]);
  char **pass = arguments + 3;
  PLM_TRY(open_all(exchange, arguments[0], error));
  do PLM_TRY(run_pass(exchange, *pass, rounds, error));
  while (*pass != NULL && *++pass != NULL);
  return PLM_OK;
}

static void finish(struct exchange *exchange)
{
  struct plm_ops *ops = exchange->ops;
  for (int k = 0; k < IN_FLIGHT; k++) {
    if (exchange->from[k] != NULL) ops->release(ops, exchange->from[k]);
    if (exchange->to[k] != NULL) ops->release(ops, exchange->to[k]);
  }
  if (exchange->next != NULL) ops->release(ops, exchange->next);
  if (exchange->transport != NULL) exchange->transport->close(exchange->transport);
  if (ops != NULL) ops->close(ops);
}

int main(int argc, char **argv)
{
  static struct exchange exchange;
  struct plm_error error = {0};
  plm_log_init("tool_transport", PLM_LOG_WARNING);
  plm_stop_signals_install(); /* as in the trainer: mpirun's SIGTERM ends no rank at once */
  if (argc < 4) {
    fprintf(stderr, "usage: tool_transport DEVICE ROUNDS KIND [PASS...]\n");
    return 2;
  }
  kind = argv[3];
  plm_status status = run(&exchange, argv + 1, &error);
  if (exchange.collective == NULL) {
    plm_error_print("tool_transport", &error);
    return plm_status_exit_code(status);
  }
  if (status != PLM_OK) plm_ranks_fail(&exchange.ranks, &error);
  finish(&exchange);
  return plm_status_exit_code(plm_ranks_close(&exchange.ranks, status, &error));
}
