/* Calls the MPI engine as the trainer does, and checks each byte that arrives and what happens when
 * a rank fails or keeps the others waiting. Started by mpirun (tests/kernels/mpi/test_engine.sh).
 *
 *   tool_engine KIND FOLDER
 *
 *   right       every kind of transfer on every lane and scope; prints each rank's place
 *   patient     rank 1 keeps the others waiting for longer than the timeout, which it may
 *   fail        rank 1 fails; all ranks learn why
 *   late        rank 1 begins nothing more
 *   elsewhere   a transfer of another engine does not end
 *   silent      rank 1 is stopped
 *
 * After a failure, a rank prints what it was told, as "rank R: speaker S, status: what". It leaves
 * only when all others have, because mpirun ends them then; FOLDER, which is empty, tells that. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/collective/collective.h"
#include "tests/support/harness/must.h"

enum { LARGE = (64 << 20) + 5, UNITS = 3 };

static struct plm_collective *collective;
static struct plm_rank_place place;

static void say(const struct plm_error *error)
{
  printf("rank %u says: %s\n", place.rank, error->what);
  fflush(stdout);
}

static void pause_ms(long milliseconds)
{
  const struct timespec pause = {.tv_sec = milliseconds / 1000,
                                 .tv_nsec = milliseconds % 1000 * 1000000};
  nanosleep(&pause, NULL);
}

/* Ends this process with a message unless `holds`. */
static void check(bool holds, const char *what, unsigned long long number)
{
  if (holds) return;
  printf("rank %u: %s (%llu)\n", place.rank, what, number);
  fflush(stdout);
  _exit(9);
}

static unsigned char byte(uint32_t rank, uint32_t slice, size_t i)
{
  return (unsigned char)(rank * 101 + slice * 37 + i * 7 + i / 251);
}

static void fill(unsigned char *bytes, uint32_t rank, uint32_t slice, size_t count)
{
  for (size_t i = 0; i < count; i++) bytes[i] = byte(rank, slice, i);
}

static void check_bytes(const unsigned char *bytes, uint32_t rank, uint32_t slice, size_t count,
                        const char *what)
{
  for (size_t i = 0; i < count; i++) check(bytes[i] == byte(rank, slice, i), what, i);
}

/* ---- what arrives ---------------------------------------------------------------------------- */

static void gathers(enum plm_lane lane, size_t count)
{
  unsigned char *mine = must(malloc(count)), *all = must(malloc(count * place.ranks));
  fill(mine, place.rank, 0, count);
  check(plm_collective_gather(collective, lane, all, mine, count, NULL) == PLM_OK, "gather", count);
  for (uint32_t r = 0; r < place.ranks; r++) check_bytes(all + r * count, r, 0, count, "gathered");
  free(mine);
  free(all);
}

static void broadcasts(enum plm_lane lane, size_t count)
{
  unsigned char *bytes = must(calloc(1, count));
  if (place.rank == 0) fill(bytes, 0, 3, count);
  check(plm_collective_broadcast(collective, lane, bytes, count, NULL) == PLM_OK, "broadcast",
        count);
  check_bytes(bytes, 0, 3, count, "broadcast");
  free(bytes);
}

/* Each rank sends to the next one, in turn. */
static void sends(enum plm_lane lane, size_t count)
{
  unsigned char *bytes = must(calloc(1, count));
  for (uint32_t r = 0; r < place.ranks; r++) {
    const uint32_t to = (r + 1) % place.ranks;
    if (place.rank == r) fill(bytes, r, 4, count);
    if (place.rank == r)
      check(plm_collective_send(collective, lane, to, bytes, count, NULL) == PLM_OK, "send", count);
    if (place.rank != to) continue;
    check(plm_collective_receive(collective, lane, r, bytes, count, NULL) == PLM_OK, "receive",
          count);
    check_bytes(bytes, r, 4, count, "received");
  }
  free(bytes);
}

