/* trainer/data_cursor: finished epochs, the hash over what was consumed, and JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "trainer/data_cursor.h"

enum { LENGTH = 8 };

struct epochs {
  const uint64_t *totals;
  uint64_t highest_asked;
};

static plm_status epoch_total(void *context, uint64_t epoch, uint64_t *chunks,
                              struct plm_error *error)
{
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
  consume(&cursor, 2, 1, &epochs);
  expect_position(&cursor, 0, 2);
  consume(&cursor, 1, 1, &epochs);
  expect_position(&cursor, 1, 0);
  assert_int_equal(epochs.highest_asked,
                   0); /* the size of an epoch is not asked for before it begins */
  consume(&cursor, 8, 1, &epochs);
  expect_position(&cursor, 3, 2);
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
      cmocka_unit_test(json_brings_back_the_same_cursor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
