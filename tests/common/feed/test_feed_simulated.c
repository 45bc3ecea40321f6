/* The feed's state machine against packers in memory, on a virtual clock, by the thousand.
 *
 * Whatever the network and the packers do, every chunk is handed out once, in order and with the
 * right bytes; no honest packer is banned; a liar is banned for its first false answer that is
 * checked, by what the corpus proves and without another packer; and once the faults end, so does
 * the run. PLM_TEST_SEED=N replays one seed, PLM_TEST_SEEDS=N runs that many.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/fewer.h"
#include "tests/support/peers/simulated_network.h"

enum { SEEDS = 300, FEW_SEEDS = 50, MOST_MS = 180000 };

struct run {
  struct sim_world world;
  struct feed_state *feed;
  struct plm_feed_options options;
  struct plm_plan_place place; /* of the chunk that comes next */
  uint64_t left;               /* chunks that the user still wants */
  unsigned bans;               /* of the present feed */
  int64_t pause_until_ms;
  uint64_t trace; /* of everything that happened */
};

struct outcome {
  uint64_t trace, lies;
  bool banned;
};

#define REQUIRE(run, condition)                                                           \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      print_error("seed %" PRIu64 ", after %" PRId64 " ms: %s\n"                          \
                  "replay it with PLM_TEST_SEED=%" PRIu64 "\n",                           \
                  (run)->world.seed, (run)->world.now_ms, #condition, (run)->world.seed); \
      fail();                                                                             \
    }                                                                                     \
  } while (0)

