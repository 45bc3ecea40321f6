/* trainer/input/input: the ring of inputs, filled by a real packer. The corpus is so small that a
 * step reaches over many epochs. What a step gets is compared with what another feed delivers. */
#include "trainer/input/input.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"
#include "trainer/input/data_mixture.h"
#include "trainer/trainer_options.h"

static const struct plm_hash roots[PLM_MAX_SOURCES]; /* not known */

enum { LENGTH = 256, CHUNKS = 40, STEPS = 4, FIRST = 5 /* chunks before the first step */ };
static const char yaml[] = "seed: 7\n"
                           "data: {max_length: 256, window_groups: 2, document_alignment: 4}\n"
                           "model: {architecture: transformer, hidden_size: 64, "
                           "num_attention_heads: 2, num_hidden_layers: 1}\n"
                           "trainer: {batch_tokens: 10240}\n";
static const volatile int never, now = 1;

struct opened {
  struct plm_config config;
  struct plm_ops *ops;
  struct plm_ranks ranks;
  struct plm_masks *masks;
  struct plm_objective_state objective;
  struct plm_data_cursor cursor;
  struct plm_feed *feed;
  struct plm_input *input;
};

/* Everything but the feed and the input. */
static void open_parts(struct opened *o)
{
  *o = (struct opened){.ranks = plm_ranks_single()};
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &o->config, NULL), PLM_OK);
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &o->ops, NULL), PLM_OK);
  assert_int_equal(plm_masks_open(&o->config.model, o->ops, CHUNKS, &o->masks, NULL), PLM_OK);
  const struct plm_objective_options options = plm_objective_options_of(&o->config);
  assert_int_equal(plm_objective_init(&o->objective, &options, CHUNKS, 0, NULL), PLM_OK);
  const struct plm_plan_parameters plan = packers_options().plan;
  plm_data_cursor_init(&o->cursor, plm_plan_hash(&plan), 7);
  const struct plm_mixture alone = {.count = 1, .weights = {1}, .final_weights = {-1}};
  plm_mixture_history_add(&o->cursor.mixture, 0, CHUNKS, &alone);
}

static void open_input(struct opened *o, uint64_t step, uint64_t steps)
{
  const struct plm_input_options options = {
      .feed = o->feed,
      .ranks = &o->ranks,
      .shape = {.model = &o->config.model,
                .objective = &o->objective,
                .masks = o->masks,
                .step_chunks = CHUNKS,
                .micro_chunks = 8,
                .max_length = LENGTH,
                .shares = 2},
      .ops = o->ops,
      .cursor = &o->cursor,
      .step = step,
      .steps = steps,
  };
  plm_data_cursor_seek(o->feed, &o->cursor);
  assert_int_equal(plm_input_open(&options, &o->input, NULL), PLM_OK);
}

static void close_all(struct opened *o)
{
  plm_input_close(o->input);
  plm_feed_close(o->feed);
  plm_data_cursor_deinit(&o->cursor);
  plm_objective_deinit(&o->objective);
  plm_masks_close(o->masks);
  o->ops->close(o->ops);
  plm_config_deinit(&o->config);
}

static pid_t start_packer(const char *corpus, const struct plm_feed *feed)
{
  return packers_start(corpus, plm_feed_bound(feed), NULL, scratch_path("packers.log"));
}

/* The first `chunks` chunks of a corpus as a feed delivers them, and the positions that it reports
 * after `first` of them and then after each `step` more. The caller frees the chunks. */
static uint8_t *chunks_of(const char *corpus, const struct plm_plan_parameters *plan,
                          uint32_t first, uint32_t step, uint32_t steps,
                          struct plm_feed_position *positions)
{
  struct plm_feed_options options = packers_keyed_options();
  uint8_t *tokens = must(malloc((size_t)(first + steps * step) * LENGTH)), *at = tokens;
  options.plan = *plan;
  struct plm_feed *feed = packers_feed(&options);
  const pid_t packer = start_packer(corpus, feed);
  for (uint32_t i = 0; i <= steps; i++) {
    const uint32_t chunks = i == 0 ? first : step;
    struct plm_batch batch;
    if (chunks == 0) continue;
    assert_int_equal(plm_feed_next(feed, NULL, chunks, NULL, &batch, NULL), PLM_OK);
    memcpy(at, batch.tokens, (size_t)chunks * LENGTH);
    at += (size_t)chunks * LENGTH;
    plm_feed_release(feed, &batch);
    plm_feed_position(feed, 0, &positions[i]);
  }
  packers_stop(packer, SIGTERM);
  plm_feed_close(feed);
  return tokens;
}

