/* trainer/input/data_mixture: fingerprints that are given, how a run on several corpora begins and
 * resumes, and what the feed is told. */
#include "trainer/input/data_mixture.h"

#include <stdio.h>
#include <string.h>

#include "common/corpus/corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/packers.h"
#include "trainer/trainer_options.h"

#define HEX_A "000000000000000a00000000000000a1"
#define HEX_B "000000000000000b00000000000000b1"
static const struct plm_hash roots[PLM_MAX_SOURCES]; /* not known */

static struct plm_hash a, b, c;

static struct plm_hash from_hex(const char *hex)
{
  struct plm_hash hash;
  assert_int_equal(plm_hash_from_hex(hex, &hash, NULL), PLM_OK);
  return hash;
}

static int begin(void **state)
{
  (void)state;
  a = from_hex(HEX_A);
  b = from_hex(HEX_B);
  c = (struct plm_hash){3, 4};
  return 0;
}

#define assert_hash(got, wanted) assert_true(plm_hash_equal(got, wanted))

static void fingerprints_are_a_list_of_hashes(void **state)
{
  struct plm_fingerprints found;
  struct plm_error error = {0};
  char many[(PLM_MAX_SOURCES + 1) * PLM_HASH_HEX_SIZE] = HEX_A;
  (void)state;
  assert_int_equal(plm_fingerprints_parse(HEX_A, &found, &error), PLM_OK);
  assert_int_equal(found.count, 1);
  assert_hash(found.of[0], a);
  assert_int_equal(plm_fingerprints_parse(HEX_A "," HEX_B, &found, &error), PLM_OK);
  assert_int_equal(found.count, 2);
  assert_hash(found.of[0], a);
  assert_hash(found.of[1], b);
  assert_hash(found.before[0], ((struct plm_hash){0}));
  assert_int_equal(plm_fingerprints_parse(HEX_B "," HEX_A ":" HEX_B, &found, &error), PLM_OK);
  assert_int_equal(found.count, 2);
  assert_hash(found.before[0], ((struct plm_hash){0}));
  assert_hash(found.of[1], a);
  assert_hash(found.before[1], b);
  for (int k = 1; k < PLM_MAX_SOURCES; k++) strcat(many, "," HEX_B);
  assert_int_equal(plm_fingerprints_parse(many, &found, &error), PLM_OK);
  assert_int_equal(found.count, PLM_MAX_SOURCES);
  assert_hash(found.of[PLM_MAX_SOURCES - 1], b);
  strcat(many, "," HEX_B);
  static const char *const wrong[] = {"",
                                      ",",
                                      HEX_A ",",
                                      "," HEX_A,
                                      HEX_A "0",
                                      HEX_A ",x",
                                      HEX_A ":",
                                      ":" HEX_A,
                                      HEX_A ";" HEX_B,
                                      HEX_A ":" HEX_B "0",
                                      HEX_A ":" HEX_B ":" HEX_A,
                                      "x00000000000000b0000000000000000",
                                      HEX_A ":x00000000000000b0000000000000000",
                                      "000000000000000a00000000000000a",
                                      NULL};
  for (int i = 0; wrong[i] != NULL; i++)
    assert_int_equal(plm_fingerprints_parse(wrong[i], &found, &error), PLM_USAGE);
  assert_string_equal(error.what, "--fingerprint 000000000000000a00000000000000a is not 32 hex "
                                  "digits, or up to 16 of them with commas");
  assert_int_equal(plm_fingerprints_parse(many, &found, &error), PLM_USAGE);
}

/* A run keeps the fingerprint that it began with, also after its corpus was upgraded. */
static void a_run_pins_the_fingerprint_it_began_with(void **state)
{
  const struct plm_fingerprints given = {.of = {a, b}, .before = {{0}, c}, .count = 2}, none = {0};
  const struct plm_hash unknown = {0};
  struct plm_hash pinned = unknown;
  (void)state;
  assert_true(plm_fingerprints_pin(&none, 0, &pinned)); /* nothing is known yet */
  assert_hash(pinned, unknown);
  assert_true(plm_fingerprints_pin(&given, 1, &pinned)); /* a new run takes the present one */
  assert_hash(pinned, b);
  pinned = c;
  assert_true(plm_fingerprints_pin(&given, 1, &pinned)); /* an old run keeps the old one */
  assert_hash(pinned, c);
  assert_false(plm_fingerprints_pin(&given, 0, &pinned)); /* source 0 was never c */
  assert_hash(pinned, c);
  assert_true(plm_fingerprints_pin(&none, 0, &pinned)); /* the packers decide */
  assert_hash(pinned, c);
}

