/* trainer/input/data_cursor: the place of the next chunk, the hash over what was consumed, and
 * JSON. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/support/harness/cmocka_all.h"
#include "trainer/input/data_cursor.h"

enum { LENGTH = 8 };

/* Consumes chunks of one corpus; `next` is the position after them. */
static void consume(struct plm_data_cursor *cursor, uint32_t chunks, uint8_t fill,
                    struct plm_feed_position next)
{
  static const uint8_t sources[64];
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
                                  .documents = documents,
                                  .sources = sources};
  plm_data_cursor_consume(cursor, &batch, &next);
}

static void expect_place(const struct plm_data_source *source, uint64_t epoch, uint64_t window,
                         uint64_t before, uint64_t chunk)
{
  const struct plm_plan_place *place = &source->next.place;
  assert_int_equal(place->epoch, epoch);
  assert_int_equal(place->window, window);
  assert_int_equal(place->before, before);
  assert_int_equal(place->chunk, chunk);
}

static struct plm_data_cursor new_cursor(void)
{
  struct plm_data_cursor cursor;
  plm_data_cursor_init(&cursor, (struct plm_hash){1, 2}, 7);
  return cursor;
}

/* An epoch has three windows, whose chunks are 4, 5 and 2 in the first epoch. */
static void each_batch_sets_the_place_after_it(void **state)
{
  (void)state;
  static const struct {
    uint32_t chunks;
    struct plm_feed_position next;
    double epochs;
  } steps[] = {
      {3, {{0, 0, 0, 3}, 3, 4}, 0.25},               /* within a window */
      {1, {{0, 1, 4, 0}, 3, 0}, 1.0 / 3},            /* its end; the next one is not known yet */
      {1, {{0, 1, 4, 1}, 3, 5}, (1 + 1.0 / 5) / 3},  /* its first chunk */
      {5, {{0, 2, 9, 1}, 3, 2}, (2 + 1.0 / 2) / 3},  /* over an end */
      {1, {{1, 0, 0, 0}, 3, 6}, 1},                  /* the end of the epoch */
      {40, {{4, 2, 7, 3}, 3, 4}, 4 + (2 + .75) / 3}, /* several epochs */
  };
  struct plm_data_cursor cursor = new_cursor();
  uint64_t chunks = 0;
  expect_place(&cursor.sources[0], 0, 0, 0, 0);
  assert_true(plm_data_cursor_epochs(&cursor) == 0);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    const struct plm_plan_place *place = &steps[i].next.place;
    consume(&cursor, steps[i].chunks, 1, steps[i].next);
    chunks += steps[i].chunks;
    assert_int_equal(cursor.chunks, chunks);
    expect_place(&cursor.sources[0], place->epoch, place->window, place->before, place->chunk);
    assert_true(plm_data_cursor_epochs(&cursor) == steps[i].epochs);
  }
  plm_data_cursor_deinit(&cursor);
}

/* As after a resume: only what the place itself says. */
static void epochs_are_known_where_the_place_tells_them(void **state)
{
  (void)state;
  static const struct {
    struct plm_feed_position next;
    double epochs; /* negative: not known */
  } cases[] = {
      {{{3, 0, 0, 0}, 0, 0}, 3},     {{{3, 0, 0, 1}, 0, 0}, -1}, {{{3, 1, 9, 0}, 0, 0}, -1},
      {{{3, 1, 9, 0}, 4, 0}, 3.25},  {{{3, 1, 9, 1}, 4, 0}, -1}, {{{3, 1, 9, 1}, 0, 2}, -1},
      {{{3, 1, 9, 1}, 4, 2}, 3.375},
  };
  struct plm_data_cursor cursor = new_cursor();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cursor.sources[0].next = cases[i].next;
    const double epochs = plm_data_cursor_epochs(&cursor);
    assert_true(cases[i].epochs < 0 ? isnan(epochs) : epochs == cases[i].epochs);
  }
  plm_data_cursor_deinit(&cursor);
}

static void the_chain_tells_content_and_order(void **state)
{
  (void)state;
  static const uint8_t fills[][2] = {{1, 2}, {2, 1}, {1, 3}, {1, 2}};
  struct plm_hash chains[4];
  for (size_t i = 0; i < 4; i++) {
    struct plm_data_cursor cursor = new_cursor();
    consume(&cursor, 2, fills[i][0], (struct plm_feed_position){{0, 0, 0, 2}, 1, 9});
    consume(&cursor, 2, fills[i][1], (struct plm_feed_position){{0, 0, 0, 4}, 1, 9});
    chains[i] = cursor.chain;
    plm_data_cursor_deinit(&cursor);
  }
  assert_false(plm_hash_equal(chains[0], chains[1]));
  assert_false(plm_hash_equal(chains[0], chains[2]));
  assert_true(plm_hash_equal(chains[0], chains[3]));
}

