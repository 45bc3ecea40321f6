/* The feed's state machine against packers in memory, on a virtual clock, by the thousand.
 *
 * Whatever the network and the packers do, every chunk is handed out once, in order and with the
 * right bytes; wrong sizes of windows are believed only as long as nobody else has stated any; no
 * honest packer is banned; a dispute bans the liar or ends the feed; and once the faults end, so
 * does the run. PLM_TEST_SEED=N replays one seed, PLM_TEST_SEEDS=N runs that many.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/wire/data.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/simulated_network.h"

enum { SEEDS = 300, MOST_MS = 180000, AUDITED_MS = 40000 };

struct run {
  struct sim_world world;
  struct feed_state *feed;
  struct feed_machine_options options;
  uint64_t epoch, chunk; /* that comes next */
  uint64_t left;         /* chunks that the user still wants */
  uint64_t lies;         /* chunks of the liar that were handed out before it was caught */
  unsigned bans;         /* of the present feed */
  bool disputed;
  uint64_t deceived_epoch; /* the first one of which the present feed had wrong sizes */
  bool misled;             /* chunks were handed out by wrong sizes */
  bool believes;           /* it has wrong sizes now */
  int64_t pause_until_ms;
  uint64_t trace; /* of everything that happened */
};

struct outcome {
  uint64_t trace, lies;
  unsigned bans, feeds_failed;
  bool deceived, misled; /* wrong sizes were known, or chunks were handed out by them */
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

static bool banned(const struct feed_state *feed, uint64_t process)
{
  for (unsigned i = 0; i < feed->banned_packers_next && i < FEED_BANNED; i++)
    if (feed->banned_packers[i] == process) return true;
  return false;
}

/* Moves the place that is expected beyond the ends of epochs. */
static void pass_ends(struct run *run)
{
  while (run->chunk >= sim_epoch_chunks(run->epoch)) run->chunk -= sim_epoch_chunks(run->epoch++);
}

static bool is_liar(const struct run *run, uint64_t process)
{
  return run->world.packers[process % 1000].liar;
}

/* Checks a chunk in DATA's layout. Returns its bytes. */
static size_t check_chunk(struct run *run, const uint8_t *bytes)
{
  const uint32_t length = run->options.plan.max_length;
  const uint32_t tokens = sim_chunk_tokens(&run->options.plan, run->epoch, run->chunk);
  const uint8_t *at = bytes + 4 + PLM_DATA_DOCUMENT_BYTES;
  struct plm_chunk_document document;
  uint32_t wrong = 0, place = 0;
  REQUIRE(run, plm_data_read_count(bytes) == 1);
  plm_data_read_document(bytes + 4, &document);
  REQUIRE(run, document.number == run->chunk);
  REQUIRE(run, document.tokens == tokens);
  for (uint32_t i = 0; i < tokens; i++)
    if (at[i] != sim_token(run->epoch, run->chunk, i)) {
      wrong++;
      place = i;
    }
  if (wrong > 0) { /* only the liar's bytes may differ */
    REQUIRE(run, wrong == 1 && place == SIM_LIE_PLACE);
    REQUIRE(run, is_liar(run, run->feed->head->answered.packer_id));
    run->lies++;
  }
  note(run, at[SIM_LIE_PLACE]);
  run->chunk++;
  return 4 + PLM_DATA_DOCUMENT_BYTES + length;
}

/* ---- sizes that are wrong ----------------------------------------------------------------- */

static bool sizes_right(const struct feed_sizes *sizes)
{
  for (uint64_t window = 0; window < sizes->known; window++)
    if (sizes->counts[window] != sim_window_chunks(sizes->epoch, window)) return false;
  return !sizes->complete || sizes->known == SIM_WINDOWS;
}

/* Wrong sizes are those of the liar, and nobody has confirmed them. When nothing disturbs the other
 * packers any more, somebody contradicts them soon. */
static void check_sizes(struct run *run)
{
  run->believes = false;
  for (int i = 0; i < FEED_EPOCHS && run->feed->failed.status == PLM_OK; i++) {
    const struct feed_sizes *sizes = &run->feed->sizes[i];
    if (!sizes->used || sizes->known == 0 || sizes_right(sizes)) continue;
    REQUIRE(run, sizes->sole[0] != 0 && is_liar(run, sizes->sole[0]));
    REQUIRE(run, run->world.now_ms < run->world.calm_ms + AUDITED_MS);
    if (sizes->epoch < run->deceived_epoch) run->deceived_epoch = sizes->epoch;
    run->believes = true;
  }
}

/* The feed's place differs from the one that the run expects only if its sizes of an epoch up to
 * here were wrong. */
static void compare_places(struct run *run)
{
  const struct feed_state *feed = run->feed;
  if (feed->epoch == run->epoch && feed->chunk == run->chunk) return;
  REQUIRE(run, run->deceived_epoch <= feed->epoch || run->deceived_epoch <= run->epoch);
  run->misled = true;
  run->epoch = feed->epoch;
  run->chunk = feed->chunk;
}

/* ---- what is handed out ------------------------------------------------------------------- */

static void take_chunks(struct run *run)
{
  struct feed_state *feed = run->feed;
  struct feed_ready ready;
  const uint32_t most = 1 + sim_below(&run->world, 40);
  if (!feed_machine_begin(feed, most, &ready)) {
    feed->starved = true;
    return;
  }
  /* Nothing of a packer that was caught is handed out, unless part of it was before. */
  REQUIRE(run, feed->head->taken > 0 || !banned(feed, feed->head->answered.packer_id));
  compare_places(run);
  REQUIRE(run, ready.chunks > 0 && ready.chunks <= most);
  size_t used = 0;
  for (uint32_t i = 0; i < ready.chunks; i++) used += check_chunk(run, ready.payload + used);
  (void)feed_machine_end(feed, &ready, used);
  pass_ends(run);
  run->left -= ready.chunks < run->left ? ready.chunks : run->left;
  if (sim_below(&run->world, 10) == 0)
    run->pause_until_ms = run->world.now_ms + sim_below(&run->world, 1500);
}

static void seek(struct run *run)
{
  run->epoch = sim_below(&run->world, 4);
  run->chunk = sim_below(&run->world, 300);
  feed_machine_seek(run->feed, PLM_SPLIT_TRAIN, run->epoch, run->chunk);
  run->disputed = false;
  pass_ends(run);
}

static void open_feed(struct run *run)
{
  const struct feed_network network = sim_network(&run->world);
  feed_machine_init(run->feed, &run->options, &network, run->world.now_ms);
  feed_machine_seek(run->feed, PLM_SPLIT_TRAIN, run->epoch, run->chunk);
  pass_ends(run); /* wrong sizes may have led beyond one */
  run->feed->wanted = true;
  run->bans = 0;
  run->disputed = false;
  run->deceived_epoch = UINT64_MAX;
}

static void restart(struct run *run)
{
  if (sim_below(&run->world, 2) == 0) feed_machine_bye(run->feed);
  feed_machine_deinit(run->feed);
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
  /* A dispute ends with a ban, or with the feed. */
  if (run->disputed && !feed->dispute.open && feed->failed.status == PLM_OK)
    REQUIRE(run, feed->banned_packers_next > run->bans);
  run->disputed = feed->dispute.open;
  run->bans = feed->banned_packers_next;
}

static void draw_run(struct run *run, uint64_t seed)
{
  static struct feed_state feed;
  *run = (struct run){.feed = &feed};
  run->options = (struct feed_machine_options){.role = "trainer",
                                               .run_id = {1, 2},
                                               .plan = {.seed = 7,
                                                        .max_length = 4096,
                                                        .alignment = 64,
                                                        .window_groups = 2,
                                                        .packing = PLM_PACKING_BEST_FIT,
                                                        .truncate = PLM_TRUNCATE_HEAD,
                                                        .tokenizer = PLM_TOKENIZER_ESM,
                                                        .shuffle = true},
                                               .split = PLM_SPLIT_TRAIN};
  sim_open(&run->world, seed, &run->options.plan, run->options.run_id);
  run->world.feed = run->feed;
  run->deceived_epoch = UINT64_MAX;
  run->options.credit_bytes = (uint64_t)(64 + sim_below(&run->world, 2000)) << 10;
  run->left = 100 + sim_below(&run->world, 500);
  run->epoch = sim_below(&run->world, 3);
}

static void end_run(struct run *run)
{
  feed_machine_deinit(run->feed);
  sim_close(&run->world);
}

static struct outcome run_seed(uint64_t seed)
{
  struct run run;
  struct outcome outcome = {0};
  draw_run(&run, seed);
  const struct feed_state *feed = run.feed;
  const int64_t begin = run.world.now_ms;
  open_feed(&run);
  while (run.left > 0 || run.believes) {
    sim_step(&run.world);
    feed_machine_turn(run.feed, run.world.now_ms);
    check_bans(&run);
    check_sizes(&run);
    outcome.bans += run.bans > 0;
    outcome.deceived |= run.deceived_epoch != UINT64_MAX;
    note(&run, (uint64_t)run.world.now_ms);
    if (feed->failed.status != PLM_OK) { /* the packers disagree, and nobody could decide */
      REQUIRE(&run, feed->failed.status == PLM_CORRUPT);
      outcome.feeds_failed++;
      break;
    }
    if (run.left > 0 && run.world.now_ms >= run.pause_until_ms) take_chunks(&run);
    if (run.world.now_ms < run.world.calm_ms) {
      const uint32_t whim = sim_below(&run.world, 3000);
      if (whim == 0) restart(&run);
      if (whim == 1) seek(&run);
    }
    REQUIRE(&run, run.world.now_ms < begin + MOST_MS);
  }
  bool liar = false;
  for (uint32_t i = 0; i < run.world.packer_count; i++) liar |= run.world.packers[i].liar;
  REQUIRE(&run, liar || (run.lies == 0 && outcome.bans == 0 && outcome.feeds_failed == 0));
  outcome.bans = outcome.bans > 0;
  outcome.trace = run.trace;
  outcome.lies = run.lies;
  outcome.misled = run.misled;
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
  const uint64_t count = only != 0 ? 1 : number_of("PLM_TEST_SEEDS", SEEDS);
  uint64_t bans = 0, failed = 0, lies = 0, deceived = 0, misled = 0;
  for (uint64_t seed = first; seed < first + count; seed++) {
    const struct outcome outcome = run_seed(seed);
    bans += outcome.bans;
    failed += outcome.feeds_failed;
    lies += outcome.lies > 0;
    deceived += outcome.deceived;
    misled += outcome.misled;
  }
  print_message("%" PRIu64 " seeds: the liar was banned in %" PRIu64 ", had a lie used in %" PRIu64
                ", its sizes believed in %" PRIu64 " and used in %" PRIu64 "; %" PRIu64
                " ended because nobody could decide\n",
                count, bans, lies, deceived, misled, failed);
  assert_true(count < SEEDS || (deceived > 0 && misled > 0));
}

static void a_seed_replays_exactly(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 10; seed++)
    assert_true(run_seed(seed).trace == run_seed(seed).trace);
}

