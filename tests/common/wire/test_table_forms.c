/* PROOF's tables are written in the smaller form. */
#include <stdlib.h>
#include <string.h>

#include "common/plan/shuffle.h"
#include "tests/support/corpora/tables_scene.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

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
static const uint8_t *walk_spans(const struct tables_scene *scene, const uint8_t *at,
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
  struct tables_scene scene;
  struct plm_tables tables = {0};
  struct forms forms = {0};
  struct plm_error error = {0};
  uint64_t groups[4];
  tables_scene_open(&scene, clusters, largest, 4);
  const uint32_t count = plm_plan_window_groups(scene.plan, 0, 0, groups);
  tables_scene_write(&scene, 0, 0, 0, count);
  if (tables_scene_read(&scene, 0, 0, count, &tables, &error) != PLM_OK) fail_msg("%s", error.what);
  tables_scene_check(&scene, 0, 0, &tables);
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
  tables_scene_close(&scene);
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_smaller_form_is_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
