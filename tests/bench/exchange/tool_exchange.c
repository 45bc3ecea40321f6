/* Measures what ranks exchange. Started by mpirun (tests/bench/bench_ranks.sh).
 *
 *   tool_exchange ROUNDS MEGABYTES...
 *
 * For each number of megabytes (of the whole gradient), rank 0 prints it and the milliseconds of
 * the fastest round, in which the slowest rank counts, of
 *
 *   1. the exchange of gradients and the sum of what each rank receives, which together do what a
 *      reduce-scatter does;
 *   2. the exchange without the sum;
 *   3. the gathering of the updated weights;
 *   4. one transfer of as many bytes from rank 0 to rank 1. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/collective/collective.h"
#include "common/ops/open.h"
#include "common/ops/ops.h"

struct bench {
  struct plm_collective *collective;
  struct plm_ops *ops;
  float *from, *to;
};

enum part { EXCHANGE_AND_SUM, EXCHANGE, GATHER, TRANSFER, PART_COUNT };

static plm_status move(struct bench *bench, enum part part, size_t slice, struct plm_error *error)
{
  struct plm_collective *collective = bench->collective;
  const uint32_t rank = collective->place.rank;
  const size_t bytes = slice * sizeof(float);
  struct plm_transfer transfer = {
      .kind = PLM_ALL_TO_ALL, .to = bench->to, .from = bench->from, .bytes = bytes};
  if (part == GATHER) transfer.kind = PLM_ALL_GATHER;
  if (part == TRANSFER) {
    if (rank > 1) return PLM_OK;
    transfer.kind = rank == 0 ? PLM_SEND : PLM_RECEIVE;
    transfer.peer = 1 - rank;
    transfer.bytes = bytes * collective->place.ranks;
  }
  collective->start(collective, &transfer);
  return collective->wait(collective, &transfer, error);
}

static plm_status round_of(struct bench *bench, enum part part, size_t slice, double *seconds,
                           struct plm_error *error)
{
  const uint32_t ranks = bench->collective->place.ranks;
  const float *parts[PLM_SUM_PARTS_MAX];
  int64_t ns = 0;
  PLM_TRY(plm_collective_vote(bench->collective, 0, &ns, error)); /* all begin together */
  const uint64_t begin = plm_clock_ns();
  PLM_TRY(move(bench, part, slice, error));
  for (uint32_t r = 0; r < ranks; r++) parts[r] = bench->to + r * slice;
  if (part == EXCHANGE_AND_SUM) bench->ops->sum_parts(bench->ops, bench->from, parts, ranks, slice);
  const uint64_t end = plm_clock_ns();
  PLM_TRY(plm_collective_vote(bench->collective, (int64_t)(end - begin), &ns, error));
  *seconds = 1e-9 * (double)ns;
  return PLM_OK;
}

static plm_status measure(struct bench *bench, double megabytes, int rounds,
                          struct plm_error *error)
{
  const uint32_t ranks = bench->collective->place.ranks;
  const size_t elements = (size_t)(megabytes * (1 << 20)) / sizeof(float);
  const size_t slice = elements / ranks / 16 * 16, n = slice * ranks;
  double best[PART_COUNT], seconds = 0;
  bench->from = malloc(n * sizeof(float));
  bench->to = malloc(n * sizeof(float));
  if (bench->from == NULL || bench->to == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %g MB", megabytes);
  for (size_t i = 0; i < n; i++) bench->from[i] = bench->to[i] = (float)(i % 1000);
  for (int part = 0; part < PART_COUNT; part++) {
    best[part] = 1e9;
    for (int round = 0; round < rounds + 1; round++) { /* the first one only warms up */
      PLM_TRY(round_of(bench, (enum part)part, slice, &seconds, error));
      if (round > 0 && seconds < best[part]) best[part] = seconds;
    }
  }
  if (bench->collective->place.rank == 0) {
    printf("%g", megabytes);
    for (int part = 0; part < PART_COUNT; part++) printf(" %.3f", 1e3 * best[part]);
    printf("\n");
  }
  free(bench->from);
  free(bench->to);
  return PLM_OK;
}

static void say(const struct plm_error *error)
{
  plm_error_print("tool_exchange", error);
}

int main(int argc, char **argv)
{
  struct bench bench = {0};
  struct plm_error error = {0};
  plm_log_init("tool_exchange", PLM_LOG_WARNING);
  if (argc < 3) {
    fprintf(stderr, "usage: tool_exchange ROUNDS MEGABYTES...\n");
    return 2;
  }
  plm_status status = plm_collective_open(say, &bench.collective, &error);
  if (status == PLM_OK) status = plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &bench.ops, &error);
  for (int i = 2; i < argc && status == PLM_OK; i++)
    status = measure(&bench, strtod(argv[i], NULL), atoi(argv[1]), &error);
  if (status != PLM_OK && bench.collective != NULL)
    bench.collective->fail(bench.collective, &error);
  else if (status != PLM_OK)
    say(&error);
  if (bench.ops != NULL) bench.ops->close(bench.ops);
  if (bench.collective != NULL) bench.collective->close(bench.collective);
  return plm_status_exit_code(status);
}
