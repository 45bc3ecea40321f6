/* Which source each chunk of a step comes from, and the history of a mixture. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/plan/mixture.h"
#include "common/plan/shuffle.h"

enum { CHUNKS_MOST = 700 };

/* Random weights; some sources move, and some of them to 0. */
static struct plm_mixture mixture_make(uint64_t number)
{
  struct plm_draws draws = plm_draws_begin(5, number, 100);
  struct plm_mixture mixture = {.count = 1 + (uint32_t)plm_draws_below(&draws, PLM_MAX_SOURCES),
                                .steps = plm_draws_below(&draws, 40)};
  for (uint32_t k = 0; k < mixture.count; k++) {
    mixture.weights[k] = (double)(1 + plm_draws_below(&draws, 1000)) / 8.0;
    mixture.final_weights[k] = -1;
    if (k > 0 && plm_draws_below(&draws, 2) == 1)
      mixture.final_weights[k] = (double)plm_draws_below(&draws, 5);
  }
  return mixture;
}

static void proportions_hold_in_every_step(void **state)
{
  uint8_t sources[CHUNKS_MOST];
  (void)state;
  for (uint64_t m = 0; m < 200; m++) {
    const struct plm_mixture mixture = mixture_make(m);
    for (uint64_t s = 0; s < 60; s += 7) {
      const uint32_t chunks = 1 + (uint32_t)(m * 31 + s * 17) % CHUNKS_MOST;
      double weights[PLM_MAX_SOURCES], sum = 0;
      uint32_t counts[PLM_MAX_SOURCES] = {0};
      plm_mixture_weights(&mixture, s, weights);
      plm_mixture_draw(&mixture, m, s, chunks, sources);
      for (uint32_t k = 0; k < mixture.count; k++) sum += weights[k];
      for (uint32_t i = 0; i < chunks; i++) {
        assert_true(sources[i] < mixture.count);
        counts[sources[i]]++;
      }
      for (uint32_t k = 0; k < mixture.count; k++)
        assert_true(fabs(counts[k] - chunks * weights[k] / sum) < 1 + 1e-9);
    }
  }
}

/* Over many steps, each source has its share, whatever the number of chunks. */
static void shares_are_those_of_the_weights(void **state)
{
  const struct plm_mixture mixture = {
      .count = 3, .weights = {6, 3, 1}, .final_weights = {-1, -1, -1}};
  uint64_t counts[3] = {0};
  uint8_t sources[3];
  (void)state;
  for (uint64_t s = 0; s < 20000; s++) {
    plm_mixture_draw(&mixture, 1, s, 3, sources);
    for (int i = 0; i < 3; i++) counts[sources[i]]++;
  }
  /* a step has 0 or 1 chunk beyond the floor of its share: deviations below 0.5 * sqrt(steps) */
  for (int k = 0; k < 3; k++)
    assert_true(fabs((double)counts[k] - 6000.0 * mixture.weights[k]) < 4 * 0.5 * sqrt(20000));
}

static void weights_move_linearly(void **state)
{
  const struct plm_mixture mixture = {
      .count = 2, .weights = {3, 1}, .final_weights = {1, -1}, .steps = 8};
  double weights[PLM_MAX_SOURCES];
  (void)state;
  for (uint64_t s = 0; s < 20; s++) {
    plm_mixture_weights(&mixture, s, weights);
    assert_true(weights[0] == (s < 8 ? 3.0 - 0.25 * (double)s : 1.0));
    assert_true(weights[1] == 1.0);
  }
}

/* Each number of a mixture counts; the steps count only if a weight moves. */
static void equal_mixtures_agree_in_everything(void **state)
{
  const struct plm_mixture moving = {
      .count = 2, .weights = {1, 2}, .final_weights = {-1, 5}, .steps = 9};
  struct plm_mixture a = moving, b = moving;
  (void)state;
  assert_true(plm_mixture_equal(&a, &b));
#define DIFFERS(field, value)                \
  do {                                       \
    b = moving;                              \
    b.field = (value);                       \
    assert_false(plm_mixture_equal(&a, &b)); \
    assert_false(plm_mixture_equal(&b, &a)); \
  } while (0)
  DIFFERS(count, 1);
  DIFFERS(weights[0], 1.5);
  DIFFERS(weights[1], 2.5);
  DIFFERS(final_weights[0], 0);
  DIFFERS(final_weights[1], 6);
  DIFFERS(final_weights[1], -1);
  DIFFERS(steps, 10);
  b = moving;
  b.weights[2] = 7; /* of a source that the mixture does not have */
  b.final_weights[0] = -2;
  assert_true(plm_mixture_equal(&a, &b));
  a.final_weights[1] = b.final_weights[1] = -1;
  b.steps = 10;
  assert_true(plm_mixture_equal(&a, &b));
}