/* A run of chunks of 128 tokens, four in a step, on so many corpora. */
static struct plm_config config_of(uint32_t sources)
{
  static char paths[3][16] = {"one", "two", "three"};
  struct plm_config config = {
      .seed = 7,
      .corpus = paths[0],
      .source_count = sources,
      .data = {.max_length = 128,
               .document_alignment = 1,
               .window_groups = 2,
               .mixture_steps = 100,
               .packing = PLM_PACKING_BEST_FIT,
               .truncate = PLM_TRUNCATE_HEAD,
               .tokenizer = PLM_TOKENIZER_ESM},
      .trainer = {.batch_tokens = 512},
  };
  for (uint32_t k = 0; k < sources; k++)
    config.sources[k] = (struct plm_config_source){
        .path = paths[k], .weight = 1 + k, .final_weight = -1, .sampling = -1};
  return config;
}

static struct plm_hash plan_hash(const struct plm_config *config, uint32_t k)
{
  const struct plm_plan_parameters plan = plm_config_source_plan(config, k);
  return plm_plan_hash(&plan);
}

static void open_cursor(struct plm_data_cursor *cursor, const struct plm_config *config)
{
  plm_data_cursor_init(cursor, plan_hash(config, 0), config->seed);
}

static plm_status begin_on(struct plm_data_cursor *cursor, const struct plm_config *config,
                           const struct plm_fingerprints *given, uint64_t s,
                           struct plm_error *error)
{
  const struct plm_data_sources sources = plm_data_sources_of(config);
  return plm_data_mixture_begin(cursor, &sources, given, s, error);
}

static void a_mixture_is_one_that_is_or_was(void **state)
{
  const struct plm_config single = config_of(0), list = config_of(1);
  const struct plm_fingerprints given = {.of = {a}, .count = 1}, none = {0};
  struct plm_data_cursor cursor;
  (void)state;
  open_cursor(&cursor, &single);
  assert_int_equal(begin_on(&cursor, &single, &none, 0, NULL), PLM_OK);
  assert_false(cursor.mixed);
  assert_hash(cursor.sources[0].fingerprint, ((struct plm_hash){0})); /* a packer tells it */
  assert_hash(plm_data_cursor_plan(&cursor), plan_hash(&single, 0));
  assert_int_equal(begin_on(&cursor, &list, &given, 5, NULL), PLM_OK);
  assert_true(cursor.mixed);
  assert_int_equal(cursor.source_count, 1);
  assert_hash(cursor.sources[0].fingerprint, a);
  assert_false(plm_hash_equal(plm_data_cursor_plan(&cursor), plan_hash(&single, 0)));
  assert_int_equal(begin_on(&cursor, &single, &none, 9, NULL), PLM_OK);
  assert_true(cursor.mixed);
  plm_data_cursor_deinit(&cursor);
}

/* What is refused of a run on a single corpus, whose messages do not speak of sources. */
static void a_single_corpus_stays_the_same(void **state)
{
  const struct plm_config single = config_of(0);
  const struct plm_fingerprints first = {.of = {a}, .count = 1}, other = {.of = {b}, .count = 1},
                                two = {.of = {a, b}, .count = 2};
  struct plm_data_cursor cursor;
  struct plm_error error = {0};
  (void)state;
  open_cursor(&cursor, &single);
  assert_int_equal(begin_on(&cursor, &single, &first, 0, NULL), PLM_OK);
  assert_int_equal(begin_on(&cursor, &single, &other, 5, &error), PLM_CONFIG);
  assert_string_equal(error.what,
                      "the run was trained on corpus " HEX_A ", but this corpus is " HEX_B);
  assert_int_equal(begin_on(&cursor, &single, &two, 5, &error), PLM_USAGE);
  assert_string_equal(error.what, "--fingerprint names 2 corpora, but corpus: has 1");
  plm_data_cursor_deinit(&cursor);
}

