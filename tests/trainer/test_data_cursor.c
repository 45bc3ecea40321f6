/* trainer/data_cursor: finished epochs, the hash over what was consumed, and JSON. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/support/cmocka_all.h"
#include "trainer/data_cursor.h"

enum { LENGTH = 8 };

struct epochs {
  const uint64_t *totals;
  uint64_t highest_asked;
};

static plm_status epoch_total(void *context, uint32_t source, uint64_t epoch, uint64_t *chunks,
                              struct plm_error *error)
{
  (void)source;
  (void)error;
  struct epochs *epochs = context;
  if (epoch > epochs->highest_asked) epochs->highest_asked = epoch;
  *chunks = epochs->totals[epoch];
  return PLM_OK;
}

static void consume(struct plm_data_cursor *cursor, uint32_t chunks, uint8_t fill,
                    struct epochs *epochs)
{
  uint8_t tokens[64 * LENGTH];
  uint32_t begin[65];
  struct plm_chunk_document documents[64];
  memset(tokens, fill, sizeof tokens);
  for (uint32_t i = 0; i <= chunks; i++) begin[i] = i;
  for (uint32_t i = 0; i < chunks; i++)
    documents[i] = (struct plm_chunk_document){.number = i, .tokens = LENGTH, .residues = 6};
  const struct plm_batch batch = {.chunks = chunks,
                                  .max_length = LENGTH,
                                  .token_bytes = 1,
                                  .tokens = tokens,
                                  .document_begin = begin,
                                  .documents = documents};
  assert_int_equal(plm_data_cursor_consume(cursor, &batch, epoch_total, epochs, NULL), PLM_OK);
}

static void expect_position(const struct plm_data_cursor *cursor, uint64_t epoch, uint64_t chunk)
{
  uint64_t at_epoch, at_chunk;
  plm_data_cursor_position(cursor, &at_epoch, &at_chunk);
  assert_int_equal(at_epoch, epoch);
  assert_int_equal(at_chunk, chunk);
}

static void a_batch_spans_as_many_epochs_as_it_needs(void **state)
{
  (void)state;
  static const uint64_t totals[] = {3, 2, 4, 10, 10};
  struct epochs epochs = {totals, 0};
  struct plm_data_cursor cursor;
  assert_int_equal(plm_data_cursor_init(&cursor, (struct plm_hash){1, 2}, 7, NULL), PLM_OK);
  expect_position(&cursor, 0, 0);
  assert_true(plm_data_cursor_epochs(&cursor) == 0);
  consume(&cursor, 2, 1, &epochs);
  expect_position(&cursor, 0, 2);
  assert_true(plm_data_cursor_epochs(&cursor) == 2.0 / 3);
  consume(&cursor, 1, 1, &epochs);
  expect_position(&cursor, 1, 0);
  assert_true(plm_data_cursor_epochs(&cursor) == 1);
  assert_int_equal(epochs.highest_asked,
                   0); /* the size of an epoch is not asked for before it begins */
  consume(&cursor, 8, 1, &epochs);
  expect_position(&cursor, 3, 2);
  assert_true(plm_data_cursor_epochs(&cursor) == 3.2);
  cursor.current_total = 0; /* as after a resume */
  assert_true(isnan(plm_data_cursor_epochs(&cursor)));
  assert_int_equal(cursor.epoch_count, 3);
  assert_int_equal(cursor.chunks, 11);
  plm_data_cursor_deinit(&cursor);
}

static void the_chain_tells_content_and_order(void **state)
{
  (void)state;
  static const uint64_t totals[] = {1000};
  static const uint8_t fills[][2] = {{1, 2}, {2, 1}, {1, 3}, {1, 2}};
  struct plm_hash chains[4];
  for (size_t i = 0; i < 4; i++) {
    struct epochs epochs = {totals, 0};
    struct plm_data_cursor cursor;
    assert_int_equal(plm_data_cursor_init(&cursor, (struct plm_hash){1, 2}, 7, NULL), PLM_OK);
    consume(&cursor, 2, fills[i][0], &epochs);
    consume(&cursor, 2, fills[i][1], &epochs);
    chains[i] = cursor.chain;
    plm_data_cursor_deinit(&cursor);
  }
  assert_false(plm_hash_equal(chains[0], chains[1]));
  assert_false(plm_hash_equal(chains[0], chains[2]));
  assert_true(plm_hash_equal(chains[0], chains[3]));
}

static plm_status total_of_source(void *context, uint32_t source, uint64_t epoch, uint64_t *chunks,
                                  struct plm_error *error)
{
  const uint64_t *totals = context;
  (void)epoch;
  (void)error;
  *chunks = totals[source];
  return PLM_OK;
}