/* ---- mixtures ------------------------------------------------------------------------------ */

static cJSON *json_of(const struct plm_data_cursor *cursor)
{
  cJSON *made = plm_data_cursor_to_json(cursor);
  char *text = cJSON_PrintUnformatted(made);
  cJSON *json = cJSON_Parse(text); /* numbers that were printed as text */
  assert_non_null(json);
  cJSON_free(text);
  cJSON_Delete(made);
  return json;
}

static const struct plm_hash plans[] = {{1, 2}, {3, 4}, {5, 6}},
                             fingerprints[] = {{5, 6}, {7, 8}, {9, 10}};

/* A run on one corpus that took 8 chunks gets two more sources, and 8 chunks of the first two. */
static struct plm_data_cursor new_mixture(void)
{
  static const uint8_t sources[] = {0, 1, 1, 0, 1, 1, 1, 1}, tokens[8 * LENGTH];
  static const uint32_t begin[9];
  static const struct plm_feed_position next[PLM_MAX_SOURCES] = {
      {{3, 0, 0, 1}, 1, 3}, {{1, 1, 3, 1}, 2, 2}, {{9, 9, 9, 9}, 9, 9}};
  const struct plm_mixture mixture = {
      .count = 3, .weights = {1, 3, 1}, .final_weights = {-1, -1, -1}};
  const struct plm_batch batch = {.chunks = 8,
                                  .max_length = LENGTH,
                                  .token_bytes = 1,
                                  .tokens = tokens,
                                  .document_begin = begin,
                                  .sources = sources};
  struct plm_data_cursor cursor = new_cursor();
  consume(&cursor, 8, 1, (struct plm_feed_position){{2, 0, 0, 2}, 1, 3});
  for (int k = 0; k < 3; k++) {
    cursor.sources[k].plan = plans[k];
    cursor.sources[k].fingerprint = fingerprints[k];
  }
  cursor.source_count = 3;
  cursor.mixed = true;
  plm_mixture_history_add(&cursor.mixture, 0, 8, &mixture);
  expect_place(&cursor.sources[0], 2, 0, 0, 2);
  expect_place(&cursor.sources[1], 0, 0, 0, 0);
  assert_int_equal(cursor.sources[0].chunks, 8);
  assert_true(plm_data_cursor_epochs(&cursor) == 2 + 2.0 / 3);
  const struct plm_hash before = cursor.chain;
  plm_data_cursor_consume(&cursor, &batch, next);
  assert_false(plm_hash_equal(before, cursor.chain));
  return cursor;
}

static void a_mixture_has_a_place_for_each_source(void **state)
{
  (void)state;
  struct plm_data_cursor cursor = new_mixture(), back = new_cursor();
  assert_int_equal(cursor.chunks, 16);
  assert_true(plm_data_cursor_epochs(&cursor) == 3 + 1.0 / 3); /* of the first */
  cJSON *json = json_of(&cursor);
  assert_null(cJSON_GetObjectItem(json, "epoch")); /* each source has its own */
  assert_int_equal(plm_data_cursor_from_json(&back, json, NULL), PLM_OK);
  const struct plm_data_cursor *const both[] = {&cursor, &back};
  for (int i = 0; i < 2; i++) {
    const struct plm_data_source *of = both[i]->sources;
    assert_int_equal(both[i]->source_count, 3);
    assert_int_equal(both[i]->chunks, 16);
    assert_int_equal(of[0].chunks, 10);
    assert_int_equal(of[1].chunks, 6);
    assert_int_equal(of[2].chunks, 0);
    expect_place(&of[0], 3, 0, 0, 1);
    expect_place(&of[1], 1, 1, 3, 1);
    expect_place(&of[2], 0, 0, 0, 0); /* the batch had none of it */
    for (int k = 0; k < 3; k++) {
      assert_true(plm_hash_equal(of[k].plan, plans[k]));
      assert_true(plm_hash_equal(of[k].fingerprint, fingerprints[k]));
    }
  }
  assert_true(plm_hash_equal(back.chain, cursor.chain));
  assert_int_equal(back.sources[1].next.windows, 0);
  assert_true(isnan(plm_data_cursor_epochs(&back)));
  plm_data_cursor_deinit(&back);
  plm_data_cursor_deinit(&cursor);
  cJSON_Delete(json);
}