/* The rank that is at place i of this rank's group or rail. */
static uint32_t member(enum plm_scope scope, uint32_t i)
{
  if (scope == PLM_SCOPE_GROUP) return place.rank / place.group_size * place.group_size + i;
  return scope == PLM_SCOPE_RAIL ? i * place.group_size + place.rank % place.group_size : i;
}

static void exchanges(enum plm_transfer_kind kind, enum plm_scope scope)
{
  const size_t count = UNITS * PLM_SLICE_UNIT;
  const uint32_t groups = place.ranks / place.group_size;
  const uint32_t ranks = scope == PLM_SCOPE_ALL     ? place.ranks
                         : scope == PLM_SCOPE_GROUP ? place.group_size
                                                    : groups;
  unsigned char *from = must(malloc(count * ranks)), *to = must(calloc(ranks, count));
  uint32_t mine = 0;
  for (uint32_t i = 0; i < ranks; i++) {
    fill(from + i * count, place.rank, i, count);
    if (member(scope, i) == place.rank) mine = i;
  }
  struct plm_transfer transfer = {
      .kind = kind, .lane = PLM_LANE_STEP, .scope = scope, .to = to, .from = from, .bytes = count};
  const uint64_t before_ns = plm_clock_ns();
  collective->start(collective, &transfer);
  check(collective->wait(collective, &transfer, NULL) == PLM_OK, "exchange", (unsigned)scope);
  check(transfer.ended_ns >= before_ns && transfer.ended_ns <= plm_clock_ns(), "ended_ns",
        transfer.ended_ns);
  for (uint32_t i = 0; i < ranks; i++)
    check_bytes(to + i * count, member(scope, i), kind == PLM_ALL_TO_ALL ? mine : 0, count,
                "exchanged");
  free(from);
  free(to);
}

/* Even and odd ranks start those of two lanes in different orders, and wait for both at the end. */
static void lanes_are_independent(void)
{
  struct plm_transfer transfers[PLM_LANE_COUNT];
  unsigned char mine[PLM_LANE_COUNT][8], *all[PLM_LANE_COUNT];
  for (int k = 0; k < PLM_LANE_COUNT; k++) {
    const int lane = place.rank % 2 == 0 ? k : PLM_LANE_COUNT - 1 - k;
    all[lane] = must(calloc(place.ranks, sizeof mine[lane]));
    fill(mine[lane], place.rank, (uint32_t)lane, sizeof mine[lane]);
    transfers[lane] = (struct plm_transfer){.kind = PLM_ALL_GATHER,
                                            .lane = (enum plm_lane)lane,
                                            .to = all[lane],
                                            .from = mine[lane],
                                            .bytes = sizeof mine[lane]};
    collective->start(collective, &transfers[lane]);
  }
  for (int lane = 0; lane < PLM_LANE_COUNT; lane++) {
    check(collective->wait(collective, &transfers[lane], NULL) == PLM_OK, "lane", (unsigned)lane);
    for (uint32_t r = 0; r < place.ranks; r++)
      check_bytes(all[lane] + r * sizeof mine[lane], r, (uint32_t)lane, sizeof mine[lane], "lane");
    free(all[lane]);
  }
}

static void votes(void)
{
  for (uint32_t most = 0; most < place.ranks; most++) {
    int64_t largest = 0;
    const int64_t mine = place.rank == most ? -3 : -4 - (int64_t)place.rank;
    check(plm_collective_vote(collective, mine, &largest, NULL) == PLM_OK, "vote", most);
    check(largest == -3, "largest", most);
  }
}

static void run_right(void)
{
  static const size_t counts[] = {1, 7, PLM_SLICE_UNIT, 2 * PLM_SLICE_UNIT + 1};
  for (int lane = 0; lane < PLM_LANE_COUNT; lane++)
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
      gathers((enum plm_lane)lane, counts[i]);
      broadcasts((enum plm_lane)lane, counts[i]);
      sends((enum plm_lane)lane, counts[i]);
    }
  broadcasts(PLM_LANE_STEP, LARGE); /* in two parts */
  sends(PLM_LANE_INPUT, LARGE);
  for (int scope = PLM_SCOPE_ALL; scope <= PLM_SCOPE_RAIL; scope++) {
    exchanges(PLM_ALL_TO_ALL, (enum plm_scope)scope);
    exchanges(PLM_ALL_GATHER, (enum plm_scope)scope);
  }
  lanes_are_independent();
  votes();
  check(collective->speaker(collective) == -1, "speaker", 0);
  printf("rank %u of %u: group of %u, %u of %u here\n", place.rank, place.ranks, place.group_size,
         place.local, place.on_this_host);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void meet(void)
{
  int64_t largest;
  check(plm_collective_vote(collective, 0, &largest, NULL) == PLM_OK, "meet", 0);
}