static void note(struct run *run, uint64_t value)
{
  run->trace = (run->trace ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  run->trace ^= run->trace >> 29;
}

/* ---- the user ----------------------------------------------------------------------------- */

static bool is_liar(const struct run *run, uint64_t process)
{
  return run->world.packers[process % 1000].liar;
}

static void check_chunk(struct run *run, const struct feed_ready *ready, uint32_t i)
{
  struct small_corpus *corpus = run->world.corpus;
  const struct small_chunk want = small_corpus_chunk(corpus, &run->place);
  const struct plm_window *window = &ready->planned->window;
  const uint32_t chunk = ready->first + i, begin = window->chunk_begin[chunk];
  const uint8_t *tokens =
      ready->payload + (ready->planned->offset[chunk] - ready->planned->offset[ready->first]);
  REQUIRE(run, ready->planned->epoch == want.epoch && ready->planned->index == want.window);
  REQUIRE(run, chunk == want.chunk);
  REQUIRE(run, window->chunk_begin[chunk + 1] - begin == want.count);
  REQUIRE(run, memcmp(window->documents + begin, want.documents,
                      want.count * sizeof *want.documents) == 0);
  REQUIRE(run, ready->planned->offset[chunk + 1] - ready->planned->offset[chunk] == want.bytes);
  REQUIRE(run, memcmp(tokens, want.payload, want.bytes) == 0);
  note(run, tokens[1]);
  run->place.chunk++;
}

static void consume_chunks(struct run *run)
{
  struct feed_state *feed = run->feed;
  struct feed_ready ready;
  const uint32_t most = 1 + sim_below(&run->world, 40);
  if (!feed_machine_begin(feed, most, &ready)) {
    feed->starved = true;
    return;
  }
  REQUIRE(run, ready.chunks > 0 && ready.chunks <= most);
  for (uint32_t i = 0; i < ready.chunks; i++) check_chunk(run, &ready, i);
  (void)feed_machine_end(feed, &ready, true);
  small_corpus_settle(run->world.corpus, &run->place);
  REQUIRE(run, feed->place.epoch == run->place.epoch && feed->place.window == run->place.window &&
                   feed->place.before == run->place.before &&
                   feed->place.chunk == run->place.chunk);
  run->left -= ready.chunks < run->left ? ready.chunks : run->left;
  if (sim_below(&run->world, 10) == 0)
    run->pause_until_ms = run->world.now_ms + sim_below(&run->world, 1500);
}

/* Seeks by the number of a chunk in its epoch, or by window. */
static void seek(struct run *run)
{
  run->place = (struct plm_plan_place){.epoch = sim_below(&run->world, 4),
                                       .chunk = sim_below(&run->world, 2000)};
  struct plm_plan_place settled = run->place;
  small_corpus_settle(run->world.corpus, &settled);
  if (sim_below(&run->world, 2) == 0) run->place = settled;
  feed_machine_seek(run->feed, PLM_SPLIT_TRAIN, &run->place);
  run->place = settled;
}

static void open_feed(struct run *run)
{
  const struct feed_network network = sim_network(&run->world);
  const struct plm_feed_source_options source = {.plan = run->options.plan,
                                                 .fingerprint = run->options.fingerprint,
                                                 .root = run->options.root};
  feed_machine_init(run->feed, &run->options, &source, &network, run->world.now_ms);
  feed_machine_seek(run->feed, PLM_SPLIT_TRAIN, &run->place);
  run->feed->wanted = true;
  run->bans = 0;
}

static void close_feed(struct run *run)
{
  sim_forget_jobs(&run->world);
  feed_machine_deinit(run->feed);
}

static void restart(struct run *run)
{
  if (sim_below(&run->world, 2) == 0) feed_machine_bye(run->feed);
  close_feed(run);
  sim_break_all(&run->world);
  for (uint64_t i = 0; i < run->world.connection_count; i++)
    run->world.connections[i].consumer_open = false;
  open_feed(run);
}

/* ---- a run -------------------------------------------------------------------------------- */

static void check_bans(struct run *run)
{
  const struct feed_state *feed = run->feed;
  for (unsigned i = run->bans; i < feed->banned_packers_next; i++)
    REQUIRE(run, is_liar(run, feed->banned_packers[i % FEED_BANNED]));
  run->bans = feed->banned_packers_next;
}

static void draw_run(struct run *run, uint64_t seed)
{
  static struct feed_state feed;
  *run = (struct run){.feed = &feed};
  run->options =
      (struct plm_feed_options){.role = "trainer", .run_id = {1, 2}, .split = PLM_SPLIT_TRAIN};
  sim_open(&run->world, seed, run->options.run_id);
  run->options.plan = run->world.corpus->parameters;
  if (sim_below(&run->world, 2) == 0) run->options.fingerprint = run->world.corpus->fingerprint;
  run->world.feed = run->feed;
  run->options.credit_bytes = (uint64_t)(64 + sim_below(&run->world, 2000)) << 10;
  run->left = 200 + sim_below(&run->world, 2000);
  run->place.epoch = sim_below(&run->world, 3);
}

static uint64_t lies_of(const struct run *run)
{
  uint64_t lies = 0;
  for (uint32_t i = 0; i < run->world.packer_count; i++) lies += run->world.packers[i].lies;
  return lies;
}

static void end_run(struct run *run)
{
  close_feed(run);
  sim_close(&run->world);
}

static void advance(struct run *run)
{
  sim_step(&run->world);
  feed_machine_turn(run->feed, run->world.now_ms);
  check_bans(run);
  REQUIRE(run, run->feed->failed.status == PLM_OK);
}

static struct outcome run_seed(uint64_t seed)
{
  struct run run;
  struct outcome outcome = {0};
  draw_run(&run, seed);
  const int64_t begin = run.world.now_ms;
  open_feed(&run);
  while (run.left > 0) {
    advance(&run);
    outcome.banned |= run.bans > 0;
    note(&run, (uint64_t)run.world.now_ms);
    if (run.world.now_ms >= run.pause_until_ms) consume_chunks(&run);
    if (run.world.now_ms < run.world.calm_ms) {
      const uint32_t whim = sim_below(&run.world, 3000);
      if (whim == 0) restart(&run);
      if (whim == 1) seek(&run);
    }
    REQUIRE(&run, run.world.now_ms < begin + MOST_MS);
  }
  outcome.trace = run.trace;
  outcome.lies = lies_of(&run);
  REQUIRE(&run, outcome.lies > 0 || !outcome.banned);
  end_run(&run);
  return outcome;
}

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
  const char *text = getenv(variable);
  return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

static void every_chunk_once_in_order(void **state)
{
  (void)state;
  const uint64_t only = number_of("PLM_TEST_SEED", 0);
  const uint64_t first = only != 0 ? only : 1;
  const uint64_t count = only != 0 ? 1 : number_of("PLM_TEST_SEEDS", fewer_of(SEEDS, FEW_SEEDS));
  uint64_t bans = 0, lied = 0;
  for (uint64_t seed = first; seed < first + count; seed++) {
    const struct outcome outcome = run_seed(seed);
    bans += outcome.banned;
    lied += outcome.lies > 0;
  }
  print_message("%" PRIu64 " seeds: a packer lied in %" PRIu64 ", and was banned in %" PRIu64 "\n",
                count, lied, bans);
  assert_true(count < FEW_SEEDS || (bans > 0 && 2 * bans > lied));
}

static void a_seed_replays_exactly(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= fewer_of(10, 4); seed++)
    assert_true(run_seed(seed).trace == run_seed(seed).trace);
}

/* One of two packers answers nothing, but is not silent. Everything that it is asked for is also
 * asked of the other one, long before the 3 s after which silence counts. */
static void a_late_packer_costs_little_time(void **state)
{
  (void)state;
  enum { WAIT_MOST_MS = 1000 };
  uint64_t retried = 0;
  for (uint64_t seed = 1; seed <= fewer_of(20, 8); seed++) {
    struct run run;
    draw_run(&run, seed);
    sim_honest(&run.world, 2, 2);
    run.world.packers[0].mute_percent = 100;
    open_feed(&run);
    int64_t taken_ms = 0; /* 0: nothing yet */
    while (run.left > 0) {
      const uint64_t before = run.left;
      advance(&run);
      run.pause_until_ms = 0;
      consume_chunks(&run);
      if (run.left < before) taken_ms = run.world.now_ms;
      REQUIRE(&run, taken_ms == 0 || run.world.now_ms - taken_ms < WAIT_MOST_MS);
      REQUIRE(&run, run.world.now_ms < run.world.calm_ms);
    }
    retried += run.feed->counters.retried;
    end_run(&run);
  }
  assert_true(retried > 0);
}

