/* The exchange of gradients, numbers and weights between ranks, which are threads of this program
 * and move their messages through a board: the values, the bytes, and what a profile says. */
#include "trainer/ranks/gradient_exchange.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/rank_board.h"
#include "trainer/profile/profile_state.h"

enum { MOST_RANKS = RANK_BOARD_RANKS, SHARES = 3, MOST_PARAMETERS = 128 };

struct rank {
  struct plm_collective collective;
  struct plm_transport transport;
  struct plm_ranks ranks;
  struct plm_ops *ops;
  struct plm_model *model;
  struct plm_exchange *exchange;
  struct plm_profile profile;
  uint32_t waits_left; /* until one fails; 0: none does */
  enum plm_compute_mark marked;
  struct plm_update_sums sums;
  struct plm_exchange_work work;
  double losses[SHARES];
  pthread_t thread;
  void (*run)(struct rank *rank);
};

static struct rank *rank_of(struct plm_transport *transport)
{
  return (struct rank *)((char *)transport - offsetof(struct rank, transport));
}

static void transport_start(struct plm_transport *transport, struct plm_transfer *transfer)
{
  PLM_ASSERT(transfer->bytes % PLM_SLICE_UNIT == 0);
  PLM_ASSERT(transfer->scope != PLM_SCOPE_ALL);
  rank_board_post(&rank_of(transport)->collective.place, transfer);
}

static plm_status transport_wait(struct plm_transport *transport, struct plm_transfer *transfer,
                                 struct plm_error *error)
{
  struct rank *rank = rank_of(transport);
  if (rank->waits_left > 0 && --rank->waits_left == 0)
    return plm_error_set(error, PLM_FAILURE, "rank 1 has died");
  rank_board_take(&rank->collective.place, transfer);
  transfer->ended_ns = rank->ranks.rank == 0 ? plm_clock_ns() : 0;
  return PLM_OK;
}

static void transport_mark(struct plm_transport *transport, enum plm_compute_mark mark)
{
  rank_of(transport)->marked = mark;
}

static double transport_computed(struct plm_transport *transport)
{
  return 1.5 + rank_of(transport)->marked;
}

/* ---- a gang ---------------------------------------------------------------------------------- */

static struct gang {
  uint32_t count, group_size;
  bool rounds;
  struct rank ranks[MOST_RANKS];
  uint32_t owners[MOST_PARAMETERS];
  const struct plm_parameter *table;
  size_t parameters;
} gang;

/* Any number; of a rank's gradient, and of an owner's weight. */
static float number_of(uint32_t stream, size_t i)
{
  uint64_t x = ((uint64_t)stream << 40) + i;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 32) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  const float size = (float)(1u << (x >> 60)) / 256;
  return size * ((float)(x & 0xffffff) / 16777216 - 0.5f);
}

static void open_rank(uint32_t r, enum plm_precision precision, bool profiled)
{
  struct rank *rank = &gang.ranks[r];
  struct plm_model_config config = model_case_small(PLM_TRANSFORMER);
  config.hidden_size = 32;
  config.num_hidden_layers = 3;
  const struct plm_model_options options = {.max_chunks = 1, .training = true};
  *rank = (struct rank){
      .collective = {.place = {.rank = r, .ranks = gang.count, .group_size = gang.group_size},
                     .start = rank_board_start,
                     .wait = rank_board_wait},
      .transport = {.start = transport_start,
                    .wait = transport_wait,
                    .mark = transport_mark,
                    .computed = transport_computed}};
  assert_int_equal(plm_ops_cpu_open(precision, 1, NULL, &rank->ops, NULL), PLM_OK);
  assert_int_equal(plm_model_open(&config, rank->ops, &options, &rank->model, NULL), PLM_OK);
  rank->ranks = (struct plm_ranks){.collective = &rank->collective,
                                   .rank = r,
                                   .ranks = gang.count,
                                   .ops = rank->ops,
                                   .transport = &rank->transport};
  rank->profile = (struct plm_profile){.options.ops = rank->ops, .recording = true};
  gang.table = plm_model_table(rank->model, &gang.parameters);
  assert_in_range(gang.parameters, 20, MOST_PARAMETERS);
  for (size_t i = 0; i < gang.parameters; i++)
    gang.owners[i] = gang.table[i].ndim == 1 ? PLM_OWNED_BY_ALL : (uint32_t)(i % gang.count);
  assert_int_equal(plm_exchange_open(&rank->ranks, rank->model, gang.owners, SHARES,
                                     gang.rounds ? PLM_COMPRESS_BF16 : PLM_COMPRESS_NONE,
                                     profiled ? &rank->profile : NULL, &rank->exchange, NULL),
                   PLM_OK);
}

