/* PROOF's tables: what is written is read again, in the smallest form, and nothing else is. */
#include "common/wire/tables.h"

#include <stdlib.h>
#include <string.h>

#include "common/plan/shuffle.h"
#include "common/wire/message.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/must.h"
#include "tests/support/proven_split.h"

/* ---- a split and a plan ------------------------------------------------------------------- */

/* A split, and what both sides know of it. */
struct scene {
  uint32_t *lengths, *clusters;
  struct plm_plan_split of;
  struct proven_split split;
  struct plm_plan *plan;
  uint8_t *bytes; /* PLM_WIRE_PROOF_LIMIT */
  size_t size;
};

/* Lengths are short, because sequences do not matter here. largest: documents of a cluster; 0: the
 * plan takes documents. */
static void scene_open(struct scene *scene, uint64_t items, uint32_t largest, uint32_t groups)
{
  const struct plm_plan_parameters p = {.seed = 9,
                                        .max_length = 64,
                                        .alignment = 1,
                                        .window_groups = groups,
                                        .tokenizer = PLM_TOKENIZER_ESM,
                                        .sampling = largest == 0 ? PLM_SAMPLING_DOCUMENTS
                                                                 : PLM_SAMPLING_CLUSTERS,
                                        .shuffle = true};
  *scene = (struct scene){.of = {.documents = items}, .bytes = must(malloc(PLM_WIRE_PROOF_LIMIT))};
  if (largest != 0) {
    scene->clusters = must(malloc(items * sizeof *scene->clusters));
    scene->of = (struct plm_plan_split){.clusters = scene->clusters, .cluster_count = items};
    for (uint64_t c = 0; c < items; c++)
      scene->of.documents += scene->clusters[c] =
          c % 4 == 3 ? largest : 1 + (uint32_t)(c * 11 % largest);
  }
  scene->lengths = must(malloc(scene->of.documents * sizeof *scene->lengths));
  for (uint64_t d = 0; d < scene->of.documents; d++) scene->lengths[d] = 1 + (uint32_t)(d * d % 40);
  scene->of.lengths = scene->lengths;
  proven_split_open(&scene->split, PLM_TOKENIZER_ESM, 6, &scene->of);
  assert_int_equal(
      plm_plan_open_unread(&p, scene->of.documents, scene->of.cluster_count, &scene->plan, NULL),
      PLM_OK);
}

static void scene_close(struct scene *scene)
{
  plm_plan_close(scene->plan);
  proven_split_close(&scene->split);
  free(scene->lengths);
  free(scene->clusters);
  free(scene->bytes);
}

/* Writes the tables of `count` groups, which must fit. */
static void write_all(struct scene *scene, uint64_t epoch, uint64_t window, uint32_t first,
                      uint32_t count)
{
  uint32_t written = count;
  assert_int_equal(plm_tables_write(&scene->split.source,
                                    &(struct plm_tables_window){scene->plan, epoch, window}, first,
                                    &written, scene->bytes, PLM_WIRE_PROOF_LIMIT, &scene->size,
                                    NULL),
                   PLM_OK);
  assert_int_equal(written, count);
}

/* Reads a payload in an allocation of its size. */
static plm_status read_as(const struct plm_tables_window *of, const struct plm_proof_split *split,
                          uint32_t count, const uint8_t *payload, size_t size,
                          struct plm_tables *tables, struct plm_error *error)
{
  uint8_t *exact = must(malloc(size + (size == 0)));
  memcpy(exact, payload, size);
  const plm_status status = plm_tables_read(of, split, count, exact, size, tables, error);
  free(exact);
  return status;
}

/* Reads what was written last. */
static plm_status read_back(const struct scene *scene, uint64_t epoch, uint64_t window,
                            uint32_t count, struct plm_tables *tables, struct plm_error *error)
{
  const struct plm_tables_window of = {scene->plan, epoch, window};
  return read_as(&of, &scene->split.split, count, scene->bytes, scene->size, tables, error);
}

