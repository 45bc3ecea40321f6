/* The grid of a sweep: how values are split, in which order they are combined, how runs are named,
 * and what is refused. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "stages/commands/sweep_grid.h"

static void values_are_split_outside_brackets(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    const char *values[4];
  } cases[] = {
      {"1e-3", {"1e-3"}},
      {"1e-3,3e-4", {"1e-3", "3e-4"}},
      {" 1 , 2 ", {"1", "2"}},
      {"[0.1,0.2]", {"[0.1,0.2]"}},
      {"[0.1,0.2],[0.3],[]", {"[0.1,0.2]", "[0.3]", "[]"}},
      {"[{name: a, corpus: b}],[[1,2],3]", {"[{name: a, corpus: b}]", "[[1,2],3]"}},
      {"{name: muon, lr: 1},{name: adamw}", {"{name: muon, lr: 1}", "{name: adamw}"}},
      {"\"a,b\",'c,]d',e", {"\"a,b\"", "'c,]d'", "e"}},
      {"a],b", {"a]", "b"}}, /* wrong, which the configuration says */
      {"'',null", {"''", "null"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct plm_config_override set = {"key", cases[i].text};
    struct plm_sweep_grid grid;
    size_t count = 0;
    assert_int_equal(plm_sweep_grid_make(&set, 1, &grid, NULL), PLM_OK);
    while (count < 4 && cases[i].values[count] != NULL) count++;
    if (grid.runs != count || grid.axes[0].count != count)
      fail_msg("%s: %zu values", cases[i].text, grid.axes[0].count);
    for (size_t k = 0; k < count; k++) {
      assert_string_equal(grid.axes[0].values[k], cases[i].values[k]);
      assert_string_equal(plm_sweep_value(&grid, k, 0), cases[i].values[k]);
    }
    plm_sweep_grid_deinit(&grid);
  }
}

static void the_last_key_varies_fastest(void **state)
{
  (void)state;
  static const struct plm_config_override sets[] = {
      {"trainer.optimizer.lr_hidden", "1e-3,3e-4"},
      {"seed", "7"}, /* does not vary, so that no name has it */
      {"model.hidden_size", "64,128,256"}};
  static const char *const names[] = {
      "lr_hidden=1e-3,hidden_size=64",  "lr_hidden=1e-3,hidden_size=128",
      "lr_hidden=1e-3,hidden_size=256", "lr_hidden=3e-4,hidden_size=64",
      "lr_hidden=3e-4,hidden_size=128", "lr_hidden=3e-4,hidden_size=256"};
  struct plm_sweep_grid grid;
  char name[PLM_SWEEP_NAME_SIZE];
  assert_int_equal(plm_sweep_grid_make(sets, 3, &grid, NULL), PLM_OK);
  assert_int_equal(grid.runs, 6);
  for (size_t i = 0; i < 6; i++) {
    plm_sweep_name(&grid, i, name);
    assert_string_equal(name, names[i]);
    assert_string_equal(plm_sweep_value(&grid, i, 0), i < 3 ? "1e-3" : "3e-4");
    assert_string_equal(plm_sweep_value(&grid, i, 1), "7");
  }
  plm_sweep_grid_deinit(&grid);
}

static void name_of(const struct plm_config_override *sets, size_t count, size_t run,
                    char name[PLM_SWEEP_NAME_SIZE])
{
  struct plm_sweep_grid grid;
  assert_int_equal(plm_sweep_grid_make(sets, count, &grid, NULL), PLM_OK);
  plm_sweep_name(&grid, run, name);
  plm_sweep_grid_deinit(&grid);
}

