/* Exchanges memory of operators between ranks in every way that a step does, and checks each
 * element that arrives. Started by mpirun (tests/kernels/test_transport.sh).
 *
 *   tool_transport DEVICE ROUNDS [slow | unequal | order | late | hesitant | recorded | unwaited]
 *
 * DEVICE is cpu or cuda. With slow, rank 1 computes longer than the others, and the transport must
 * tell this from waiting. The others are something that rank 1 does wrong in the last round:
 * a piece of another size, another kind of transfer, a pause of six seconds (with hesitant, the
 * rank that says so takes its time), a start while a recording is made, or a look at what arrives
 * without a wait for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/collective/transport.h"
#include "common/ops/open.h"
#include "common/run/stop.h"

enum { IN_FLIGHT = 4, FLOATS = 4096, MOST_RANKS = 16, TIMEOUT_S = 3, LATE_S = 6 };
enum { HESITATION_S = 2 };
enum { SLOW_ROUNDS = 20, SLOW_US = 200000 };

struct exchange {
  struct plm_collective *collective;
  struct plm_ops *ops;
  struct plm_transport *transport;
  float *from[IN_FLIGHT], *to[IN_FLIGHT], *next; /* device */
  float host[FLOATS * MOST_RANKS];
};

/* What the rank sends in this transfer to the receiver at place `piece` of its group or rail. */
static float value(uint32_t rank, int round, int transfer, uint32_t piece, size_t i)
{
  return (float)((rank * 7919 + (uint32_t)round * 104729 + (uint32_t)transfer * 1299709 +
                  piece * 15485863 + (uint32_t)i) %
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
  const uint32_t pieces = transfer->kind == PLM_ALL_TO_ALL ? ranks : 1;
  const size_t n = transfer->bytes / sizeof(float);
  for (uint32_t piece = 0; piece < pieces; piece++)
    for (size_t i = 0; i < n; i++)
      exchange->host[piece * n + i] = value(exchange->collective->place.rank, round, k, piece, i);
  ops->upload(ops, exchange->next, exchange->host, pieces * transfer->bytes);
  ops->copy(ops, exchange->from[k], exchange->next, pieces * transfer->bytes);
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
    const uint32_t piece = transfer->kind == PLM_ALL_TO_ALL ? mine : 0;
    for (size_t i = 0; i < n; i++)
      if (exchange->host[r * n + i] != value(sender, round, k, piece, i))
        return plm_error_set(error, PLM_CORRUPT, "round %d, transfer %d: element %zu of rank %u",
                             round, k, i, sender);
  }
  return PLM_OK;
}

