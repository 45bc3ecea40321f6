/* What is said of a stage that the system killed for lack of memory, with groups that the test
 * writes. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "stages/supervisor/stage/memory_kill.h"
#include "tests/support/cases/control_group.h"

static int begin(void **state)
{
  (void)state;
  control_group_begin();
  control_group_put("memory.events", "oom 9\noom_kill 3\n");
  return 0;
}

static void only_signal_9_after_another_kill_is_explained(void **state)
{
  (void)state;
  assert_int_equal(plm_memory_kills(), 3);
  assert_string_equal(plm_memory_kill_note(9, 3), "");
  assert_string_equal(plm_memory_kill_note(9, 4), "");
  assert_string_equal(plm_memory_kill_note(15, 2), "");
  assert_string_equal(plm_memory_kill_note(9, 2), ", probably for lack of memory");
}

static void the_hint_names_the_limit(void **state)
{
  (void)state;
  static const char end[] = "set a smaller trainer.micro_batch_tokens (`plm-pipeline up --dry-run` "
                            "shows what fits)\n";
  char expected[PLM_PATH_SIZE + 300];
  struct plm_text text = {0};
  plm_memory_kill_hint(&text);
  snprintf(expected, sizeof expected, "  use a machine with more memory, or %s", end);
  assert_string_equal(text.data, expected);
  plm_text_clear(&text);
  control_group_put("memory.max", "120000000\n");
  control_group_put("memory.current", "0\n");
  plm_memory_kill_hint(&text);
  snprintf(expected, sizeof expected,
           "  its control group may use 120.0 MB (%s): give the container more, or %s",
           control_group_folder, end);
  assert_string_equal(text.data, expected);
  plm_text_deinit(&text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_signal_9_after_another_kill_is_explained),
      cmocka_unit_test(the_hint_names_the_limit),
  };
  return cmocka_run_group_tests(tests, begin, NULL);
}