/* A run on one corpus gets a second source; both positions move and come back from JSON. */
static void a_mixture_has_a_position_for_each_source(void **state)
{
  static const uint64_t first_totals[] = {3, 3, 3};
  static uint64_t totals[] = {3, 5};
  static const struct plm_hash plans[] = {{1, 2}, {3, 4}}, fingerprints[] = {{5, 6}, {7, 8}};
  static const uint8_t sources[] = {0, 1, 1, 0, 1, 1, 1, 1};
  static const uint8_t tokens[8 * LENGTH];
  static const uint32_t begin[9];
  const struct plm_mixture mixture = {.count = 2, .weights = {1, 3}, .final_weights = {-1, -1}};
  struct epochs epochs = {first_totals, 0};
  struct plm_data_cursor cursor, back;
  struct plm_batch batch = {.chunks = 8,
                            .max_length = LENGTH,
                            .token_bytes = 1,
                            .tokens = tokens,
                            .document_begin = begin,
                            .sources = sources};
  (void)state;
  assert_int_equal(plm_data_cursor_init(&cursor, plans[0], 7, NULL), PLM_OK);
  consume(&cursor, 8, 1, &epochs);
  assert_int_equal(plm_data_cursor_add_sources(&cursor, 2, plans, fingerprints, NULL), PLM_OK);
  assert_int_equal(plm_mixture_history_add(&cursor.mixture, 0, 8, &mixture, NULL), PLM_OK);
  expect_position(&cursor.sources[0], 2, 2);
  expect_position(&cursor.sources[1], 0, 0);
  const struct plm_hash before = cursor.chain;
  assert_int_equal(plm_data_cursor_consume(&cursor, &batch, total_of_source, totals, NULL), PLM_OK);
  assert_false(plm_hash_equal(before, cursor.chain));
  assert_int_equal(cursor.chunks, 16);
  expect_position(&cursor.sources[0], 3, 1);
  expect_position(&cursor.sources[1], 1, 1);
  cJSON *made = plm_data_cursor_to_json(&cursor);
  char *text = cJSON_PrintUnformatted(made);
  cJSON *json = cJSON_Parse(text);
  assert_int_equal(plm_data_cursor_init(&back, plans[0], 7, NULL), PLM_OK);
  assert_int_equal(plm_data_cursor_from_json(&back, json, NULL), PLM_OK);
  assert_int_equal(back.source_count, 2);
  expect_position(&back.sources[0], 3, 1);
  expect_position(&back.sources[1], 1, 1);
  assert_true(plm_hash_equal(back.chain, cursor.chain));
  assert_true(plm_hash_equal(back.sources[1].fingerprint, fingerprints[1]));
  plm_data_cursor_deinit(&back);
  cJSON_SetNumberValue(cJSON_GetObjectItem(json, "chunks"), 17); /* more than the sources have */
  assert_int_equal(plm_data_cursor_init(&back, plans[0], 7, NULL), PLM_OK);
  assert_int_equal(plm_data_cursor_from_json(&back, json, NULL), PLM_FORMAT);
  plm_data_cursor_deinit(&back);
  plm_data_cursor_deinit(&cursor);
  cJSON_free(text);
  cJSON_Delete(made);
  cJSON_Delete(json);
}

static void json_brings_back_the_same_cursor(void **state)
{
  (void)state;
  static const uint64_t totals[] = {3, 2, 4, 10};
  struct epochs epochs = {totals, 0};
  struct plm_data_cursor cursor, back, other;
  struct plm_error error = {0};
  assert_int_equal(plm_data_cursor_init(&cursor, (struct plm_hash){1, 2}, UINT64_MAX, NULL),
                   PLM_OK);
  consume(&cursor, 7, 5, &epochs);
  cJSON *json = plm_data_cursor_to_json(&cursor);
  char *text = cJSON_Print(json);
  cJSON_Delete(json);
  assert_non_null(strstr(text, "18446744073709551615"));
  json = cJSON_Parse(text);
  assert_int_equal(plm_data_cursor_init(&back, (struct plm_hash){1, 2}, UINT64_MAX, NULL), PLM_OK);
  assert_int_equal(plm_data_cursor_from_json(&back, json, NULL), PLM_OK);
  consume(&cursor, 4, 6, &epochs);
  consume(&back, 4, 6, &epochs);
  assert_true(plm_hash_equal(cursor.chain, back.chain));
  assert_int_equal(cursor.epoch_count, back.epoch_count);
  assert_int_equal(cursor.passed, back.passed);

  assert_int_equal(plm_data_cursor_init(&other, (struct plm_hash){1, 3}, 0, NULL), PLM_OK);
  assert_int_equal(plm_data_cursor_from_json(&other, json, &error), PLM_OK);
  assert_int_equal(plm_data_cursor_check_plan(&other, (struct plm_hash){1, 3}, &error), PLM_CONFIG);
  assert_int_equal(plm_data_cursor_check_plan(&other, (struct plm_hash){1, 2}, &error), PLM_OK);
  cJSON_ReplaceItemInObject(json, "chunks", cJSON_CreateNumber(1.5));
  assert_int_equal(plm_data_cursor_from_json(&back, json, NULL), PLM_FORMAT);
  cJSON_ReplaceItemInObject(json, "chunks", cJSON_CreateNumber(2));
  assert_int_equal(plm_data_cursor_from_json(&back, json, NULL), PLM_FORMAT);
  cJSON_Delete(json);
  free(text);
  plm_data_cursor_deinit(&cursor);
  plm_data_cursor_deinit(&back);
  plm_data_cursor_deinit(&other);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_batch_spans_as_many_epochs_as_it_needs),
      cmocka_unit_test(the_chain_tells_content_and_order),
      cmocka_unit_test(a_mixture_has_a_position_for_each_source),
      cmocka_unit_test(json_brings_back_the_same_cursor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