static void a_run_begins_on_two_corpora(void **state)
{
  const struct plm_config config = config_of(2);
  const struct plm_fingerprints given = {.of = {a, b}, .count = 2};
  struct plm_data_cursor cursor;
  (void)state;
  open_cursor(&cursor, &config);
  assert_int_equal(begin_on(&cursor, &config, &given, 0, NULL), PLM_OK);
  assert_int_equal(cursor.source_count, 2);
  assert_hash(cursor.sources[0].fingerprint, a);
  assert_hash(cursor.sources[1].fingerprint, b);
  for (uint32_t k = 0; k < 2; k++) assert_hash(cursor.sources[k].plan, plan_hash(&config, k));
  assert_true(cursor.mixed);
  assert_int_equal(cursor.mixture.count, 1);
  const struct plm_mixture_part *part = &cursor.mixture.parts[0];
  assert_int_equal(part->first, 0);
  assert_int_equal(part->chunks, 4);
  assert_int_equal(part->mixture.count, 2);
  assert_int_equal(part->mixture.steps, 100);
  assert_true(part->mixture.weights[0] == 1 && part->mixture.weights[1] == 2);
  plm_data_cursor_deinit(&cursor);
}

/* Step 6 of a run that took 3 chunks in each step from one corpus until now. */
static void a_run_on_one_corpus_gets_a_second(void **state)
{
  const struct plm_config config = config_of(2);
  const struct plm_fingerprints given = {.of = {a, b}, .count = 2};
  struct plm_data_cursor cursor;
  uint64_t counts[PLM_MAX_SOURCES] = {0};
  (void)state;
  open_cursor(&cursor, &config);
  cursor.sources[0].fingerprint = a;
  cursor.chunks = cursor.sources[0].chunks = 18;
  cursor.sources[0].next.place =
      (struct plm_plan_place){.epoch = 1, .window = 2, .before = 5, .chunk = 3};
  assert_int_equal(begin_on(&cursor, &config, &given, 6, NULL), PLM_OK);
  assert_int_equal(cursor.mixture.count, 2);
  assert_int_equal(cursor.mixture.parts[0].first, 0);
  assert_int_equal(cursor.mixture.parts[0].chunks, 3);
  assert_int_equal(cursor.mixture.parts[0].mixture.count, 1);
  assert_true(cursor.mixture.parts[0].mixture.weights[0] == 1);
  assert_true(cursor.mixture.parts[0].mixture.final_weights[0] == -1);
  assert_int_equal(cursor.mixture.parts[1].first, 6);
  assert_int_equal(cursor.mixture.parts[1].chunks, 4);
  const struct plm_plan_place *place = &cursor.sources[0].next.place;
  assert_int_equal(cursor.sources[0].chunks, 18);
  assert_true(place->epoch == 1 && place->window == 2 && place->before == 5 && place->chunk == 3);
  assert_int_equal(cursor.sources[1].next.place.chunk, 0);
  assert_int_equal(plm_mixture_history_count(&cursor.mixture, 7, 6, counts, NULL), PLM_OK);
  assert_int_equal(counts[0], 18);
  assert_int_equal(counts[1], 0);
  plm_data_cursor_deinit(&cursor);
}

/* Without --fingerprint, those of the run hold, and a new source's is read. */
static void a_resume_knows_its_corpora(void **state)
{
  struct plm_config two = config_of(2), three = config_of(3);
  const struct plm_fingerprints given = {.of = {a, b}, .count = 2}, none = {0};
  struct plm_data_cursor cursor;
  struct plm_error error = {0};
  struct plm_corpus *corpus;
  (void)state;
  open_cursor(&cursor, &two);
  assert_int_equal(begin_on(&cursor, &two, &given, 0, NULL), PLM_OK);
  assert_int_equal(begin_on(&cursor, &two, &none, 5, NULL), PLM_OK);
  assert_int_equal(cursor.mixture.count, 1); /* nothing has changed */
  assert_hash(cursor.sources[1].fingerprint, b);
  three.sources[2].path = (char *)(uintptr_t)packers_corpus("third", 30, 3);
  assert_int_equal(begin_on(&cursor, &three, &none, 5, &error), PLM_OK);
  assert_int_equal(plm_corpus_open(three.sources[2].path, NULL, &corpus, NULL), PLM_OK);
  assert_int_equal(cursor.source_count, 3);
  assert_hash(cursor.sources[2].fingerprint, plm_corpus_info(corpus)->fingerprint);
  assert_int_equal(cursor.mixture.count, 2);
  assert_int_equal(cursor.mixture.parts[1].first, 5);
  plm_corpus_close(corpus);
  plm_data_cursor_deinit(&cursor);
}