static void refuse(cJSON *json, const char *what)
{
  struct plm_data_cursor back = new_cursor();
  struct plm_error error = {0};
  assert_int_equal(plm_data_cursor_from_json(&back, json, &error), PLM_FORMAT);
  assert_string_equal(error.what, what);
  plm_data_cursor_deinit(&back);
}

static void sources_must_add_up(void **state)
{
  (void)state;
  static const char wrong[] = "the cursor's sources do not add up to it";
  struct plm_data_cursor cursor = new_mixture();
  cJSON *json = json_of(&cursor),
        *first = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "sources"), 0);
  for (int chunks = 15; chunks <= 17; chunks += 2) {
    cJSON_SetNumberValue(cJSON_GetObjectItem(json, "chunks"), chunks);
    refuse(json, wrong);
  }
  cJSON_ReplaceItemInObject(json, "chunks", cJSON_CreateString("16"));
  refuse(json, "the cursor's \"chunks\" is not a count");
  cJSON_ReplaceItemInObject(json, "chunks", cJSON_CreateNumber(16));
  cJSON_DeleteItemFromObject(first, "window");
  refuse(json, "the cursor's \"window\" is not a count");
  cJSON_AddNumberToObject(first, "window", 0);
  cJSON_DeleteItemFromArray(cJSON_GetObjectItem(json, "sources"), 2); /* it had no chunks */
  refuse(json, wrong);
  cJSON *list = cJSON_CreateArray();
  cJSON_ReplaceItemInObject(json, "sources", list);
  refuse(json, "the cursor's sources are not a list of 1 to 16");
  for (int k = 0; k < 17; k++) cJSON_AddItemToArray(list, cJSON_CreateObject());
  refuse(json, "the cursor's sources are not a list of 1 to 16");
  cJSON_DeleteItemFromArray(list, 0); /* as many as there may be, so the first is looked at */
  refuse(json, "the cursor has no plan");
  cJSON_DeleteItemFromObject(json, "sources");
  refuse(json, "the cursor's sources are not a list of 1 to 16");
  plm_data_cursor_deinit(&cursor);
  cJSON_Delete(json);
}

/* The plan of a mixture is that of all its parts. */
static void each_part_of_a_mixture_changes_its_plan(void **state)
{
  (void)state;
  struct plm_data_cursor cursor = new_mixture();
  struct plm_mixture *mixture = &cursor.mixture.parts[cursor.mixture.count - 1].mixture;
  const struct plm_hash plan = plm_data_cursor_plan(&cursor);
  mixture->steps++;
  assert_false(plm_hash_equal(plm_data_cursor_plan(&cursor), plan));
  mixture->steps--;
  mixture->weights[1] += 1;
  assert_false(plm_hash_equal(plm_data_cursor_plan(&cursor), plan));
  mixture->weights[1] -= 1;
  mixture->final_weights[1] += 1;
  assert_false(plm_hash_equal(plm_data_cursor_plan(&cursor), plan));
  mixture->final_weights[1] -= 1;
  cursor.sources[1].fingerprint.low++;
  assert_false(plm_hash_equal(plm_data_cursor_plan(&cursor), plan));
  cursor.sources[1].fingerprint.low--;
  cursor.sources[1].plan.low++;
  assert_false(plm_hash_equal(plm_data_cursor_plan(&cursor), plan));
  plm_data_cursor_deinit(&cursor);
}