/* One of two packers answers no GET, but is not silent. Every range that it is asked for is also
 * asked of the other one, long before the 3 s after which silence counts. */
static void a_late_packer_costs_little_time(void **state)
{
  (void)state;
  enum { WAIT_MOST_MS = 1000 };
  uint64_t retried = 0;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    struct run run;
    draw_run(&run, seed);
    sim_honest(&run.world, 2, 2);
    run.world.packers[0].mute_percent = 100;
    open_feed(&run);
    int64_t taken_ms = 0; /* 0: nothing yet */
    while (run.left > 0) {
      const uint64_t before = run.left;
      sim_step(&run.world);
      feed_machine_turn(run.feed, run.world.now_ms);
      REQUIRE(&run, run.feed->failed.status == PLM_OK);
      run.pause_until_ms = 0;
      take_chunks(&run);
      if (run.left < before) taken_ms = run.world.now_ms;
      REQUIRE(&run, taken_ms == 0 || run.world.now_ms - taken_ms < WAIT_MOST_MS);
      REQUIRE(&run, run.world.now_ms < run.world.calm_ms);
    }
    retried += run.feed->counters.retried;
    end_run(&run);
  }
  assert_true(retried > 0);
}

/* ---- sizes that only one packer stated ---------------------------------------------------- */