/* A part begins at a change of the number of chunks as well; taking back a change removes it. */
static void a_history_is_rewritten_from_a_step(void **state)
{
  const struct plm_mixture one = {.count = 1, .weights = {1}, .final_weights = {-1}};
  struct plm_mixture_history history = {0};
  uint64_t counts[PLM_MAX_SOURCES];
  (void)state;
  plm_mixture_history_add(&history, 0, 16, &one);
  plm_mixture_history_add(&history, 4, 300, &one);
  plm_mixture_history_add(&history, 8, 2, &one);
  assert_int_equal(history.count, 3);
  assert_int_equal(plm_mixture_history_count(&history, 9, 10, counts, NULL), PLM_OK);
  assert_int_equal(counts[0], 4 * 16 + 4 * 300 + 2 * 2);
  plm_mixture_history_add(&history, 4, 16, &one);
  assert_int_equal(history.count, 1); /* as before step 4 */
  assert_int_equal(plm_mixture_history_at(&history, 9)->chunks, 16);
  plm_mixture_history_deinit(&history);
  assert_int_equal(history.count, 0);
  assert_null(history.parts);
}

/* The chunks before a step, counted at once and step by step. */
static void history_counts_every_part(void **state)
{
  struct plm_mixture_history history = {0};
  uint64_t counts[PLM_MAX_SOURCES], expected[PLM_MAX_SOURCES] = {0};
  uint8_t sources[64];
  const struct plm_mixture one = {.count = 1, .weights = {1}, .final_weights = {-1}};
  const struct plm_mixture two = {
      .count = 2, .weights = {1, 2}, .final_weights = {-1, 5}, .steps = 9};
  struct plm_mixture three = mixture_make(4);
  (void)state;
  three.count = 3;
  plm_mixture_history_add(&history, 0, 16, &one);
  plm_mixture_history_add(&history, 5, 16, &one);
  assert_int_equal(history.count, 1); /* nothing changed */
  plm_mixture_history_add(&history, 7, 16, &two);
  plm_mixture_history_add(&history, 12, 64, &one);
  plm_mixture_history_add(&history, 12, 64, &three);
  assert_int_equal(history.count, 3); /* the part at the same step was replaced */
  for (uint64_t s = 0; s < 40; s++) {
    assert_int_equal(plm_mixture_history_count(&history, 9, s, counts, NULL), PLM_OK);
    assert_memory_equal(counts, expected, sizeof counts);
    const struct plm_mixture_part *part = plm_mixture_history_at(&history, s);
    assert_int_equal(part->first, s < 7 ? 0 : s < 12 ? 7 : 12);
    plm_mixture_draw(&part->mixture, 9, s, part->chunks, sources);
    for (uint32_t i = 0; i < part->chunks; i++) expected[sources[i]]++;
  }
  plm_mixture_history_deinit(&history);
}

static plm_status parse(const char *text, struct plm_mixture_history *history)
{
  cJSON *json = cJSON_Parse(text);
  *history = (struct plm_mixture_history){0};
  const plm_status status = plm_mixture_history_from_json(history, json, NULL);
  cJSON_Delete(json);
  return status;
}

static void history_comes_back_from_json(void **state)
{
  struct plm_mixture_history history = {0}, back;
  (void)state;
  for (uint64_t m = 0; m < 5; m++) {
    struct plm_mixture mixture = mixture_make(m);
    mixture.count = 2 + (uint32_t)m;
    for (uint32_t k = 0; k < mixture.count; k++) mixture.weights[k] = 0.1 * (double)(k + m + 1);
    mixture.final_weights[1] = 3;
    plm_mixture_history_add(&history, 10 * m, 8 + (uint32_t)m, &mixture);
  }
  cJSON *json = plm_mixture_history_to_json(&history);
  char *text = cJSON_PrintUnformatted(json);
  assert_int_equal(parse(text, &back), PLM_OK);
  assert_int_equal(back.count, history.count);
  for (size_t p = 0; p < history.count; p++) {
    assert_int_equal(back.parts[p].first, history.parts[p].first);
    assert_int_equal(back.parts[p].chunks, history.parts[p].chunks);
    assert_true(plm_mixture_equal(&back.parts[p].mixture, &history.parts[p].mixture));
  }
  cJSON_free(text);
  cJSON_Delete(json);
  plm_mixture_history_deinit(&back);
  plm_mixture_history_deinit(&history);
}

