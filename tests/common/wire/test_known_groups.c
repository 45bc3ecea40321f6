/* Leaves that were proven, and are not hashed again. */
#include "common/wire/known_groups.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/corpora/tables_scene.h"
#include "tests/support/harness/cmocka_all.h"

enum { LEAF = 20 };

static void only_the_same_leaves_are_known(void **state)
{
  (void)state;
  struct plm_known_groups *known = plm_known_groups_open(2 * 256 + 1, LEAF);
  const struct plm_proof_node root = {.hash = {7, 8, 9}}, other = {.hash = {1}};
  struct plm_proof_node found = other;
  uint8_t leaves[3 * LEAF];
  for (size_t i = 0; i < sizeof leaves; i++) leaves[i] = (uint8_t)(3 * i);
  for (uint64_t group = 0; group < 3; group++)
    assert_false(plm_known_groups_find(known, group, leaves, sizeof leaves, &found));
  plm_known_groups_add(known, 2, leaves, sizeof leaves, &root);
  plm_known_groups_add(known, 2, leaves, sizeof leaves - 1, &other); /* the first one stays */
  for (uint64_t group = 0; group < 2; group++)
    assert_false(plm_known_groups_find(known, group, leaves, sizeof leaves, &found));
  assert_false(plm_known_groups_find(known, 2, leaves, sizeof leaves - 1, &found));
  for (size_t i = 0; i < sizeof leaves; i++) {
    leaves[i] ^= 1;
    assert_false(plm_known_groups_find(known, 2, leaves, sizeof leaves, &found));
    leaves[i] ^= 1;
  }
  assert_memory_equal(&found, &other, sizeof found);
  assert_true(plm_known_groups_find(known, 2, leaves, sizeof leaves, &found));
  assert_memory_equal(&found, &root, sizeof found);
  plm_known_groups_close(known);
}

static void nothing_is_kept_of_a_large_split(void **state)
{
  (void)state;
  const uint64_t most = PLM_KNOWN_GROUPS_MOST / LEAF;
  struct plm_known_groups *known = plm_known_groups_open(most, LEAF);
  assert_non_null(known);
  plm_known_groups_close(known);
  assert_null(plm_known_groups_open(most + 1, LEAF));
  assert_null(plm_known_groups_open(UINT64_MAX, LEAF));
  plm_known_groups_close(NULL);
}

/* Reads group 0 of an epoch. */
static plm_status read_first(const struct tables_scene *scene, struct plm_known_groups *known,
                             uint32_t length)
{
  struct plm_tables tables = {.known = known};
  const plm_status status = tables_scene_read(scene, 0, 0, 1, &tables, NULL);
  if (status == PLM_OK) assert_int_equal(tables.lengths[0], length);
  plm_tables_deinit(&tables);
  return status;
}

/* Only what a path has proven is kept; what is known is read as before; and what differs from it is
 * checked. Of a root that is not that of the leaves, the path finds that it is used. */
static void proven_leaves_are_not_hashed_again(void **state)
{
  (void)state;
  enum { HEAD = 8 + 4 + 1, DOCUMENTS = 256 };
  struct tables_scene scene;
  struct plm_proof_node root, none = {.hash = {1}};
  tables_scene_open(&scene, 2 * DOCUMENTS, 0, 1);
  tables_scene_write(&scene, 0, 0, 0, 1);
  const uint64_t group = scene.bytes[0]; /* of the plan's first */
  const uint32_t length = scene.lengths[DOCUMENTS * group];
  const uint8_t *leaves = scene.bytes + HEAD;
  struct plm_known_groups *known = plm_known_groups_open(2 * DOCUMENTS, LEAF);
  uint8_t *last = &scene.bytes[scene.size - 1]; /* of the path */
  *last ^= 1;
  assert_int_equal(read_first(&scene, known, length), PLM_CORRUPT);
  *last ^= 1;
  assert_false(plm_known_groups_find(known, group, leaves, DOCUMENTS * LEAF, &root));
  assert_int_equal(read_first(&scene, known, length), PLM_OK);
  assert_true(plm_known_groups_find(known, group, leaves, DOCUMENTS * LEAF, &root));
  assert_false(plm_known_groups_find(known, 1 - group, leaves, DOCUMENTS * LEAF, &root));
  assert_int_equal(read_first(&scene, known, length), PLM_OK);
  for (size_t i = 0; i < scene.size; i += i < HEAD || i + 40 > scene.size ? 1 : 97) {
    scene.bytes[i] ^= 1;
    assert_int_not_equal(read_first(&scene, known, length), PLM_OK);
    scene.bytes[i] ^= 1;
  }
  plm_known_groups_close(known);
  known = plm_known_groups_open(2 * DOCUMENTS, LEAF);
  plm_known_groups_add(known, group, leaves, DOCUMENTS * LEAF, &none);
  assert_int_equal(read_first(&scene, known, length), PLM_CORRUPT);
  plm_known_groups_close(known);
  tables_scene_close(&scene);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_the_same_leaves_are_known),
      cmocka_unit_test(nothing_is_kept_of_a_large_split),
      cmocka_unit_test(proven_leaves_are_not_hashed_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