static void assert_place(const struct plm_plan_place *place, const struct plm_plan_place *wanted)
{
  assert_int_equal(place->epoch, wanted->epoch);
  assert_int_equal(place->window, wanted->window);
  assert_int_equal(place->before, wanted->before);
  assert_int_equal(place->chunk, wanted->chunk);
}

/* The totals of a micro-batch are those of its chunks. */
static void check_chunks(const struct plm_step_input *input, const struct plm_micro_input *micro)
{
  struct plm_objective_totals sum = {0};
  for (uint32_t c = micro->first; c < micro->first + micro->chunks; c++) {
    assert_true(input->chunks[c].rows > 0);
    sum.rows += input->chunks[c].rows;
    sum.count += input->chunks[c].count;
  }
  assert_int_equal(sum.rows, micro->totals.rows);
  assert_int_equal(sum.count, micro->totals.count);
}

/* Each of the two shares of 20 chunks has micro-batches of 8, 8 and 4. */
static void check_micros(const struct plm_step_input *input)
{
  struct plm_step_totals sums = {0};
  uint32_t first = 0;
  assert_int_equal(input->micro_count, 6);
  for (uint32_t i = 0; i < 6; i++) {
    const struct plm_micro_input *micro = &input->micro[i];
    assert_int_equal(micro->chunks, i % 3 == 2 ? 4 : 8);
    assert_int_equal(micro->share, i / 3);
    assert_int_equal(micro->first, first);
    first += micro->chunks;
    check_chunks(input, micro);
    assert_true(micro->totals.rows > 0 && micro->totals.count == micro->totals.rows);
    sums.count += micro->totals.count;
    sums.rows += micro->totals.rows;
    sums.real_tokens += micro->real_tokens;
  }
  assert_int_equal(input->totals.count, sums.count);
  assert_int_equal(input->totals.rows, sums.rows);
  assert_int_equal(input->totals.real_tokens, sums.real_tokens);
  assert_int_equal(input->totals.padded_tokens, CHUNKS * LENGTH);
}

static void check_step(struct opened *o, uint64_t s, const uint8_t *wanted,
                       const struct plm_feed_position *next)
{
  struct plm_feed_corpus facts;
  struct plm_input_slot *slot;
  assert_int_equal(plm_input_next(o->input, &slot, NULL), PLM_OK);
  assert_int_equal(slot->input.step, s);
  assert_int_equal(slot->batch.first_chunk, o->cursor.chunks);
  assert_int_equal(slot->batch.chunks, CHUNKS);
  check_micros(&slot->input);
  assert_int_equal(slot->input.totals.real_tokens, plm_batch_real_tokens(&slot->batch));
  for (uint32_t c = 0; c < CHUNKS; c++) assert_int_equal(slot->batch.sources[c], 0);
  assert_memory_equal(slot->batch.tokens, wanted + o->cursor.chunks * LENGTH, CHUNKS * LENGTH);
  assert_int_equal(plm_feed_corpus(o->feed, NULL, &facts, NULL), PLM_OK);
  assert_true(plm_hash_equal(slot->fingerprint, facts.fingerprint));
  assert_place(&slot->next[0].place, &next->place); /* although the feed is a step ahead */
  assert_int_equal(slot->next[0].windows, next->windows);
  assert_true(slot->next[0].place.chunk == 0 ||
              slot->next[0].window_chunks > slot->next[0].place.chunk);
  plm_data_cursor_consume(&o->cursor, &slot->batch, slot->next);
  assert_place(&o->cursor.sources[0].next.place, &next->place);
  plm_input_release(o->input, slot);
  assert_null(slot->batch.tokens);
}

/* The run goes on after 5 chunks. Their number is in the cursor as older checkpoints say it, from
 * the beginning of the epoch, or as a place that the feed has reported. */
static void consume_steps(const char *corpus, bool old, const uint8_t *wanted,
                          const struct plm_feed_position *positions)
{
  const struct plm_feed_options options = packers_keyed_options();
  struct plm_error error = {0};
  struct plm_input_slot *slot;
  struct opened o;
  open_parts(&o);
  o.feed = packers_feed(&options);
  const pid_t packer = start_packer(corpus, o.feed);
  o.cursor.chunks = FIRST;
  o.cursor.sources[0].next.place =
      old ? (struct plm_plan_place){.chunk = FIRST} : positions[0].place;
  open_input(&o, 1, 1 + STEPS);
  for (uint64_t s = 1; s < 1 + STEPS; s++) check_step(&o, s, wanted, &positions[s]);
  assert_int_equal(o.cursor.chunks, FIRST + STEPS * CHUNKS);
  assert_false(isnan(plm_data_cursor_epochs(&o.cursor)));
  assert_int_equal(plm_input_next(o.input, &slot, &error), PLM_INTERRUPTED);
  assert_string_equal(error.what, "interrupted");
  assert_null(slot);
  packers_stop(packer, SIGTERM);
  close_all(&o);
}