/* Each source of an older checkpoint has totals, and above them there is an empty list. */
static void an_older_mixture_is_read(void **state)
{
  (void)state;
  static const int totals[][3] = {{3, 3, 3}, {5}, {0}}; /* up to a 0 */
  struct plm_data_cursor cursor = new_mixture(), back = new_cursor();
  cJSON *json = json_of(&cursor);
  cJSON_AddArrayToObject(json, "epoch_totals");
  for (int k = 0; k < 3; k++) {
    cJSON *source = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "sources"), k);
    static const char *const names[] = {"epoch", "window", "window_begin", "window_chunk"};
    for (int i = 0; i < 4; i++) cJSON_DeleteItemFromObject(source, names[i]);
    cJSON *list = cJSON_AddArrayToObject(source, "epoch_totals");
    for (int i = 0; i < 3 && totals[k][i] > 0; i++)
      cJSON_AddItemToArray(list, cJSON_CreateNumber(totals[k][i]));
  }
  assert_int_equal(plm_data_cursor_from_json(&back, json, NULL), PLM_OK);
  expect_place(&back.sources[0], 3, 0, 0, 1);
  expect_place(&back.sources[1], 1, 0, 0, 1);
  expect_place(&back.sources[2], 0, 0, 0, 0);
  plm_data_cursor_deinit(&back);
  plm_data_cursor_deinit(&cursor);
  cJSON_Delete(json);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void json_brings_back_the_same_cursor(void **state)
{
  (void)state;
  struct plm_data_cursor cursor, back = new_cursor(), other;
  struct plm_error error = {0};
  plm_data_cursor_init(&cursor, (struct plm_hash){1, 2}, UINT64_MAX);
  consume(&cursor, 20, 5, (struct plm_feed_position){{2, 3, 7, 1}, 4, 2});
  cJSON *made = plm_data_cursor_to_json(&cursor);
  char *text = cJSON_PrintUnformatted(made);
  assert_non_null(strstr(text,
                         "\"seed\":18446744073709551615,\"chunks\":20,\"epoch\":2,\"window\":3,"
                         "\"window_begin\":7,\"window_chunk\":1,\"chain\":"));
  cJSON_free(text);
  cJSON_Delete(made);
  cJSON *json = json_of(&cursor);
  assert_int_equal(plm_data_cursor_from_json(&back, json, NULL), PLM_OK);
  assert_int_equal(back.chunks, 20);
  expect_place(&back.sources[0], 2, 3, 7, 1);
  assert_true(isnan(plm_data_cursor_epochs(&back)));
  const struct plm_feed_position next = {{3, 0, 0, 0}, 4, 0};
  consume(&cursor, 4, 6, next);
  consume(&back, 4, 6, next);
  assert_true(plm_hash_equal(cursor.chain, back.chain));
  assert_true(plm_data_cursor_epochs(&back) == 3);

  plm_data_cursor_init(&other, (struct plm_hash){1, 3}, 0);
  assert_int_equal(plm_data_cursor_from_json(&other, json, &error), PLM_OK);
  assert_int_equal(plm_data_source_check_plan(&other.sources[0], (struct plm_hash){1, 3}, &error),
                   PLM_CONFIG);
  assert_int_equal(plm_data_source_check_plan(&other.sources[0], (struct plm_hash){1, 2}, &error),
                   PLM_OK);
  cJSON_Delete(json);
  plm_data_cursor_deinit(&cursor);
  plm_data_cursor_deinit(&back);
  plm_data_cursor_deinit(&other);
}

/* The cursor of this text, of which only what matters here is given. */
static plm_status read_text(const char *text, struct plm_data_cursor *cursor,
                            struct plm_error *error)
{
  cJSON *json = cJSON_Parse(text);
  assert_non_null(json);
  cJSON_AddNullToObject(json, "plan");
  cJSON_AddNullToObject(json, "fingerprint");
  cJSON_AddNullToObject(json, "chain");
  const plm_status status = plm_data_cursor_from_json(cursor, json, error);
  cJSON_Delete(json);
  return status;
}