/* Waits until all ranks have come here, except for one that is stopped. */
static void leave_together(const char *folder, bool stopped)
{
  const uint64_t until_ns = plm_clock_ns() + 60 * 1000000000ull;
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s/rank-%u", folder, place.rank);
  check(plm_file_write(path, "", 0, 0644, NULL) == PLM_OK, "cannot write", 0);
  for (uint32_t r = 0; r < place.ranks; r++) {
    snprintf(path, sizeof path, "%s/rank-%u", folder, r);
    while (!(stopped && r == 1) && !plm_file_exists(path)) {
      check(plm_clock_ns() < until_ns, "this rank was told nothing within a minute", r);
      pause_ms(5);
    }
  }
}

/* The next exchange fails, and so does the one after it; prints why. */
static plm_status fail_together(void)
{
  struct plm_error first = {0}, second = {0};
  int64_t largest;
  const plm_status status = plm_collective_vote(collective, 0, &largest, &first);
  check(status != PLM_OK, "the exchange did not fail", 0);
  check(plm_collective_vote(collective, 0, &largest, &second) == status, "another status", 0);
  check(strcmp(first.what, second.what) == 0, "another message", 0);
  printf("rank %u: speaker %" PRId32 ", %s: %s\n", place.rank, collective->speaker(collective),
         plm_status_text(status), first.what);
  fflush(stdout);
  return status;
}

static plm_status run_failing(const char *kind, const char *folder)
{
  const bool wrong = place.rank == 1;
  struct plm_error error = {0};
  meet();
  collective->set_timeout(collective, strcmp(kind, "fail") == 0 ? 60 : 4);
  collective->note(collective, wrong ? "idling" : "working", 4 + place.rank,
                   strcmp(kind, "patient") == 0 && wrong);
  meet();
  if (strcmp(kind, "patient") == 0) {
    if (wrong) pause_ms(6000);
    meet();
    return PLM_OK;
  }
  if (strcmp(kind, "elsewhere") == 0) {
    collective->began_elsewhere(collective); /* this one ends */
    collective->ended_elsewhere(collective);
    collective->began_elsewhere(collective);
    while (collective->speaker(collective) < 0) pause_ms(5);
  } else if (wrong && strcmp(kind, "fail") == 0) {
    plm_error_set(&error, PLM_TIMEOUT, "it is tired");
    collective->fail(collective, &error);
  } else if (wrong && strcmp(kind, "silent") == 0) {
    raise(SIGSTOP);
    _exit(0); /* mpirun ends what is stopped, and lets it continue for that */
  } else if (wrong) {
    while (collective->speaker(collective) < 0) pause_ms(5);
  }
  const plm_status status = fail_together();
  leave_together(folder, strcmp(kind, "silent") == 0);
  return status;
}

int main(int argc, char **argv)
{
  struct plm_error error = {0};
  plm_status status = PLM_OK;
  plm_log_init("tool_engine", PLM_LOG_WARNING);
  if (argc != 3) {
    fprintf(stderr, "usage: tool_engine KIND FOLDER\n");
    return 2;
  }
  if (plm_collective_open(say, &collective, &error) != PLM_OK) {
    plm_error_print("tool_engine", &error);
    return 2;
  }
  place = collective->place;
  if (strcmp(argv[1], "right") == 0)
    run_right();
  else
    status = run_failing(argv[1], argv[2]);
  collective->close(collective);
  return plm_status_exit_code(status);
}