static void history_has_one_form_in_json(void **state)
{
  (void)state;
  struct plm_mixture_history history = {0};
  const struct plm_mixture first = {.count = 1, .weights = {0.1}, .final_weights = {-1}};
  const struct plm_mixture second = {
      .count = 2, .steps = 50, .weights = {3, 1}, .final_weights = {0, -1}};
  plm_mixture_history_add(&history, 0, 8, &first);
  plm_mixture_history_add(&history, 10, 9, &second);
  cJSON *json = plm_mixture_history_to_json(&history);
  char *text = cJSON_PrintUnformatted(json);
  assert_string_equal(
      text, "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[0.10000000000000001],"
            "\"final_weights\":[null]},{\"step\":11,\"chunks\":9,\"mixture_steps\":50,"
            "\"weights\":[3,1],\"final_weights\":[0,null]}]");
  cJSON_free(text);
  cJSON_Delete(json);
  plm_mixture_history_deinit(&history);
  /* the first part may have one source, and one that follows as many */
  assert_int_equal(
      parse("[{\"step\":1,\"chunks\":1,\"mixture_steps\":9007199254740992,\"weights\":[1e300],"
            "\"final_weights\":[1e300]},{\"step\":2,\"chunks\":1,\"mixture_steps\":0,"
            "\"weights\":[1],\"final_weights\":[0]}]",
            &history),
      PLM_OK);
  assert_int_equal(history.count, 2);
  assert_int_equal(history.parts[0].first, 0);
  assert_int_equal(history.parts[1].first, 1);
  assert_int_equal(history.parts[0].mixture.steps, UINT64_C(1) << 53);
  assert_true(history.parts[0].mixture.final_weights[0] == 1e300);
  assert_true(history.parts[1].mixture.final_weights[0] == 0);
  plm_mixture_history_deinit(&history);
}

static void damaged_history_is_refused(void **state)
{
  static const char *const wrong[] = {
      "[]",
      "{}",
      "[{\"step\":2,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[null]}]",
      "[{\"step\":1,\"chunks\":0,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[null]}]",
      "[{\"step\":1,\"chunks\":1.5,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[null]}]",
      "[{\"step\":1,\"chunks\":16777217,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":["
      "null]}]",
      "[{\"step\":1,\"chunks\":\"8\",\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[null]}"
      "]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":-1,\"weights\":[1],\"final_weights\":[null]}]",
      "[{\"step\":1,\"chunks\":8,\"weights\":[1],\"final_weights\":[null]}]",
      "[{\"chunks\":8,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[null]}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[null,null]}"
      "]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[2e300],\"final_weights\":[null]}"
      "]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[null]},"
      "{\"step\":1,\"chunks\":9,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[null]}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[null]},"
      "{\"step\":5,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[null]}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[],\"final_weights\":[]}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[0],\"final_weights\":[null]}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[-1],\"final_weights\":[null]}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[]}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[\"x\"]}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":{\"a\":1},\"final_weights\":[1]}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":{\"a\":1}}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1,1],\"final_weights\":[1,1]},"
      "{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1,2],\"final_weights\":[1,1]}]",
      "[{\"step\":1,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1,1],\"final_weights\":[1,1]},"
      "{\"step\":5,\"chunks\":8,\"mixture_steps\":0,\"weights\":[1],\"final_weights\":[1]}]",
  };
  struct plm_mixture_history history;
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(parse(wrong[i], &history), PLM_FORMAT);
    plm_mixture_history_deinit(&history);
  }
}

/* As many sources as a mixture can have, and one more. */
static void the_number_of_sources_is_limited(void **state)
{
  struct plm_mixture_history history;
  (void)state;
  for (int count = PLM_MAX_SOURCES; count <= PLM_MAX_SOURCES + 1; count++) {
    char text[8192];
    int at = sprintf(text, "[{\"step\":1,\"chunks\":16777216,\"mixture_steps\":0,\"weights\":[1");
    for (int k = 1; k < count; k++) at += sprintf(text + at, ",1");
    at += sprintf(text + at, "],\"final_weights\":[null");
    for (int k = 1; k < count; k++) at += sprintf(text + at, ",null");
    sprintf(text + at, "]}]");
    assert_int_equal(parse(text, &history), count <= PLM_MAX_SOURCES ? PLM_OK : PLM_FORMAT);
    if (count <= PLM_MAX_SOURCES) {
      assert_int_equal(history.count, 1);
      assert_int_equal(history.parts[0].chunks, 16777216);
      assert_int_equal(history.parts[0].mixture.count, PLM_MAX_SOURCES);
    }
    plm_mixture_history_deinit(&history);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(proportions_hold_in_every_step),
      cmocka_unit_test(shares_are_those_of_the_weights),
      cmocka_unit_test(weights_move_linearly),
      cmocka_unit_test(equal_mixtures_agree_in_everything),
      cmocka_unit_test(a_history_is_rewritten_from_a_step),
      cmocka_unit_test(history_counts_every_part),
      cmocka_unit_test(history_comes_back_from_json),
      cmocka_unit_test(history_has_one_form_in_json),
      cmocka_unit_test(damaged_history_is_refused),
      cmocka_unit_test(the_number_of_sources_is_limited),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