static void steps_get_the_chunks_of_their_epochs(void **state)
{
  const char *corpus = packers_corpus("small", 12, 3);
  const struct plm_feed_options options = packers_keyed_options();
  struct plm_feed_position positions[1 + STEPS];
  (void)state;
  uint8_t *wanted = chunks_of(corpus, &options.plan, FIRST, CHUNKS, STEPS, positions);
  for (int s = 1; s <= STEPS; s++) /* a step has several epochs */
    assert_true(positions[s].place.epoch >= positions[s - 1].place.epoch + 5);
  assert_int_equal(positions[0].place.epoch, 0);
  consume_steps(corpus, false, wanted, positions);
  consume_steps(corpus, true, wanted, positions);
  free(wanted);
}

/* Two inputs are prepared; the third one waits until one of them is released. */
static void the_ring_has_two_inputs(void **state)
{
  const char *corpus = packers_corpus("small", 12, 3);
  const struct plm_feed_options options = packers_keyed_options();
  struct opened o;
  struct plm_input_slot *slots[3];
  (void)state;
  open_parts(&o);
  o.feed = packers_feed(&options);
  const pid_t packer = start_packer(corpus, o.feed);
  open_input(&o, 0, 3);
  for (int i = 0; i < 2; i++) {
    while (!plm_input_wait(o.input, &never)) continue;
    const struct plm_input_slot *next = plm_input_peek(o.input);
    assert_non_null(next);
    assert_int_equal(next->input.step, i);
    assert_int_equal(plm_input_next(o.input, &slots[i], NULL), PLM_OK); /* it is there */
    assert_ptr_equal(slots[i], next);
  }
  assert_ptr_not_equal(slots[0], slots[1]);
  assert_false(plm_input_wait(o.input, &never));
  assert_false(plm_input_wait(o.input, &now));
  assert_null(plm_input_peek(o.input));
  assert_int_equal(slots[0]->input.step, 0);
  assert_int_equal(slots[1]->input.step, 1);
  plm_input_release(o.input, slots[0]);
  assert_int_equal(plm_input_next(o.input, &slots[2], NULL), PLM_OK);
  assert_ptr_equal(slots[2], slots[0]);
  assert_int_equal(slots[2]->input.step, 2);
  plm_input_release(o.input, slots[1]);
  plm_input_release(o.input, slots[2]);
  while (!plm_input_wait(o.input, &never)) continue; /* it has ended, which is no reason to wait */
  assert_null(plm_input_peek(o.input));
  packers_stop(packer, SIGTERM);
  close_all(&o);
}

/* Without a packer, the wait ends with the feed's error, as often as it is asked for, and the
 * thread takes nothing from a packer that comes later. */
static void an_error_stays(void **state)
{
  const char *corpus = packers_corpus("small", 12, 3);
  struct plm_feed_options options = packers_keyed_options();
  struct opened o;
  struct plm_input_slot *slot;
  struct plm_feed_position position;
  struct plm_feed_corpus corpus_facts;
  (void)state;
  options.wait_packers_s = 0.1;
  open_parts(&o);
  o.feed = packers_feed(&options);
  open_input(&o, 0, 3);
  for (int i = 0; i < 2; i++) {
    struct plm_error error = {0};
    assert_int_equal(plm_input_next(o.input, &slot, &error), PLM_TIMEOUT);
    assert_int_equal(error.status, PLM_TIMEOUT);
    assert_null(slot);
    assert_null(plm_input_peek(o.input));
    assert_true(plm_input_wait(o.input, &never));
  }
  assert_int_equal(plm_input_next(o.input, &slot, NULL), PLM_TIMEOUT);
  const pid_t packer = start_packer(corpus, o.feed);
  while (plm_feed_corpus(o.feed, NULL, &corpus_facts, NULL) != PLM_OK) continue;
  plm_input_close(o.input);
  o.input = NULL;
  plm_feed_position(o.feed, 0, &position);
  assert_place(&position.place, &(struct plm_plan_place){0});
  packers_stop(packer, SIGTERM);
  close_all(&o);
}

