/* PROOF's tables: what is written is read again, and nothing else is. */
#include "common/wire/tables.h"

#include <stdlib.h>
#include <string.h>

#include "common/plan/shuffle.h"
#include "common/wire/message.h"
#include "tests/support/corpora/tables_scene.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/must.h"

/* ---- what is written is read -------------------------------------------------------------- */

static void each_window_comes_back(void **state)
{
  (void)state;
  static const struct {
    uint64_t items;
    uint32_t largest;
  } splits[] = {{1, 0}, {256, 0}, {257, 0}, {2000, 0}, {1, 1}, {256, 3}, {700, 9}, {900, 60}};
  struct plm_tables tables = {0};
  for (size_t s = 0; s < sizeof splits / sizeof *splits; s++)
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
      struct tables_scene scene;
      tables_scene_open(&scene, splits[s].items, splits[s].largest, 3);
      for (uint64_t w = 0; w < plm_plan_windows(scene.plan); w++) {
        const uint32_t groups = plm_plan_group_count(scene.plan, w);
        struct plm_error error = {0};
        plm_tables_deinit(&tables);
        tables_scene_write(&scene, epoch, w, 0, groups);
        if (tables_scene_read(&scene, epoch, w, groups, &tables, &error))
          fail_msg("%s", error.what);
        assert_int_equal(tables.groups, groups);
        tables_scene_check(&scene, epoch, w, &tables);
      }
      tables_scene_close(&scene);
    }
  plm_tables_deinit(&tables);
  assert_null(tables.begin);
}

/* A window whose tables come in several messages, each as large as the room for it. */
static void a_window_comes_in_parts(void **state)
{
  (void)state;
  for (uint32_t largest = 0; largest <= 40; largest += 40) {
    struct tables_scene scene;
    struct plm_tables tables = {0};
    struct plm_error error = {0};
    uint32_t parts = 0, first = 0;
    tables_scene_open(&scene, 6 * 256 + 5, largest, 16);
    tables_scene_write(&scene, 1, 0, 0, 1);
    const size_t room = scene.size * 5 / 2; /* of two groups */
    while (first < 7) {
      uint32_t count = 7 - first;
      assert_int_equal(plm_tables_write(&scene.split.input,
                                        &(struct plm_tables_window){scene.plan, 1, 0, false}, first,
                                        &count, scene.bytes, room, &scene.size, &error),
                       PLM_OK);
      assert_in_range(count, 1, 7 - first);
      assert_true(scene.size <= room);
      assert_int_equal(tables_scene_read(&scene, 1, 0, count, &tables, &error), PLM_OK);
      first += count;
      parts++;
    }
    assert_in_range(parts, 3, 4);
    tables_scene_check(&scene, 1, 0, &tables);
    plm_tables_deinit(&tables);
    tables_scene_close(&scene);
  }
}

/* A part that does not fit by one byte is left to the next message. */
static void a_message_is_filled_to_its_room(void **state)
{
  (void)state;
  struct tables_scene scene;
  tables_scene_open(&scene, 4 * 256, 0, 16);
  tables_scene_write(&scene, 0, 0, 0, 3);
  const size_t three = scene.size;
  for (size_t less = 0; less < 2; less++) {
    uint32_t count = 4;
    uint8_t *room = must(malloc(three - less)); /* a write beyond it is found */
    assert_int_equal(plm_tables_write(&scene.split.input,
                                      &(struct plm_tables_window){scene.plan, 0, 0, false}, 0,
                                      &count, room, three - less, &scene.size, NULL),
                     PLM_OK);
    assert_int_equal(count, less == 0 ? 3 : 2);
    assert_memory_equal(room, scene.bytes, scene.size);
    free(room);
  }
  tables_scene_close(&scene);
}

static plm_status no_leaves(void *context, uint64_t group, uint32_t lengths[PLM_PROOF_GROUP],
                            struct plm_proof_digest digests[PLM_PROOF_GROUP],
                            struct plm_proof_digest *labels, struct plm_error *error)
{
  (void)context;
  (void)lengths;
  (void)digests;
  (void)labels;
  return plm_error_set(error, PLM_CORRUPT, "group %llu", (unsigned long long)group);
}

static void an_error_of_the_input_is_passed_on(void **state)
{
  (void)state;
  struct tables_scene scene;
  uint32_t count = 1;
  struct plm_error error = {0};
  tables_scene_open(&scene, 9, 0, 1);
  scene.split.input.read = no_leaves;
  assert_int_equal(plm_tables_write(&scene.split.input,
                                    &(struct plm_tables_window){scene.plan, 0, 0, false}, 0, &count,
                                    scene.bytes, PLM_WIRE_PROOF_LIMIT, &scene.size, &error),
                   PLM_CORRUPT);
  assert_string_equal(error.what, "group 0");
  tables_scene_close(&scene);
}

/* ---- what is refused ---------------------------------------------------------------------- */