/* What is refused, and why, on the way into step 5 of a run on the corpora a and b. */
static void refuse(const struct plm_config *config, const struct plm_fingerprints *given,
                   plm_status status, const char *what)
{
  const struct plm_config two = config_of(2);
  const struct plm_fingerprints known = {.of = {a, b}, .count = 2};
  struct plm_data_cursor cursor;
  struct plm_error error = {0};
  open_cursor(&cursor, &two);
  assert_int_equal(begin_on(&cursor, &two, &known, 0, NULL), PLM_OK);
  assert_int_equal(begin_on(&cursor, config, given, 5, &error), status);
  assert_string_equal(error.what, what);
  plm_data_cursor_deinit(&cursor);
}

static void an_upgraded_corpus_is_the_same_source(void **state)
{
  const struct plm_config two = config_of(2);
  const struct plm_fingerprints known = {.of = {a, b}, .count = 2},
                                upgraded = {.of = {c, b}, .before = {a}, .count = 2};
  struct plm_data_cursor cursor;
  (void)state;
  open_cursor(&cursor, &two);
  assert_int_equal(begin_on(&cursor, &two, &known, 0, NULL), PLM_OK);
  const struct plm_hash plan = plm_data_cursor_plan(&cursor);
  assert_int_equal(begin_on(&cursor, &two, &upgraded, 5, NULL), PLM_OK);
  assert_hash(cursor.sources[0].fingerprint, a);
  assert_hash(plm_data_cursor_plan(&cursor), plan);
  plm_data_cursor_deinit(&cursor);
}

static void other_corpora_are_refused(void **state)
{
  struct plm_config one = config_of(1), two = config_of(2), three = config_of(3);
  const struct plm_fingerprints none = {0}, first = {.of = {a}, .count = 1},
                                other = {.of = {a, c}, .count = 2},
                                twice = {.of = {a, b, b}, .count = 3},
                                twice_first = {.of = {a, b, a}, .count = 3};
  (void)state;
  refuse(&one, &none, PLM_CONFIG, "corpus: the run has 2 sources, but the list has 1");
  refuse(&two, &first, PLM_USAGE, "--fingerprint names 1 corpora, but corpus: has 2");
  refuse(&two, &other, PLM_CONFIG,
         "the run was trained on corpus " HEX_B
         " as source 1, but that source is 00000000000000040000000000000003 now");
  refuse(&three, &twice, PLM_CONFIG, "corpus: source 2 is the same corpus as source 1");
  refuse(&three, &twice_first, PLM_CONFIG, "corpus: source 2 is the same corpus as source 0");
  three.sources[2].path = (char *)(uintptr_t) "/nowhere";
  refuse(&three, &none, PLM_CONFIG, "/nowhere is not a corpus: it has no corpus.json");
  two.data.window_groups = 3;
  refuse(&two, &none, PLM_CONFIG, "the checkpoint was trained on the data in another order");
}

/* A corpus whose folder cannot be read: where, and what to do. */
static void an_unknown_corpus_is_named(void **state)
{
  struct plm_config config = config_of(2);
  const struct plm_fingerprints none = {0};
  struct plm_data_cursor cursor;
  struct plm_error error = {0};
  (void)state;
  config.sources[0].path = (char *)(uintptr_t) "/nowhere";
  open_cursor(&cursor, &config);
  assert_int_equal(begin_on(&cursor, &config, &none, 0, &error), PLM_CONFIG);
  assert_int_equal(error.status, PLM_CONFIG);
  assert_string_equal(error.where, "corpus: source 0, /nowhere");
  assert_string_equal(error.hint, "the trainer must know which corpora it mixes: start it with "
                                  "`up`, or with --fingerprint HEX,HEX,...");
  assert_int_equal(begin_on(&cursor, &config, &none, 0, NULL), PLM_CONFIG);
  plm_data_cursor_deinit(&cursor);
}

