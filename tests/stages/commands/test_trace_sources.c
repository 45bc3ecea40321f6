/* What a step of a run takes from its corpora, after a history that its newest checkpoint tells,
 * and histories that contradict themselves. */
#include "stages/commands/trace_sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { CORPORA = 2, LENGTH = 64, CHUNKS = 4 };

static char run[PLM_PATH_SIZE];

static int write_corpora(void **state)
{
  (void)state;
  written_corpora(CORPORA, &(struct written_corpus){.documents = {40, 0, 0}, .longest = 60});
  return 0;
}

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  return 0;
}

/* A run with the first `count` corpora; 0: of one without a list. */
static void configure(int count, struct plm_config *config)
{
  char text[6 * PLM_PATH_SIZE], first[PLM_PATH_SIZE];
  struct plm_error error = {0};
  snprintf(first, sizeof first, "%s", scratch_path("corpus.0"));
  if (count == 0)
    snprintf(text, sizeof text, "corpus: %.4000s\n", first);
  else
    snprintf(text, sizeof text, "corpus: [{path: %.4000s}%s%.4000s%s]\n", first,
             count > 1 ? ", {path: " : "", count > 1 ? scratch_path("corpus.1") : "",
             count > 1 ? ", weight: 1.7}" : "");
  snprintf(text + strlen(text), PLM_PATH_SIZE + 200,
           "run: %.4000s\nseed: 7\ndata: {max_length: %d}\n"
           "trainer: {batch_tokens: %d, micro_batch_tokens: %d}\n",
           run, LENGTH, CHUNKS * LENGTH, LENGTH);
  if (plm_config_load_text(text, strlen(text), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

static void write_latest(const char *json)
{
  char directory[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(directory, run, "checkpoints/latest", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(directory, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, directory, "trainer.json", NULL), PLM_OK);
  scratch_write(path, json, strlen(json));
}

/* Fails unless step s begins after `begin` chunks and takes `chunks`, of source 0 from chunk `next`
 * of it on. */
static void expect_step(struct plm_trace_sources *sources, uint64_t s, uint64_t begin,
                        uint32_t chunks, uint64_t next)
{
  assert_int_equal(plm_trace_sources_place(sources, s, NULL), PLM_OK);
  assert_int_equal(sources->step, s);
  assert_int_equal(sources->begin, begin);
  assert_int_equal(sources->chunks, chunks);
  assert_int_equal(sources->sources[0].next, next);
}

static void expect_steps(const struct plm_config *config, const uint64_t steps[][3], size_t count)
{
  struct plm_trace_sources sources = {0};
  struct plm_error error = {0};
  if (plm_trace_sources_open(config, 0, &sources, &error) != PLM_OK) fail_msg("%s", error.what);
  for (size_t i = 0; i < count; i++)
    expect_step(&sources, steps[i][0], steps[i][1], (uint32_t)steps[i][2], steps[i][1]);
  plm_trace_sources_close(&sources);
}

#define EXPECT_STEPS(config, ...)                          \
  expect_steps(config, (const uint64_t[][3]){__VA_ARGS__}, \
               sizeof((const uint64_t[][3]){__VA_ARGS__}) / (3 * sizeof(uint64_t)))

/* {s, chunks before it, its chunks} */
static void one_corpus_without_a_checkpoint(void **state)
{
  struct plm_config config;
  (void)state;
  configure(0, &config);
  EXPECT_STEPS(&config, {0, 0, 4}, {1, 4, 4}, {2, 8, 4}, {9, 36, 4}, {1, 4, 4});
  plm_config_deinit(&config);
}

/* A checkpoint of a step tells how large the steps before it were, and the configuration those
 * after it. */
static void the_history_says_how_large_steps_were(void **state)
{
  struct plm_config config;
  (void)state;
  configure(0, &config);
  write_latest("{\"step\":3,\"cursor\":{\"chunks\":6}}"); /* their mean */
  EXPECT_STEPS(&config, {0, 0, 2}, {2, 4, 2}, {3, 6, 4}, {4, 10, 4});
  write_latest("{\"step\":3,\"cursor\":{\"chunks\":6},\"resolved\":{\"step_chunks\":2}}");
  EXPECT_STEPS(&config, {0, 0, 2}, {2, 4, 2}, {3, 6, 4});
  write_latest("{\"step\":3,\"cursor\":{\"chunks\":12},\"history\":[{\"step\":2,\"step_chunks\":"
               "{\"before\":5,\"now\":2}}]}");
  EXPECT_STEPS(&config, {0, 0, 5}, {1, 5, 5}, {2, 10, 2}, {3, 12, 4}, {4, 16, 4});
  write_latest("{\"step\":0,\"cursor\":{\"chunks\":0}}"); /* before the first step */
  EXPECT_STEPS(&config, {0, 0, 4}, {1, 4, 4});
  write_latest("{\"step\":1,\"cursor\":{\"chunks\":0}}");
  EXPECT_STEPS(&config, {0, 0, 4}, {1, 4, 4});
  write_latest("{}");
  EXPECT_STEPS(&config, {0, 0, 4}, {1, 4, 4});
  plm_config_deinit(&config);
}

/* A run that was trained further than its configuration says now has those steps as well. */
static void the_last_step_is_planned_or_made(void **state)
{
  static const struct {
    const char *latest;
    uint64_t last;
  } cases[] = {{"{}", 300},
               {"{\"step\":299,\"cursor\":{\"chunks\":598}}", 300},
               {"{\"step\":301,\"cursor\":{\"chunks\":602}}", 301}};
  struct plm_config config;
  (void)state;
  configure(0, &config);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_latest(cases[i].latest);
    for (uint64_t beyond = 0; beyond < 2; beyond++) {
      struct plm_trace_sources sources = {0};
      struct plm_error error;
      const uint64_t s = cases[i].last - 1 + beyond;
      assert_int_equal(plm_trace_sources_open(&config, s, &sources, &error),
                       beyond == 0 ? PLM_OK : PLM_USAGE);
      if (beyond > 0) assert_non_null(strstr(error.what, "is beyond the run's last step, 30"));
      assert_int_equal(sources.count > 0, beyond == 0); /* no corpus is opened in vain */
      plm_trace_sources_close(&sources);
    }
  }
  plm_config_deinit(&config);
}

/* After a step whose chunks were all taken, the next one follows from it, and so it does from the
 * history. */
static void chunks_are_counted_or_follow(void **state)
{
  struct plm_config config;
  struct plm_trace_sources sources = {0};
  struct plm_traced_chunk chunk;
  uint64_t taken[CORPORA][8], begins[8];
  (void)state;
  configure(2, &config);
  assert_int_equal(plm_trace_sources_open(&config, 0, &sources, NULL), PLM_OK);
  assert_int_equal(sources.count, 2);
  for (uint64_t s = 0; s < 8; s++) {
    assert_int_equal(plm_trace_sources_place(&sources, s, NULL), PLM_OK);
    begins[s] = sources.begin;
    assert_int_equal(begins[s], s * CHUNKS);
    for (int k = 0; k < CORPORA; k++) taken[k][s] = sources.sources[k].next;
    for (uint32_t i = 0; i < sources.chunks; i++)
      assert_int_equal(plm_trace_sources_next(&sources, sources.of[i], &chunk, NULL), PLM_OK);
  }
  assert_true(taken[0][7] > 0 && taken[1][7] > 0);
  int others = 0; /* of other seeds, some have other counts */
  for (sources.seed = 8; sources.seed < 16; sources.seed++) {
    assert_int_equal(plm_trace_sources_place(&sources, 7, NULL), PLM_OK);
    others += sources.sources[0].next != taken[0][7];
  }
  assert_true(others > 0);
  sources.seed = 7;
  for (uint64_t s = 8; s-- > 0;) { /* now each is counted, after a step with chunks to take */
    assert_int_equal(plm_trace_sources_place(&sources, s, NULL), PLM_OK);
    assert_int_equal(sources.begin, begins[s]);
    for (int k = 0; k < CORPORA; k++) assert_int_equal(sources.sources[k].next, taken[k][s]);
    if (s == 4)
      assert_int_equal(plm_trace_sources_next(&sources, sources.of[0], &chunk, NULL), PLM_OK);
    if (s == 4) { /* one chunk of it is taken, so the next one does not follow */
      assert_int_equal(plm_trace_sources_place(&sources, 5, NULL), PLM_OK);
      for (int k = 0; k < CORPORA; k++) assert_int_equal(sources.sources[k].next, taken[k][5]);
    }
  }
  plm_trace_sources_close(&sources);
  assert_int_equal(sources.count, 0);
  plm_config_deinit(&config);
}

static void refuses(const struct plm_config *config, plm_status status, const char *what)
{
  struct plm_trace_sources sources = {0};
  struct plm_error error = {0};
  assert_int_equal(plm_trace_sources_open(config, 0, &sources, &error), status);
  assert_string_equal(error.what, what);
  plm_trace_sources_close(&sources);
}

static void histories_that_contradict_themselves(void **state)
{
  struct plm_config config;
  (void)state;
  configure(0, &config);
  write_latest("{\"step\":3,\"cursor\":{\"chunks\":7}}");
  refuses(&config, PLM_FORMAT, "by its history, 3 steps took 6 chunks, not 7");
  write_latest("{\"step\":3,\"cursor\":{\"chunks\":6},\"resolved\":{\"step_chunks\":3}}");
  refuses(&config, PLM_FORMAT, "by its history, 3 steps took 9 chunks, not 6");
  write_latest("{\"step\":-3,\"cursor\":{\"chunks\":6}}");
  refuses(&config, PLM_FORMAT, "step is not a whole number from 0 to 2^53");
  write_latest("{\"step\":3,\"cursor\":{\"chunks\":6.5}}");
  refuses(&config, PLM_FORMAT, "chunks is not a whole number from 0 to 2^53");
  write_latest("{\"step\":1,\"cursor\":{\"chunks\":4294967296}}");
  refuses(&config, PLM_FORMAT, "its steps have 4294967296 chunks, more than there can be");
  write_latest("{\"step\":1,\"cursor\":{\"chunks\":6,\"mixture\":[{}]}}");
  refuses(&config, PLM_FORMAT, "entry 0 of the cursor's mixture is not valid");
  write_latest(
      "{\"step\":3,\"cursor\":{\"chunks\":6},\"history\":[{\"step\":2,\"step_chunks\":{}}]}");
  refuses(&config, PLM_FORMAT, "step_chunks of an entry of the history are not two counts");
  plm_config_deinit(&config);
}

/* Of the folder of checkpoints, and of what is in it. */
static void a_path_that_is_too_long_is_an_error(void **state)
{
  static const size_t lengths[] = {PLM_PATH_SIZE - 8, PLM_PATH_SIZE - 15};
  struct plm_config config;
  (void)state;
  configure(0, &config);
  for (size_t i = 0; i < 2; i++) {
    struct plm_trace_sources sources = {0};
    free(config.run);
    config.run = must(calloc(lengths[i] + 1, 1));
    memset(config.run, 'r', lengths[i]);
    assert_int_equal(plm_trace_sources_open(&config, 0, &sources, NULL), PLM_LIMIT);
    plm_trace_sources_close(&sources);
  }
  plm_config_deinit(&config);
}

/* The configuration may have more corpora than the run had so far, but not fewer. */
static void a_run_keeps_its_corpora(void **state)
{
  static const char two[] = "{\"step\":2,\"cursor\":{\"chunks\":6,\"mixture\":[{\"step\":1,"
                            "\"chunks\":3,\"mixture_steps\":"
                            "0,\"weights\":[1,1],\"final_weights\":[null,null]}]}}";
  struct plm_config config;
  (void)state;
  write_latest(two);
  configure(1, &config);
  refuses(&config, PLM_CONFIG,
          "corpus: the run was trained on 2 corpora, but its pipeline.yaml has 1");
  plm_config_deinit(&config);
  configure(2, &config);
  struct plm_trace_sources sources = {0};
  assert_int_equal(plm_trace_sources_open(&config, 0, &sources, NULL), PLM_OK);
  assert_int_equal(plm_trace_sources_place(&sources, 1, NULL), PLM_OK);
  assert_int_equal(sources.chunks, 3);
  assert_int_equal(sources.begin, 3);
  assert_int_equal(plm_trace_sources_place(&sources, 2, NULL), PLM_OK);
  assert_int_equal(sources.chunks, CHUNKS);
  assert_int_equal(sources.begin, 6);
  plm_trace_sources_close(&sources);
  plm_config_deinit(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(one_corpus_without_a_checkpoint, setup),
      cmocka_unit_test_setup(the_history_says_how_large_steps_were, setup),
      cmocka_unit_test_setup(the_last_step_is_planned_or_made, setup),
      cmocka_unit_test_setup(chunks_are_counted_or_follow, setup),
      cmocka_unit_test_setup(histories_that_contradict_themselves, setup),
      cmocka_unit_test_setup(a_path_that_is_too_long_is_an_error, setup),
      cmocka_unit_test_setup(a_run_keeps_its_corpora, setup),
  };
  return cmocka_run_group_tests(tests, write_corpora, NULL);
}