/* Checks that the payload is refused, and that nothing was added. */
static void assert_refused(const struct tables_scene *scene, uint32_t count, size_t size,
                           const char *what, size_t at)
{
  struct plm_tables tables = {0};
  struct plm_error error = {0};
  const plm_status status =
      tables_scene_read_as(&(struct plm_tables_window){scene->plan, 0, 0, false},
                           &scene->split.split, count, scene->bytes, size, &tables, &error);
  if (status != PLM_PROTOCOL && status != PLM_CORRUPT)
    fail_msg("status %d: %s at %zu", (int)status, what, at);
  assert_int_equal(tables.groups, 0);
  plm_tables_deinit(&tables);
}

/* A small payload of each form. Most bits of the larger ones are left out. */
static void every_damage_is_found(void **state)
{
  (void)state;
  static const struct {
    uint64_t items;
    uint32_t largest, count;
    size_t step;
  } splits[] = {{3, 0, 1, 1},  {258, 0, 2, 97}, {4, 1, 1, 1},
                {5, 90, 1, 1}, {5, 700, 1, 1},  {4, 3000, 1, 1}};
  for (size_t s = 0; s < sizeof splits / sizeof *splits; s++) {
    const uint32_t count = splits[s].count;
    struct tables_scene scene;
    tables_scene_open(&scene, splits[s].items, splits[s].largest, 2);
    tables_scene_write(&scene, 0, 0, 0, count);
    for (size_t size = 0; size < scene.size; size += splits[s].step)
      assert_refused(&scene, count, size, "cut", size);
    for (size_t bit = 0; bit < 8 * scene.size; bit += splits[s].step) {
      scene.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
      assert_refused(&scene, count, scene.size, "a flipped bit", bit);
      scene.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    scene.bytes[scene.size] = 0;
    assert_refused(&scene, count, scene.size + 1, "a byte more", scene.size);
    tables_scene_close(&scene);
  }
}

/* Reads a payload that is refused, with this message. */
static void expect_refusal(const struct tables_scene *scene, const struct plm_proof_split *split,
                           uint32_t count, plm_status status, const char *what)
{
  struct plm_tables tables = {0};
  struct plm_error error = {0};
  assert_int_equal(tables_scene_read_as(&(struct plm_tables_window){scene->plan, 0, 0, false},
                                        split, count, scene->bytes, scene->size, &tables, &error),
                   status);
  assert_string_equal(error.what, what);
  plm_tables_deinit(&tables);
}

/* All that is written of another corpus fits together. */
static void another_corpus_is_refused(void **state)
{
  (void)state;
  struct tables_scene scene;
  struct proven_split ours;
  struct plm_proof_split mixed;
  tables_scene_open(&scene, 20, 4, 1);
  proven_split_open(&ours, PLM_TOKENIZER_ESM, 7, &scene.of); /* with other sequences */
  tables_scene_write(&scene, 0, 0, 0, 1);
  expect_refusal(&scene, &ours.split, 1, PLM_CORRUPT,
                 "documents 0.. are not what the corpus's fingerprint proves");
  proven_split_close(&ours);
  mixed = scene.split.split; /* with other clusters */
  mixed.cluster_root[31] ^= 1;
  expect_refusal(&scene, &mixed, 1, PLM_CORRUPT,
                 "the sizes of clusters 0.. are not those that the corpus's fingerprint proves");
  mixed = scene.split.split;
  mixed.sum++;
  expect_refusal(&scene, &mixed, 1, PLM_CORRUPT,
                 "the sizes of clusters 0.. are not those that the corpus's fingerprint proves");
  tables_scene_close(&scene);
}

/* Clusters without documents, which are proven nevertheless. */
static void an_empty_cluster_is_refused(void **state)
{
  (void)state;
  static const uint32_t lengths[] = {5, 6, 7};
  static const uint32_t sizes[] = {2, 0, 1};
  struct tables_scene scene;
  tables_scene_open(&scene, 3, 1, 1);
  proven_split_close(&scene.split);
  const struct known_split of = {lengths, 3, sizes, 3};
  proven_split_open(&scene.split, PLM_TOKENIZER_ESM, 6, &of);
  tables_scene_write(&scene, 0, 0, 0, 1);
  expect_refusal(&scene, &scene.split.split, 1, PLM_CORRUPT,
                 "the sizes of clusters 0.. are not those that the corpus's fingerprint proves");
  tables_scene_close(&scene);
}

static void what_is_malformed(void **state)
{
  (void)state;
  struct tables_scene scene;
  tables_scene_open(&scene, 3, 0, 1);
  tables_scene_write(&scene, 0, 0, 0, 1);
  const struct plm_proof_split *split = &scene.split.split;
  scene.bytes[12] = 3; /* the kind */
  expect_refusal(&scene, split, 1, PLM_PROTOCOL, "PROOF has kind 3 for group 0");
  scene.bytes[12] = 0;
  expect_refusal(&scene, split, 1, PLM_PROTOCOL, "PROOF has kind 0 for group 0");
  scene.bytes[12] = 1;
  scene.bytes[8] = 0; /* the number of groups */
  expect_refusal(&scene, split, 1, PLM_PROTOCOL, "PROOF has a span of 0 groups from 0");
  memset(scene.bytes + 8, 0xff, 4);
  expect_refusal(&scene, split, 1, PLM_PROTOCOL, "PROOF has a span of 4294967295 groups from 0");
  memcpy(scene.bytes + 8, "\1\0\0", 4);
  scene.bytes[7] = 1; /* the first group */
  expect_refusal(&scene, split, 1, PLM_PROTOCOL,
                 "PROOF has a span of 1 groups from 72057594037927936");
  scene.bytes[7] = 0;
  scene.size++;
  expect_refusal(&scene, split, 1, PLM_PROTOCOL, "PROOF has 1 bytes too many");
  scene.size -= 2;
  expect_refusal(&scene, split, 1, PLM_PROTOCOL, "PROOF ends early");
  tables_scene_close(&scene);
}

/* After a false part, the tables are what they were before it, and the true one is added. */
static void a_false_part_adds_nothing(void **state)
{
  (void)state;
  struct tables_scene scene;
  struct plm_tables tables = {0};
  tables_scene_open(&scene, 3 * 256, 3, 3);
  tables_scene_write(&scene, 0, 0, 0, 1);
  assert_int_equal(tables_scene_read(&scene, 0, 0, 1, &tables, NULL), PLM_OK);
  tables_scene_write(&scene, 0, 0, 1, 2);
  scene.bytes[scene.size - 1] ^= 1; /* in the second of two groups */
  assert_int_not_equal(tables_scene_read(&scene, 0, 0, 2, &tables, NULL), PLM_OK);
  assert_int_equal(tables.groups, 1);
  scene.bytes[scene.size - 1] ^= 1;
  assert_int_not_equal(tables_scene_read(&scene, 0, 0, 1, &tables, NULL),
                       PLM_OK); /* another number of groups than there are */
  assert_int_equal(tables.groups, 1);
  assert_int_equal(tables_scene_read(&scene, 0, 0, 2, &tables, NULL), PLM_OK);
  tables_scene_check(&scene, 0, 0, &tables);
  plm_tables_deinit(&tables);
  tables_scene_close(&scene);
}

/* A packer that says that there are many groups cannot make the reader take their memory. */
static void no_memory_is_taken_for_groups_that_are_not_there(void **state)
{
  (void)state;
  const uint64_t documents = UINT64_C(256) << 16;
  const struct plm_plan_parameters p = {
      .max_length = 64, .alignment = 1, .window_groups = PLM_PLAN_MAX_WINDOW_GROUPS};
  const struct plm_proof_split split = {.documents = documents};
  static const uint8_t payload[5000];
  struct plm_plan *plan;
  struct plm_tables tables = {0};
  assert_int_equal(plm_plan_open(&p, documents, 0, &plan, NULL), PLM_OK);
  assert_int_equal(plm_tables_read(&(struct plm_tables_window){plan, 0, 0, false}, &split,
                                   PLM_PLAN_MAX_WINDOW_GROUPS, payload, sizeof payload, &tables,
                                   NULL),
                   PLM_PROTOCOL);
  assert_null(tables.numbers);
  plm_tables_deinit(&tables);
  plm_plan_close(plan);
}

/* Tables of another window or epoch have other documents. */
static void another_place_is_refused(void **state)
{
  (void)state;
  struct tables_scene scene;
  struct plm_tables tables = {0};
  tables_scene_open(&scene, 2 * 256, 7, 1);
  tables_scene_write(&scene, 0, 0, 0, 1);
  assert_int_not_equal(tables_scene_read(&scene, 0, 1, 1, &tables, NULL), PLM_OK);
  assert_int_not_equal(tables_scene_read(&scene, 1, 1, 1, &tables, NULL), PLM_OK);
  assert_int_equal(tables_scene_read(&scene, 0, 0, 1, &tables, NULL), PLM_OK);
  plm_tables_deinit(&tables);
  tables_scene_close(&scene);
}

static plm_status read_window(void *context, struct plm_error *error)
{
  const struct tables_scene *scene = context;
  const struct plm_tables_window of = {scene->plan, 0, 0, false};
  struct plm_tables tables = {0};
  const plm_status status =
      plm_tables_read(&of, &scene->split.split, 3, scene->bytes, scene->size, &tables, error);
  plm_tables_deinit(&tables);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  for (uint32_t largest = 0; largest < 10; largest += 9) { /* with clusters, there are spans */
    struct tables_scene scene;
    tables_scene_open(&scene, 700, largest, 3);
    tables_scene_write(&scene, 0, 0, 0, 3);
    failing_memory_try(read_window, &scene, 5);
    tables_scene_close(&scene);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_window_comes_back),
      cmocka_unit_test(a_window_comes_in_parts),
      cmocka_unit_test(a_message_is_filled_to_its_room),
      cmocka_unit_test(an_error_of_the_input_is_passed_on),
      cmocka_unit_test(every_damage_is_found),
      cmocka_unit_test(another_corpus_is_refused),
      cmocka_unit_test(an_empty_cluster_is_refused),
      cmocka_unit_test(what_is_malformed),
      cmocka_unit_test(a_false_part_adds_nothing),
      cmocka_unit_test(no_memory_is_taken_for_groups_that_are_not_there),
      cmocka_unit_test(another_place_is_refused),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