enum { NOBODY = -1, AUDIT_MS = 20000 };

struct audit_case {
  uint32_t joining; /* packers that join after the first one has stated sizes */
  int liar;         /* the packer that states wrong sizes, or NOBODY */
  bool uses;        /* the user takes chunks before they join */
  bool fails;
};

static void advance(struct run *run)
{
  sim_step(&run->world);
  feed_machine_turn(run->feed, run->world.now_ms);
}

/* Whether sizes are known, and two packers agree on all of them. */
static bool all_audited(const struct feed_state *feed)
{
  bool any = false;
  for (int i = 0; i < FEED_EPOCHS; i++) {
    const struct feed_sizes *sizes = &feed->sizes[i];
    any |= sizes->used && sizes->complete;
    if (sizes->used && sizes->complete && sizes->sole[0] != 0) return false;
  }
  return any;
}

static void take_some(struct run *run, uint64_t chunks)
{
  run->left = chunks;
  while (run->left > 0) {
    advance(run);
    REQUIRE(run, run->feed->failed.status == PLM_OK);
    REQUIRE(run, run->world.now_ms < run->world.calm_ms);
    run->pause_until_ms = 0;
    take_chunks(run);
  }
}

/* Returns whether the liar was caught. One that joins later may not be asked. */
static bool audit_sizes(uint64_t seed, const struct audit_case *this)
{
  struct run run;
  draw_run(&run, seed);
  sim_honest(&run.world, 1 + this->joining, 1);
  run.epoch = 0;
  if (this->liar != NOBODY) {
    run.world.packers[this->liar].liar = true;
    run.world.packers[this->liar].size_lie = 1;
  }
  open_feed(&run);
  while (run.feed->head == NULL || run.feed->head->state != RANGE_READY) advance(&run);
  if (this->uses) take_some(&run, 1);
  REQUIRE(&run, !all_audited(run.feed));
  for (uint32_t i = 1; i <= this->joining; i++) sim_join(&run.world, i);
  const int64_t until = run.world.now_ms + AUDIT_MS;
  while (run.world.now_ms < until && run.feed->failed.status == PLM_OK &&
         !(run.world.now_ms > until - AUDIT_MS / 2 && all_audited(run.feed)))
    advance(&run);
  check_bans(&run); /* only the liar */
  REQUIRE(&run, this->fails == (run.feed->failed.status == PLM_CORRUPT));
  if (!this->fails) {
    REQUIRE(&run, all_audited(run.feed));
    REQUIRE(&run, this->liar != 0 || run.feed->banned_packers_next > 0);
    take_some(&run, 2 * sim_epoch_chunks(0));
  }
  const bool caught = run.feed->banned_packers_next > 0;
  end_run(&run);
  return caught;
}