/* Checks that the tables are what a plan that knows all lengths takes from the window. */
static void check_window(const struct scene *scene, uint64_t epoch, uint64_t window,
                         const struct plm_tables *tables)
{
  struct plm_plan *knows;
  struct plm_window a = {0}, b = {0};
  assert_int_equal(plm_plan_open_split(plm_plan_parameters(scene->plan), &scene->of, &knows, NULL),
                   PLM_OK);
  assert_int_equal(plm_plan_window(knows, epoch, window, &a, NULL), PLM_OK);
  assert_int_equal(
      plm_plan_window_of(scene->plan, epoch, window, plm_tables_group, tables, &b, NULL), PLM_OK);
  assert_int_equal(a.document_count, b.document_count);
  assert_memory_equal(a.documents, b.documents, a.document_count * sizeof *a.documents);
  for (uint32_t i = 0; i < tables->begin[tables->groups]; i++)
    assert_memory_equal(&tables->digests[i], &scene->split.digests[tables->numbers[i]],
                        sizeof *tables->digests);
  plm_window_deinit(&a);
  plm_window_deinit(&b);
  plm_plan_close(knows);
}

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
      struct scene scene;
      scene_open(&scene, splits[s].items, splits[s].largest, 3);
      for (uint64_t w = 0; w < plm_plan_windows(scene.plan); w++) {
        const uint32_t groups = plm_plan_group_count(scene.plan, w);
        struct plm_error error = {0};
        plm_tables_deinit(&tables);
        write_all(&scene, epoch, w, 0, groups);
        if (read_back(&scene, epoch, w, groups, &tables, &error)) fail_msg("%s", error.what);
        assert_int_equal(tables.groups, groups);
        check_window(&scene, epoch, w, &tables);
      }
      scene_close(&scene);
    }
  plm_tables_deinit(&tables);
  assert_null(tables.begin);
}

/* A window whose tables come in several messages, each as large as the room for it. */
static void a_window_comes_in_parts(void **state)
{
  (void)state;
  for (uint32_t largest = 0; largest <= 40; largest += 40) {
    struct scene scene;
    struct plm_tables tables = {0};
    struct plm_error error = {0};
    uint32_t parts = 0, first = 0;
    scene_open(&scene, 6 * 256 + 5, largest, 16);
    write_all(&scene, 1, 0, 0, 1);
    const size_t room = scene.size * 5 / 2; /* of two groups */
    while (first < 7) {
      uint32_t count = 7 - first;
      assert_int_equal(plm_tables_write(&scene.split.source,
                                        &(struct plm_tables_window){scene.plan, 1, 0}, first,
                                        &count, scene.bytes, room, &scene.size, &error),
                       PLM_OK);
      assert_in_range(count, 1, 7 - first);
      assert_true(scene.size <= room);
      assert_int_equal(read_back(&scene, 1, 0, count, &tables, &error), PLM_OK);
      first += count;
      parts++;
    }
    assert_in_range(parts, 3, 4);
    check_window(&scene, 1, 0, &tables);
    plm_tables_deinit(&tables);
    scene_close(&scene);
  }
}

/* A part that does not fit by one byte is left to the next message. */
static void a_message_is_filled_to_its_room(void **state)
{
  (void)state;
  struct scene scene;
  scene_open(&scene, 4 * 256, 0, 16);
  write_all(&scene, 0, 0, 0, 3);
  const size_t three = scene.size;
  for (size_t less = 0; less < 2; less++) {
    uint32_t count = 4;
    uint8_t *room = must(malloc(three - less)); /* a write beyond it is found */
    assert_int_equal(plm_tables_write(&scene.split.source,
                                      &(struct plm_tables_window){scene.plan, 0, 0}, 0, &count,
                                      room, three - less, &scene.size, NULL),
                     PLM_OK);
    assert_int_equal(count, less == 0 ? 3 : 2);
    assert_memory_equal(room, scene.bytes, scene.size);
    free(room);
  }
  scene_close(&scene);
}

static plm_status no_digests(void *context, uint64_t group,
                             struct plm_proof_digest digests[PLM_PROOF_GROUP],
                             struct plm_error *error)
{
  (void)context;
  (void)digests;
  return plm_error_set(error, PLM_CORRUPT, "group %llu", (unsigned long long)group);
}

static void an_error_of_the_source_is_passed_on(void **state)
{
  (void)state;
  struct scene scene;
  uint32_t count = 1;
  struct plm_error error = {0};
  scene_open(&scene, 9, 0, 1);
  scene.split.source.digests = no_digests;
  assert_int_equal(plm_tables_write(&scene.split.source,
                                    &(struct plm_tables_window){scene.plan, 0, 0}, 0, &count,
                                    scene.bytes, PLM_WIRE_PROOF_LIMIT, &scene.size, &error),
                   PLM_CORRUPT);
  assert_string_equal(error.what, "group 0");
  scene_close(&scene);
}

/* ---- forms -------------------------------------------------------------------------------- */

/* Counts of a payload of clusters: a walk through its parts. */
struct forms {
  uint32_t spans, joined, kinds[3];
};

static uint64_t number_at(const uint8_t *at, size_t bytes)
{
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | at[i];
  return value;
}