/* All that a single honest packer sends is used: nothing comes twice or unasked. */
static void what_an_honest_packer_sends_is_used(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= fewer_of(10, 4); seed++) {
    struct run run;
    draw_run(&run, seed);
    sim_honest(&run.world, 1, 1);
    open_feed(&run);
    const uint64_t wanted = run.left;
    while (run.left > 0) {
      advance(&run);
      run.pause_until_ms = 0;
      consume_chunks(&run);
      REQUIRE(&run, run.world.now_ms < run.world.calm_ms);
    }
    const struct plm_feed_counters *counters = &run.feed->counters;
    REQUIRE(&run, counters->dropped == 0 && counters->invalid == 0 && counters->refused == 0);
    REQUIRE(&run, counters->retried == 0 && counters->peers == 1);
    REQUIRE(&run, counters->chunks >= wanted && counters->bytes >= run.feed->consumed_bytes);
    REQUIRE(&run, counters->real_tokens > 0 && 5 * counters->real_tokens <= 8 * counters->bytes);
    end_run(&run);
  }
}

/* ---- liars -------------------------------------------------------------------------------- */

/* A single packer that lies always, with nobody to compare it with: its first answer of that kind
 * is the last one that it gives, nothing false is used, and an honest packer that joins goes on. */
static void a_lone_liar_is_found_at_once(void **state)
{
  (void)state;
  for (int lie = 0; lie < SIM_LIES; lie++)
    for (uint64_t seed = 1; seed <= fewer_of(20, 5); seed++) {
      struct run run;
      draw_run(&run, seed);
      sim_honest(&run.world, 2, 1);
      struct sim_packer *liar = &run.world.packers[0];
      liar->liar = true;
      liar->lie = (enum sim_lie)lie;
      liar->lie_percent = 100;
      open_feed(&run);
      const uint64_t wanted = run.left;
      while (run.bans == 0) {
        advance(&run);
        if (liar->lies == 0) consume_chunks(&run);
        REQUIRE(&run, run.world.now_ms < run.world.calm_ms);
      }
      REQUIRE(&run, run.feed->lie[0] != '\0' && strstr(run.feed->lie, "simulated:") != NULL);
      REQUIRE(&run, run.left == wanted);
      REQUIRE(&run, run.feed->peer_count == 0);
      sim_join(&run.world, 1);
      while (run.left > 0) {
        advance(&run);
        run.pause_until_ms = 0;
        consume_chunks(&run);
        REQUIRE(&run, run.world.now_ms < run.world.calm_ms);
      }
      REQUIRE(&run, run.bans == 1 && run.feed->lie[0] == '\0');
      end_run(&run);
    }
}

/* Whether a packer is admitted to a run of another corpus, whose fingerprint it states as the one
 * that its own corpus had before an upgrade. */
static bool admitted(struct plm_hash upgraded_from, bool root_known)
{
  struct run run;
  draw_run(&run, 1);
  sim_honest(&run.world, 1, 1);
  run.options.fingerprint = run.world.other->fingerprint;
  if (root_known) run.options.root = run.options.fingerprint;
  run.world.upgraded_from = upgraded_from;
  open_feed(&run);
  for (int i = 0; i < 2000; i++) advance(&run);
  const bool is = run.feed->peer_count == 1;
  REQUIRE(&run, run.bans == 0 && is == (run.feed->counters.refused == 0));
  end_run(&run);
  return is;
}

/* Nobody can prove what an old corpus was upgraded to. Once it is known what packers have to prove,
 * no other corpus counts. */
static void another_corpus_is_refused(void **state)
{
  (void)state;
  struct run run;
  draw_run(&run, 1);
  const struct plm_hash other = run.world.other->fingerprint;
  sim_close(&run.world);
  assert_false(admitted((struct plm_hash){0}, false));
  assert_false(admitted((struct plm_hash){0}, true));
  assert_true(admitted(other, false));
  assert_false(admitted(other, true));
}

int main(void)
{
  plm_log_init("test", getenv("PLM_TEST_SEED") != NULL ? PLM_LOG_INFO : PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_chunk_once_in_order),
      cmocka_unit_test(a_seed_replays_exactly),
      cmocka_unit_test(a_late_packer_costs_little_time),
      cmocka_unit_test(what_an_honest_packer_sends_is_used),
      cmocka_unit_test(a_lone_liar_is_found_at_once),
      cmocka_unit_test(another_corpus_is_refused),
  };
  return cmocka_run_group_tests(tests, sim_corpora_open, sim_corpora_close);
}