/* Several transfers are under way at once; each is waited for after another one was started. */
static plm_status run_round(struct exchange *exchange, int round, const char *wrong,
                            struct plm_error *error)
{
  struct plm_transfer transfers[IN_FLIGHT];
  if (strcmp(wrong, "late") == 0 || strcmp(wrong, "hesitant") == 0) sleep(LATE_S);
  for (int k = 0; k < IN_FLIGHT; k++) {
    if (strcmp(wrong, "recorded") == 0) {
      struct plm_recording *recording;
      struct plm_transfer refused;
      PLM_TRY(exchange->ops->record_begin(exchange->ops, error));
      begin(exchange, &refused, round, k);
      return exchange->ops->record_end(exchange->ops, &recording, error);
    }
    begin(exchange, &transfers[k], round, k);
  }
  for (int k = 0; k < IN_FLIGHT && strcmp(wrong, "unwaited") != 0; k++)
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
static plm_status run_unequal(struct exchange *exchange, const char *wrong, struct plm_error *error)
{
  uint32_t ranks;
  struct plm_transfer transfer = transfer_of(exchange, 1, 0, &ranks);
  if (exchange->collective->place.rank == 1 && strcmp(wrong, "unequal") == 0)
    transfer.bytes -= PLM_PIECE_UNIT;
  if (exchange->collective->place.rank == 1 && strcmp(wrong, "order") == 0)
    transfer.kind = PLM_ALL_GATHER;
  exchange->transport->start(exchange->transport, &transfer);
  PLM_TRY(exchange->transport->wait(exchange->transport, &transfer, error));
  return exchange->ops->synchronize(exchange->ops, error);
}

static plm_status run(struct exchange *exchange, const char *device, int rounds, const char *wrong,
                      struct plm_error *error)
{
  PLM_TRY(plm_collective_open(&exchange->collective, error));
  const struct plm_rank_place *place = &exchange->collective->place;
  exchange->collective->set_timeout(exchange->collective, TIMEOUT_S);
  exchange->collective->note(exchange->collective, "exchanging", 0, false);
  const struct plm_ops_request request = {.device = strcmp(device, "cuda") == 0 ? PLM_DEVICE_CUDA
                                                                                : PLM_DEVICE_CPU,
                                          .precision = PLM_PRECISION_FP32,
                                          .threads = 1,
                                          .ordinal = (int)place->local,
                                          .of_rank = true};
  PLM_TRY(plm_ops_open(&request, &exchange->ops, error));
  struct plm_ops *ops = exchange->ops;
  const plm_status opened =
      plm_transport_open(exchange->collective, ops, &exchange->transport, error);
  if (opened == PLM_CONFIG && place->rank != 0) error->what[0] = '\0'; /* rank 0 says it */
  PLM_TRY(opened);
  const size_t bytes = sizeof exchange->host;
  for (int k = 0; k < IN_FLIGHT; k++) {
    PLM_TRY(ops->allocate(ops, bytes, (void **)&exchange->from[k], error));
    PLM_TRY(ops->allocate(ops, bytes, (void **)&exchange->to[k], error));
  }
  PLM_TRY(ops->allocate(ops, bytes, (void **)&exchange->next, error));
  for (int round = 0; round < rounds; round++) PLM_TRY(run_round(exchange, round, "", error));
  if (strcmp(wrong, "slow") == 0) return run_slow(exchange, error);
  if (strcmp(wrong, "unequal") == 0 || strcmp(wrong, "order") == 0)
    return run_unequal(exchange, wrong, error);
  if (wrong[0] != '\0') {
    PLM_TRY(run_round(exchange, rounds, place->rank == 1 ? wrong : "", error));
    return PLM_OK;
  }
  if (place->rank == 0) printf("%s: %d rounds are right\n", exchange->transport->name, rounds);
  return PLM_OK;
}

/* After a failure of the exchange, what arrives is wrong, and the next transfer says why. */
static plm_status confirm(struct exchange *exchange, plm_status status, struct plm_error *error)
{
  struct plm_collective *collective = exchange->collective;
  int64_t largest;
  if (collective == NULL || (status != PLM_OK && collective->speaker(collective) < 0))
    return status;
  return plm_collective_vote(collective, 0, &largest, error);
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
  if (exchange->collective != NULL) exchange->collective->close(exchange->collective);
}

int main(int argc, char **argv)
{
  static struct exchange exchange;
  struct plm_error error = {0};
  plm_log_init("tool_transport", PLM_LOG_WARNING);
  plm_stop_signals_install(); /* as in the trainer: mpirun's SIGTERM ends no rank before it speaks
                               */
  if (argc < 3) {
    fprintf(stderr, "usage: tool_transport DEVICE ROUNDS [FAULT]\n");
    return 2;
  }
  plm_status status = run(&exchange, argv[1], atoi(argv[2]), argc > 3 ? argv[3] : "", &error);
  status = confirm(&exchange, status, &error);
  if (status != PLM_OK && exchange.collective != NULL) {
    struct plm_collective *collective = exchange.collective;
    const int32_t speaker = collective->speaker(collective);
    const bool speaks = speaker < 0 || (uint32_t)speaker == collective->place.rank;
    if (argc > 3 && strcmp(argv[3], "hesitant") == 0 && speaks) sleep(HESITATION_S);
    if (speaks && error.what[0] != '\0') plm_error_print("tool_transport", &error);
    collective->fail(collective, &error);
  } else if (status != PLM_OK) {
    plm_error_print("tool_transport", &error);
  }
  finish(&exchange);
  return plm_status_exit_code(status);
}