/* Walks through the spans of a plan's group, whose documents are numbers (count). */
static const uint8_t *walk_spans(const struct scene *scene, const uint8_t *at,
                                 const uint64_t *numbers, uint32_t count, struct forms *forms)
{
  const uint64_t documents = scene->of.documents, groups = (documents - 1) / 256 + 1;
  for (uint32_t next = 0; next < count;) {
    const uint64_t begin = number_at(at, 8), length = number_at(at + 8, 4);
    const struct plm_proof_range range = {begin, begin + length, groups};
    uint32_t roots = 0;
    at += 12;
    for (uint64_t g = begin; g < begin + length; g++) {
      const uint32_t size = g + 1 < groups ? 256 : (uint32_t)(documents - g * 256);
      const uint8_t kind = *at++;
      assert_in_range(kind, 0, 2);
      forms->kinds[kind]++;
      if (kind == 0) at += 32;
      if (kind == 1) at += size * 20;
      roots += kind == 0;
      for (; next < count && numbers[next] / 256 == g; next++) {
        const struct plm_proof_range leaf = {numbers[next] % 256, numbers[next] % 256 + 1, size};
        assert_true(kind != 0);
        if (kind == 2) at += 20 + 32 * plm_proof_path_size(&leaf);
      }
    }
    at += 32 * plm_proof_path_size(&range);
    forms->spans++;
    forms->joined += roots != 0;
  }
  return at;
}

/* Writes window 0 of epoch 0, reads it, and walks through it. */
static struct forms forms_of(uint64_t clusters, uint32_t largest)
{
  struct scene scene;
  struct plm_tables tables = {0};
  struct forms forms = {0};
  struct plm_error error = {0};
  uint64_t groups[4];
  scene_open(&scene, clusters, largest, 4);
  const uint32_t count = plm_plan_window_groups(scene.plan, 0, 0, groups);
  write_all(&scene, 0, 0, 0, count);
  if (read_back(&scene, 0, 0, count, &tables, &error) != PLM_OK) fail_msg("%s", error.what);
  check_window(&scene, 0, 0, &tables);
  const uint8_t *at = scene.bytes;
  for (uint32_t g = 0; g < count; g++) {
    const uint32_t begin = tables.begin[g], needed = tables.begin[g + 1] - begin;
    const struct plm_proof_range range = {groups[g], groups[g] + 1, (clusters - 1) / 256 + 1};
    for (uint32_t c = 0; c < needed; c++, at += 4)
      assert_int_equal(number_at(at, 4), scene.clusters[groups[g] * 256 + c]);
    at += 40 * plm_proof_path_size(&range);
    at = walk_spans(&scene, at, tables.numbers + begin, needed, &forms);
  }
  assert_ptr_equal(at, scene.bytes + scene.size);
  plm_tables_deinit(&tables);
  scene_close(&scene);
  return forms;
}

/* The form depends on how many documents of a group are needed. */
static void the_smaller_form_is_written(void **state)
{
  (void)state;
  static const struct {
    uint64_t clusters;
    uint32_t largest;
    struct forms forms;
  } cases[] = {
      {1024, 1, {4, 0, {0, 4, 0}}},      /* all documents of each group */
      {1024, 5, {4, 0, {0, 16, 1}}},     /* dozens; few in the last one */
      {1024, 60, {4, 0, {0, 0, 155}}},   /* about seven */
      {300, 600, {2, 2, {179, 0, 248}}}, /* one, with small gaps */
      {60, 6000, {20, 12, {64, 0, 54}}}, /* some gaps are too large to be joined */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct forms forms = forms_of(cases[i].clusters, cases[i].largest);
    const struct forms *expected = &cases[i].forms;
    assert_int_equal(forms.spans, expected->spans);
    assert_int_equal(forms.joined, expected->joined);
    for (int kind = 0; kind < 3; kind++) assert_int_equal(forms.kinds[kind], expected->kinds[kind]);
  }
}

/* ---- what is refused ---------------------------------------------------------------------- */

/* Checks that the payload is refused, and that nothing was added. */
static void assert_refused(const struct scene *scene, uint32_t count, size_t size, const char *what,
                           size_t at)
{
  struct plm_tables tables = {0};
  struct plm_error error = {0};
  const plm_status status =
      read_as(&(struct plm_tables_window){scene->plan, 0, 0}, &scene->split.split, count,
              scene->bytes, size, &tables, &error);
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
    struct scene scene;
    scene_open(&scene, splits[s].items, splits[s].largest, 2);
    write_all(&scene, 0, 0, 0, count);
    for (size_t size = 0; size < scene.size; size += splits[s].step)
      assert_refused(&scene, count, size, "cut", size);
    for (size_t bit = 0; bit < 8 * scene.size; bit += splits[s].step) {
      scene.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
      assert_refused(&scene, count, scene.size, "a flipped bit", bit);
      scene.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    scene.bytes[scene.size] = 0;
    assert_refused(&scene, count, scene.size + 1, "a byte more", scene.size);
    scene_close(&scene);
  }
}