/* A wait for the first packer ends when the input is closed. */
static void it_can_be_closed_while_it_waits(void **state)
{
  struct plm_feed_options options = packers_keyed_options();
  struct opened o;
  (void)state;
  options.wait_packers_s = 300;
  open_parts(&o);
  o.feed = packers_feed(&options);
  open_input(&o, 0, 3);
  assert_false(plm_input_wait(o.input, &never));
  close_all(&o);
  plm_input_close(NULL);
}

/* Makes o's run one on two corpora, and opens their feed. */
static void open_mixture(struct opened *o, char corpora[2][256],
                         struct plm_feed_source_options of_feed[2])
{
  struct plm_fingerprints found = {.count = 2};
  struct plm_feed_options options = packers_keyed_options();
  open_parts(o);
  o->config.source_count = 2;
  for (uint32_t k = 0; k < 2; k++) {
    struct plm_corpus *corpus;
    assert_int_equal(plm_corpus_open(corpora[k], NULL, &corpus, NULL), PLM_OK);
    found.of[k] = plm_corpus_info(corpus)->fingerprint;
    plm_corpus_close(corpus);
    o->config.sources[k] = (struct plm_config_source){
        .path = corpora[k], .weight = 1 + 2 * k, .final_weight = -1, .sampling = -1};
  }
  const struct plm_plan_parameters plan = plm_config_source_plan(&o->config, 0);
  o->cursor.sources[0].plan = plm_plan_hash(&plan);
  const struct plm_data_sources sources = plm_data_sources_of(&o->config);
  assert_int_equal(plm_data_mixture_begin(&o->cursor, &sources, &found, 0, NULL), PLM_OK);
  plm_data_mixture_feed(&o->cursor, &sources, roots, of_feed);
  options.sources = of_feed;
  options.source_count = 2;
  options.plan = of_feed[0].plan;
  options.fingerprint = found.of[0];
  o->feed = packers_feed(&options);
}

static void a_mixture_takes_each_chunk_from_its_source(void **state)
{
  static char corpora[2][256];
  uint8_t *wanted[2], sources[CHUNKS];
  struct plm_feed_position each[2][2 * CHUNKS + 1]; /* after each chunk of a source */
  uint64_t taken[2] = {0};
  struct plm_feed_source_options of_feed[2];
  struct opened o;
  pid_t packers[2];
  (void)state;
  strcpy(corpora[0], packers_corpus("small", 12, 3));
  strcpy(corpora[1], packers_corpus("other", 60, 4));
  open_mixture(&o, corpora, of_feed);
  for (uint32_t k = 0; k < 2; k++) {
    packers[k] = start_packer(corpora[k], o.feed);
    wanted[k] = chunks_of(corpora[k], &of_feed[k].plan, 0, 1, 2 * CHUNKS, each[k]);
  }
  open_input(&o, 0, 2);
  const struct plm_mixture mixture = plm_config_mixture(&o.config);
  for (uint64_t s = 0; s < 2; s++) {
    struct plm_input_slot *slot;
    assert_int_equal(plm_input_next(o.input, &slot, NULL), PLM_OK);
    plm_mixture_draw(&mixture, 7, s, CHUNKS, sources);
    assert_memory_equal(slot->batch.sources, sources, CHUNKS);
    for (uint32_t c = 0; c < CHUNKS; c++)
      assert_memory_equal((const uint8_t *)slot->batch.tokens + (size_t)c * LENGTH,
                          wanted[sources[c]] + taken[sources[c]]++ * LENGTH, LENGTH);
    assert_true(plm_hash_equal(slot->fingerprint, of_feed[0].fingerprint));
    plm_data_cursor_consume(&o.cursor, &slot->batch, slot->next);
    for (uint32_t k = 0; k < 2; k++)
      assert_place(&o.cursor.sources[k].next.place, &each[k][taken[k]].place);
    plm_input_release(o.input, slot);
  }
  assert_int_equal(taken[0] + taken[1], 2 * CHUNKS);
  for (uint32_t k = 0; k < 2; k++) {
    assert_true(taken[k] > 0);
    assert_int_equal(o.cursor.sources[k].chunks, taken[k]);
    packers_stop(packers[k], SIGTERM);
    free(wanted[k]);
    o.config.sources[k].path = NULL; /* not of the configuration */
  }
  close_all(&o);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_get_the_chunks_of_their_epochs),
      cmocka_unit_test(the_ring_has_two_inputs),
      cmocka_unit_test(an_error_stays),
      cmocka_unit_test(it_can_be_closed_while_it_waits),
      cmocka_unit_test(a_mixture_takes_each_chunk_from_its_source),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
