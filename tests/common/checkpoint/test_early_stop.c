/* Which reports of evaluator.jsonl count for early stopping, and which checkpoint is the best. */
#include <math.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/checkpoint/early_stop.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

#define LINE(step, split, loss) \
  "{\"step\": " step ", \"split\": \"" split "\", \"loss\": " loss "}\n"

static struct plm_early_stop read_text(const char *text, const struct plm_early_stop_rule *rule)
{
  char path[PLM_PATH_SIZE];
  struct plm_early_stop found;
  assert_int_equal(plm_path_join(path, scratch_directory(), "evaluator.jsonl", NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
  assert_int_equal(plm_early_stop_read(path, rule, &found, NULL), PLM_OK);
  return found;
}

static void the_best_is_found(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    uint64_t until;
    bool higher;
    uint32_t reported, since;
    uint64_t best_step;
    double best;
  } rows[] = {
      {"", 9, false, 0, 0, 0, NAN},
      {LINE("1", "valid", "3") LINE("2", "valid", "2") LINE("3", "valid", "2.5")
           LINE("4", "valid", "2"),
       9, false, 4, 2, 2, 2},
      {LINE("1", "valid", "3") LINE("2", "valid", "2") LINE("3", "valid", "2.5"), 9, true, 3, 2, 1,
       3},
      /* later steps, other splits, sets, null and what is no JSON do not count */
      {LINE("1", "valid", "3") LINE("2", "test", "1")
           LINE("3", "valid", "null") "nonsense\n" LINE("5", "valid", "1"),
       4, false, 1, 0, 1, 3},
      {LINE("1", "valid",
            "3") "{\"step\": 2, \"split\": \"valid\", \"set\": \"other\", \"loss\": 1}\n",
       9, false, 1, 0, 1, 3},
      /* the last line about a step counts, and lines may come in any order */
      {LINE("3", "valid", "1") LINE("1", "valid", "2") LINE("3", "valid", "4"), 9, false, 2, 1, 1,
       2},
      /* an unfinished line is not there yet */
      {LINE("1", "valid", "2") "{\"step\": 2, \"split\": \"valid\", \"loss\": 1}", 9, false, 1, 0,
       1, 2},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_early_stop_rule rule = {
        .split = "valid", .metric = "loss", .higher = rows[i].higher, .until = rows[i].until};
    const struct plm_early_stop found = read_text(rows[i].text, &rule);
    if (found.reported != rows[i].reported || found.since != rows[i].since ||
        found.best_step != rows[i].best_step ||
        !(found.best == rows[i].best || (isnan(found.best) && isnan(rows[i].best))))
      fail_msg("row %zu: %u reported, %u since step %llu with %g", i, found.reported, found.since,
               (unsigned long long)found.best_step, found.best);
  }
}

static void a_missing_file_reports_nothing(void **state)
{
  (void)state;
  struct plm_early_stop found;
  const struct plm_early_stop_rule rule = {.split = "valid", .metric = "loss", .until = 9};
  assert_int_equal(plm_early_stop_read("no/such/file", &rule, &found, NULL), PLM_OK);
  assert_int_equal(found.reported, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_best_is_found),
      cmocka_unit_test(a_missing_file_reports_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
