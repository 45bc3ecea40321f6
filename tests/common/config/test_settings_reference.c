/* The page of all settings: what doc/configuration.md has, and how ranges and sections are said. */
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/config/settings.h"
#include "tests/support/harness/cmocka_all.h"

static void the_page_is_that_of_the_manual(void **state)
{
  char path[PLM_PATH_SIZE], *page;
  size_t size, at = 0, line = 1;
  struct plm_text text = {0};
  (void)state;
  if (getenv("PLM_ROOT") == NULL) skip("PLM_ROOT is not set");
  assert_int_equal(plm_path_join(path, getenv("PLM_ROOT"), "doc/configuration.md", NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &page, &size, NULL), PLM_OK);
  plm_settings_reference(&text);
  while (at < size && at < text.length && page[at] == text.data[at]) line += page[at++] == '\n';
  if (at < size || at < text.length) fail_msg("line %zu differs", line);
  free(page);
  plm_text_deinit(&text);
}

/* A `|` in a cell would end it. */
static void each_row_has_seven_cells(void **state)
{
  struct plm_text text = {0};
  size_t rows = 0, count;
  (void)state;
  (void)plm_settings(&count);
  plm_settings_reference(&text);
  for (const char *line = strstr(text.data, "\n| `"); line != NULL; rows++) {
    size_t bars = 0;
    for (const char *c = line + 1; *c != '\n'; c++) bars += *c == '|';
    assert_int_equal(bars, 8);
    line = strstr(line + 1, "\n| `");
  }
  assert_int_equal(rows, count);
  plm_text_deinit(&text);
}

static void ranges_are_said(void **state)
{
  static const struct {
    double min, max;
    unsigned flags, count_min, count_max;
    const char *expected;
  } rows[] = {
      {0, 0, 0, 0, 0, ""},
      {1, 5, 0, 0, 0, "1 to 5"},
      {1, 5, PLM_SETTING_ABOVE_MIN, 0, 0, "above 1, at most 5"},
      {1, 5, PLM_SETTING_BELOW_MAX, 0, 0, "at least 1, below 5"},
      {1, 5, PLM_SETTING_ABOVE_MIN | PLM_SETTING_BELOW_MAX, 0, 0, "above 1, below 5"},
      {0, 0, 0, 1, 3, "1 to 3 entries"},
      {0, 0, 0, 1, 2, "1 to 2 entries"},
      {0, 0, 0, 3, 3, ""},
      {1, 5, 0, 0, 2, "1 to 5; 0 to 2 entries"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_setting setting = {.key = "a.b",
                                        .type = PLM_SETTING_DOUBLE,
                                        .min = rows[i].min,
                                        .max = rows[i].max,
                                        .flags = rows[i].flags,
                                        .count_min = rows[i].count_min,
                                        .count_max = rows[i].count_max};
    struct plm_text text = {0};
    plm_text_puts(&text, "");
    plm_setting_put_range(&text, &setting);
    assert_string_equal(text.data, rows[i].expected);
    plm_text_deinit(&text);
  }
}

static void a_section_ends_at_the_last_dot(void **state)
{
  static const struct {
    const char *key, *other;
    bool same;
  } rows[] = {{"run", "corpus", true},  {"a.b", "a.c", true},    {"a.b", "ab.c", false},
              {"a.b", "b", false},      {"a.b.c", "a.b", false}, {"a.b.c", "a.b.d", true},
              {"a.b.c", "a.c.c", false}};
  (void)state;
  assert_int_equal(plm_setting_section_length("run"), 0);
  assert_int_equal(plm_setting_section_length("a.b.c"), 3);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(plm_setting_same_section(rows[i].key, rows[i].other), rows[i].same);
    assert_int_equal(plm_setting_same_section(rows[i].other, rows[i].key), rows[i].same);
  }
}

/* Each section begins once, with its first row. */
static void each_section_begins_once(void **state)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  (void)state;
  assert_true(plm_setting_begins_section(0));
  for (size_t i = 1; i < count; i++) {
    bool before = false;
    for (size_t j = 0; j < i; j++)
      before = before || plm_setting_same_section(table[j].key, table[i].key);
    assert_int_equal(plm_setting_begins_section(i), !before);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_page_is_that_of_the_manual),
      cmocka_unit_test(each_row_has_seven_cells),
      cmocka_unit_test(ranges_are_said),
      cmocka_unit_test(a_section_ends_at_the_last_dot),
      cmocka_unit_test(each_section_begins_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