static void sole_sizes_are_audited(void **state)
{
  (void)state;
  static const struct audit_case cases[] = {
      {.joining = 1, .liar = NOBODY},
      {.joining = 2, .liar = NOBODY, .uses = true},
      {.joining = 2, .liar = 0},
      {.joining = 2, .liar = 0, .uses = true, .fails = true},
      {.joining = 2, .liar = 1},
      {.joining = 2, .liar = 2, .uses = true},
      {.joining = 1, .liar = 0, .fails = true},
      {.joining = 1, .liar = 1, .uses = true, .fails = true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    unsigned caught = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) caught += audit_sizes(seed, &cases[i]);
    assert_true(cases[i].fails || (cases[i].liar == NOBODY) == (caught == 0));
  }
}

/* A packer that does not answer SIZES for a while lets the other's sizes stand, but only until it
 * answers. */
static void silence_only_postpones_the_audit(void **state)
{
  (void)state;
  struct run run;
  draw_run(&run, 1);
  sim_honest(&run.world, 2, 2);
  run.world.packers[1].sizes_muted_until_ms = run.world.now_ms + 8000;
  open_feed(&run);
  take_some(&run, 1);
  REQUIRE(&run, run.world.now_ms < run.world.packers[1].sizes_muted_until_ms);
  REQUIRE(&run, !all_audited(run.feed));
  while (!all_audited(run.feed)) {
    advance(&run);
    REQUIRE(&run, run.world.now_ms < run.world.packers[1].sizes_muted_until_ms + AUDIT_MS);
  }
  REQUIRE(&run, run.feed->failed.status == PLM_OK && run.feed->banned_packers_next == 0);
  end_run(&run);
}

int main(void)
{
  plm_log_init("test", getenv("PLM_TEST_SEED") != NULL ? PLM_LOG_INFO : PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_chunk_once_in_order),        cmocka_unit_test(a_seed_replays_exactly),
      cmocka_unit_test(a_late_packer_costs_little_time),  cmocka_unit_test(sole_sizes_are_audited),
      cmocka_unit_test(silence_only_postpones_the_audit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