static void the_feed_is_told_the_sources(void **state)
{
  struct plm_config config = config_of(2);
  const struct plm_fingerprints given = {.of = {a, b}, .count = 2};
  struct plm_feed_source_options sources[3] = {{.name = "?"}, {.name = "?"}, {.name = "?"}};
  struct plm_data_cursor cursor;
  (void)state;
  open_cursor(&cursor, &config);
  assert_int_equal(begin_on(&cursor, &config, &given, 0, NULL), PLM_OK);
  config.sources[1].path = NULL;
  const struct plm_data_sources of = plm_data_sources_of(&config);
  plm_data_mixture_feed(&cursor, &of, roots, sources);
  assert_string_equal(sources[0].name, "one");
  assert_string_equal(sources[1].name, "(no path)");
  assert_string_equal(sources[2].name, "?");
  assert_hash(sources[0].fingerprint, a);
  assert_hash(sources[1].fingerprint, b);
  for (uint32_t k = 0; k < 2; k++) {
    assert_hash(sources[k].plan.source, sources[k].fingerprint);
    sources[k].plan.source = (struct plm_hash){0};
    assert_hash(plm_plan_hash(&sources[k].plan), plan_hash(&config, k));
  }
  plm_data_cursor_deinit(&cursor);
}

static void assert_at(const struct plm_feed *feed, uint32_t source,
                      const struct plm_plan_place *place)
{
  struct plm_feed_position position;
  plm_feed_position(feed, source, &position);
  assert_int_equal(position.place.epoch, place->epoch);
  assert_int_equal(position.place.window, place->window);
  assert_int_equal(position.place.before, place->before);
  assert_int_equal(position.place.chunk, place->chunk);
}

/* To ends of windows, where a place is the same before and after a packer has come. */
static void the_feed_is_moved_to_each_place(void **state)
{
  static const struct plm_plan_place places[2] = {{3, 2, 9, 0}, {7, 1, 4, 0}};
  struct plm_config config = config_of(2);
  const struct plm_fingerprints given = {.of = {a, b}, .count = 2};
  struct plm_feed_options options = packers_options();
  struct plm_feed_source_options sources[2];
  struct plm_data_cursor cursor;
  (void)state;
  open_cursor(&cursor, &config);
  cursor.sources[0].next.place = places[0];
  struct plm_feed *feed = packers_feed(&options);
  plm_data_cursor_seek(feed, &cursor);
  assert_at(feed, 0, &places[0]);
  plm_feed_close(feed);
  assert_int_equal(begin_on(&cursor, &config, &given, 0, NULL), PLM_OK);
  cursor.sources[1].next.place = places[1];
  const struct plm_data_sources of = plm_data_sources_of(&config);
  plm_data_mixture_feed(&cursor, &of, roots, sources);
  options.sources = sources;
  options.source_count = 2;
  options.plan = sources[0].plan;
  options.fingerprint = a;
  feed = packers_feed(&options);
  plm_data_cursor_seek(feed, &cursor);
  for (uint32_t k = 0; k < 2; k++) assert_at(feed, k, &places[k]);
  plm_feed_close(feed);
  plm_data_cursor_deinit(&cursor);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fingerprints_are_a_list_of_hashes),
      cmocka_unit_test(a_run_pins_the_fingerprint_it_began_with),
      cmocka_unit_test(an_upgraded_corpus_is_the_same_source),
      cmocka_unit_test(a_mixture_is_one_that_is_or_was),
      cmocka_unit_test(a_single_corpus_stays_the_same),
      cmocka_unit_test(a_run_begins_on_two_corpora),
      cmocka_unit_test(a_run_on_one_corpus_gets_a_second),
      cmocka_unit_test(a_resume_knows_its_corpora),
      cmocka_unit_test(other_corpora_are_refused),
      cmocka_unit_test(an_unknown_corpus_is_named),
      cmocka_unit_test(the_feed_is_told_the_sources),
      cmocka_unit_test(the_feed_is_moved_to_each_place),
  };
  return cmocka_run_group_tests(tests, begin, NULL);
}