/* Reads a payload that is refused, with this message. */
static void expect_refusal(const struct scene *scene, const struct plm_proof_split *split,
                           uint32_t count, plm_status status, const char *what)
{
  struct plm_tables tables = {0};
  struct plm_error error = {0};
  assert_int_equal(read_as(&(struct plm_tables_window){scene->plan, 0, 0}, split, count,
                           scene->bytes, scene->size, &tables, &error),
                   status);
  assert_string_equal(error.what, what);
  plm_tables_deinit(&tables);
}

/* All that is written of another corpus fits together. */
static void another_corpus_is_refused(void **state)
{
  (void)state;
  struct scene scene;
  struct proven_split ours;
  struct plm_proof_split mixed;
  scene_open(&scene, 20, 4, 1);
  proven_split_open(&ours, PLM_TOKENIZER_ESM, 7, &scene.of); /* with other sequences */
  write_all(&scene, 0, 0, 0, 1);
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
  scene_close(&scene);
}

/* Clusters without documents, which are proven nevertheless. */
static void an_empty_cluster_is_refused(void **state)
{
  (void)state;
  static const uint32_t lengths[] = {5, 6, 7};
  static const uint32_t sizes[] = {2, 0, 1};
  struct scene scene;
  scene_open(&scene, 3, 1, 1);
  proven_split_close(&scene.split);
  const struct plm_plan_split of = {lengths, 3, sizes, 3};
  proven_split_open(&scene.split, PLM_TOKENIZER_ESM, 6, &of);
  write_all(&scene, 0, 0, 0, 1);
  expect_refusal(&scene, &scene.split.split, 1, PLM_CORRUPT,
                 "the sizes of clusters 0.. are not those that the corpus's fingerprint proves");
  scene_close(&scene);
}

static void what_is_malformed(void **state)
{
  (void)state;
  struct scene scene;
  scene_open(&scene, 3, 0, 1);
  write_all(&scene, 0, 0, 0, 1);
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
  scene_close(&scene);
}

/* After a false part, the tables are what they were before it, and the true one is added. */
static void a_false_part_adds_nothing(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_tables tables = {0};
  scene_open(&scene, 3 * 256, 3, 3);
  write_all(&scene, 0, 0, 0, 1);
  assert_int_equal(read_back(&scene, 0, 0, 1, &tables, NULL), PLM_OK);
  write_all(&scene, 0, 0, 1, 2);
  scene.bytes[scene.size - 1] ^= 1; /* in the second of two groups */
  assert_int_not_equal(read_back(&scene, 0, 0, 2, &tables, NULL), PLM_OK);
  assert_int_equal(tables.groups, 1);
  scene.bytes[scene.size - 1] ^= 1;
  assert_int_not_equal(read_back(&scene, 0, 0, 1, &tables, NULL),
                       PLM_OK); /* another number of groups than there are */
  assert_int_equal(tables.groups, 1);
  assert_int_equal(read_back(&scene, 0, 0, 2, &tables, NULL), PLM_OK);
  check_window(&scene, 0, 0, &tables);
  plm_tables_deinit(&tables);
  scene_close(&scene);
}

/* A stranger who says that there are many groups cannot make the reader take their memory. */
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
  assert_int_equal(plm_plan_open_unread(&p, documents, 0, &plan, NULL), PLM_OK);
  assert_int_equal(plm_tables_read(&(struct plm_tables_window){plan, 0, 0}, &split,
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
  struct scene scene;
  struct plm_tables tables = {0};
  scene_open(&scene, 2 * 256, 7, 1);
  write_all(&scene, 0, 0, 0, 1);
  assert_int_not_equal(read_back(&scene, 0, 1, 1, &tables, NULL), PLM_OK);
  assert_int_not_equal(read_back(&scene, 1, 1, 1, &tables, NULL), PLM_OK);
  assert_int_equal(read_back(&scene, 0, 0, 1, &tables, NULL), PLM_OK);
  plm_tables_deinit(&tables);
  scene_close(&scene);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_window_comes_back),
      cmocka_unit_test(a_window_comes_in_parts),
      cmocka_unit_test(a_message_is_filled_to_its_room),
      cmocka_unit_test(an_error_of_the_source_is_passed_on),
      cmocka_unit_test(the_smaller_form_is_written),
      cmocka_unit_test(every_damage_is_found),
      cmocka_unit_test(another_corpus_is_refused),
      cmocka_unit_test(an_empty_cluster_is_refused),
      cmocka_unit_test(what_is_malformed),
      cmocka_unit_test(a_false_part_adds_nothing),
      cmocka_unit_test(no_memory_is_taken_for_groups_that_are_not_there),
      cmocka_unit_test(another_place_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