/* Chunks, epoch, window, the chunks before it, and the chunk in it. */
static void a_place_fits_the_chunks_consumed(void **state)
{
  (void)state;
  static const char wrong[] =
      "the cursor's epoch, window, window_begin and window_chunk do not fit "
      "the chunks consumed";
  static const struct {
    long long chunks, place[4];
    bool fits;
  } cases[] = {
      {0, {0, 0, 0, 0}, true},
      {5, {0, 0, 0, 5}, true}, /* in the first epoch, it is all of them */
      {5, {0, 2, 4, 1}, true},
      {5, {0, 0, 0, 4}, false},
      {5, {0, 2, 4, 2}, false},
      {5, {0, 0, 1, 4}, false}, /* nothing is before the first window */
      {5, {0, 5, 5, 0}, true},  /* a window has a chunk */
      {5, {0, 6, 5, 0}, false},
      {5, {2, 2, 2, 1}, true}, /* an epoch has a chunk */
      {5, {2, 2, 2, 2}, false},
      {5, {3, 1, 1, 1}, true},
      {5, {4, 1, 1, 1}, false},
      {5, {5, 0, 0, 0}, true},
      {5, {6, 0, 0, 0}, false},
      {9007199254740991, {1, 1, 1, 0}, true}, /* 2^53 - 1 */
      {9007199254740991,
       {9007199254740991, 9007199254740991, 9007199254740991, 9007199254740991},
       false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const long long *place = cases[i].place;
    struct plm_data_cursor cursor = new_cursor();
    struct plm_error error = {0};
    char text[300];
    snprintf(text, sizeof text,
             "{\"chunks\":%lld,\"epoch\":%lld,\"window\":%lld,\"window_begin\":%lld,"
             "\"window_chunk\":%lld}",
             cases[i].chunks, place[0], place[1], place[2], place[3]);
    const plm_status status = read_text(text, &cursor, &error);
    assert_int_equal(status, cases[i].fits ? PLM_OK : PLM_FORMAT);
    if (cases[i].fits)
      expect_place(&cursor.sources[0], (uint64_t)place[0], (uint64_t)place[1], (uint64_t)place[2],
                   (uint64_t)place[3]);
    else
      assert_string_equal(error.what, wrong);
    plm_data_cursor_deinit(&cursor);
  }
}

static void what_is_no_count_is_named(void **state)
{
  (void)state;
  static const char *const names[] = {"chunks", "epoch", "window", "window_begin", "window_chunk"};
  static const char *const values[] = {"null", "-1", "1.5", "\"1\"", "9007199254740992"};
  for (int n = 0; n < 5; n++)
    for (int v = 0; v < 6; v++) {
      cJSON *json = cJSON_CreateObject();
      struct plm_data_cursor cursor = new_cursor();
      struct plm_error error = {0};
      char what[100];
      for (int i = 0; i < 5; i++)
        if (i != n)
          cJSON_AddNumberToObject(json, names[i], 0);
        else if (v < 5) /* else it is missing */
          cJSON_AddRawToObject(json, names[i], values[v]);
      char *text = cJSON_PrintUnformatted(json);
      assert_int_equal(read_text(text, &cursor, &error), PLM_FORMAT);
      snprintf(what, sizeof what, "the cursor's \"%s\" is not a count", names[n]);
      assert_string_equal(error.what, what);
      cJSON_free(text);
      cJSON_Delete(json);
      plm_data_cursor_deinit(&cursor);
    }
}

static void an_older_checkpoint_counts_from_the_epoch(void **state)
{
  (void)state;
  static const char more[] = "epoch_totals exceed the chunks consumed";
  static const char no_count[] = "an entry of epoch_totals is not a positive count";
  static const struct {
    const char *text;
    uint64_t epoch, chunk;
    const char *wrong; /* NULL: it is read */
  } cases[] = {
      {"{\"chunks\":0,\"epoch_totals\":[]}", 0, 0, NULL},
      {"{\"chunks\":9,\"epoch_totals\":[]}", 0, 9, NULL},
      {"{\"chunks\":9,\"epoch_totals\":[3,2]}", 2, 4, NULL},
      {"{\"chunks\":9,\"epoch_totals\":[3,6]}", 2, 0, NULL},
      {"{\"chunks\":9,\"epoch_totals\":[3,7]}", 0, 0, more},
      {"{\"chunks\":9,\"epoch_totals\":[10]}", 0, 0, more},
      {"{\"chunks\":9,\"epoch_totals\":[9,1]}", 0, 0, more},
      {"{\"chunks\":9,\"epoch_totals\":[3,0]}", 0, 0, no_count},
      {"{\"chunks\":9,\"epoch_totals\":[1.5]}", 0, 0, no_count},
      {"{\"chunks\":9,\"epoch_totals\":[\"3\"]}", 0, 0, no_count},
      {"{\"chunks\":9,\"epoch_totals\":3}", 0, 0, "the cursor's epoch_totals are not a list"},
      {"{\"chunks\":-9,\"epoch_totals\":[]}", 0, 0, "the cursor's \"chunks\" is not a count"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_data_cursor cursor = new_cursor();
    struct plm_error error = {0};
    const plm_status status = read_text(cases[i].text, &cursor, &error);
    assert_int_equal(status, cases[i].wrong == NULL ? PLM_OK : PLM_FORMAT);
    if (cases[i].wrong == NULL)
      expect_place(&cursor.sources[0], cases[i].epoch, 0, 0, cases[i].chunk);
    else
      assert_string_equal(error.what, cases[i].wrong);
    plm_data_cursor_deinit(&cursor);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_batch_sets_the_place_after_it),
      cmocka_unit_test(epochs_are_known_where_the_place_tells_them),
      cmocka_unit_test(the_chain_tells_content_and_order),
      cmocka_unit_test(a_mixture_has_a_place_for_each_source),
      cmocka_unit_test(sources_must_add_up),
      cmocka_unit_test(each_part_of_a_mixture_changes_its_plan),
      cmocka_unit_test(an_older_mixture_is_read),
      cmocka_unit_test(json_brings_back_the_same_cursor),
      cmocka_unit_test(a_place_fits_the_chunks_consumed),
      cmocka_unit_test(what_is_no_count_is_named),
      cmocka_unit_test(an_older_checkpoint_counts_from_the_epoch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