static void open_gang(uint32_t count, uint32_t group_size, bool rounds,
                      enum plm_precision precision, bool profiled)
{
  gang = (struct gang){.count = count, .group_size = group_size, .rounds = rounds};
  for (uint32_t r = 0; r < count; r++) open_rank(r, precision, profiled);
}

static void close_gang(void)
{
  for (uint32_t r = 0; r < gang.count; r++) {
    struct rank *rank = &gang.ranks[r];
    plm_exchange_close(rank->exchange);
    plm_model_close(rank->model);
    rank->ops->close(rank->ops);
    free(rank->profile.events);
  }
  rank_board_clear();
}

static void *run_thread(void *context)
{
  struct rank *rank = context;
  rank->run(rank);
  return NULL;
}

static void run_all(void (*run)(struct rank *rank))
{
  for (uint32_t r = 0; r < gang.count; r++) {
    gang.ranks[r].run = run;
    assert_int_equal(pthread_create(&gang.ranks[r].thread, NULL, run_thread, &gang.ranks[r]), 0);
  }
  for (uint32_t r = 0; r < gang.count; r++) pthread_join(gang.ranks[r].thread, NULL);
}

static bool is_held(uint32_t rank, size_t parameter)
{
  return plm_is_held(&(struct plm_held){gang.owners, rank}, parameter);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static float to_bf16(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  memcpy(&value, &bits, sizeof bits);
  return value;
}

static void fill_gradients(struct rank *rank)
{
  float *arena = plm_model_gradient_arena(rank->model);
  for (size_t i = 0; i < plm_model_arena_elements(rank->model); i++)
    arena[i] = number_of(rank->ranks.rank, i);
}

/* Adds neighbours, level by level. */
static float tree(size_t i)
{
  float level[MOST_RANKS];
  uint32_t count = gang.count;
  for (uint32_t r = 0; r < count; r++)
    level[r] = gang.rounds && count > 1 ? to_bf16(number_of(r, i)) : number_of(r, i);
  for (; count > 1; count /= 2)
    for (uint32_t j = 0; j < count / 2; j++) level[j] = level[2 * j] + level[2 * j + 1];
  return level[0];
}

static void exchange_gradients(struct rank *rank)
{
  fill_gradients(rank);
  for (uint32_t part = 0; part < plm_exchange_backward_parts(rank->exchange); part++)
    PLM_ASSERT(plm_exchange_gradients(rank->exchange, part, NULL) == PLM_OK);
  PLM_ASSERT(plm_exchange_finish_gradients(rank->exchange, NULL) == PLM_OK);
}

static void expect_gradients(void)
{
  for (uint32_t r = 0; r < gang.count; r++) {
    const float *arena = plm_model_gradient_arena(gang.ranks[r].model);
    for (size_t p = 0; p < gang.parameters; p++)
      for (size_t e = 0; e < gang.table[p].count && is_held(r, p); e++) {
        const size_t i = gang.table[p].offset + e;
        if (arena[i] != tree(i))
          fail_msg("rank %u, %s, element %zu: %g", r, gang.table[p].name, e, (double)arena[i]);
      }
  }
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Each rank has the new weights of what it holds, and others of what it does not. */
static void exchange_weights(struct rank *rank)
{
  const uint32_t r = rank->ranks.rank;
  for (size_t p = 0; p < gang.parameters; p++)
    for (size_t e = 0; e < gang.table[p].count; e++)
      plm_model_parameter(rank->model, p)[e] = number_of(is_held(r, p) ? 100 : 200 + r, p + 7 * e);
  for (uint32_t part = 0; part < plm_exchange_update_parts(rank->exchange); part++)
    PLM_ASSERT(plm_exchange_weights(rank->exchange, NULL) == PLM_OK);
  PLM_ASSERT(plm_exchange_finish_weights(rank->exchange, NULL) == PLM_OK);
}

static void expect_weights(void)
{
  for (uint32_t r = 0; r < gang.count; r++) {
    struct plm_model *model = gang.ranks[r].model;
    for (size_t p = 0; p < gang.parameters; p++) {
      const void *used = plm_model_used(model, p);
      const size_t size = plm_parameter_used_bytes(&gang.table[p], gang.ranks[r].ops->act_bytes) /
                          gang.table[p].count;
      for (size_t e = 0; e < gang.table[p].count && !is_held(r, p); e++) {
        const float value = number_of(100, p + 7 * e), rounded = to_bf16(value);
        const bool right =
            size == 4 ? memcmp((const float *)used + e, &value, 4) == 0
                      : memcmp((const uint16_t *)used + e, (const uint16_t *)&rounded + 1, 2) == 0;
        if (!right) fail_msg("rank %u, %s, element %zu", r, gang.table[p].name, e);
      }
    }
  }
}

static const struct {
  uint32_t count, group_size;
} shapes[] = {{1, 1}, {2, 2}, {2, 1}, {4, 4}, {4, 2}, {4, 1}};
enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes };

static void everything_arrives_where_it_is_held(enum plm_precision precision)
{
  for (int i = 0; i < 2 * SHAPE_COUNT; i++) {
    const bool rounds = i >= SHAPE_COUNT;
    open_gang(shapes[i % SHAPE_COUNT].count, shapes[i % SHAPE_COUNT].group_size, rounds, precision,
              false);
    for (int step = 0; step < 2; step++) {
      struct plm_exchange_bytes bytes;
      const struct plm_bucket_request request = {.table = gang.table,
                                                 .count = gang.parameters,
                                                 .owners = gang.owners,
                                                 .ranks = gang.count,
                                                 .act_bytes = gang.ranks[0].ops->act_bytes};
      run_all(exchange_gradients);
      expect_gradients();
      run_all(exchange_weights);
      expect_weights();
      plm_exchange_count(&request, gang.group_size, rounds ? PLM_COMPRESS_BF16 : PLM_COMPRESS_NONE,
                         &bytes);
      for (uint32_t r = 0; r < gang.count; r++) {
        assert_int_equal(rank_board_sent(r, PLM_SCOPE_GROUP), bytes.sent_in_group);
        assert_int_equal(rank_board_sent(r, PLM_SCOPE_RAIL), bytes.sent_on_rail);
      }
      rank_board_clear();
    }
    close_gang();
  }
}

static void exchanges_in_fp32(void **state)
{
  (void)state;
  everything_arrives_where_it_is_held(PLM_PRECISION_FP32);
}

static void exchanges_in_bf16(void **state)
{
  (void)state;
  everything_arrives_where_it_is_held(PLM_PRECISION_BF16);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The parts of the backward pass lie one after another from the last block to the first, and those
 * of the update are ranges of parameters, all of which are covered. */
static void parts_cover_the_pass(void **state)
{
  (void)state;
  for (int i = 0; i < SHAPE_COUNT; i++) {
    open_gang(shapes[i].count, shapes[i].group_size, false, PLM_PRECISION_FP32, false);
    const struct plm_exchange *exchange = gang.ranks[0].exchange;
    const uint32_t parts = plm_exchange_backward_parts(exchange);
    const uint32_t updates = plm_exchange_update_parts(exchange);
    uint32_t end = plm_model_whole_pass(gang.ranks[0].model).end;
    size_t next = 0;
    assert_true(parts > 1 && updates > 1);
    for (uint32_t part = 0; part < parts; part++) {
      const struct plm_backward_part blocks = plm_exchange_backward_part(exchange, part);
      assert_int_equal(blocks.end, end);
      assert_true(blocks.first < blocks.end);
      end = blocks.first;
    }
    assert_int_equal(end, 0);
    for (uint32_t part = 0; part < updates; part++) {
      const struct plm_parameter_range range = plm_exchange_update_part(exchange, part);
      assert_int_equal(range.first, next);
      assert_true(range.first < range.end);
      next = range.end;
    }
    assert_int_equal(next, gang.parameters);
    close_gang();
  }
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void exchange_numbers(struct rank *rank)
{
  const uint32_t r = rank->ranks.rank;
  for (int i = 0; i < SHARES; i++) rank->losses[i] = (double)number_of(300 + r, (size_t)i);
  rank->sums = (struct plm_update_sums){.hits = 10 + r, .loss = -1, .squares = -1};
  rank->work = (struct plm_exchange_work){
      .flops = 1000 + r, .compute_s = r == 0 ? 0.25 : 0.5 / r, .slowest_rank = 77};
  fill_gradients(rank);
  PLM_ASSERT(plm_exchange_sums(rank->exchange, rank->losses, &rank->sums, &rank->work, NULL) ==
             PLM_OK);
}

/* A parameter's squares are those of the rank that holds it, or of rank 0. */
static void numbers_are_those_of_all(void **state)
{
  (void)state;
  for (int i = 0; i < SHAPE_COUNT; i++) {
    double loss = 0, squares = 0, hits = 0, flops = 0;
    open_gang(shapes[i].count, shapes[i].group_size, false, PLM_PRECISION_FP32, true);
    run_all(exchange_numbers);
    for (uint32_t r = 0; r < gang.count; r++) {
      for (int j = 0; j < SHARES; j++) loss += (double)number_of(300 + r, (size_t)j);
      hits += 10 + r;
      flops += 1000 + r;
    }
    for (size_t p = 0; p < gang.parameters; p++)
      for (size_t e = 0; e < gang.table[p].count; e++) {
        const uint32_t from = gang.owners[p] == PLM_OWNED_BY_ALL ? 0 : gang.owners[p];
        squares += pow((double)number_of(from, gang.table[p].offset + e), 2);
      }
    for (uint32_t r = 0; r < gang.count; r++) {
      const struct rank *rank = &gang.ranks[r];
      assert_true(rank->sums.loss == loss && rank->sums.hits == hits);
      assert_true(fabs(rank->sums.squares - squares) < 1e-5 * squares);
      assert_true(rank->sums.squares == gang.ranks[0].sums.squares);
      assert_true(rank->work.flops == flops);
      assert_true(rank->work.compute_s == (gang.count == 1 ? 0.25 : 0.5));
      assert_int_equal(rank->work.slowest_rank, gang.count == 1 ? 0 : 1);
      assert_int_equal(rank->profile.count, 1);
      const struct plm_profile_event *event = &rank->profile.events[0];
      assert_string_equal(event->name, "losses and norms");
      assert_true(event->track == PLM_TRACK_STEP && event->kind == PLM_SPAN_EXCHANGE);
      assert_true(event->number == -1 && 0 < event->begin_ns && event->begin_ns <= event->end_ns);
    }
    close_gang();
  }
}

/* ---- a profile, and errors ------------------------------------------------------------------- */

/* The events with the name: on the track of the step, and how many bytes moved beside it. */
static size_t events_called(const struct plm_profile *profile, const char *name, double *bytes)
{
  size_t waits = 0, moves = 0;
  *bytes = 0;
  for (size_t i = 0; i < profile->count; i++) {
    const struct plm_profile_event *event = &profile->events[i];
    if (strcmp(event->name, name) != 0) continue;
    assert_int_equal(event->kind, PLM_SPAN_EXCHANGE);
    assert_true(0 < event->begin_ns && event->begin_ns <= event->end_ns);
    const size_t number = event->track == PLM_TRACK_STEP ? waits++ : moves++;
    assert_int_equal(event->number, number);
    if (event->track == PLM_TRACK_STEP) {
      const struct plm_profile_event *move = &profile->events[i + 1];
      assert_true(event->bytes == 0 && i + 1 < profile->count);
      assert_true(move->begin_ns <= event->begin_ns && move->end_ns <= event->end_ns);
      assert_int_equal(move->track, PLM_TRACK_MOVES + number % 2);
      assert_string_equal(move->name, name);
    }
    *bytes += event->bytes;
  }
  assert_int_equal(waits, moves);
  return waits;
}

static void a_profile_has_the_transfers(void **state)
{
  (void)state;
  double bytes[6];
  open_gang(4, 2, false, PLM_PRECISION_FP32, true);
  run_all(exchange_gradients);
  run_all(exchange_weights);
  for (uint32_t r = 0; r < 4; r++) {
    const struct plm_profile *profile = &gang.ranks[r].profile;
    const size_t buckets = plm_exchange_update_parts(gang.ranks[r].exchange);
    assert_int_equal(profile->count, 2 * (4 * buckets + 2));
    assert_int_equal(events_called(profile, "gradients in group", &bytes[0]), buckets);
    assert_int_equal(events_called(profile, "gradients on rail", &bytes[1]), buckets);
    assert_int_equal(events_called(profile, "small gradients in group", &bytes[2]), 1);
    assert_int_equal(events_called(profile, "small gradients on rail", &bytes[3]), 1);
    assert_int_equal(events_called(profile, "weights in group", &bytes[4]), buckets);
    assert_int_equal(events_called(profile, "weights on rail", &bytes[5]), buckets);
    /* of the two slices, one goes to another rank */
    assert_true(bytes[0] + bytes[2] + bytes[4] ==
                2.0 * (double)rank_board_sent(r, PLM_SCOPE_GROUP));
    assert_true(bytes[1] + bytes[3] + bytes[5] == 2.0 * (double)rank_board_sent(r, PLM_SCOPE_RAIL));
    assert_true(bytes[0] == 2 * bytes[1] && bytes[2] == bytes[3] && bytes[4] == 2 * bytes[5]);
  }
  close_gang();
}

static plm_status ends[MOST_RANKS];

static void exchange_both(struct rank *rank)
{
  plm_status status = PLM_OK;
  fill_gradients(rank);
  for (uint32_t i = 0; i < plm_exchange_backward_parts(rank->exchange) && status == PLM_OK; i++)
    status = plm_exchange_gradients(rank->exchange, i, NULL);
  if (status == PLM_OK) status = plm_exchange_finish_gradients(rank->exchange, NULL);
  for (uint32_t i = 0; i < plm_exchange_update_parts(rank->exchange) && status == PLM_OK; i++)
    status = plm_exchange_weights(rank->exchange, NULL);
  if (status == PLM_OK) status = plm_exchange_finish_weights(rank->exchange, NULL);
  ends[rank->ranks.rank] = status;
}

/* Whichever wait fails, on all ranks, the exchange ends with its error. */
static void any_wait_may_fail(void **state)
{
  (void)state;
  uint32_t failed = 0;
  for (bool all = false; !all; failed++) {
    open_gang(4, 2, false, PLM_PRECISION_FP32, false);
    for (uint32_t r = 0; r < 4; r++) gang.ranks[r].waits_left = failed + 1;
    run_all(exchange_both);
    all = gang.ranks[0].waits_left > 0; /* there are fewer waits */
    for (uint32_t r = 0; r < 4; r++) assert_int_equal(ends[r], all ? PLM_OK : PLM_FAILURE);
    if (all) assert_int_equal(failed, 4 * plm_exchange_update_parts(gang.ranks[0].exchange) + 2);
    close_gang();
  }
}

/* A sum has a limited number of parts. And the transport measures how long a rank computes. */
static void too_many_ranks(void **state)
{
  (void)state;
  static const struct {
    uint32_t group_size, groups;
    plm_status expected;
  } rows[] = {{PLM_SUM_PARTS_MAX, 1, PLM_OK},
              {1, PLM_SUM_PARTS_MAX, PLM_OK},
              {PLM_SUM_PARTS_MAX + 1, 1, PLM_LIMIT},
              {1, PLM_SUM_PARTS_MAX + 1, PLM_LIMIT}};
  open_gang(1, 1, false, PLM_PRECISION_FP32, false);
  struct rank *rank = &gang.ranks[0];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_exchange *exchange = NULL;
    rank->collective.place.group_size = rows[i].group_size;
    rank->collective.place.ranks = rank->ranks.ranks = rows[i].group_size * rows[i].groups;
    assert_int_equal(plm_exchange_open(&rank->ranks, rank->model, gang.owners, SHARES,
                                       PLM_COMPRESS_NONE, NULL, &exchange, NULL),
                     rows[i].expected);
    plm_exchange_close(exchange);
  }
  plm_exchange_mark(rank->exchange, PLM_COMPUTE_RESUMES);
  assert_true(rank->marked == PLM_COMPUTE_RESUMES && plm_exchange_computed(rank->exchange) == 3.5);
  close_gang();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exchanges_in_fp32),
      cmocka_unit_test(exchanges_in_bf16),
      cmocka_unit_test(parts_cover_the_pass),
      cmocka_unit_test(numbers_are_those_of_all),
      cmocka_unit_test(a_profile_has_the_transfers),
      cmocka_unit_test(any_wait_may_fail),
      cmocka_unit_test(too_many_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