static void names_are_plain_and_differ(void **state)
{
  (void)state;
  char name[PLM_SWEEP_NAME_SIZE], other[PLM_SWEEP_NAME_SIZE];
  name_of(NULL, 0, 0, name);
  assert_string_equal(name, "run");
  static const struct plm_config_override lists[] = {{"evaluator.mask_rates", "[0.1, 0.2],../x"}};
  name_of(lists, 1, 0, name);
  assert_string_equal(name, "mask_rates=_0.1__0.2_");
  name_of(lists, 1, 1, name);
  assert_string_equal(name, "mask_rates=.._x");
  /* the same last word: the whole keys */
  static const struct plm_config_override threads[] = {{"trainer.threads", "1,2"},
                                                       {"evaluator.threads", "3,4"}};
  name_of(threads, 2, 1, name);
  assert_string_equal(name, "trainer.threads=1,evaluator.threads=4");
  /* but not for one that does not vary */
  static const struct plm_config_override fixed[] = {{"trainer.threads", "1,2"},
                                                     {"evaluator.threads", "3"}};
  name_of(fixed, 2, 1, name);
  assert_string_equal(name, "threads=2");
  /* values that look the same once they are plain */
  static const struct plm_config_override alike[] = {{"run_name", "a b,a/b,a_c"}};
  name_of(alike, 1, 0, name);
  assert_string_equal(name, "run_name=a_b,run=1");
  name_of(alike, 1, 1, name);
  assert_string_equal(name, "run_name=a_b,run=2");
  name_of(alike, 1, 2, name);
  assert_string_equal(name, "run_name=a_c");
  /* the longest that fits, and one byte more */
  for (int length = 195; length <= 196; length++) {
    char text[512];
    snprintf(text, sizeof text, "%0*d,%0*d", length, 1, length, 2);
    const struct plm_config_override sets[] = {{"key", text}};
    name_of(sets, 1, 0, name);
    name_of(sets, 1, 1, other);
    assert_string_not_equal(name, other);
    assert_true(strlen(name) < PLM_SWEEP_NAME_SIZE);
    assert_int_equal(strstr(name, ",run=1") != NULL, length == 196);
    assert_int_equal(strlen(name) == PLM_SWEEP_NAME_SIZE - 1, length == 195);
  }
}

/* Nothing is written beyond the end of a name, whatever follows the value that does not fit. */
static void long_values_are_cut_off(void **state)
{
  enum { GUARD = 1000 };
  char text[700], guarded[PLM_SWEEP_NAME_SIZE + GUARD];
  (void)state;
  snprintf(text, sizeof text, "%0*d,%0*d", 300, 1, 300, 2);
  const struct plm_config_override sets[] = {{"key", text}, {"seed", "7,8"}};
  memset(guarded, '~', sizeof guarded);
  name_of(sets, 2, 3, guarded);
  assert_string_equal(guarded + PLM_SWEEP_NAME_SIZE - 16, ",run=4");
  for (size_t i = 0; i < GUARD; i++) assert_int_equal(guarded[PLM_SWEEP_NAME_SIZE + i], '~');
}

static void what_is_refused(void **state)
{
  (void)state;
  static const struct {
    struct plm_config_override sets[2];
    const char *what;
  } cases[] = {
      {{{"seed", "1,"}, {"seed", "1"}}, "--set seed: a value is empty"},
      {{{"seed", ""}, {"seed", "1"}}, "--set seed: a value is empty"},
      {{{"seed", "1, ,2"}, {"seed", "1"}}, "--set seed: a value is empty"},
      {{{"seed", "1,2, 1"}, {"a", "1"}}, "--set seed: 1 is there twice"},
      {{{"seed", "1"}, {"seed", "2"}}, "--set seed is given twice"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_sweep_grid grid;
    struct plm_error error = {0};
    assert_int_equal(plm_sweep_grid_make(cases[i].sets, 2, &grid, &error), PLM_USAGE);
    assert_string_equal(error.what, cases[i].what);
    plm_sweep_grid_deinit(&grid);
  }
  for (int most = 0; most <= 1; most++) { /* 1000 runs, and 1001 */
    struct plm_text text = {0};
    struct plm_sweep_grid grid;
    for (int i = 0; i < PLM_SWEEP_MOST_RUNS + most; i++)
      plm_text_printf(&text, "%s%d", i > 0 ? "," : "", i);
    const struct plm_config_override set = {"seed", text.data};
    assert_int_equal(plm_sweep_grid_make(&set, 1, &grid, NULL), most ? PLM_USAGE : PLM_OK);
    plm_sweep_grid_deinit(&grid);
    plm_text_deinit(&text);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_split_outside_brackets),
      cmocka_unit_test(the_last_key_varies_fastest),
      cmocka_unit_test(names_are_plain_and_differ),
      cmocka_unit_test(long_values_are_cut_off),
      cmocka_unit_test(what_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
