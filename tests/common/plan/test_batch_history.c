/* The size of a run's steps, read from the history of a checkpoint. */
#include "common/plan/batch_history.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"

static plm_status read_text(const char *text, struct plm_mixture_history *history,
                            struct plm_error *error)
{
  cJSON *json = cJSON_Parse(text);
  assert_non_null(json);
  *history = (struct plm_mixture_history){0};
  const plm_status status = plm_batch_history_read(history, json, 64, 8, error);
  cJSON_Delete(json);
  return status;
}

static void without_a_change_every_step_is_alike(void **state)
{
  static const char *const texts[] = {
      "[]", "[{\"step\":3,\"failed\":\"the disk is full\"}]",
      "[{\"step\":3,\"changes\":[\"trainer.steps: 6 -> 8\"]}]",
      "[{\"step\":3,\"changes\":[\"trainer.micro_batch_tokens: 64 -> 128\"]}]",
      "[{\"step\":3,\"changes\":[\"trainer.batch_tokens: 64 -> 128 tokens\", 4, null]}]"};
  struct plm_mixture_history history;
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    assert_int_equal(read_text(texts[i], &history, NULL), PLM_OK);
    assert_int_equal(history.count, 1);
    assert_int_equal(history.parts[0].first, 0);
    assert_int_equal(history.parts[0].chunks, 8);
    assert_int_equal(history.parts[0].mixture.count, 1);
    assert_int_equal(plm_batch_history_sum(&history, 10), 80);
    plm_mixture_history_deinit(&history);
  }
  assert_int_equal(plm_batch_history_read(&history, NULL, 64, 8, NULL), PLM_OK);
  assert_int_equal(history.count, 1);
  plm_mixture_history_deinit(&history);
}

static void each_change_begins_a_part(void **state)
{
  struct plm_mixture_history history;
  static const uint64_t sums[] = {0, 8, 16, 24, 26, 28, 44, 60};
  (void)state;
  assert_int_equal(read_text("[{\"step\":3,\"changes\":[\"trainer.steps: 6 -> 8\","
                             "\"trainer.batch_tokens: 512 -> 128\"]},{\"step\":4,\"failed\":\"x\"},"
                             "{\"step\":5,\"changes\":[\"trainer.batch_tokens: 128 -> 1024\"]}]",
                             &history, NULL),
                   PLM_OK);
  assert_int_equal(history.count, 3);
  assert_int_equal(history.parts[1].first, 3);
  assert_int_equal(history.parts[2].first, 5);
  for (uint64_t s = 0; s < sizeof sums / sizeof *sums; s++)
    assert_int_equal(plm_batch_history_sum(&history, s), sums[s]);
  plm_mixture_history_deinit(&history);
}

/* Numbers count more than the sentences beside them, which may be worded anyhow. An entry that has
 * only sentences was written by an earlier build. */
static void numbers_come_before_sentences(void **state)
{
  struct plm_mixture_history history;
  static const uint64_t sums[] = {0, 8, 16, 24, 26, 28, 44, 60};
  (void)state;
  assert_int_equal(read_text("[{\"step\":3,\"changes\":[\"trainer.batch_tokens: 640 -> 640\"],"
                             "\"step_chunks\":{\"before\":8,\"now\":2}},"
                             "{\"step\":5,\"changes\":[\"trainer.batch_tokens: 128 -> 1024\"]}]",
                             &history, NULL),
                   PLM_OK);
  assert_int_equal(history.count, 3);
  for (uint64_t s = 0; s < sizeof sums / sizeof *sums; s++)
    assert_int_equal(plm_batch_history_sum(&history, s), sums[s]);
  plm_mixture_history_deinit(&history);
}

/* Two resumes at one step: only the last one trained. */
static void the_last_change_at_a_step_counts(void **state)
{
  struct plm_mixture_history history;
  (void)state;
  assert_int_equal(read_text("[{\"step\":2,\"changes\":[\"trainer.batch_tokens: 512 -> 128\"]},"
                             "{\"step\":2,\"changes\":[\"trainer.batch_tokens: 128 -> 256\"]}]",
                             &history, NULL),
                   PLM_OK);
  assert_int_equal(history.count, 2);
  assert_int_equal(plm_batch_history_sum(&history, 4), 8 + 8 + 4 + 4);
  plm_mixture_history_deinit(&history);
}

static void defects_are_named(void **state)
{
  static const struct {
    const char *text, *what;
  } cases[] = {
      {"[{\"step_chunks\":{\"before\":8,\"now\":2}}]", "an entry of the history has no step"},
      {"[{\"step\":2,\"step_chunks\":{\"before\":8,\"now\":-2}}]",
       "step_chunks of an entry of the history are not two counts"},
      {"[{\"step\":2,\"step_chunks\":{\"now\":2}}]",
       "step_chunks of an entry of the history are not two counts"},
      {"[{\"step\":2,\"step_chunks\":7}]",
       "step_chunks of an entry of the history are not two counts"},
      {"[{\"changes\":[\"trainer.batch_tokens: 512 -> 128\"]}]",
       "an entry of the history has no step"},
      {"[{\"step\":2,\"changes\":[\"trainer.batch_tokens: 512 -> 63\"]}]",
       "the history has a step of 0 chunks"},
      {"[{\"step\":2,\"changes\":[\"trainer.batch_tokens: 274877906944 -> 64\"]}]",
       "the history has a step of 4294967296 chunks"}};
  struct plm_mixture_history history;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_error error = {0};
    assert_int_equal(read_text(cases[i].text, &history, &error), PLM_FORMAT);
    assert_string_equal(error.what, cases[i].what);
    plm_mixture_history_deinit(&history);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_a_change_every_step_is_alike),
      cmocka_unit_test(each_change_begins_a_part),
      cmocka_unit_test(numbers_come_before_sentences),
      cmocka_unit_test(the_last_change_at_a_step_counts),
      cmocka_unit_test(defects_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
