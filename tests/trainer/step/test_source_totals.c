/* trainer/step/source_totals: tokens and losses of a step by the corpus that its chunks come from.
 */
#include "trainer/step/source_totals.h"

#include <math.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "trainer/trainer_options.h"

enum { CHUNKS = 6, LENGTH = 8 };

/* A document in each chunk, but two in the first one and none in the last. */
static const uint32_t begin[CHUNKS + 1] = {0, 2, 3, 4, 5, 6, 6};
static const struct plm_chunk_document documents[6] = {{.tokens = 3}, {.start = 3, .tokens = 5},
                                                       {.tokens = 7}, {.tokens = 2},
                                                       {.tokens = 4}, {.tokens = 1}};
static const uint8_t sources[CHUNKS] = {1, 0, 1, 3, 1, 0};
static const struct plm_chunk_loss losses[CHUNKS] = {{7.5, {3, 6}}, {2, {1, 4}}, {0.25, {1, 2}},
                                                     {0, {0, 4}},   {0, {0, 2}}, {0, {0, 0}}};

static const struct plm_batch batch = {.chunks = CHUNKS,
                                       .max_length = LENGTH,
                                       .token_bytes = 1,
                                       .document_begin = begin,
                                       .documents = documents,
                                       .sources = sources};

static struct plm_source_totals totals_of(const char *yaml)
{
  struct plm_config config;
  struct plm_source_totals totals;
  struct plm_error error = {0};
  if (plm_config_load_text(yaml, strlen(yaml), &config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  totals = plm_source_totals_of(&config);
  plm_config_deinit(&config);
  return totals;
}

/* The divisor of a source is its own. A source without labels has no loss, whether it has chunks or
 * not. A second step does not see the first one. */
static void a_source_is_divided_by_its_own_count(void **state)
{
  (void)state;
  struct plm_source_totals totals =
      totals_of("corpus: [{path: /a/x}, {path: /b/x}, {path: /c/y}, {path: /d/z}]\n");
  assert_int_equal(totals.count, 4);
  assert_string_equal(totals.names[0], "x#0");
  assert_string_equal(totals.names[2], "y");
  for (int step = 0; step < 2; step++) {
    plm_source_totals_count(&totals, &batch, losses);
    assert_int_equal(totals.tokens[0], 7);
    assert_int_equal(totals.tokens[1], 8 + 2 + 1);
    assert_int_equal(totals.tokens[2], 0);
    assert_int_equal(totals.tokens[3], 4);
    assert_true(totals.losses[0] == 2.0 / 4);
    assert_true(totals.losses[1] == 7.75 / 10);
    assert_true(isnan(totals.losses[2]) && isnan(totals.losses[3]));
  }
}

/* Losses are added in the order of the chunks, not by their size. */
static void losses_are_added_in_their_order(void **state)
{
  static const uint8_t one[CHUNKS] = {0};
  const struct plm_chunk_loss uneven[CHUNKS] = {{1e16, {1, 1}},  {1, {1, 0}}, {1, {1, 0}},
                                                {-1e16, {1, 0}}, {1, {1, 0}}, {NAN, {0, 0}}};
  struct plm_source_totals totals = totals_of("corpus: [{path: /a}, {path: /b}]\n");
  struct plm_batch five = batch;
  (void)state;
  five.chunks = 5;
  five.sources = one;
  plm_source_totals_count(&totals, &five, uneven);
  assert_true(totals.losses[0] == 1);
  five.chunks = 6; /* what is not finite stays so */
  plm_source_totals_count(&totals, &five, uneven);
  assert_true(isnan(totals.losses[0]));
}

static void one_corpus_has_no_totals(void **state)
{
  (void)state;
  struct plm_source_totals totals = totals_of("corpus: /a\n");
  struct plm_batch plain = batch;
  assert_int_equal(totals.count, 0);
  plain.sources = NULL;
  plm_source_totals_count(&totals, &plain, NULL);
  assert_int_equal(totals.tokens[0], 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_source_is_divided_by_its_own_count),
      cmocka_unit_test(losses_are_added_in_their_order),
      cmocka_unit_test(one_corpus_has_no_totals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
